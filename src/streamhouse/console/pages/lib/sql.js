// Running SQL: one answer, or rows that come for as long as somebody looks; the history of this browser.
import { ApiError, get, lines, post, remove } from "./api.js";

const HISTORY = "streamhouse.sql.history";
const KEPT = 50;
export const MAX_TICKS = 1000;

export const isStream = (text) => /^\s*(SELECT|WITH)\b/i.test(text) && /\bSTREAM\s*\(/i.test(text);
export const isQuery = (text) => /^\s*(SELECT|WITH|SHOW|DESCRIBE|DESC|EXPLAIN|VALUES)\b/i.test(text);
const newId = () => `console-${[...crypto.getRandomValues(new Uint8Array(12))].map((each) => each.toString(16).padStart(2, "0")).join("")}`;

export function history() {
  try {
    return JSON.parse(localStorage.getItem(HISTORY)) ?? [];
  } catch {
    return [];
  }
}

export function remember(text) {
  const next = [text, ...history().filter((each) => each !== text)].slice(0, KEPT);
  localStorage.setItem(HISTORY, JSON.stringify(next));
}

// What is taken for a query runs without a question, so the worker rejects it if it isn't one.
const readOnly = (sql) => (isQuery(sql) ? { read_only: true } : {});

export const run = (sql, maxRows, signal) => post("/v1/sql", { sql, max_rows: maxRows, query_id: newId(), ...readOnly(sql) }, { signal, isExact: true, reads: isQuery(sql) });

// Rows of a stream, until `signal` or `onRows` says that it is enough; then the query is cancelled.
export async function follow(sql, starting, signal, onRow) {
  const id = newId();
  try {
    for await (const row of lines("POST", "/v1/sql", { body: { sql, starting, query_id: id, ...readOnly(sql) }, signal, reads: isQuery(sql) })) {
      if (row.error) throw new ApiError(row.error.status, { detail: "The query failed.", ...row.error });
      if (!onRow(row)) return;
    }
  } finally {
    remove(`/v1/sql/queries/${id}`, {}, { reads: true }).catch(() => null);
  }
}

const KEYWORDS = ("SELECT FROM WHERE GROUP BY ORDER HAVING LIMIT JOIN LEFT INNER ON AS AND OR NOT IN IS NULL LIKE BETWEEN CASE WHEN THEN ELSE END DISTINCT UNION ALL WITH "
  + "CREATE TABLE VIEW PIPELINE MATERIALIZED INSERT INTO VALUES DROP SHOW DESCRIBE EXPLAIN STREAM WINDOW COUNT SUM AVG MIN MAX CAST DESC ASC INTERVAL TRUE FALSE").split(" ");

const WORDS = new Set(KEYWORDS);
const TOKEN = /(--[^\n]*|\/\*[\s\S]*?(?:\*\/|$))|('(?:[^'\\]|\\.|'')*'?)|(`[^`]*`?)|(\b\d+(?:\.\d+)?\b)|([A-Za-z_]\w*)/g;
const KINDS = ["comment", "text", "name", "number", "word"];

// Parts of a statement with what they are: comment, text, name, number, word; "" for all else.
export function tokens(sql) {
  const found = [];
  let at = 0;
  for (const match of sql.matchAll(TOKEN)) {
    const index = match.slice(1).findIndex((each) => each !== undefined);
    const kind = KINDS[index] === "word" && !WORDS.has(match[0].toUpperCase()) ? "" : KINDS[index];
    if (match.index > at) found.push(["", sql.slice(at, match.index)]);
    found.push([kind, match[0]]);
    at = match.index + match[0].length;
  }
  if (at < sql.length) found.push(["", sql.slice(at)]);
  return found;
}

// Words that may stand where the cursor is: from the SQL worker, else keywords and the names of tables.
export async function completions(names, before) {
  const word = before.match(/[\w.`-]*$/)[0];
  if (!word) return { word, options: [] };
  const wanted = word.toLowerCase();
  const options = [...names, ...KEYWORDS].filter((each) => each.toLowerCase().startsWith(wanted) && each.toLowerCase() !== wanted);
  return { word, options: [...new Set(options)].slice(0, 12) };
}

export async function knownNames(hasWorker) {
  const [tables, worker] = await Promise.allSettled([get("/v1/tables"), hasWorker ? get("/v1/sql/complete") : {}]);
  const listed = (tables.value?.tables ?? []).flatMap((each) => [each.name, ...(each.columns ?? []).map((column) => column.name)]);
  const told = Object.values(worker.value ?? {}).flatMap((each) => (Array.isArray(each) ? each.filter((name) => typeof name === "string") : []));
  return [...new Set([...listed, ...told])];
}
