// Pipelines: the list with a graph of what reads and writes what, and one pipeline.
import { html } from "../lib/html.js";
import { get, path, post, remove } from "../lib/api.js";
import { ago, bytes, duration, number, plural, short, time } from "../lib/format.js";
import { useData } from "../lib/live.js";
import { sourcesOf } from "../lib/pipelines.js";
import { go, href, useQuery } from "../lib/router.js";
import { visible } from "../lib/session.js";
import { confirm } from "../ui/dialogs.js";
import { Graph } from "../ui/graph.js";
import { Badge, Card, Failure, Loaded, Notice, PageHead, Search, Tile } from "../ui/parts.js";
import { Table } from "../ui/table.js";
import { toast } from "../ui/toasts.js";
import { Versions } from "./pipeline_versions.js";

const LIVE_MS = 4000;
const KINDS = { running: "ok", waiting: "", starting: "info", failed: "bad", paused: "warn", "backing off": "warn", done: "info" };

export const Page = ({ parts }) => (parts.length ? html`<${PipelinePage} key=${parts[0]} name=${parts[0]} />` : html`<${PipelineList} />`);
export const Phase = ({ of }) => html`<${Badge} kind=${KINDS[of.status.phase] ?? ""}>${of.wish === "pause" && of.status.phase !== "paused" ? `${of.status.phase}, to be paused` : of.status.phase}</${Badge}>`;

function graphOf(pipelines, topics, views) {
  const isView = new Set(views.map((each) => each.name));
  const isTopic = new Set(topics.map((each) => each.name));
  const nodes = new Map();
  const edges = [];
  const data = (name) => {
    const kind = isView.has(name) ? "view" : isTopic.has(name) ? "topic" : "table";
    nodes.set(`data/${name}`, { id: `data/${name}`, text: name, kind, href: href(kind === "topic" ? ["topics", name] : ["tables", name]) });
    return `data/${name}`;
  };
  for (const each of pipelines) {
    const id = `pipeline/${each.name}`;
    nodes.set(id, { id, text: each.name, kind: `pipeline, ${each.status.phase}`, href: href(["pipelines", each.name]), isStrong: true });
    for (const source of sourcesOf(each)) edges.push([data(source), id]);
    const target = each.target || (isView.has(each.name) ? each.name : "");
    if (target) edges.push([id, data(target)]);
  }
  return { nodes: [...nodes.values()], edges };
}

async function load(signal) {
  const [pipelines, topics, views, supervisors] = await Promise.all([
    get("/v1/pipelines", {}, { signal }), get("/v1/topics", {}, { signal }), get("/v1/views", {}, { signal }),
    get("/v1/supervisors", {}, { signal }).catch(() => null)]);
  return { pipelines: pipelines.pipelines, topics: topics.topics, views: views.views, supervisors: supervisors?.supervisors ?? null };
}

function PipelineList() {
  const [filter] = useQuery("q");
  const all = useData(load, [], LIVE_MS);
  const columns = [
    { id: "name", label: "Pipeline", value: (row) => row.name, cell: (row) => html`<a class="name" href=${href(["pipelines", row.name])}>${row.name}</a>` },
    { id: "phase", label: "State", value: (row) => row.status.phase, cell: (row) => html`<${Phase} of=${row} />` },
    { id: "kind", label: "Kind", value: (row) => row.kind },
    { id: "target", label: "Writes", value: (row) => row.target || "–" },
    { id: "rate", label: "Rows/s", right: true, value: (row) => row.status.processed_rate ?? -1, cell: (row) => short(row.status.processed_rate) },
    { id: "lag", label: "Lag", right: true, value: (row) => row.status.lag_records ?? -1, cell: (row) => number(row.status.lag_records) },
    { id: "dead", label: "Dead letters", right: true, value: (row) => row.status.dead_letters, cell: (row) => html`<${DeadLetters} of=${row} />` },
    { id: "error", label: "Last error", fill: true, value: (row) => row.status.error ?? "", cell: (row) => html`<span class="clip">${row.status.error ?? ""}</span>` },
  ];
  return html`<${PageHead} title="Pipelines" about=${all.data && `${plural(all.data.pipelines.length, "pipeline")}${all.data.supervisors ? ` · ${plural(all.data.supervisors.length, "supervisor")}` : ""}`}
      actions=${html`<a class="button primary" href=${href(["sql"], { text: "CREATE PIPELINE large AS INSERT INTO large_orders\nSELECT * FROM STREAM(orders) WHERE amount > 100" })}>Write one in SQL</a>`} />
    <${Loaded} of=${all}>${(data) => html`
      ${data.supervisors?.length === 0 && html`<${Notice} kind="warn">No supervisor is running, so no pipeline runs. Start one with <code>streamhouse pipelines run</code>.</${Notice}>`}
      ${data.pipelines.length > 0 && html`<${Card} title="What reads and writes what"><${Graph} label="Pipelines with their sources and targets" ...${graphOf(data.pipelines, data.topics, data.views)} /></${Card}>`}
      <${Card} flush><div class="toolbar"><${Search} placeholder="Filter pipelines" /></div>
        <${Table} label="Pipelines" columns=${columns} rows=${data.pipelines} rowKey=${(row) => row.name} filter=${filter} empty=${`There are no pipelines${visible()} yet. CREATE PIPELINE on the SQL page makes one.`} /></${Card}>`}</${Loaded}>`;
}

function PipelinePage({ name }) {
  const pipeline = useData((signal) => get(path("v1", "pipelines", name), {}, { signal }), [name], LIVE_MS);
  const events = useData((signal) => get(path("v1", "pipelines", name, "events"), { limit: 200 }, { signal }), [name], LIVE_MS);
  const act = async (action, title, about, body = {}) => {
    if (await confirm({ title, about, action: title.split(" ")[0].replace("?", ""), run: () => post(path("v1", "pipelines", name, action), body) })) {
      toast("Done; the pipeline follows within seconds.");
      pipeline.reload();
    }
  };
  const drop = async () => {
    const done = await confirm({ title: "Delete the pipeline?", danger: true, action: "Delete", type: name, about: "It stops, and its definition and offsets are forgotten. What it wrote stays.", run: () => remove(path("v1", "pipelines", name)) });
    if (done) go(href(["pipelines"]));
  };
  if (pipeline.error && !pipeline.data) return html`<${PageHead} title=${name} /><${Failure} error=${pipeline.error} />`;
  const isPaused = pipeline.data?.wish === "pause";
  return html`<${PageHead} title=${name} badge=${pipeline.data && html`<${Phase} of=${pipeline.data} />`}
      about=${pipeline.data && `${pipeline.data.kind} · revision ${pipeline.data.revision}, generation ${pipeline.data.generation} · changed ${ago(pipeline.data.changed_at_ms)}`}
      actions=${html`${isPaused ? html`<button type="button" class="write button" onClick=${() => act("resume", "Resume the pipeline?", "It goes on where it stopped.")}>Resume</button>`
        : html`<button type="button" class="write button" onClick=${() => act("pause", "Pause the pipeline?", "It stops after the batch that it is in, and keeps its offsets and state.")}>Pause</button>`}
        <button type="button" class="write button" onClick=${() => act("restart", "Restart the pipeline?", "It starts again at the same offsets.", { from: null })}>Restart</button>
        <button type="button" class="write button" onClick=${() => act("restart", "Restart from the beginning?", "A new generation reads its topics from their start, with empty state. Rows may be written again.", { from: "earliest" })}>From the beginning</button>
        <button type="button" class="write button danger" onClick=${drop}>Delete</button>`} />
    <${Loaded} of=${pipeline}>${(data) => html`<${Status} of=${data} /><div class="grid"><div class="span-7"><${Card} title="Definition"><pre class="code" tabindex="0">${data.text}</pre></${Card}></div>
      <div class="span-5"><${Facts} of=${data} /></div></div>`}</${Loaded}>
    <${Versions} name=${name} revision=${pipeline.data?.revision} />
    <${Card} title="Log" flush><${Loaded} of=${events}>${(data) => html`<${Table} label="Log" urlSort=${false} rows=${data.events.map((each, index) => ({ ...each, index })).reverse()} rowKey=${(row) => `${row.at_ms}/${row.index}`} empty="Nothing yet." columns=${[
      { id: "at", label: "Time", value: (row) => row.at_ms, cell: (row) => html`<span class="nowrap">${time(row.at_ms)}</span>` },
      { id: "level", label: "Level", value: (row) => row.level, cell: (row) => html`<${Badge} kind=${{ error: "bad", warning: "warn" }[row.level] ?? ""}>${row.level}</${Badge}>` },
      { id: "text", label: "Text", value: (row) => row.text, cell: (row) => html`<span class="break">${row.text}</span>` }]} />`}</${Loaded}></${Card}>`;
}

// The topic of records that a pipeline could not decode.
const deadLettersOf = ({ name, options }) => options.dead_letters ?? `${name}.dead-letters`;

function DeadLetters({ of }) {
  const count = of.status.dead_letters;
  return count ? html`<a class="nowrap" href=${href(["topics", deadLettersOf(of)], { tab: "records" })}><${Badge} kind="warn">${number(count)}</${Badge}></a>` : number(count);
}

function Status({ of }) {
  const { status } = of;
  return html`${status.error && html`<${Notice} kind="bad">${status.error}</${Notice}>`}
    <div class="tiles">
      <${Tile} label="Rows in" value=${short(status.input_rate)} unit="/s" note=${`${number(status.rows_in)} since the start`} />
      <${Tile} label="Processed" value=${short(status.processed_rate)} unit="/s" note=${`batch ${number(status.batch_id)} took ${duration(status.batch_ms)}`} />
      <${Tile} label="Lag" value=${number(status.lag_records)} unit="records" note=${status.watermark_ms ? `watermark ${time(status.watermark_ms)}` : "no watermark"} />
      <${Tile} label="State" value=${bytes(status.state_bytes)} note=${`${number(status.state_rows)} rows`} />
      <${Tile} label="Dead letters" value=${html`<${DeadLetters} of=${of} />`} note=${`${number(status.late_rows)} rows came too late`} />
      <${Tile} label="Restarts" value=${number(status.restarts)} note=${status.told_at_ms ? `last report ${ago(status.told_at_ms)}` : "no report yet"} />
    </div>`;
}

function Facts({ of }) {
  const link = String(of.status.progress?.ui ?? "");
  return html`<${Card} title="Details"><dl class="pair">
    <dt>Writes</dt><dd>${of.target || "–"}</dd><dt>Runs on</dt><dd>${of.owner ? `${of.owner.supervisor} (${of.owner.host}), epoch ${of.owner.epoch}` : "nobody yet"}</dd>
    <dt>Runs as</dt><dd>${of.runs_as ?? "–"}</dd><dt>Query</dt><dd class="mono">${of.query_id}</dd><dt>Starts at</dt><dd>${of.starting ?? "its offsets"}</dd><dt>Created</dt><dd>${time(of.created_at_ms)}</dd>
    ${Object.entries(of.options).map(([name, value]) => html`<dt key=${`${name}k`} class="mono">${name}</dt><dd key=${`${name}v`} class="mono">${value}</dd>`)}
    ${/^https?:/.test(link) && html`<dt>Spark</dt><dd><a href=${link} target="_blank" rel="noreferrer">Spark UI</a></dd>`}
    ${!Object.keys(of.options).length && html`<dt>Options</dt><dd>none</dd>`}
  </dl></${Card}>`;
}
