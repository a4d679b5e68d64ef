// Topics: the list, and one topic with its partitions, records, segments, consumers and settings.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { get, path } from "../lib/api.js";
import { bytes, duration, number, plural, settingValue, short } from "../lib/format.js";
import { byLength, useData } from "../lib/live.js";
import { go, href, setQuery, useQuery, useRoute } from "../lib/router.js";
import { Badge, Card, Loaded, PageHead, Search } from "../ui/parts.js";
import { Table } from "../ui/table.js";
import { visible } from "../lib/session.js";
import { createTopic } from "./topic_forms.js";
import { TopicPage } from "./topic.js";

const LIST_MS = 10000;
const RATES_MS = 5000;
const WINDOW_MS = 120000;
const LEAST_MS = 30000;
const LAGS_MS = 30000;
const MAX_GROUPS = 20;

export const Page = ({ parts }) => (parts.length ? html`<${TopicPage} key=${parts[0]} name=${parts[0]} />` : html`<${TopicList} />`);

export const retention = (settings, defaults = {}) => {
  settings = { ...defaults, ...settings };
  if (settings["cleanup.policy"] === "compact") return "compacted";
  const time = settingValue("retention.ms", settings["retention.ms"]);
  const size = settingValue("retention.bytes", settings["retention.bytes"]);
  return [time, size].filter((each) => each && each !== "no limit").join(", ") || (settings["retention.ms"] === undefined ? "default" : "for ever");
};

// Records per second of each topic over the last two minutes. What another agent leads counts when it is flushed, so the
// rate is unknown until that has had its time.
function useTraffic() {
  const partitions = useData((signal) => get("/v1/partitions", {}, { signal }), [], (data) => byLength(RATES_MS, data?.partitions));
  const looks = useRef([]);
  const [rates, setRates] = useState(new Map());
  useEffect(() => {
    if (!partitions.data) return;
    const ends = new Map();
    for (const each of partitions.data.partitions) ends.set(each.topic, (ends.get(each.topic) ?? 0) + (each.high_watermark ?? each.flushed_end));
    const now = { at: performance.now(), ends };
    looks.current = [...looks.current.filter((each) => now.at - each.at <= WINDOW_MS), now];
    const then = looks.current[0];
    if (now.at - then.at < LEAST_MS) return;
    setRates(new Map([...ends].filter(([topic]) => then.ends.has(topic)).map(([topic, end]) => [topic, Math.max(0, end - then.ends.get(topic)) / ((now.at - then.at) / 1000)])));
  }, [partitions.data]);
  return rates;
}

// The longest lag of a group by topic, from what the agents measured last.
async function lagsByTopic(signal) {
  const { groups } = await get("/v1/lag", {}, { signal });
  const behind = groups.filter((each) => each.lag > 0).sort((a, b) => (b.lag_ms ?? 0) - (a.lag_ms ?? 0)).slice(0, MAX_GROUPS);
  const found = new Map();
  for (const { partitions } of await Promise.all(behind.map((each) => get(path("v1", "groups", each.group, "lag"), {}, { signal }))))
    for (const each of partitions) found.set(each.topic, Math.max(found.get(each.topic) ?? 0, each.lag_ms ?? 0));
  return found;
}

function TopicList() {
  const [filter] = useQuery("q");
  const [internal] = useQuery("internal");
  const { query } = useRoute();
  const topics = useData((signal) => get("/v1/topics", { internal: internal ? "true" : "", sizes: "true" }, { signal }), [internal], (data) => byLength(LIST_MS, data?.topics));
  const rates = useTraffic();
  const lags = useData(lagsByTopic, [], LAGS_MS);
  const known = useData((signal) => get("/v1/topic-settings", {}, { signal }));
  const defaults = Object.fromEntries((known.data?.settings ?? []).map((each) => [each.name, each.default]));
  useEffect(() => {
    if (query.get("new") !== "1") return;
    setQuery({ new: "" }, { replace: true });
    createTopic();
  }, [query.get("new")]);
  const columns = [
    { id: "name", label: "Topic", value: (row) => row.name, cell: (row) => html`<a class="name" href=${href(["topics", row.name])}>${row.name}</a> ${row.internal && html`<${Badge}>internal</${Badge}>`}` },
    { id: "partitions", label: "Partitions", right: true, minor: true, value: (row) => row.partitions, cell: (row) => number(row.partitions) },
    { id: "bytes", label: "Size", right: true, value: (row) => row.bytes ?? 0, cell: (row) => bytes(row.bytes) },
    { id: "retention", label: "Retention", minor: true, value: (row) => retention(row.settings, defaults) },
    { id: "rate", label: "Records/s", right: true, value: (row) => rates.get(row.name) ?? -1, cell: (row) => (rates.has(row.name) ? short(rates.get(row.name)) : html`<span class="muted" title="Known after half a minute">…</span>`) },
    { id: "lag", label: "Longest lag", right: true, value: (row) => lags.data?.get(row.name) ?? -1, cell: (row) => (lags.data?.has(row.name) ? duration(lags.data.get(row.name)) : "–") },
    { id: "settings", label: "Own settings", right: true, minor: true, value: (row) => Object.keys(row.settings).length },
    { id: "records", label: "", cell: (row) => html`<a href=${href(["topics", row.name], { tab: "records" })}>Records</a>` },
  ];
  return html`
    <${PageHead} title="Topics" about=${topics.data && `${plural(topics.data.topics.length, "topic")}, ${bytes(topics.data.topics.reduce((sum, each) => sum + (each.bytes ?? 0), 0))}`}
      actions=${html`<button type="button" class="write button primary" onClick=${createTopic}>Create a topic</button>`} />
    <${Card} flush>
      <div class="toolbar"><${Search} placeholder="Filter topics" />
        <label class="check"><input type="checkbox" checked=${internal === "1"} onChange=${(event) => setQuery({ internal: event.target.checked ? "1" : "" })} /> Internal topics</label></div>
      <${Loaded} of=${topics}>${(data) => html`<${Table} label="Topics" columns=${columns} rows=${data.topics} rowKey=${(row) => row.name} filter=${filter}
        empty=${html`There are no topics${visible()} yet. A producer creates one by writing to it, or <button type="button" class="write button tiny" onClick=${createTopic}>create one</button>`} />`}</${Loaded}>
    </${Card}>`;
}
