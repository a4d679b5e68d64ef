// A table that sorts, filters and shows a part of long lists at a time.
import { html, useState } from "../lib/html.js";
import { setQuery, useQuery } from "../lib/router.js";
import { number } from "../lib/format.js";

const PAGE = 200;

const isNumber = (value) => typeof value === "number" || typeof value === "bigint";
const compared = (a, b) => (isNumber(a) && isNumber(b) ? Number(a > b) - Number(a < b) : String(a ?? "").localeCompare(String(b ?? ""), "en", { numeric: true }));

const classOf = ({ right, fill, minor }) => [right && "right", fill && "fill", minor && "minor"].filter(Boolean).join(" ");

function sorted(rows, column, descending) {
  if (!column?.value) return rows;
  const sign = descending ? -1 : 1;
  return [...rows].sort((a, b) => sign * compared(column.value(a), column.value(b)));
}

// `columns`: {id, label, value(row) to sort and filter by, cell(row), right, fill, minor}. A column that fills takes the width
// that others leave; minor ones aren't shown on phones. The URL has the order and the filter.
export function Table({ label, columns, rows, rowKey, filter = "", empty = "Nothing here.", detail, urlSort = true }) {
  const [urlOrder] = useQuery("sort");
  const [ownOrder, setOwnOrder] = useState("");
  const [shown, setShown] = useState(PAGE);
  const [opened, setOpened] = useState(null);
  const order = urlSort ? urlOrder : ownOrder;
  const id = order.replace(/^-/, "");
  const words = filter.toLowerCase();
  const matching = words ? rows.filter((row) => columns.some((each) => each.value && String(each.value(row) ?? "").toLowerCase().includes(words))) : rows;
  const ordered = sorted(matching, columns.find((each) => each.id === id), order.startsWith("-"));
  const sort = (column) => {
    const next = order === column.id ? `-${column.id}` : column.id;
    if (urlSort) setQuery({ sort: next }, { replace: true });
    else setOwnOrder(next);
  };
  return html`
    <div class="table-wrap" role="region" aria-label=${label} tabindex="0">
      <table class="data">
        <thead><tr>${columns.map((each) => html`
          <th key=${each.id} scope="col" class=${classOf(each)} aria-sort=${id === each.id ? (order.startsWith("-") ? "descending" : "ascending") : undefined}>
            ${each.value && each.label ? html`<button type="button" onClick=${() => sort(each)}>${each.label}${id === each.id ? (order.startsWith("-") ? " ↓" : " ↑") : ""}</button>` : each.label || html`<span class="hidden-label">Actions</span>`}
          </th>`)}</tr></thead>
        <tbody>${ordered.slice(0, shown).map((row) => {
          const key = rowKey(row);
          const isOpen = detail && opened === key;
          const toggle = (event) => detail && !event.target.closest("a, button, input") && setOpened(isOpen ? null : key);
          return html`<tr key=${key} class="${detail ? "is-clickable" : ""} ${isOpen ? "is-open" : ""}" onClick=${toggle}>
            ${columns.map((each, index) => html`<td key=${each.id} class="${classOf(each)} ${detail && index === 0 ? "nowrap" : ""}">
              ${detail && index === 0 && html`<button type="button" class="button quiet tiny" aria-expanded=${isOpen} aria-label="Details" onClick=${() => setOpened(isOpen ? null : key)}>${isOpen ? "▾" : "▸"}</button>`}
              ${each.cell ? each.cell(row) : String(each.value(row) ?? "–")}</td>`)}</tr>
            ${isOpen && html`<tr key=${`${key}/detail`}><td colspan=${columns.length}>${detail(row)}</td></tr>`}`;
        })}</tbody>
      </table>
      ${!ordered.length && html`<p class="empty">${words ? "Nothing matches the filter." : empty}</p>`}
    </div>
    ${ordered.length > shown && html`<div class="more row"><button type="button" class="button tiny" onClick=${() => setShown(shown + PAGE)}>Show more</button>
      <span class="muted small">${number(shown)} of ${number(ordered.length)}</span></div>`}`;
}
