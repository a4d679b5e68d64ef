// Two texts compared line by line.
import { html } from "../lib/html.js";

const MAX_LINES = 2000;

// The longest common subsequence, by dynamic programming; texts are schemas and definitions, so they are short.
function compared(before, after) {
  const [a, b] = [before.split("\n").slice(0, MAX_LINES), after.split("\n").slice(0, MAX_LINES)];
  const lengths = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let j = b.length - 1; j >= 0; j -= 1) lengths[i][j] = a[i] === b[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
  const lines = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) lines.push(["same", a[i++], j++]);
    else if (j >= b.length || (i < a.length && lengths[i + 1][j] >= lengths[i][j + 1])) lines.push(["del", a[i++]]);
    else lines.push(["add", b[j++]]);
  }
  return lines;
}

const MARKS = { same: " ", del: "−", add: "+" };

export function Diff({ before, after }) {
  const lines = compared(before, after);
  if (lines.every(([kind]) => kind === "same")) return html`<p class="muted">No difference.</p>`;
  return html`<div class="diff mono" role="region" aria-label="Differences" tabindex="0">${lines.map(([kind, text], index) => html`<div key=${index} class=${kind}>${MARKS[kind]} ${text}</div>`)}</div>`;
}
