// Reading records: the newest, from an offset, from a time, of one partition or of all.
import { get, path } from "./api.js";
import { parse, stringify } from "./json.js";

export const PAGE = 50;
const MAX_PARTITIONS = 64;

const RAW = { key_format: "base64", value_format: "base64" };
const DECODED = { key_format: "schema", value_format: "schema" };

// A page of records as bytes. Where some begin like those of Kafka's serializers, the page is read again, decoded by their
// schemas: `decoded` of a record.
async function decodedPage(url, query, signal) {
  const page = await get(url, { ...query, ...RAW }, { signal });
  if (!page.records.some(hasSchema)) return page;
  const { records } = await get(url, { ...query, ...DECODED }, { signal, isExact: true }).catch(() => ({ records: [] }));
  const decoded = new Map(records.map((each) => [`${each.partition}/${each.offset}`, each]));
  return { ...page, records: page.records.map((each) => ({ ...each, decoded: decoded.get(`${each.partition}/${each.offset}`) })) };
}

const looksEncoded = (base64) => Boolean(base64 && schemaIdOf(bytesOf(base64.slice(0, 8))));
const hasSchema = ({ key, value }) => looksEncoded(key) || looksEncoded(value);

// The key or the value of a record as one line of text.
export function textIn(record, field) {
  const { decoded } = record;
  return decoded && looksEncoded(record[field]) && !decoded[`${field}_format`] ? stringify(decoded[field]) : read(record[field]).text;
}

const pageOf = (topic, partition, query, signal) => decodedPage(path("v1", "topics", topic, "partitions", String(partition), "records"), query, signal);

async function ends(topic, signal) {
  const { partitions } = await get(path("v1", "topics", topic, "partitions"), {}, { signal });
  return partitions;
}

// Offsets by partition as the URL has them: 0:17,1:4.
export const offsetsText = (offsets) => Object.entries(offsets).map((each) => each.join(":")).join(",");
export const offsetsOf = (text) => (text ? Object.fromEntries(text.split(",").map((each) => each.split(":").map(Number))) : {});

const newestFirst = (a, b) => b.timestamp_ms - a.timestamp_ms || a.partition - b.partition || b.offset - a.offset;

// The last records before the given offsets (by partition; without one, before the end), newest first.
async function before(topic, wanted, upTo, limit, signal) {
  const holding = (await ends(topic, signal)).filter((each) => (wanted === "" ? (each.high_watermark ?? each.log_start) > each.log_start : each.partition === Number(wanted)));
  const partitions = holding.slice(0, MAX_PARTITIONS);
  const share = Math.max(1, Math.ceil(limit / Math.max(1, partitions.length)));
  const pages = await Promise.all(partitions.map(async (each) => {
    const end = Math.min(upTo[each.partition] ?? each.high_watermark ?? each.log_start, each.high_watermark ?? each.log_start);
    const offset = Math.max(each.log_start, end - share);
    if (end <= each.log_start) return { records: [], first: each.log_start, partition: each.partition, start: each.log_start };
    const page = await pageOf(topic, each.partition, { offset, limit: Math.min(share * 2, 1000) }, signal);
    return { records: page.records.filter((record) => record.offset < end), first: offset, partition: each.partition, start: each.log_start };
  }));
  const older = Object.fromEntries(pages.map((each) => [each.partition, each.first]));
  const hasOlder = pages.some((each) => each.first > each.start);
  return { records: pages.flatMap((each) => each.records).sort(newestFirst), older: hasOlder ? older : null, left_out: holding.length - partitions.length };
}

// `from`: end, start, offset, time. The answer has `older` (offsets to go on before) or `next` (a query to go on with).
export async function readPage({ topic, partition, from, offset, at, upTo, cursor, limit = PAGE }, signal) {
  if (from === "end") return before(topic, partition, upTo, limit, signal);
  if (partition !== "") {
    const query = from === "offset" ? { offset: offset || 0 } : from === "time" ? { timestamp: at } : {};
    const page = await pageOf(topic, partition, { ...query, limit }, signal);
    const more = page.records.length && page.next_offset < page.high_watermark;
    return { records: page.records, next: more ? { from: "offset", offset: page.next_offset } : null, end: page.high_watermark, start: page.log_start };
  }
  const start = cursor ? { cursor } : { from: from === "time" ? at : "earliest" };
  const page = await decodedPage(path("v1", "topics", topic, "records"), { ...start, limit }, signal);
  return { records: page.records, next: page.records.length >= limit ? { cursor: page.cursor } : null };
}

// --- what bytes are

export function bytesOf(base64) {
  if (base64 === null || base64 === undefined) return null;
  return Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
}

const UTF8 = new TextDecoder("utf-8", { fatal: true });

export function textOf(data) {
  if (data === null) return null;
  try {
    return UTF8.decode(data);
  } catch {
    return null;
  }
}

// {kind: "null" | "json" | "text" | "bytes", text, value}
export function read(base64) {
  const data = bytesOf(base64);
  if (data === null) return { kind: "null", text: "null", data };
  const text = textOf(data);
  if (text === null || /[\u0000-\u0008\u000e-\u001f]/.test(text)) return { kind: "bytes", text: `${hexOf(data.slice(0, 32))}${data.length > 32 ? " …" : ""}`, data };
  const first = text.trimStart()[0];
  if (first === "{" || first === "[") {
    try {
      return { kind: "json", text, value: parse(text), data };
    } catch {
      // it only looks like JSON
    }
  }
  return { kind: "text", text, data };
}

const hexOf = (data) => [...data].map((each) => each.toString(16).padStart(2, "0")).join(" ");

export function hexDump(data, limit = 4096) {
  const rows = [];
  for (let at = 0; at < Math.min(data.length, limit); at += 16) {
    const row = data.slice(at, at + 16);
    const letters = [...row].map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : ".")).join("");
    rows.push(`${at.toString(16).padStart(8, "0")}  ${hexOf(row).padEnd(47)}  ${letters}`);
  }
  return rows.join("\n") + (data.length > limit ? `\n… ${data.length - limit} more bytes` : "");
}

// The id of the schema in bytes of Kafka's serializers: a zero, then four bytes.
export const schemaIdOf = (data) => (data && data.length > 5 && data[0] === 0 ? new DataView(data.buffer, data.byteOffset).getUint32(1) : null);

// --- how others read the same records

const quoted = (text) => `'${String(text).replaceAll("'", "'\\''")}'`;

// `user`: who is logged in; the commands then log in, too: curl asks for the password, kcat reads its configuration file,
// Python reads the variables that the command line reads.
export function commands({ topic, partition, offset, bootstrap, user }) {
  const where = `${location.origin}${path("v1", "topics", topic, "partitions", String(partition), "records")}?offset=${offset}&limit=1`;
  return {
    curl: `curl -sf ${user ? `-u ${quoted(user)} ` : ""}${quoted(where)}`,
    kcat: `kcat ${user ? "-F kcat.conf " : ""}-b ${quoted(bootstrap)} -C -t ${quoted(topic)} -p ${partition} -o ${offset} -c 1`,
    Python: [
      ...(user ? ["import os", "", "from streamhouse import Credentials, SyncClient", "", "login = Credentials.from_environment(os.environ)  # STREAMHOUSE_USER, STREAMHOUSE_PASSWORD_FILE"] : ["from streamhouse import SyncClient", ""]),
      `with SyncClient(${JSON.stringify(location.origin)}${user ? ", credentials=login" : ""}) as client:`,
      `    for record in client.consume(${JSON.stringify(topic)}, partitions=[${partition}], from_={${partition}: ${offset}}, limit=1):`,
      "        print(record)",
    ].join("\n"),
  };
}
