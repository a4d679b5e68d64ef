// Versions of a pipeline's definition: when each was applied, by whom, and what it changed.
import { html } from "../lib/html.js";
import { get, path } from "../lib/api.js";
import { plural, time } from "../lib/format.js";
import { useData } from "../lib/live.js";
import { href } from "../lib/router.js";
import { Diff } from "../ui/diff.js";
import { Badge, Card, Copy, Loaded } from "../ui/parts.js";
import { Table } from "../ui/table.js";

// A definition as lines: its text, then what was said beside it.
const linesOf = (version) => [version.text, ...(version.target ? [`target: ${version.target}`] : []), ...(version.key.length ? [`key: ${version.key.join(", ")}`] : []),
  ...Object.entries(version.options).sort().map(([name, value]) => `${name} = ${value}`)].join("\n");

function changeOf({ version, before, isFirst }) {
  if (!before) return isFirst ? "created" : "the oldest that is kept";
  const parts = [["text", "text"], ["target", "target"], ["key", "key"], ["options", "options"]].filter(([name]) => JSON.stringify(version[name]) !== JSON.stringify(before[name])).map(([, label]) => label);
  return parts.length ? `another ${parts.join(", ")}` : "applied again by another user";
}

const COLUMNS = [
  { id: "revision", label: "Revision", value: (row) => row.version.revision, cell: (row) => html`${row.version.revision} ${row.isCurrent && html`<${Badge} kind="info">current</${Badge}>`}` },
  { id: "at", label: "Applied", value: (row) => row.version.applied_at_ms, cell: (row) => html`<span class="nowrap">${time(row.version.applied_at_ms)}</span>` },
  { id: "by", label: "By", value: (row) => row.version.applied_by ?? "–", cell: (row) => html`<span class="break">${row.version.applied_by ?? "–"}</span>` },
  { id: "change", label: "What changed", value: changeOf },
];

const Detail = ({ version, before }) => html`<div class="stack">
  ${before ? html`<${Diff} before=${linesOf(before)} after=${linesOf(version)} />` : html`<pre class="code" tabindex="0">${linesOf(version)}</pre>`}
  <div class="row"><${Copy} label="Copy this definition" text=${() => version.text} />
    ${version.kind !== "python" && html`<a class="button tiny" href=${href(["sql"], { text: version.text })}>Open in the SQL editor</a>`}</div></div>`;

// `revision` is the pipeline's: when it changes, there may be another version.
export function Versions({ name, revision }) {
  const all = useData((signal) => get(path("v1", "pipelines", name, "versions"), {}, { signal }), [name, revision]);
  return html`<${Card} title="Versions of the definition" flush actions=${all.data && html`<span class="muted small">${plural(all.data.versions.length, "version")} kept</span>`}>
    <${Loaded} of=${all}>${({ versions }) => html`<${Table} label="Versions" urlSort=${false} columns=${COLUMNS} detail=${Detail} empty="None is kept."
      rows=${versions.map((version, index) => ({ version, before: versions[index + 1], isCurrent: index === 0, isFirst: version.revision === 1 }))} rowKey=${(row) => `${row.version.revision}/${row.version.applied_at_ms}`} />`}</${Loaded}></${Card}>`;
}
