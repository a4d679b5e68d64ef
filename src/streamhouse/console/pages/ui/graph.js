// A directed graph in layers, left to right: what is read before what is written.
import { html } from "../lib/html.js";

const [WIDTH, HEIGHT, GAP_X, GAP_Y] = [190, 42, 70, 14];
const MAX_NODES = 120;
const MAX_TEXT = 24;

// The layer of a node is one more than that of what it reads; cycles end after as many rounds as there are nodes.
function layersOf(nodes, edges) {
  const layer = new Map(nodes.map((each) => [each.id, 0]));
  for (let round = 0; round < Math.min(nodes.length, 40); round += 1) {
    let changed = false;
    for (const [from, to] of edges)
      if (layer.get(to) < layer.get(from) + 1 && layer.get(from) < nodes.length) {
        layer.set(to, layer.get(from) + 1);
        changed = true;
      }
    if (!changed) break;
  }
  const columns = [];
  for (const each of nodes) (columns[layer.get(each.id)] ??= []).push(each);
  return columns.filter(Boolean);
}

const cut = (text) => (text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT - 1)}…` : text);

export function Graph({ nodes, edges, label }) {
  const columns = layersOf(nodes.slice(0, MAX_NODES), edges);
  const rows = Math.max(1, ...columns.map((each) => each.length));
  const place = new Map();
  columns.forEach((column, x) => column.forEach((node, y) => place.set(node.id, {
    x: x * (WIDTH + GAP_X) + 2, y: (y + (rows - column.length) / 2) * (HEIGHT + GAP_Y) + 2 })));
  const [width, height] = [columns.length * (WIDTH + GAP_X) - GAP_X + 4, rows * (HEIGHT + GAP_Y) - GAP_Y + 4];
  return html`<div class="table-wrap" tabindex="0" role="region" aria-label=${label}>
    <svg class="graph" viewBox="0 0 ${width} ${height}" style=${{ minWidth: `${Math.min(width, 520)}px`, maxWidth: `${width}px` }}>
      ${edges.filter(([from, to]) => place.has(from) && place.has(to)).map(([from, to], index) => {
        const [a, b] = [place.get(from), place.get(to)];
        const [x1, y1, x2, y2] = [a.x + WIDTH, a.y + HEIGHT / 2, b.x, b.y + HEIGHT / 2];
        return html`<path key=${index} d="M${x1} ${y1} C${x1 + GAP_X / 2} ${y1} ${x2 - GAP_X / 2} ${y2} ${x2} ${y2}" />`;
      })}
      ${nodes.filter((each) => place.has(each.id)).map((each) => html`<a key=${each.id} href=${each.href} aria-label=${`${each.text}, ${each.kind}`}>
        <rect x=${place.get(each.id).x} y=${place.get(each.id).y} width=${WIDTH} height=${HEIGHT} rx="8" style=${each.isStrong ? { fill: "var(--accent-soft)", stroke: "var(--accent)" } : {}} />
        <text x=${place.get(each.id).x + 12} y=${place.get(each.id).y + 18} style=${{ fontWeight: 600 }}>${cut(each.text)}</text>
        <text class="kind" x=${place.get(each.id).x + 12} y=${place.get(each.id).y + 33}>${each.kind}</text></a>`)}
    </svg></div>`;
}
