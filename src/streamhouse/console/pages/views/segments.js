// How a topic lies in the object store: the runs of each partition, and the objects that they are in.
import { html, useState } from "../lib/html.js";
import { get } from "../lib/api.js";
import { bytes, number, percent, plural, time } from "../lib/format.js";
import { useData } from "../lib/live.js";
import { Badge, Card, Loaded } from "../ui/parts.js";
import { Table } from "../ui/table.js";

const LIMIT = 1000;
const ORIGINS = { flushed: ["", "flushed"], rewritten: ["ok", "merged or compacted"], recovered: ["warn", "recovered"], wal: ["info", "write-ahead log"], external: ["info", "written by Spark"] };
const Origin = ({ of }) => html`<${Badge} kind=${ORIGINS[of]?.[0] ?? ""}>${ORIGINS[of]?.[1] ?? of}</${Badge}>`;

// What agents' compression made of a run. Its index is read for this, so only the first runs of a page have it.
function Compression({ of: row }) {
  const { blocks } = row;
  if (!blocks) return html`<span class="muted">–</span>`;
  if (!blocks.lz4_blocks) return "as produced";
  return html`<span title=${`${number(blocks.lz4_blocks)} of ${plural(blocks.blocks, "block")} in LZ4`}>LZ4, ${percent(row.bytes / Math.max(1, blocks.raw_bytes))} of ${bytes(blocks.raw_bytes)}</span>`;
}

const keyOf = (row) => `${row.partition}/${row.base}`;

export function Segments({ topic }) {
  const [cursors, setCursors] = useState([null]);
  const cursor = cursors.at(-1);
  const page = useData((signal) => get("/v1/segments", { topic, limit: LIMIT, cursor }, { signal }), [topic, cursor]);
  const read = useData((signal) => get("/v1/segments", { topic, limit: LIMIT, cursor, blocks: true }, { signal }).then(({ segments }) => new Map(segments.map((each) => [keyOf(each), each.blocks]))), [topic, cursor]);
  const columns = [
    { id: "partition", label: "Partition", value: (row) => row.partition },
    { id: "base", label: "Offsets", value: (row) => row.base, cell: (row) => html`<span class="num nowrap">${number(row.base)} – ${number(row.end - 1)}</span>` },
    { id: "records", label: "Records", right: true, value: (row) => row.records, cell: (row) => number(row.records) },
    { id: "bytes", label: "Size", right: true, value: (row) => row.bytes, cell: (row) => bytes(row.bytes) },
    { id: "compression", label: "Compression", value: (row) => (row.blocks ? row.bytes / Math.max(1, row.blocks.raw_bytes) : 2), cell: (row) => html`<span class="nowrap"><${Compression} of=${row} /></span>` },
    { id: "origin", label: "Origin", value: (row) => row.origin, cell: (row) => html`<${Origin} of=${row.origin} />` },
    { id: "each", label: "Bytes/record", right: true, value: (row) => row.bytes / Math.max(1, row.records), cell: (row) => bytes(row.bytes / Math.max(1, row.records)) },
    { id: "time", label: "Newest record", value: (row) => row.max_timestamp_ms, cell: (row) => html`<span class="nowrap">${time(row.max_timestamp_ms)}</span>` },
    { id: "epoch", label: "Epoch", right: true, value: (row) => row.epoch },
    { id: "object", label: "Object", value: (row) => row.object, cell: (row) => html`<code class="nowrap">${row.object}</code>` },
  ];
  return html`<${Card} title="Runs in the object store" flush actions=${html`
      ${cursors.length > 1 && html`<button type="button" class="button tiny" onClick=${() => setCursors(cursors.slice(0, -1))}>Before</button>`}
      ${page.data?.cursor && html`<button type="button" class="button tiny" onClick=${() => setCursors([...cursors, page.data.cursor])}>Next</button>`}`}>
    ${read.data && page.data && read.data.size < page.data.segments.length && html`<p class="more muted small">Compression is read for the first ${number(read.data.size)} runs of a page (<code>plans.max_block_indexes</code>).</p>`}
    <${Loaded} of=${page}>${({ segments }) => html`<${Lanes} segments=${segments} />
      <${Table} label="Runs" columns=${columns} rows=${segments.map((each) => ({ ...each, blocks: read.data?.get(keyOf(each)) }))} rowKey=${keyOf} empty="Nothing is in segments yet; acknowledged records are in the write-ahead log until they are flushed." />`}</${Loaded}></${Card}>`;
}

const LANES = 32;

// One bar for each partition: its runs side by side, as wide as their bytes.
function Lanes({ segments }) {
  const lanes = new Map();
  for (const each of segments) lanes.set(each.partition, [...(lanes.get(each.partition) ?? []), each]);
  const most = Math.max(1, ...[...lanes.values()].map((runs) => runs.reduce((sum, each) => sum + each.bytes, 0)));
  const objects = [...new Set(segments.map((each) => each.object))];
  if (!segments.length) return null;
  return html`<div class="toolbar" style=${{ display: "block" }}><p class="muted small" style=${{ marginBottom: "8px" }}>${plural(segments.length, "run")} in ${plural(objects.length, "object")}; one bar per partition, as wide as its bytes, and one colour per object.</p>
    <div class="lanes" role="img" aria-label="Runs by partition">${[...lanes].slice(0, LANES).map(([partition, runs]) => html`<div key=${partition} class="row" style=${{ flexWrap: "nowrap" }}><span class="num small muted" style=${{ width: "34px" }}>${partition}</span>
      <div class="lane" style=${{ flex: 1 }}>${runs.map((run) => html`<i key=${run.base} title=${`${number(run.base)} – ${number(run.end - 1)}, ${bytes(run.bytes)}`}
        style=${{ width: `${(run.bytes / most) * 100}%`, background: `var(--c${(objects.indexOf(run.object) % 8) + 1})` }}></i>`)}</div></div>`)}</div></div>`;
}
