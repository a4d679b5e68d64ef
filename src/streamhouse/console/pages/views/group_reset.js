// Reset a group's offsets: choose where to, look at what would move, then do it.
import { html, useState } from "../lib/html.js";
import { path, post } from "../lib/api.js";
import { number, plural } from "../lib/format.js";
import { showDialog } from "../ui/dialogs.js";
import { Failure, Field } from "../ui/parts.js";
import { Table } from "../ui/table.js";
import { toast } from "../ui/toasts.js";

const WAYS = [["earliest", "The start of the log"], ["latest", "The end of the log"], ["timestamp_ms", "A time"], ["offset", "An offset"], ["shift", "So many records on or back"]];

export const resetGroup = (group, partitions, onDone) =>
  showDialog(({ close }) => html`<${Form} group=${group} topics=${[...new Set(partitions.map((each) => each.topic))]} close=${close} onDone=${onDone} />`, { wide: true, label: "Reset offsets" });

function requestOf(form) {
  const way = form.get("way");
  const topic = form.get("topic");
  const body = topic ? { topics: [{ topic }] } : {};
  if (way === "earliest" || way === "latest") return { ...body, to: way };
  if (way === "timestamp_ms") return { ...body, timestamp_ms: new Date(form.get("time")).getTime() };
  return { ...body, [way]: Number(form.get("number")) };
}

function Form({ group, topics, close, onDone }) {
  const [way, setWay] = useState("earliest");
  const [plan, setPlan] = useState(null);
  const [error, setError] = useState(null);
  const run = async (request, isDry) => {
    setError(null);
    try {
      return await post(path("v1", "groups", group, "reset"), { ...request, dry_run: isDry }, { reads: isDry });
    } catch (failure) {
      setError(failure);
      return null;
    }
  };
  const preview = async (event) => {
    event.preventDefault();
    const request = requestOf(new FormData(event.target));
    const answer = await run(request, true);
    if (answer) setPlan({ request, partitions: answer.partitions });
  };
  const apply = async () => {
    if (await run(plan.request, false)) {
      close();
      toast("The offsets are reset.");
      onDone();
    }
  };
  const columns = [
    { id: "topic", label: "Topic", value: (row) => row.topic },
    { id: "partition", label: "Partition", right: true, value: (row) => row.partition },
    { id: "before", label: "Now", right: true, value: (row) => row.before ?? -1, cell: (row) => (row.before === null ? "no commit" : number(row.before)) },
    { id: "after", label: "Then", right: true, value: (row) => row.after, cell: (row) => number(row.after) },
    { id: "change", label: "Change", right: true, value: (row) => row.after - (row.before ?? 0), cell: (row) => (row.before === null ? "–" : `${row.after >= row.before ? "+" : ""}${number(row.after - row.before)}`) },
  ];
  return html`<form class="stack" onSubmit=${preview}>
    <h2>Reset offsets of <code>${group}</code></h2>
    <p class="muted">Only a group without members can be reset: stop its consumers first.</p>
    <div class="grid">
      <div class="span-6"><${Field} label="To"><select name="way" value=${way} onChange=${(event) => { setWay(event.target.value); setPlan(null); }}>${WAYS.map(([id, text]) => html`<option key=${id} value=${id}>${text}</option>`)}</select></${Field}></div>
      <div class="span-6"><${Field} label="Topics"><select name="topic" onChange=${() => setPlan(null)}><option value="">All that the group has committed</option>${topics.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></${Field}></div>
    </div>
    ${way === "timestamp_ms" && html`<${Field} label="Time"><input type="datetime-local" step="1" name="time" required onChange=${() => setPlan(null)} /></${Field}>`}
    ${(way === "offset" || way === "shift") && html`<${Field} label=${way === "offset" ? "Offset" : "Records"}><input type="number" name="number" min=${way === "offset" ? 0 : undefined} required onChange=${() => setPlan(null)} /></${Field}>`}
    ${error && html`<${Failure} error=${error} />`}
    ${plan && html`<${Table} label="What would change" urlSort=${false} columns=${columns} rows=${plan.partitions} rowKey=${(row) => `${row.topic}/${row.partition}`} empty="Nothing would change." />`}
    <div class="foot"><button type="button" class="button" onClick=${() => close()}>Cancel</button>
      <button class="button ${plan ? "" : "primary"}">Preview</button>
      ${plan && html`<button type="button" class="button primary" disabled=${!plan.partitions.length} onClick=${apply}>Reset ${plural(plan.partitions.length, "partition")}</button>`}</div>
  </form>`;
}
