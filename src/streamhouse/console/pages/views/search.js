// Search a topic's records by key, text, header or a place in their JSON; goes on piece by piece until it is stopped or
// the page is full, and from there when asked.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { path, post } from "../lib/api.js";
import { bytes, duration, number, plural } from "../lib/format.js";
import { parse, stringify } from "../lib/json.js";
import { setQuery, useRoute } from "../lib/router.js";
import { Bar, Card, Failure, Field } from "../ui/parts.js";
import { Table } from "../ui/table.js";
import { COLUMNS, detailOf, keyOf } from "./records.js";

const PIECE_BYTES = 16 * 1024 * 1024;
const MAX_FOUND = 500;
const FIELDS = ["key", "text", "header", "value", "json", "equals", "since", "until"];

// A number, true, false or null as such, anything else as text.
function literal(text) {
  try {
    const value = parse(text);
    return value !== null && typeof value === "object" ? text : value;
  } catch {
    return text;
  }
}

function requestOf(query) {
  const body = {};
  if (query.key) body.key = query.key;
  if (query.text) body.text = query.text;
  if (query.header) body.header = { name: query.header, value: query.value || null };
  if (query.json) body.json = [{ path: query.json, equals: literal(query.equals ?? "") }];
  if (query.since) body.from_ms = new Date(query.since).getTime();
  if (query.until) body.until_ms = new Date(query.until).getTime();
  return Object.keys(body).some((each) => !["from_ms", "until_ms"].includes(each)) ? body : null;
}

const BEGIN = { records: [], found: 0, bytes: 0, skipped_bytes: 0, segments: 0, segments_needed: 0, offsets: 0, left: 0, cursor: "", ms: 0 };

// `before`: what was found until it stopped; a full page makes room for the next records.
async function run(topic, request, before, signal, show) {
  const began = performance.now() - before.ms;
  const state = { ...before, records: before.records.length < MAX_FOUND ? before.records : [], running: true };
  do {
    const found = await post(path("v1", "topics", topic, "search"), { ...request, cursor: state.cursor, max_bytes: PIECE_BYTES, limit: Math.min(100, MAX_FOUND - state.records.length), key_format: "base64", value_format: "base64" }, { signal, reads: true });
    state.records = [...state.records, ...found.records];
    state.found += found.records.length;
    for (const each of ["bytes", "skipped_bytes", "segments", "segments_needed", "offsets"]) state[each] += found.searched[each];
    state.left = found.searched.left;
    state.cursor = found.cursor;
    show({ ...state, ms: performance.now() - began });
  } while (state.cursor && state.records.length < MAX_FOUND && !signal.aborted);
  show({ ...state, running: false, ms: performance.now() - began });
}

export function Search({ topic }) {
  const { query } = useRoute();
  const wanted = Object.fromEntries(FIELDS.map((each) => [each, query.get(each) ?? ""]));
  const [state, setState] = useState(null);
  const [error, setError] = useState(null);
  const abort = useRef(null);
  const request = requestOf(wanted);
  const text = stringify(request);
  const start = (before = BEGIN) => {
    abort.current?.abort();
    const controller = new AbortController();
    abort.current = controller;
    setError(null);
    run(topic, request, before, controller.signal, setState).catch((failure) => {
      if (controller.signal.aborted) return;
      setError(failure);
      setState((shown) => shown && { ...shown, running: false });
    });
  };
  useEffect(() => {
    setState(null);
    if (request) start();
    return () => abort.current?.abort();
  }, [topic, text]);
  const submit = (event) => {
    event.preventDefault();
    const form = Object.fromEntries(FIELDS.map((each) => [each, event.target.elements[each].value]));
    if (stringify(requestOf(form)) === text && request) start();
    else setQuery(form);
  };
  const stop = () => {
    abort.current?.abort();
    setState((before) => before && { ...before, running: false });
  };
  const input = (name, label, about, type = "text") => html`<${Field} label=${label} about=${about}><input type=${type} name=${name} step="1" defaultValue=${wanted[name]} autocomplete="off" data-search=${name === "key" ? "" : undefined} /></${Field}>`;
  return html`<${Card}><form class="stack" onSubmit=${submit} key=${text}>
      <div class="grid">
        <div class="span-4">${input("key", "Key", "The whole key.")}</div><div class="span-8">${input("text", "Text in key or value", "As it is written.")}</div>
        <div class="span-3">${input("json", "Place in the JSON", "items[0].sku")}</div><div class="span-3">${input("equals", "Equals", "A number, a text, true, null")}</div>
        <div class="span-3">${input("header", "Header")}</div><div class="span-3">${input("value", "With this value", "Empty: any.")}</div>
        <div class="span-3">${input("since", "From", "", "datetime-local")}</div><div class="span-3">${input("until", "Until", "", "datetime-local")}</div>
      </div>
      <div class="row"><button class="button primary">Search</button>${state?.running && html`<button type="button" class="button" onClick=${stop}>Stop</button>`}
        ${state && !state.running && state.cursor && html`<button type="button" class="button" onClick=${() => start(state)}>Go on</button>`}
        <span class="muted small">All that is given must hold.</span></div></form></${Card}>
    ${error && html`<${Failure} error=${error} />`}
    ${state && html`<${Results} topic=${topic} state=${state} />`}`;
}

// What was read, of what, and how many segments that took, if filters left any out.
const readOf = (state) => (state.skipped_bytes ? `${bytes(state.bytes)} of ${bytes(state.bytes + state.skipped_bytes)} read, ${number(state.segments_needed)} of ${number(state.segments)} segments needed` : `${bytes(state.bytes)} read`);

function Results({ topic, state }) {
  const all = state.offsets + state.left;
  return html`<${Card} flush title=${plural(state.found, "record")} actions=${html`<span class=${state.running ? "live" : "muted small"}>${state.running ? "searching" : state.cursor ? "stopped" : "done"}</span>`}>
    <div class="toolbar" style=${{ display: "grid" }}><${Bar} share=${all ? state.offsets / all : 1} />
      <span class="muted small">Searched ${number(state.offsets)} of ${number(all)} offsets, ${readOf(state)}, in ${duration(state.ms)}.${state.records.length >= MAX_FOUND && state.cursor ? ` The page is full; “Go on” shows the next ${MAX_FOUND}.` : state.found > state.records.length ? ` The last ${number(state.records.length)} of them are shown.` : ""}</span></div>
    <${Table} label="Records" columns=${COLUMNS} rows=${state.records} rowKey=${keyOf} urlSort=${false} detail=${detailOf(topic)} empty=${state.running ? "Nothing yet." : "Nothing was found."} /></${Card}>`;
}
