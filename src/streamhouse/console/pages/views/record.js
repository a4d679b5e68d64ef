// One record: its value as a tree, as text, as bytes, decoded by its schema; headers; commands that read it.
import { html, useState } from "../lib/html.js";
import { get, path } from "../lib/api.js";
import { bytes, preciseTime } from "../lib/format.js";
import { useData } from "../lib/live.js";
import { commands, hexDump, read, schemaIdOf, textOf } from "../lib/records.js";
import { href } from "../lib/router.js";
import { userName } from "../lib/session.js";
import { Copy, Failure } from "../ui/parts.js";
import { JsonTree } from "../ui/json_tree.js";

export function RecordDetail({ topic, record }) {
  const key = read(record.key);
  const value = read(record.value);
  const cluster = useData((signal) => get("/v1/cluster", {}, { signal }));
  const made = commands({ user: userName(), topic, partition: record.partition, offset: record.offset, bootstrap: cluster.data?.bootstrap ?? "" });
  return html`<div class="record">
    <div class="stack"><${Part} name="Value" part=${value} topic=${topic} record=${record} /><${Part} name="Key" part=${key} topic=${topic} record=${record} /></div>
    <div class="stack">
      <dl class="pair"><dt>Partition</dt><dd>${record.partition}</dd><dt>Offset</dt><dd>${record.offset}</dd><dt>Time</dt><dd>${preciseTime(record.timestamp_ms)}</dd>
        <dt>Key</dt><dd>${key.data ? bytes(key.data.length) : "none"}</dd><dt>Value</dt><dd>${value.data ? bytes(value.data.length) : "none (a tombstone)"}</dd></dl>
      <h3>Headers</h3>
      ${record.headers?.length ? html`<dl class="pair">${record.headers.map((each, index) => html`<dt key=${`${index}k`} class="mono break">${each.name}</dt><dd key=${`${index}v`} class="mono">${each.value ?? (each.base64 ? hexDump(read(each.base64).data, 64) : "null")}</dd>`)}</dl>` : html`<p class="muted">None.</p>`}
      <h3>Read it with</h3><div class="row">${Object.entries(made).map(([name, text]) => html`<${Copy} key=${name} label=${name} text=${() => text} />`)}
        <a class="button tiny" href=${href(["topics", topic], { tab: "records", from: "offset", partition: record.partition, offset: record.offset })}>Link</a></div>
    </div></div>`;
}

const LABELS = { json: "Tree", text: "Text", hex: "Hex", schema: "By schema" };

function Part({ name, part, topic, record }) {
  const schemaId = schemaIdOf(part.data);
  const forms = [schemaId && "schema", part.kind === "json" && "json", part.data && textOf(part.data) !== null && "text", part.data && "hex"].filter(Boolean);
  const [form, setForm] = useState(forms[0]);
  return html`<section class="stack" style=${{ gap: "6px" }}>
    <div class="row"><h3>${name}</h3>${forms.map((each) => html`<button key=${each} type="button" class="button tiny ${each === form ? "" : "quiet"}" aria-pressed=${each === form} onClick=${() => setForm(each)}>${LABELS[each]}</button>`)}
      ${part.data && html`<${Copy} text=${() => textOf(part.data) ?? hexDump(part.data, part.data.length)} />`}</div>
    ${part.data === null && html`<p class="muted">null</p>`}
    ${form === "json" && html`<${JsonTree} value=${part.value} />`}
    ${form === "text" && html`<pre class="code" tabindex="0">${textOf(part.data)}</pre>`}
    ${form === "hex" && html`<pre class="code hex" tabindex="0">${hexDump(part.data)}</pre>`}
    ${form === "schema" && html`<${Decoded} field=${name.toLowerCase()} id=${schemaId} topic=${topic} record=${record} />`}
  </section>`;
}

function Decoded({ field, id, topic, record }) {
  const url = path("v1", "topics", topic, "partitions", String(record.partition), "records");
  const page = useData((signal) => get(url, { offset: record.offset, limit: 1, [`${field}_format`]: "schema" }, { signal, isExact: true }), [record.offset]);
  if (page.error) return html`<${Failure} error=${page.error} />`;
  const decoded = page.data?.records[0];
  return decoded ? html`<p class="muted small">Schema ${id}${decoded[`${field}_format`] ? html`: these bytes aren't encoded with it` : ""}</p><${JsonTree} value=${decoded[field]} />` : html`<p class="muted">Loading…</p>`;
}
