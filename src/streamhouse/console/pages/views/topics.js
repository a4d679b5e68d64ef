// Topics: the list, and one topic with its partitions, records, segments, consumers and settings.
import { html, useEffect } from "../lib/html.js";
import { get } from "../lib/api.js";
import { bytes, number, plural, settingValue } from "../lib/format.js";
import { useData } from "../lib/live.js";
import { go, href, setQuery, useQuery, useRoute } from "../lib/router.js";
import { Badge, Card, Loaded, PageHead, Search } from "../ui/parts.js";
import { Table } from "../ui/table.js";
import { createTopic } from "./topic_forms.js";
import { TopicPage } from "./topic.js";

const LIST_MS = 10000;

export const Page = ({ parts }) => (parts.length ? html`<${TopicPage} key=${parts[0]} name=${parts[0]} />` : html`<${TopicList} />`);

export const retention = (settings) => {
  if (settings["cleanup.policy"] === "compact") return "compacted";
  const time = settingValue("retention.ms", settings["retention.ms"]);
  const size = settingValue("retention.bytes", settings["retention.bytes"]);
  return [time, size].filter((each) => each && each !== "no limit").join(", ") || (settings["retention.ms"] === undefined ? "default" : "for ever");
};

function TopicList() {
  const [filter] = useQuery("q");
  const [internal] = useQuery("internal");
  const { query } = useRoute();
  const topics = useData((signal) => get("/v1/topics", { internal: internal ? "true" : "", sizes: "true" }, { signal }), [internal], LIST_MS);
  useEffect(() => {
    if (query.get("new") !== "1") return;
    setQuery({ new: "" }, { replace: true });
    createTopic();
  }, [query.get("new")]);
  const columns = [
    { id: "name", label: "Topic", value: (row) => row.name, cell: (row) => html`<a href=${href(["topics", row.name])}>${row.name}</a> ${row.internal && html`<${Badge}>internal</${Badge}>`}` },
    { id: "partitions", label: "Partitions", right: true, value: (row) => row.partitions, cell: (row) => number(row.partitions) },
    { id: "bytes", label: "Size", right: true, value: (row) => row.bytes ?? 0, cell: (row) => bytes(row.bytes) },
    { id: "retention", label: "Retention", value: (row) => retention(row.settings) },
    { id: "settings", label: "Own settings", right: true, value: (row) => Object.keys(row.settings).length },
    { id: "records", label: "", cell: (row) => html`<a href=${href(["topics", row.name], { tab: "records" })}>Records</a>` },
  ];
  return html`
    <${PageHead} title="Topics" about=${topics.data && `${plural(topics.data.topics.length, "topic")}, ${bytes(topics.data.topics.reduce((sum, each) => sum + (each.bytes ?? 0), 0))}`}
      actions=${html`<button type="button" class="button primary" onClick=${createTopic}>Create a topic</button>`} />
    <${Card} flush>
      <div class="toolbar"><${Search} placeholder="Filter topics" />
        <label class="check"><input type="checkbox" checked=${internal === "1"} onChange=${(event) => setQuery({ internal: event.target.checked ? "1" : "" })} /> Internal topics</label></div>
      <${Loaded} of=${topics}>${(data) => html`<${Table} label="Topics" columns=${columns} rows=${data.topics} rowKey=${(row) => row.name} filter=${filter}
        empty=${html`There are no topics yet. A producer creates one by writing to it, or <button type="button" class="button tiny" onClick=${createTopic}>create one</button>`} />`}</${Loaded}>
    </${Card}>`;
}
