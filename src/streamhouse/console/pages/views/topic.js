// One topic.
import { html } from "../lib/html.js";
import { get, path, remove } from "../lib/api.js";
import { bytes, duration, number, plural, time } from "../lib/format.js";
import { useData } from "../lib/live.js";
import { go, href, useQuery } from "../lib/router.js";
import { confirm } from "../ui/dialogs.js";
import { Badge, Card, Failure, Live, Loaded, PageHead, Tabs } from "../ui/parts.js";
import { Table } from "../ui/table.js";
import { toast } from "../ui/toasts.js";
import { Health } from "./groups.js";
import { Records } from "./records.js";
import { produceRecord } from "./produce.js";
import { Search } from "./search.js";
import { Segments } from "./segments.js";
import { TopicSettings, growTopic } from "./topic_forms.js";

const LIVE_MS = 3000;
const TABS = [["partitions", "Partitions"], ["records", "Records"], ["search", "Search"], ["consumers", "Consumers"], ["segments", "Segments"], ["settings", "Settings"]];

export function TopicPage({ name }) {
  const [tab] = useQuery("tab", "partitions");
  const topic = useData((signal) => get(path("v1", "topics", name), {}, { signal }), [name]);
  const deleteTopic = async () => {
    const done = await confirm({
      title: "Delete the topic?", danger: true, action: "Delete", type: name,
      about: "All its records are deleted. This can't be undone.",
      run: () => remove(path("v1", "topics", name)),
    });
    if (done) {
      toast(`Topic ${name} deleted.`);
      go(href(["topics"]));
    }
  };
  if (topic.error && !topic.data) return html`<${PageHead} title=${name} /><${Failure} error=${topic.error} />`;
  return html`
    <${PageHead} title=${name} badge=${topic.data?.internal && html`<${Badge}>internal</${Badge}>`}
      about=${topic.data && `${plural(topic.data.partitions, "partition")} · ${bytes(topic.data.bytes)} · created ${time(topic.data.created_at_ms)}`}
      actions=${html`<button type="button" class="write button" onClick=${() => produceRecord(name)}>Produce a record</button>
        <button type="button" class="write button" onClick=${() => topic.data && growTopic(topic.data, topic.reload)}>More partitions</button>
        <button type="button" class="write button danger" onClick=${deleteTopic}>Delete</button>`} />
    <${Tabs} label="Parts of the topic" active=${tab} tabs=${TABS.map(([id, label]) => ({ id, label, href: href(["topics", name], { tab: id === "partitions" ? "" : id }) }))} />
    ${tab === "partitions" && html`<${Partitions} name=${name} />`}
    ${tab === "records" && html`<${Records} key=${name} topic=${name} partitions=${topic.data?.partitions} />`}
    ${tab === "search" && html`<${Search} topic=${name} />`}
    ${tab === "consumers" && html`<${Consumers} name=${name} />`}
    ${tab === "segments" && html`<${Segments} topic=${name} />`}
    ${tab === "settings" && topic.data && html`<${TopicSettings} topic=${topic.data} onChanged=${topic.reload} />`}`;
}

function Partitions({ name }) {
  const partitions = useData((signal) => get(path("v1", "topics", name, "partitions"), {}, { signal }), [name], LIVE_MS);
  const columns = [
    { id: "partition", label: "Partition", value: (row) => row.partition, cell: (row) => html`<a href=${href(["topics", name], { tab: "records", partition: row.partition })}>${row.partition}</a>` },
    { id: "leader", label: "Leader", value: (row) => row.leader ?? -1, cell: (row) => html`<span class="nowrap">${row.leader === null ? html`<${Badge}>no lease</${Badge}>` : `Agent ${row.leader}`} ${row.pinned_to !== null && html`<${Badge}>pinned</${Badge}>`}</span>` },
    { id: "start", label: "Log start", right: true, minor: true, value: (row) => row.log_start, cell: (row) => number(row.log_start) },
    { id: "flushed", label: "In segments up to", right: true, minor: true, value: (row) => row.flushed_end, cell: (row) => number(row.flushed_end) },
    { id: "end", label: "End", right: true, value: (row) => row.high_watermark ?? -1, cell: (row) => number(row.high_watermark) },
    { id: "records", label: "Offsets", right: true, value: (row) => (row.high_watermark ?? row.log_start) - row.log_start, cell: (row) => (row.high_watermark === null ? "–" : number(row.high_watermark - row.log_start)) },
    { id: "bytes", label: "Size", right: true, value: (row) => row.bytes, cell: (row) => bytes(row.bytes) },
    { id: "epoch", label: "Epoch", right: true, minor: true, value: (row) => row.epoch },
    { id: "lease", label: "Lease", right: true, minor: true, value: (row) => row.lease_expires_in_ms ?? -1, cell: (row) => (row.lease_expires_in_ms === null ? "–" : duration(row.lease_expires_in_ms)) },
  ];
  return html`<${Card} title="Partitions" flush actions=${html`<${Live} error=${partitions.error} />`}>
    <${Loaded} of=${partitions}>${(data) => html`<${Table} label="Partitions" columns=${columns} rows=${data.partitions} rowKey=${(row) => row.partition} />`}</${Loaded}></${Card}>`;
}

const MAX_GROUPS = 50;

async function consumersOf(topic, signal) {
  const { groups } = await get("/v1/groups", {}, { signal });
  const lags = await Promise.all(groups.slice(0, MAX_GROUPS).map(async (group) => {
    const lag = await get(path("v1", "groups", group.group, "lag"), {}, { signal }).catch(() => null);
    const own = (lag?.partitions ?? []).filter((each) => each.topic === topic);
    return own.length ? { ...group, partitions: own.length, lag: own.reduce((sum, each) => sum + (each.lag ?? 0), 0), lag_ms: own.reduce((most, each) => (each.lag_ms === null ? most : Math.max(most ?? 0, each.lag_ms)), null), health: lag.health } : null;
  }));
  return { rows: lags.filter(Boolean), isCut: groups.length > MAX_GROUPS };
}

function Consumers({ name }) {
  const groups = useData((signal) => consumersOf(name, signal), [name], 4 * LIVE_MS);
  const columns = [
    { id: "group", label: "Group", value: (row) => row.group, cell: (row) => html`<a class="name" href=${href(["groups", row.group])}>${row.group}</a>` },
    { id: "state", label: "State", minor: true, value: (row) => row.state },
    { id: "partitions", label: "Partitions", right: true, minor: true, value: (row) => row.partitions },
    { id: "health", label: "Health", value: (row) => row.health, cell: (row) => html`<${Health} of=${row.health} />` },
    { id: "lag", label: "Lag here, records", right: true, value: (row) => row.lag, cell: (row) => number(row.lag) },
    { id: "time", label: "Lag here, time", right: true, value: (row) => row.lag_ms ?? -1, cell: (row) => duration(row.lag_ms) },
  ];
  return html`<${Card} title="Consumer groups that read this topic" flush><${Loaded} of=${groups}>${(data) => html`
    <${Table} label="Consumers" columns=${columns} rows=${data.rows} rowKey=${(row) => row.group} empty="No group has committed offsets of this topic." />
    ${data.isCut && html`<p class="more muted">Only the first ${MAX_GROUPS} groups were looked at.</p>`}`}</${Loaded}></${Card}>`;
}
