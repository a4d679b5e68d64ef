// Agents: who is there, which partitions each one leads, and leases as they move.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { get, path, post, remove } from "../lib/api.js";
import { bytes, duration, number, percent, plural, time } from "../lib/format.js";
import { byLength, useData } from "../lib/live.js";
import { rate, total, useMetrics } from "../lib/metrics.js";
import { href } from "../lib/router.js";
import { confirm } from "../ui/dialogs.js";
import { Badge, Card, Live, Loaded, PageHead } from "../ui/parts.js";
import { Table } from "../ui/table.js";
import { toast } from "../ui/toasts.js";

const LIVE_MS = 3000;
const LEASES_MS = 2000;
const MOVES_KEPT = 100;
const MAX_LEASES = 2000;
const STATES = { live: "ok", draining: "info", expired: "bad", recovering: "warn" };

export function Page() {
  const agents = useData((signal) => get("/v1/agents", {}, { signal }), [], LIVE_MS);
  const leases = useData((signal) => get("/v1/partitions", {}, { signal }), [], (data) => byLength(LEASES_MS, data?.partitions));
  const metrics = useMetrics();
  const drain = async (row, on) => {
    const done = await confirm({
      title: on ? `Drain agent ${row.node}?` : `Let agent ${row.node} take partitions again?`, danger: on, action: on ? "Drain" : "Undrain",
      about: on ? "It hands over all its partitions to others and takes no new ones. Producers and consumers follow by themselves." : "It takes its share again.",
      run: () => (on ? post : remove)(path("v1", "agents", String(row.node), "drain")),
    });
    if (done) {
      toast(on ? "The agent hands its partitions over." : "The agent takes partitions again.");
      agents.reload();
    }
  };
  return html`<${PageHead} title="Agents" about=${agents.data && `${plural(agents.data.agents.length, "agent")} whose session has not ended`} actions=${html`<${Live} error=${agents.error} />`} />
    <${Loaded} of=${agents}>${(data) => html`<${AgentTable} agents=${data.agents} metrics=${metrics} onDrain=${drain} />`}</${Loaded}>
    <${Loaded} of=${leases}>${(data) => html`<${Leases} partitions=${data.partitions} agents=${agents.data?.agents ?? []} />`}</${Loaded}>`;
}

const perSecond = (value) => (value === null ? "–" : `${bytes(value)}/s`);

function AgentTable({ agents, metrics, onDrain }) {
  const [now, before] = [metrics.points.at(-1), metrics.points.at(-2)];
  const of = (row, name) => (now?.agents.has(row.node) ? total(now.agents.get(row.node).samples, name) : null);
  const speed = (row, name) => (now?.agents.has(row.node) && before ? rate({ agents: new Map([[row.node, now.agents.get(row.node)]]) }, before, name) : null);
  const columns = [
    { id: "node", label: "Agent", value: (row) => row.node, cell: (row) => html`<strong class="nowrap">Agent ${row.node}</strong> ${row.asked && html`<span class="muted small nowrap">this page's</span>`}${row.zone && html`<div class="muted small nowrap">${row.zone}</div>`}` },
    { id: "state", label: "State", value: (row) => row.state, cell: (row) => html`<${Badge} kind=${STATES[row.state]}>${row.state}</${Badge}>` },
    { id: "kafka", label: "Kafka, HTTP", value: (row) => row.kafka, cell: (row) => html`<div class="mono small">${row.kafka}<br />${row.http}</div>` },
    { id: "partitions", label: "Partitions", right: true, value: (row) => row.partitions, cell: (row) => number(row.partitions) },
    { id: "shards", label: "Group shards", right: true, value: (row) => row.shards },
    { id: "io", label: "Written, read", right: true, value: (row) => speed(row, "streamhouse_appended_bytes_total") ?? -1, cell: (row) => html`${perSecond(speed(row, "streamhouse_appended_bytes_total"))}<br />${perSecond(speed(row, "streamhouse_fetched_bytes_total"))}` },
    { id: "cpu", label: "CPU", right: true, value: (row) => speed(row, "process_cpu_seconds_total") ?? -1, cell: (row) => percent(speed(row, "process_cpu_seconds_total")) },
    { id: "memory", label: "Memory", right: true, value: (row) => of(row, "process_resident_memory_bytes") ?? -1, cell: (row) => bytes(of(row, "process_resident_memory_bytes")) },
    { id: "lease", label: "Session ends in", right: true, value: (row) => row.expires_in_ms, cell: (row) => (row.expires_in_ms > 0 ? duration(row.expires_in_ms) : "expired") },
    { id: "drain", label: "", cell: (row) => row.state === "draining" ? html`<button type="button" class="write button tiny" onClick=${() => onDrain(row, false)}>Undrain</button>` : row.state === "live" && html`<button type="button" class="write button tiny" onClick=${() => onDrain(row, true)}>Drain</button>` },
  ];
  return html`<${Card} title="Agents" flush><${Table} label="Agents" columns=${columns} rows=${agents} rowKey=${(row) => row.session} /></${Card}>`;
}

const place = (each) => `${each.topic}/${each.partition}`;

// Which leases have another leader than when they were last looked at, newest first.
function useMoves(partitions) {
  const known = useRef(new Map());
  const [moves, setMoves] = useState([]);
  useEffect(() => {
    const before = known.current;
    const found = partitions.filter((each) => before.has(place(each)) && before.get(place(each)) !== each.leader)
      .map((each) => ({ at: Date.now(), place: place(each), topic: each.topic, from: before.get(place(each)), to: each.leader, epoch: each.epoch }));
    known.current = new Map(partitions.map((each) => [place(each), each.leader]));
    if (found.length) setMoves((earlier) => [...found, ...earlier].slice(0, MOVES_KEPT));
  }, [partitions]);
  return moves;
}

const named = (node) => (node === null ? "nobody" : `agent ${node}`);

function Leases({ partitions, agents }) {
  const moves = useMoves(partitions);
  const nodes = [...new Set([...agents.map((each) => each.node), ...partitions.map((each) => each.leader)])].filter((each) => each !== null).sort((a, b) => a - b);
  const lanes = [...nodes, null].map((node) => ({ node, zone: agents.find((each) => each.node === node)?.zone, held: partitions.filter((each) => each.leader === node) })).filter((each) => each.node !== null || each.held.length);
  const columns = [
    { id: "at", label: "When", value: (row) => row.at, cell: (row) => html`<span class="nowrap">${time(row.at)}</span>` },
    { id: "place", label: "Partition", value: (row) => row.place, cell: (row) => html`<a class="name" href=${href(["topics", row.topic])}>${row.place}</a>` },
    { id: "from", label: "From", value: (row) => named(row.from), cell: (row) => html`<span class="nowrap">${named(row.from)}</span>` },
    { id: "to", label: "To", value: (row) => named(row.to), cell: (row) => html`<span class="nowrap">${named(row.to)}</span>` },
    { id: "epoch", label: "Epoch", right: true, value: (row) => row.epoch },
  ];
  return html`<${Card} title="Leases" actions=${html`<span class="muted small">${plural(partitions.length, "partition")}; grey ones have no lease now</span>`}>
      <div class="stack">${lanes.map(({ node, zone, held }) => html`<div key=${String(node)} class="stack" style=${{ gap: "4px" }}><div class="row small"><strong>${node === null ? "No lease" : `Agent ${node}`}</strong>${zone && html`<span class="muted">${zone}</span>`}<span class="muted">${number(held.length)}</span></div>
        <div class="row" style=${{ gap: "3px" }}>${held.slice(0, MAX_LEASES).map((each) => html`<i key=${place(each)} title=${`${place(each)}, epoch ${each.epoch}`} style=${{ width: "11px", height: "11px", borderRadius: "3px", background: node === null ? "var(--line-strong)" : `var(--c${(nodes.indexOf(node) % 8) + 1})` }}></i>`)}</div></div>`)}</div></${Card}>
    <${Card} title="Leases that moved since this page was opened" flush><${Table} label="Moves" urlSort=${false} columns=${columns} rows=${moves} rowKey=${(row) => `${row.place}/${row.epoch}/${row.at}`} empty="None. When an agent dies or is drained, its partitions appear here with their new leaders." /></${Card}>`;
}
