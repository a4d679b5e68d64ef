// The records of a topic: browse, watch new ones come, look at one, download.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { get, lines, path } from "../lib/api.js";
import { number, plural, preciseTime } from "../lib/format.js";
import { useData } from "../lib/live.js";
import { setQuery, useQuery } from "../lib/router.js";
import { offsetsOf, offsetsText, readPage, textIn } from "../lib/records.js";
import { ways } from "../lib/session.js";
import { Action, Card, Choice, Empty, Failure, Field, Loaded, Notice } from "../ui/parts.js";
import { Table } from "../ui/table.js";
import { toast } from "../ui/toasts.js";
import { RecordDetail } from "./record.js";

const FROM = [["end", "Newest first"], ["start", "From the start"], ["offset", "From an offset"], ["time", "From a time"], ["live", "Live"]];
const TAIL_KEPT = 500;
const TAIL_BYTES = 32 * 1024 * 1024; // of what the newest take, as text
const DOWNLOAD_RECORDS = 100000;
const DOWNLOAD_BYTES = 64 * 1024 * 1024;
const RECORD_BYTES = 100; // of what a record takes besides its key and value

// Phones show the time of day only; the record itself has the date.
const When = ({ ms }) => (ms < 0 ? "–" : html`<span class="num"><span class="minor">${preciseTime(ms).slice(0, 11)}</span>${preciseTime(ms).slice(11)}</span>`);
const column = (id, label, value, cell, more) => ({ id, label, value, cell, ...more });
export const COLUMNS = [
  column("time", "Time", (row) => row.timestamp_ms, (row) => html`<${When} ms=${row.timestamp_ms} />`),
  column("partition", "Partition", (row) => row.partition, null, { right: true, minor: true }),
  column("offset", "Offset", (row) => row.offset, (row) => number(row.offset), { right: true, minor: true }),
  column("key", "Key", (row) => textIn(row, "key"), (row) => html`<span class="clip key ${row.key === null ? "muted" : ""}">${textIn(row, "key")}</span>`),
  column("value", "Value", (row) => textIn(row, "value"), (row) => html`<span class="clip ${row.value === null ? "muted" : ""}">${textIn(row, "value")}</span>`, { fill: true }),
  column("headers", "Headers", (row) => (row.headers ?? []).length, (row) => (row.headers?.length ? number(row.headers.length) : ""), { right: true, minor: true }),
];

export function Records({ topic, partitions = 1 }) {
  const [from] = useQuery("from", "end");
  const [partition] = useQuery("partition");
  const [offset] = useQuery("offset");
  const [at] = useQuery("at");
  const [cursor] = useQuery("cursor");
  const [upTo] = useQuery("before");
  const [filter] = useQuery("q");
  const request = { topic, partition, from, offset, at: at || Date.now() - 3600000, cursor, upTo: offsetsOf(upTo) };
  const choices = [["", "All"], ...Array.from({ length: partitions }, (_, number) => [String(number), String(number)])];
  const reset = { cursor: "", before: "" };
  return html`<${Card} flush>
    <div class="toolbar">
      <${Choice} label="Read" value=${from} options=${FROM} onChange=${(value) => setQuery({ ...reset, from: value === "end" ? "" : value })} />
      <${Choice} label="Partition" value=${partition} options=${choices} onChange=${(value) => setQuery({ ...reset, partition: value })} />
      ${from === "offset" && html`<${Field} label="Offset"><input type="number" min="0" value=${offset || 0} onChange=${(event) => setQuery({ ...reset, offset: event.target.value, partition: partition || "0" })} /></${Field}>`}
      ${from === "time" && html`<${Field} label="Time"><input type="datetime-local" step="1" value=${localTime(Number(request.at))} onChange=${(event) => setQuery({ ...reset, at: String(new Date(event.target.value).getTime()) })} /></${Field}>`}
      <${Field} label="Filter what is shown"><input type="search" data-search value=${filter} placeholder="Key or value" onInput=${(event) => setQuery({ q: event.target.value }, { replace: true })} /></${Field}>
      <div class="row" style=${{ marginLeft: "auto" }}>${Object.keys(FORMATS).map((name) => html`<${Action} key=${name} title="Download what is read, from its start" run=${() => download(request, FORMATS[name])}>Download ${name}</${Action}>`)}</div>
    </div>
    ${from === "live" ? html`<${Tail} key=${partition} topic=${topic} partition=${partition} filter=${filter} />`
      : from === "offset" && partition === "" ? html`<${Empty} title="Choose a partition">Offsets count within one partition.</${Empty}>`
        : html`<${Browse} request=${request} filter=${filter} />`}
  </${Card}>`;
}

const localTime = (ms) => new Date(ms - new Date(ms).getTimezoneOffset() * 60000).toISOString().slice(0, 19);

export const detailOf = (topic) => (row) => html`<${RecordDetail} topic=${topic} record=${row} />`;
export const keyOf = (row) => `${row.partition}/${row.offset}`;

function Browse({ request, filter }) {
  const page = useData((signal) => readPage(request, signal), [JSON.stringify(request)]);
  return html`<${Loaded} of=${page}>${({ records, older, next, start, end, left_out }) => html`
    ${left_out > 0 && html`<div class="more"><${Notice} kind="warn">${plural(left_out, "partition")} with records ${left_out === 1 ? "is" : "are"} left out, because there are many: choose one, or read from the start.</${Notice}></div>`}
    <${Table} label="Records" columns=${COLUMNS} rows=${records} rowKey=${keyOf} filter=${filter} urlSort=${false} detail=${detailOf(request.topic)}
      empty=${start !== undefined && start < end ? "Nothing on this page." : "No records here."} />
    <div class="more row">
      ${older && html`<button type="button" class="button tiny" onClick=${() => setQuery({ before: offsetsText(older) })}>Older</button>`}
      ${next && html`<button type="button" class="button tiny" onClick=${() => setQuery(next)}>Next</button>`}
      <button type="button" class="button tiny" onClick=${page.reload}>Refresh</button>
      <span class="muted small">${plural(records.length, "record")}${end === undefined ? "" : `, the partition has ${number(start)} – ${number(end)}`}</span>
    </div>`}</${Loaded}>`;
}

// New records as they come: the agent ends the stream after so many, the page keeps the newest, and paints once a frame.
function Tail({ topic, partition, filter }) {
  const [shown, setShown] = useState([]);
  const [count, setCount] = useState(0);
  const [state, setState] = useState("connecting");
  const [error, setError] = useState(null);
  const [runs, setRuns] = useState(0);
  const abort = useRef(null);
  useEffect(() => {
    const controller = new AbortController();
    abort.current = controller;
    follow(topic, partition, controller.signal, {
      onState: setState,
      onRecords: (records, seen) => {
        setShown((before) => newest([...records.reverse(), ...before]));
        setCount(seen);
      },
      onError: setError,
    });
    return () => controller.abort();
  }, [runs]);
  const restart = () => {
    setError(null);
    setRuns(runs + 1);
  };
  const isLive = ["live", "connecting", INTERRUPTED].includes(state);
  return html`${error && html`<${Failure} error=${error} />`}
    <div class="more row"><span class="live ${isLive && state !== INTERRUPTED ? "" : "is-off"}">${state}</span><span class="muted small">${number(count)} records; the newest ${number(TAIL_KEPT)} are kept</span>
      ${isLive ? html`<button type="button" class="button tiny" onClick=${() => { abort.current.abort(); setState("stopped"); }}>Stop</button>`
        : html`<button type="button" class="button tiny" onClick=${restart}>Go on</button>`}</div>
    ${state === CAPPED && html`<div class="more"><${Notice} kind="warn">The live tail stopped after ${number(ways.get().tail_records)} records of all partitions, the cap that this agent sets (<code>http.console_tail_records</code>). “Go on” begins with what comes from now on.</${Notice}></div>`}
    <${Table} label="Records" columns=${COLUMNS} rows=${shown} rowKey=${keyOf} filter=${filter} urlSort=${false} detail=${detailOf(topic)} empty="Waiting for records…" />`;
}

const CAPPED = "stopped at the cap";
const INTERRUPTED = "interrupted, tries again";
const RETRY_MS = 2000;

const sizeOf = (record) => (record.value?.length ?? 4) + (record.key?.length ?? 4) + RECORD_BYTES;

// The newest first, as many as a page may hold, at least one.
function newest(records) {
  let size = 0;
  const end = records.findIndex((each) => (size += sizeOf(each)) > TAIL_BYTES);
  return records.slice(0, Math.min(TAIL_KEPT, end < 0 ? TAIL_KEPT : Math.max(1, end)));
}

// Also when the agent is away for a while: the stream goes on behind the last record that came.
async function follow(topic, partition, signal, { onState, onRecords, onError }) {
  const cap = ways.get().tail_records;
  const last = new Map(); // offset by partition
  let [seen, received, size, cursor] = [0, 0, 0, ""];
  let waiting = [];
  const paint = () => {
    if (waiting.length) onRecords(waiting.splice(0), seen);
    size = 0;
    if (!signal.aborted) setTimeout(paint, 150);
  };
  const take = (line) => {
    if (line.error) throw new Error(line.error.detail ?? "The stream ended.");
    cursor = line.cursor ?? cursor;
    if (line.offset === undefined || line.offset <= (last.get(line.partition) ?? -1)) return;
    last.set(line.partition, line.offset);
    received += 1;
    if (partition !== "" && line.partition !== Number(partition)) return;
    seen += 1;
    waiting.push(line);
    size += sizeOf(line);
    if (waiting.length > 2 * TAIL_KEPT || size > 2 * TAIL_BYTES) {
      waiting = newest(waiting.reverse()).reverse();
      size = waiting.reduce((sum, each) => sum + sizeOf(each), 0);
    }
  };
  paint();
  try {
    for (;;) {
      const query = { ...(cursor ? { cursor } : { from: "latest" }), limit: cap - received, key_format: "base64", value_format: "base64" };
      try {
        for await (const line of lines("GET", path("v1", "topics", topic, "records"), { query, signal, onOpen: () => onState("live") })) take(line);
      } catch (error) {
        if (!isAway(error)) throw error;
      }
      if (signal.aborted) return;
      if (received >= cap) return onState(CAPPED);
      onState(INTERRUPTED);
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      if (signal.aborted) return;
    }
  } catch (error) {
    if (signal.aborted) return;
    onState("stopped");
    onError(error);
  }
}

// No connection, one that broke, or an agent that is starting or stopping.
const isAway = (error) => error.status === 0 || error.status >= 502 || error instanceof TypeError;

// Records as lines of JSON or as Parquet, up to a limit that a browser can hold.
async function download({ topic, partition, from, offset, at }, format) {
  const records = [];
  let size = 0;
  const take = (record) => {
    records.push(format.keep(record));
    size += sizeOf(record);
    return records.length < DOWNLOAD_RECORDS && size < DOWNLOAD_BYTES;
  };
  await (partition === "" ? all(topic, from, at, take, format.query) : one(topic, partition, from, offset, at, take, format.query));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(await format.parts(records), { type: format.type }));
  link.download = `${topic}.${format.extension}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  toast(records.length >= DOWNLOAD_RECORDS || size >= DOWNLOAD_BYTES ? `The first ${number(records.length)} records; a browser holds no more. Use streamhouse consume for the rest.` : `${number(records.length)} records.`);
}

const FORMATS = {
  NDJSON: { extension: "ndjson", type: "application/x-ndjson", query: {}, keep: (record) => `${JSON.stringify(record)}\n`, parts: (lines) => lines },
  Parquet: { extension: "parquet", type: "application/vnd.apache.parquet", query: { key_format: "base64", value_format: "base64" }, keep: (record) => record,
    parts: async (records) => [(await import("../lib/parquet.js")).parquetOf(records)] },
};

async function one(topic, partition, from, offset, at, take, formats) {
  let query = from === "offset" ? { offset: offset || 0 } : from === "time" ? { timestamp: at } : {};
  for (;;) {
    const page = await get(path("v1", "topics", topic, "partitions", partition, "records"), { ...query, ...formats, limit: 5000, max_bytes: 8388608 });
    if (!page.records.every(take) || page.next_offset >= page.high_watermark || !page.records.length) return;
    query = { offset: page.next_offset };
  }
}

async function all(topic, from, at, take, formats) {
  let query = { from: from === "time" ? at : "earliest" };
  for (;;) {
    const page = await get(path("v1", "topics", topic, "records"), { ...query, ...formats, limit: 5000, max_bytes: 8388608 });
    if (!page.records.every(take) || !page.records.length) return;
    query = { cursor: page.cursor };
  }
}
