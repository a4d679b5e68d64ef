// SQL: an editor, results as a table and as a plot, queries on streams that tick, the history.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { get, post } from "../lib/api.js";
import { duration, number, plural, short } from "../lib/format.js";
import { stringify } from "../lib/json.js";
import { useData } from "../lib/live.js";
import { useQuery } from "../lib/router.js";
import { MAX_TICKS, follow, history, isQuery, isStream, knownNames, remember, run } from "../lib/sql.js";
import { confirm } from "../ui/dialogs.js";
import { saveQuery } from "./sql_save.js";
import { Editor } from "../ui/editor.js";
import { Action, Card, Choice, Copy, Empty, Failure, Notice, PageHead, Problem } from "../ui/parts.js";
import { JsonTree } from "../ui/json_tree.js";
import { Plot } from "../ui/plot.js";
import { Table } from "../ui/table.js";

const MAX_ROWS = 1000;

export function Page() {
  const [text, setText] = useQuery("text");
  const [names, setNames] = useState([]);
  const [result, setResult] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState("");
  const abort = useRef(null);
  const workers = useData((signal) => get("/v1/sql/workers", {}, { signal }).catch(() => null), [], 10000);
  const hasWorker = workers.data?.workers?.length > 0;
  useEffect(() => {
    knownNames(hasWorker).then(setNames);
  }, [hasWorker]);
  useEffect(() => () => abort.current?.abort(), []);
  const stop = () => abort.current?.abort();
  const execute = async (sql) => {
    stop();
    const controller = new AbortController();
    abort.current = controller;
    setError(null);
    setResult(null);
    setBusy(isStream(sql) ? "streaming" : "running");
    remember(sql);
    try {
      if (isStream(sql)) await tick(sql, controller.signal, setResult);
      else setResult(await run(sql, MAX_ROWS, controller.signal));
    } catch (failure) {
      if (!controller.signal.aborted) setError(failure);
    } finally {
      if (abort.current === controller) setBusy("");
    }
  };
  const start = async () => {
    const sql = text.trim().replace(/;\s*$/, "");
    if (!sql) return;
    if (isQuery(sql)) await execute(sql);
    else await confirm({ title: "Run this statement?", action: "Run", about: "It may change tables, views or pipelines.", details: html`<pre class="code">${sql}</pre>`, run: () => execute(sql) });
  };
  return html`<${PageHead} title="SQL" about="Topics, views and tables are tables here; STREAM(topic) is what comes from now on." />
    ${workers.data && !hasWorker && html`<${Notice} kind="warn">No SQL worker answers queries now. Start one with <code>streamhouse sql serve</code>.</${Notice}>`}
    <${Card}><div class="stack">
      <${Editor} value=${text} names=${names} onRun=${start} onChange=${(value) => setText(value, { replace: true })} />
      <div class="row">
        ${busy ? html`<button type="button" class="button primary" onClick=${stop}>Stop</button>` : html`<button type="button" class="button primary" disabled=${!text.trim()} onClick=${start}>Run</button>`}
        <span class="muted small"><kbd>Ctrl</kbd> <kbd>Enter</kbd></span>
        <${Action} class="quiet" disabled=${!isQuery(text)} run=${() => execute(`EXPLAIN ${text.trim().replace(/;\s*$/, "")}`)}>Explain</${Action}>
        <${Action} class="write quiet" disabled=${!isQuery(text)} run=${() => saveQuery(text, setText)}>Save as…</${Action}>
        <${Action} class="quiet" disabled=${!text.trim()} run=${() => check(text, setError, setResult)}>Check</${Action}>
        ${busy && html`<span class="live">${busy}</span>`}
        <div class="history"><${History} onChoose=${setText} /></div>
      </div></div></${Card}>
    ${error && html`<${Failure} error=${error} />`}
    ${result?.checked ? html`<${Checked} statements=${result.checked} />` : result ? html`<${Result} result=${result} />` : busy ? html`<${Card}><${Empty} icon="sql" title="Running">The rows appear here. The first query of an SQL worker takes longest.</${Empty}></${Card}>` : !error && html`<${Card}><${Empty} icon="sql" title="No result yet">Write a query and press Ctrl-Enter.</${Empty}></${Card}>`}`;
}

// Rows of a stream, the newest first, painted a few times a second.
async function tick(sql, signal, show) {
  const rows = [];
  let seen = 0;
  const began = performance.now();
  const paint = () => show({ columns: [...new Set(rows.flatMap((each) => Object.keys(each)))].map((name) => ({ name, type: "" })), rows: [...rows], seen, ticking: !signal.aborted, elapsed_ms: performance.now() - began, notes: [] });
  const timer = setInterval(paint, 300);
  try {
    await follow(sql, "latest", signal, (row) => {
      seen += 1;
      rows.unshift(row);
      if (rows.length > MAX_TICKS) rows.pop();
      return !signal.aborted;
    });
  } finally {
    clearInterval(timer);
    paint();
  }
}

async function check(text, setError, setResult) {
  setError(null);
  const { statements } = await post("/v1/sql/validate", { text }, { reads: true });
  setResult({ checked: statements });
}

const Checked = ({ statements }) => html`<${Card} title=${`${plural(statements.length, "statement")} checked`}><div class="stack">
  ${statements.map((each, index) => html`<${CheckedStatement} key=${index} of=${each} />`)}
  ${!statements.length && html`<p class="muted">There is no statement.</p>`}</div></${Card}>`;

// A statement: what it is, and what is wrong with it and where, or the columns of its rows.
const CheckedStatement = ({ of: { kind, name, line, columns, key, problems, notes } }) => html`<${Notice} kind=${problems.length ? "bad" : "ok"}>
  <strong>${kind || "Not a statement"}${name && html` <code>${name}</code>`}</strong>, line ${line}${problems.length ? "" : ": nothing wrong"}
  ${problems.map((each, index) => html`<${Problem} key=${index} of=${each} />`)}
  ${!problems.length && columns?.length > 0 && html`<div class="small">${columns.map((each, index) => html`${index > 0 && ", "}<code key=${each.name}>${each.name} ${each.type}</code>`)}${key.length > 0 && `; key ${key.join(", ")}`}</div>`}
  ${notes.map((each, index) => html`<div key=${index} class="small">${each}</div>`)}</${Notice}>`;

function History({ onChoose }) {
  const texts = history();
  return texts.length > 0 && html`<${Choice} label="" value="" options=${[["", "History"], ...texts.map((each) => [each, each.replace(/\s+/g, " ").slice(0, 70)])]} onChange=${(value) => value && onChoose(value)} />`;
}

const shown = (value) => (value === null || value === undefined ? "null" : typeof value === "object" ? stringify(value) : String(value));
const isNumber = (value) => typeof value === "number" || typeof value === "bigint";

// Plans and definitions: one column of text with lines.
const isText = ({ columns, rows }) => columns.length === 1 && rows.length > 0 && rows.every((row) => String(row[columns[0].name]).includes("\n"));
const textOf = ({ columns, rows }) => rows.map((row) => row[columns[0].name]).join("\n");

function Result({ result }) {
  const [view, setView] = useQuery("view", "table");
  const rows = result.rows.map((row, index) => ({ row, index }));
  const columns = result.columns.map((each) => ({ id: each.name, label: each.name, right: result.rows.every((row) => isNumber(row[each.name])),
    value: ({ row }) => (isNumber(row[each.name]) ? row[each.name] : shown(row[each.name])), cell: ({ row }) => html`<span class="clip ${row[each.name] === null ? "muted" : ""}" title=${shown(row[each.name])}>${shown(row[each.name])}</span>` }));
  const csv = () => [result.columns.map((each) => each.name), ...result.rows.map((row) => result.columns.map((each) => shown(row[each.name])))].map((line) => line.map((each) => (/[",\n]/.test(each) ? `"${each.replaceAll('"', '""')}"` : each)).join(",")).join("\n");
  if (isText(result)) return html`<${Card} title=${`In ${duration(result.elapsed_ms)}`} actions=${html`<${Copy} text=${() => textOf(result)} />`}>
    ${(result.notes ?? []).map((each, index) => html`<p key=${index} class="muted small">${each}</p>`)}<pre class="code" tabindex="0">${textOf(result)}</pre></${Card}>`;
  return html`<${Card} flush title=${`${number(result.seen ?? result.rows.length)} rows in ${duration(result.elapsed_ms)}${result.truncated ? ", there are more" : ""}`} actions=${html`
      ${result.ticking && html`<span class="live">live</span>`}<${Copy} label="Copy as CSV" text=${csv} />
      ${["table", "plot"].map((each) => html`<button key=${each} type="button" class="button tiny ${view === each ? "" : "quiet"}" aria-pressed=${view === each} onClick=${() => setView(each)}>${each === "table" ? "Table" : "Plot"}</button>`)}`}>
    ${(result.notes ?? []).map((each, index) => html`<p key=${index} class="more muted">${each}</p>`)}
    ${view === "plot" ? html`<div class="body"><${ResultPlot} result=${result} /></div>` : html`<${Table} label="Result" urlSort=${false} columns=${columns} rows=${rows} rowKey=${(row) => row.index} detail=${({ row }) => html`<${JsonTree} value=${row} />`} empty="No rows." />`}
  </${Card}>`;
}

const timeOf = (value) => (typeof value === "string" && /^\d{4}-\d\d-\d\d/.test(value) ? Date.parse(value) / 1000 : NaN);

// The first column of times is the axis, else the number of the row; columns of numbers are lines.
function ResultPlot({ result }) {
  const axis = result.columns.find((each) => result.rows.length && result.rows.every((row) => !Number.isNaN(timeOf(row[each.name]))));
  const rows = axis ? [...result.rows].sort((a, b) => timeOf(a[axis.name]) - timeOf(b[axis.name])) : [...result.rows].reverse();
  const numeric = result.columns.filter((each) => each !== axis && result.rows.length && result.rows.every((row) => row[each.name] === null || isNumber(row[each.name]))).slice(0, 8);
  if (!numeric.length) return html`<${Empty} icon="sql" title="Nothing to plot">A plot needs a column of numbers.</${Empty}>`;
  return html`<${Plot} label="Result" height=${320} isTime=${Boolean(axis)} times=${rows.map((row, index) => (axis ? timeOf(row[axis.name]) : index))} format=${short}
    lines=${numeric.map((each) => ({ label: each.name, values: rows.map((row) => (row[each.name] === null ? null : Number(row[each.name]))) }))} />`;
}
