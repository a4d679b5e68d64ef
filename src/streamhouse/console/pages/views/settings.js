// Settings of the agent behind this page: ours, and those by Kafka's names that can be changed while it runs.
import { html } from "../lib/html.js";
import { get } from "../lib/api.js";
import { settingValue } from "../lib/format.js";
import { useData } from "../lib/live.js";
import { href, useQuery, setQuery } from "../lib/router.js";
import { Badge, Breaking, Card, Loaded, PageHead, Search, Tabs } from "../ui/parts.js";
import { Table } from "../ui/table.js";

// Phones show the meaning below the name.
const Name = ({ row }) => html`<code class="setting"><${Breaking} text=${row.name} /></code><div class="muted small phone-only">${row.about}</div>`;

export function Page() {
  const [filter] = useQuery("q");
  const [tab] = useQuery("tab", "agent");
  const [changed] = useQuery("changed");
  const settings = useData((signal) => get("/v1/settings", {}, { signal }));
  const own = [
    { id: "name", label: "Setting", value: (row) => row.name, cell: (row) => html`<${Name} row=${row} />` },
    { id: "value", label: "Value", value: (row) => row.value, cell: (row) => html`<span class="mono break wide">${row.value || html`<span class="muted">empty</span>`}</span><div class="muted small">${settingValue(row.name, row.value)}</div>` },
    { id: "source", label: "Source", value: (row) => row.source, cell: (row) => (row.is_default ? html`<span class="muted">default</span>` : html`<${Badge} kind="info">${row.source}</${Badge}><div class="muted small mono break">${row.where}</div>`) },
    { id: "about", label: "Meaning", minor: true, value: (row) => row.about, cell: (row) => html`${row.about}<div class="muted small mono">${row.variable}</div>` },
  ];
  const kafka = [
    { id: "name", label: "Setting", value: (row) => row.name, cell: (row) => html`<${Name} row=${row} />` },
    { id: "value", label: "Value", value: (row) => row.value, cell: (row) => html`<span class="mono break wide">${row.value}</span><div class="muted small">${settingValue(row.name, row.value)}</div>` },
    { id: "source", label: "Source", value: (row) => row.source, cell: (row) => html`<${Badge} kind=${row.source.endsWith("agent") ? "info" : ""}>${row.source}</${Badge}>` },
    { id: "changeable", label: "Changeable", value: (row) => (row.read_only ? "no" : "yes") },
    { id: "about", label: "Meaning", minor: true, value: (row) => row.about },
  ];
  return html`<${PageHead} title="Settings" about=${settings.data && `Of agent ${settings.data.node}, which serves this page`} />
    <${Tabs} label="Kinds of settings" active=${tab} tabs=${[{ id: "agent", label: "Agent", href: href(["settings"]) }, { id: "kafka", label: "By Kafka's names", href: href(["settings"], { tab: "kafka" }) }]} />
    <${Card} flush><div class="toolbar"><${Search} placeholder="Filter settings" />
        ${tab === "agent" && html`<label class="check"><input type="checkbox" checked=${changed === "1"} onChange=${(event) => setQuery({ changed: event.target.checked ? "1" : "" })} /> Only what isn't the default</label>`}</div>
      <${Loaded} of=${settings}>${(data) => html`<${Table} key=${tab} label="Settings" filter=${filter} rowKey=${(row) => row.name} columns=${tab === "kafka" ? kafka : own}
        rows=${tab === "kafka" ? data.kafka : data.settings.filter((each) => !changed || !each.is_default)} />`}</${Loaded}></${Card}>`;
}
