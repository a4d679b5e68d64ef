// JSON as a tree that opens and closes; the first levels are open. Long lists show their first members.
import { html, useState } from "../lib/html.js";

const SHOWN = 100;
const MAX_DEPTH = 60;

export const JsonTree = ({ value }) => html`<div class="tree"><${Node} value=${value} depth=${0} /></div>`;

function Node({ name, value, depth }) {
  const label = name === undefined ? "" : html`<span class="k">${name}</span>: `;
  if (value === null || typeof value !== "object") return html`<span>${label}<${Leaf} value=${value} /></span>`;
  return html`<${Branch} label=${label} value=${value} depth=${depth} />`;
}

function Leaf({ value }) {
  if (typeof value === "string") return html`<span class="s">${JSON.stringify(value)}</span>`;
  if (typeof value === "number" || typeof value === "bigint") return html`<span class="n">${String(value)}</span>`;
  if (typeof value === "boolean") return html`<span class="b">${String(value)}</span>`;
  return html`<span class="z">null</span>`;
}

function Branch({ label, value, depth }) {
  const [open, setOpen] = useState(depth < 3);
  const [shown, setShown] = useState(SHOWN);
  const members = Object.entries(value);
  const [left, right] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (!members.length) return html`<span>${label}${left}${right}</span>`;
  if (depth > MAX_DEPTH) return html`<span>${label}${left}…${right}</span>`;
  return html`<details open=${open} onToggle=${(event) => event.target === event.currentTarget && setOpen(event.currentTarget.open)}>
    <summary>${label}${left}<span class="z"> ${members.length} </span>${right}</summary>
    ${open && html`<ul>${members.slice(0, shown).map(([key, each]) => html`<li key=${key}><${Node} name=${key} value=${each} depth=${depth + 1} /></li>`)}
      ${members.length > shown && html`<li><button type="button" class="button tiny" onClick=${() => setShown(shown + SHOWN)}>${members.length - shown} more</button></li>`}</ul>`}
  </details>`;
}
