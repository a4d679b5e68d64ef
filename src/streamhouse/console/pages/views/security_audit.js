// Audit: who logged in, was refused, or changed something, as far as the audit topic has it.
import { html } from "../lib/html.js";
import { get } from "../lib/api.js";
import { plural, time } from "../lib/format.js";
import { useData } from "../lib/live.js";
import { offsetsOf, offsetsText, read, readPage } from "../lib/records.js";
import { href, setQuery, useQuery } from "../lib/router.js";
import { Badge, Card, Loaded, Notice, Search } from "../ui/parts.js";
import { Table } from "../ui/table.js";

const LIVE_MS = 5000;
const SHOWN = 500;
const OUTCOMES = { allowed: "ok", succeeded: "ok", denied: "bad", refused: "bad", failed: "bad" };

const isLoginOfAgent = (event) => event.kind === "login" && event.outcome === "allowed" && event.principal?.startsWith("Agent:");

async function load(upTo, signal) {
  const { settings } = await get("/v1/settings", {}, { signal });
  const value = (name) => settings.find((each) => each.name === name)?.value;
  if (value("security.audit") !== "topic") return { kept: value("security.audit"), events: [] };
  const topic = value("security.audit_topic");
  const { records, older } = await readPage({ topic, partition: "", from: "end", upTo: offsetsOf(upTo), limit: SHOWN }, signal);
  const events = records.map((each) => ({ at: each.timestamp_ms, place: `${each.partition}/${each.offset}`, ...(read(each.value).value ?? {}) }));
  return { kept: "topic", topic, events, older };
}

export function Audit() {
  const [filter] = useQuery("q");
  const [agents] = useQuery("agents");
  const [upTo] = useQuery("before");
  const audit = useData((signal) => load(upTo, signal), [upTo], upTo ? 0 : LIVE_MS);
  const columns = [
    { id: "at", label: "Time", value: (row) => row.at, cell: (row) => html`<span class="nowrap">${time(row.at)}</span>` },
    { id: "kind", label: "What", value: (row) => row.kind ?? "" },
    { id: "outcome", label: "Outcome", value: (row) => row.outcome ?? "", cell: (row) => html`<${Badge} kind=${OUTCOMES[row.outcome] ?? ""}>${row.outcome ?? "–"}</${Badge}>` },
    { id: "principal", label: "Who", value: (row) => row.principal ?? "", cell: (row) => html`<code class="break">${row.principal || "–"}</code>` },
    { id: "operation", label: "Operation", value: (row) => row.operation ?? "" },
    { id: "resource", label: "On", value: (row) => row.resource ?? "", cell: (row) => html`<span class="break">${row.resource ?? ""}</span>` },
    { id: "host", label: "From", value: (row) => row.host ?? "" },
    { id: "times", label: "Times", right: true, value: (row) => row.count ?? 1 },
  ];
  return html`<${Card} title=${upTo ? "Older audit events" : "The newest audit events"} flush><${Loaded} of=${audit}>${({ kept, topic, events, older }) => (kept === "topic" ? html`
    <div class="toolbar"><${Search} placeholder="Filter events" /><label class="check"><input type="checkbox" checked=${agents === "1"} onChange=${(event) => setQuery({ agents: event.target.checked ? "1" : "" })} /> Logins of agents</label>
      <a class="button tiny" href=${href(["topics", topic], { tab: "records" })}>The topic</a></div>
    <${Table} label="Audit events" urlSort=${false} columns=${columns} rows=${agents === "1" ? events : events.filter((each) => !isLoginOfAgent(each))} rowKey=${(row) => row.place} filter=${filter} empty=${events.length ? "Only logins of agents." : "No events yet."} />
    <div class="more row">${upTo && html`<button type="button" class="button tiny" onClick=${() => setQuery({ before: "" })}>Newest</button>`}
      ${older && html`<button type="button" class="button tiny" onClick=${() => setQuery({ before: offsetsText(older) })}>Older</button>`}<span class="muted small">of ${plural(events.length, "event")} that ${events.length === 1 ? "was" : "were"} read</span></div>`
    : html`<div class="body"><${Notice} kind="warn">${kept === "off" ? "Nothing is audited here." : "Audit events are in the agents' logs only."} With <code>security.audit=topic</code> they are also in a topic, and here.</${Notice}></div>`)}</${Loaded}></${Card}>`;
}
