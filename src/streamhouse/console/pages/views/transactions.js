// Transactions: open ones first, on whatever page they are; late ones marked; abort after a question.
import { html } from "../lib/html.js";
import { get, path, post } from "../lib/api.js";
import { ago, duration } from "../lib/format.js";
import { useData } from "../lib/live.js";
import { href, setQuery, useQuery } from "../lib/router.js";
import { visible } from "../lib/session.js";
import { confirm } from "../ui/dialogs.js";
import { Badge, Card, Choice, Live, Loaded, PageHead, Search } from "../ui/parts.js";
import { Table } from "../ui/table.js";
import { toast } from "../ui/toasts.js";

const LIVE_MS = 3000;
const LIMIT = 500;
const STATES = ["Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Empty"];
const KINDS = { Ongoing: "info", PrepareCommit: "warn", PrepareAbort: "warn", CompleteCommit: "ok", CompleteAbort: "" };
const OPEN = "open";
const isLate = (row) => row.open_for_ms !== null && row.open_for_ms > row.timeout_ms;

// The API lists by transactional id.
async function load(state, cursor, signal) {
  const read = (query) => get("/v1/transactions", { ...query, limit: LIMIT }, { signal });
  if (state === OPEN) return read({ open_for_ms: 0, cursor });
  if (state || cursor) return read({ state, cursor });
  const [open, page] = await Promise.all([read({ open_for_ms: 0 }), read({})]);
  const known = new Set(open.transactions.map((each) => each.transactional_id));
  return { ...page, transactions: [...open.transactions, ...page.transactions.filter((each) => !known.has(each.transactional_id))] };
}

export function Page() {
  const [filter] = useQuery("q");
  const [state] = useQuery("state");
  const [cursor] = useQuery("cursor");
  const page = useData((signal) => load(state, cursor, signal), [state, cursor], LIVE_MS);
  const abort = async (row) => {
    const done = await confirm({
      title: "Abort the transaction?", danger: true, action: "Abort",
      about: html`The producer <code>${row.transactional_id}</code> is fenced: it can't go on under this epoch. What the transaction wrote stays invisible for readers with read_committed.`,
      run: () => post(path("v1", "transactions", row.transactional_id, "abort")),
    });
    if (done) {
      toast("The transaction is aborted.");
      page.reload();
    }
  };
  const columns = [
    { id: "id", label: "Transactional id", value: (row) => row.transactional_id, cell: (row) => html`<span class="mono break">${row.transactional_id}</span>` },
    { id: "state", label: "State", value: (row) => row.state, cell: (row) => html`<${Badge} kind=${isLate(row) ? "bad" : KINDS[row.state] ?? ""}>${row.state}${isLate(row) ? ", late" : ""}</${Badge}>` },
    { id: "open", label: "Open for", right: true, value: (row) => row.open_for_ms ?? -1, cell: (row) => duration(row.open_for_ms) },
    { id: "timeout", label: "Timeout", right: true, value: (row) => row.timeout_ms, cell: (row) => duration(row.timeout_ms) },
    { id: "changed", label: "Changed", right: true, value: (row) => -row.changed_at_ms, cell: (row) => ago(row.changed_at_ms) },
    { id: "producer", label: "Producer, epoch", right: true, value: (row) => row.producer_id, cell: (row) => `${row.producer_id}, ${row.epoch}` },
    { id: "partitions", label: "Partitions", value: (row) => row.partitions.length, cell: (row) => row.partitions.map((each, index) => html`${index > 0 && ", "}<a href=${href(["topics", each.topic])}>${each.topic} ${each.partition}</a>`) },
    { id: "abort", label: "", cell: (row) => row.open_for_ms !== null && html`<button type="button" class="write button tiny danger" onClick=${() => abort(row)}>Abort</button>` },
  ];
  return html`<${PageHead} title="Transactions" about="Transactional ids, and the transaction that each of them has open or had last." actions=${html`<${Live} error=${page.error} />`} />
    <${Card} flush><div class="toolbar"><${Search} placeholder="Filter transactional ids" />
        <${Choice} label="State" value=${state} options=${[["", "All"], [OPEN, "Open"], ...STATES.map((each) => [each, each])]} onChange=${(value) => setQuery({ state: value, cursor: "" })} /></div>
      <${Loaded} of=${page}>${(data) => html`<${Table} label="Transactions" columns=${columns} rows=${data.transactions} rowKey=${(row) => row.transactional_id} filter=${filter} empty=${state ? "No transaction is in this state." : `There are no transactions${visible()} yet.`} />
        ${(data.cursor || cursor) && html`<div class="more row">${cursor && html`<button type="button" class="button tiny" onClick=${() => setQuery({ cursor: "" })}>First page</button>`}${data.cursor && html`<button type="button" class="button tiny" onClick=${() => setQuery({ cursor: data.cursor })}>Next</button>`}</div>`}`}</${Loaded}></${Card}>`;
}
