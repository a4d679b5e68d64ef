// A Parquet file of records: one row group, a page for each column, plain encoding, no compression. Structures are
// written as Thrift's compact protocol, as parquet.thrift describes them.
import { bytesOf, textOf } from "./records.js";

const MAGIC = new TextEncoder().encode("PAR1");
const UTF8 = new TextEncoder();
const [INT32, INT64, BYTE_ARRAY] = [1, 2, 6];
const [REQUIRED, OPTIONAL] = [0, 1];
const [CONVERTED_UTF8, CONVERTED_TIMESTAMP_MS] = [0, 9];
const [PLAIN, RLE] = [0, 3];
const CREATED_BY = "StreamHouse";

// --- bytes

class Bytes {
  constructor() {
    this.parts = [];
    this.length = 0;
  }

  add(part) {
    const bytes = part instanceof Uint8Array ? part : Uint8Array.from(part);
    this.parts.push(bytes);
    this.length += bytes.length;
    return this;
  }

  join() {
    const whole = new Uint8Array(this.length);
    let at = 0;
    for (const part of this.parts) {
      whole.set(part, at);
      at += part.length;
    }
    return whole;
  }
}

function u32(value) {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value, true);
  return bytes;
}

function varint(value) {
  const bytes = [];
  let rest = BigInt(value);
  for (; rest > 127n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128);
  return [...bytes, Number(rest)];
}

const zigzag = (value) => varint(value >= 0 ? BigInt(value) * 2n : -BigInt(value) * 2n - 1n);

// --- Thrift: a struct is a list of [field id, kind, value]

const WIRE = { i32: 5, i64: 6, binary: 8, list: 9, struct: 12 };

function write(out, kind, value) {
  if (kind === "i32" || kind === "i64") out.add(zigzag(value));
  else if (kind === "binary") out.add(varint(value.length)).add(value);
  else if (kind === "struct") struct(out, value);
  else {
    const [of, items] = value;
    out.add(items.length < 15 ? [(items.length << 4) | WIRE[of]] : [0xf0 | WIRE[of], ...varint(items.length)]);
    for (const item of items) write(out, of, item);
  }
}

function struct(out, fields) {
  let before = 0;
  for (const [id, kind, value] of fields) {
    out.add([((id - before) << 4) | WIRE[kind]]);
    write(out, kind, value);
    before = id;
  }
  out.add([0]);
}

const text = (value) => UTF8.encode(value);

// --- columns

// One bit for each row that has a value, in one bit-packed run.
function definitionLevels(values) {
  const groups = Math.ceil(values.length / 8);
  const bits = new Uint8Array(groups);
  values.forEach((value, index) => {
    if (value !== null) bits[index >> 3] |= 1 << (index & 7);
  });
  const run = new Bytes().add(varint(groups * 2 + 1)).add(bits);
  return new Bytes().add(u32(run.length)).add(run.join());
}

function plain(type, values) {
  if (type === BYTE_ARRAY) {
    const out = new Bytes();
    for (const value of values) if (value !== null) out.add(u32(value.length)).add(value);
    return out.join();
  }
  const width = type === INT32 ? 4 : 8;
  const view = new DataView(new ArrayBuffer(values.length * width));
  values.forEach((value, index) => (type === INT32 ? view.setInt32(index * 4, value, true) : view.setBigInt64(index * 8, BigInt(value), true)));
  return new Uint8Array(view.buffer);
}

// Bytes of keys or values; text if all of them are.
function bytesColumn(name, values) {
  const isText = values.every((value) => value === null || textOf(value) !== null);
  return { name, type: BYTE_ARRAY, repetition: OPTIONAL, converted: isText ? CONVERTED_UTF8 : null, values };
}

function page(column) {
  const body = new Bytes();
  if (column.repetition === OPTIONAL) body.add(definitionLevels(column.values).join());
  body.add(plain(column.type, column.values));
  const header = new Bytes();
  struct(header, [[1, "i32", 0], [2, "i32", body.length], [3, "i32", body.length], [5, "struct", [[1, "i32", column.values.length], [2, "i32", PLAIN], [3, "i32", RLE], [4, "i32", RLE]]]]);
  return header.add(body.join()).join();
}

const element = ({ name, type, repetition, converted }) => [
  [1, "i32", type], [3, "i32", repetition], [4, "binary", text(name)], ...(converted === null ? [] : [[6, "i32", converted]])];

const chunk = (column, at, size) => [[2, "i64", at], [3, "struct", [
  [1, "i32", column.type], [2, "list", ["i32", [PLAIN, RLE]]], [3, "list", ["binary", [text(column.name)]]], [4, "i32", 0],
  [5, "i64", column.values.length], [6, "i64", size], [7, "i64", size], [9, "i64", at]]]];

// The file of records whose keys, values and headers are base64.
export function parquetOf(records) {
  const headers = records.map((each) => text(JSON.stringify(each.headers ?? [])));
  const columns = [
    { name: "partition", type: INT32, repetition: REQUIRED, converted: null, values: records.map((each) => each.partition) },
    { name: "offset", type: INT64, repetition: REQUIRED, converted: null, values: records.map((each) => each.offset) },
    { name: "timestamp", type: INT64, repetition: REQUIRED, converted: CONVERTED_TIMESTAMP_MS, values: records.map((each) => each.timestamp_ms) },
    bytesColumn("key", records.map((each) => bytesOf(each.key))),
    bytesColumn("value", records.map((each) => bytesOf(each.value))),
    { name: "headers", type: BYTE_ARRAY, repetition: REQUIRED, converted: CONVERTED_UTF8, values: headers },
  ];
  const file = new Bytes().add(MAGIC);
  const begin = file.length;
  const chunks = columns.map((column) => {
    const [at, bytes] = [file.length, page(column)];
    file.add(bytes);
    return chunk(column, at, bytes.length);
  });
  const group = [[1, "list", ["struct", chunks]], [2, "i64", file.length - begin], [3, "i64", records.length]];
  const root = [[4, "binary", text("records")], [5, "i32", columns.length]];
  const footer = new Bytes();
  struct(footer, [[1, "i32", 1], [2, "list", ["struct", [root, ...columns.map(element)]]], [3, "i64", records.length], [4, "list", ["struct", [group]]], [6, "binary", text(CREATED_BY)]]);
  return file.add(footer.join()).add(u32(footer.length)).add(MAGIC).join();
}
