// Tables of SQL: defined tables, topics, views with their rows, lake tables with their snapshots.
import { html } from "../lib/html.js";
import { get, path } from "../lib/api.js";
import { ago, bytes, duration, number, plural, short, time } from "../lib/format.js";
import { stringify } from "../lib/json.js";
import { useData } from "../lib/live.js";
import { sourcesOf } from "../lib/pipelines.js";
import { href, setQuery, useQuery } from "../lib/router.js";
import { Badge, Card, Failure, Loaded, PageHead, Search } from "../ui/parts.js";
import { Table } from "../ui/table.js";
import { Phase } from "./pipelines.js";

const LIST_MS = 10000;
const ROWS = 100;

export const Page = ({ parts }) => (parts.length ? html`<${TablePage} key=${parts[0]} name=${parts[0]} />` : html`<${TableList} />`);

const LAKE = new Set(["iceberg", "delta", "parquet"]);
const isWriterOf = (name) => (each) => (each.target || each.name) === name;
const pipelinesOf = (signal) => get("/v1/pipelines", {}, { signal }).then(({ pipelines }) => pipelines);

// What the pipeline that writes a lake table reported of its newest versions, the newest first; null without a report.
function lakeOf(name, pipelines) {
  const { status } = pipelines.filter(isWriterOf(name)).find((each) => each.status.progress?.versions?.length) ?? {};
  if (!status) return null;
  const versions = status.progress.versions;
  return { versions, rows: versions[0].rows, fresh_at_ms: status.lag_records === 0 ? status.told_at_ms : versions[0].at_ms };
}

async function load(signal) {
  const [tables, views, pipelines] = await Promise.all([get("/v1/tables", {}, { signal }), get("/v1/views", {}, { signal }), pipelinesOf(signal).catch(() => [])]);
  const byName = new Map(views.views.map((each) => [each.name, each]));
  return tables.tables.map((each) => ({ ...each, view: byName.get(each.name), contents: byName.get(each.name) ?? (LAKE.has(each.connector) ? lakeOf(each.name, pipelines) : null) }));
}

function TableList() {
  const [filter] = useQuery("q");
  const tables = useData(load, [], LIST_MS);
  const columns = [
    { id: "name", label: "Table", value: (row) => row.name, cell: (row) => html`<a class="name" href=${href(["tables", row.name])}>${row.name}</a>` },
    { id: "connector", label: "Is a", value: (row) => row.connector, cell: (row) => html`<${Badge} kind=${row.view ? "info" : ""}>${row.connector}</${Badge}>` },
    { id: "columns", label: "Columns", minor: true, value: (row) => (row.columns ?? []).map((each) => each.name).join(", "), cell: (row) => html`<span class="clip">${row.columns ? row.columns.map((each) => each.name).join(", ") : "inferred when read"}</span>` },
    { id: "rows", label: "Rows", right: true, value: (row) => row.contents?.rows ?? -1, cell: (row) => number(row.contents?.rows) },
    { id: "fresh", label: "Fresh as of", right: true, value: (row) => row.contents?.fresh_at_ms ?? 0, cell: (row) => (row.contents ? ago(row.contents.fresh_at_ms) : "–") },
    { id: "sql", label: "", cell: (row) => html`<a href=${href(["sql"], { text: `SELECT * FROM \`${row.name}\` LIMIT 100` })}>Query</a>` },
  ];
  return html`<${PageHead} title="Tables" about=${tables.data && `${plural(tables.data.length, "table")}: definitions, lake tables, topics without a definition, and views`} />
    <${Card} flush><div class="toolbar"><${Search} placeholder="Filter tables" /></div>
      <${Loaded} of=${tables}>${(rows) => html`<${Table} label="Tables" columns=${columns} rows=${rows} rowKey=${(row) => row.name} filter=${filter} empty="There are no tables yet; each topic is one." />`}</${Loaded}></${Card}>`;
}

function TablePage({ name }) {
  const table = useData((signal) => get(path("v1", "tables", name), {}, { signal }), [name]);
  const view = useData((signal) => get("/v1/views", {}, { signal }).then(({ views }) => views.find((each) => each.name === name) ?? null), [name], LIST_MS);
  if (table.error && !table.data) return html`<${PageHead} title=${name} /><${Failure} error=${table.error} />`;
  return html`<${PageHead} title=${name} badge=${table.data && html`<${Badge}>${table.data.connector}</${Badge}>`} about=${view.data && `${number(view.data.rows)} rows, fresh as of ${ago(view.data.fresh_at_ms)}`}
      actions=${html`<a class="button primary" href=${href(["sql"], { text: `SELECT * FROM \`${name}\` LIMIT 100` })}>Query it</a>${table.data?.connector === "topic" && html`<a class="button" href=${href(["topics", name])}>Topic</a>`}`} />
    <${Loaded} of=${table}>${(data) => html`<div class="grid"><div class="span-7"><${Card} title="Columns" flush><${Table} label="Columns" urlSort=${false} rows=${data.columns ?? []} rowKey=${(row) => row.name} empty="Inferred from the records when the table is read."
        columns=${[{ id: "name", label: "Column", value: (row) => row.name, cell: (row) => html`<code>${row.name}</code> ${data.key.includes(row.name) && html`<${Badge} kind="info">key</${Badge}>`}` }, { id: "type", label: "Type", value: (row) => row.type, cell: (row) => html`<code class="break">${row.type}</code>` }]} /></${Card}></div>
      <div class="span-5"><${Card} title="Definition"><div class="stack">${data.text && html`<pre class="code" tabindex="0">${data.text}</pre>`}<dl class="pair">${Object.entries(data.options).map(([option, value]) => html`<dt key=${`${option}k`} class="mono">${option}</dt><dd key=${`${option}v`} class="mono">${value}</dd>`)}</dl>${!data.text && !Object.keys(data.options).length && html`<p class="muted">None: the topic as it is.</p>`}</div></${Card}></div></div>`}</${Loaded}>
    ${LAKE.has(table.data?.connector) && html`<${Snapshots} name=${name} />`}
    <${Users} name=${name} />
    ${view.data && html`<${Rows} view=${view.data} />`}`;
}

// The newest versions of a lake table, as the pipeline that writes it reported them.
function Snapshots({ name }) {
  const lake = useData((signal) => pipelinesOf(signal).then((pipelines) => ({ found: lakeOf(name, pipelines) })), [name], LIST_MS);
  const found = lake.data?.found;
  const newest = found?.versions[0];
  const columns = [
    { id: "at", label: "Committed", value: (row) => row.at_ms, cell: (row) => html`<span class="nowrap">${time(row.at_ms)}</span>` },
    { id: "version", label: "Snapshot", minor: true, value: (row) => row.version, cell: (row) => html`<code>${row.version}</code>` },
    { id: "operation", label: "Operation", minor: true, value: (row) => row.operation.toLowerCase() },
    { id: "rows", label: "Rows", right: true, value: (row) => row.rows ?? -1, cell: (row) => number(row.rows) },
    { id: "files", label: "Files", right: true, value: (row) => row.files ?? -1, cell: (row) => number(row.files) },
    { id: "bytes", label: "Size", right: true, value: (row) => row.size_bytes ?? -1, cell: (row) => bytes(row.size_bytes) },
  ];
  return html`<${Card} title="Snapshots" flush actions=${newest && html`<span class="muted small">${number(newest.rows)} rows in ${plural(newest.files ?? 0, "file")}, ${bytes(newest.size_bytes)} · fresh as of ${ago(found.fresh_at_ms)}</span>`}>
    <${Loaded} of=${lake}>${({ found: known }) => html`<${Table} label="Snapshots" urlSort=${false} columns=${columns} rows=${known?.versions ?? []} rowKey=${(row) => row.version}
      empty="None is known: no pipeline that writes this table has reported a commit. Parquet tables have files, and no snapshots." />`}</${Loaded}></${Card}>`;
}

// Pipelines that write the table, hence how fresh it is, and those that read it.
function Users({ name }) {
  const users = useData(async (signal) => {
    const { pipelines } = await get("/v1/pipelines", {}, { signal });
    return pipelines.map((each) => ({ ...each, writes: isWriterOf(name)(each), reads: sourcesOf(each).includes(name) })).filter((each) => each.writes || each.reads);
  }, [name], LIST_MS);
  const columns = [
    { id: "name", label: "Pipeline", value: (row) => row.name, cell: (row) => html`<a class="name" href=${href(["pipelines", row.name])}>${row.name}</a>` },
    { id: "does", label: "", value: (row) => (row.writes ? "writes" : "reads") },
    { id: "phase", label: "State", value: (row) => row.status.phase, cell: (row) => html`<${Phase} of=${row} />` },
    { id: "rate", label: "Rows/s", right: true, value: (row) => row.status.processed_rate ?? -1, cell: (row) => short(row.status.processed_rate) },
    { id: "lag", label: "Behind its sources", right: true, value: (row) => row.status.lag_records ?? -1, cell: (row) => (row.status.lag_records === null ? "–" : `${number(row.status.lag_records)} records`) },
    { id: "batch", label: "Last batch took", right: true, value: (row) => row.status.batch_ms ?? -1, cell: (row) => duration(row.status.batch_ms) },
    { id: "told", label: "Known as of", right: true, value: (row) => row.status.told_at_ms, cell: (row) => ago(row.status.told_at_ms) },
  ];
  return html`<${Card} title="Pipelines that write or read it" flush><${Loaded} of=${users}>${(rows) => html`<${Table} label="Pipelines" urlSort=${false} columns=${columns} rows=${rows} rowKey=${(row) => row.name} empty="None." />`}</${Loaded}></${Card}>`;
}

function Rows({ view }) {
  const [cursor] = useQuery("cursor");
  const page = useData((signal) => get(path("v1", "views", view.name, "rows"), { limit: ROWS, cursor }, { signal, isExact: true }), [view.name, cursor]);
  const shown = (value) => (value === null || value === undefined ? "null" : typeof value === "object" ? stringify(value) : String(value));
  return html`<${Card} title="Rows" flush><${Loaded} of=${page}>${(data) => {
    const names = [...new Set(data.rows.flatMap((row) => Object.keys(row)))];
    return html`<${Table} label="Rows" urlSort=${false} rows=${data.rows.map((row, index) => ({ row, index }))} rowKey=${(row) => row.index} empty="No rows yet."
        columns=${names.map((name) => ({ id: name, label: name, value: ({ row }) => shown(row[name]), cell: ({ row }) => html`<span class="clip">${shown(row[name])}</span>` }))} />
      <div class="more row">${cursor && html`<button type="button" class="button tiny" onClick=${() => setQuery({ cursor: "" })}>First page</button>`}${data.cursor && html`<button type="button" class="button tiny" onClick=${() => setQuery({ cursor: data.cursor })}>Next</button>`}</div>`;
  }}</${Loaded}></${Card}>`;
}
