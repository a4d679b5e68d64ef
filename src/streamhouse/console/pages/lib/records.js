// Reading records: the newest, from an offset, from a time, of one partition or of all.
import { get, path } from "./api.js";
import { parse } from "./json.js";

export const PAGE = 50;
const MAX_PARTITIONS = 64;

const pageOf = (topic, partition, query, signal) =>
  get(path("v1", "topics", topic, "partitions", String(partition), "records"), { ...query, key_format: "base64", value_format: "base64" }, { signal });

async function ends(topic, signal) {
  const { partitions } = await get(path("v1", "topics", topic, "partitions"), {}, { signal });
  return partitions;
}

const newestFirst = (a, b) => b.timestamp_ms - a.timestamp_ms || a.partition - b.partition || b.offset - a.offset;

// The last records before the given offsets (by partition; without one, before the end), newest first.
async function before(topic, wanted, upTo, limit, signal) {
  const partitions = (await ends(topic, signal)).filter((each) => (wanted === "" ? true : each.partition === Number(wanted))).slice(0, MAX_PARTITIONS);
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
  return { records: pages.flatMap((each) => each.records).sort(newestFirst), older: hasOlder ? older : null };
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
  const page = await get(path("v1", "topics", topic, "records"), { ...start, limit, key_format: "base64", value_format: "base64" }, { signal });
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
