// Produce one record.
import { html, useState } from "../lib/html.js";
import { path, post } from "../lib/api.js";
import { parse } from "../lib/json.js";
import { showDialog } from "../ui/dialogs.js";
import { Failure, Field } from "../ui/parts.js";
import { toast } from "../ui/toasts.js";

export const produceRecord = (topic) => showDialog(({ close }) => html`<${Form} topic=${topic} close=${close} />`, { wide: true, label: "Produce a record" });

function headersOf(text) {
  return text.split("\n").map((each) => each.trim()).filter(Boolean).map((line) => {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`Write headers as name=value; this has no name: ${line}`);
    return { name: line.slice(0, at), value: line.slice(at + 1) };
  });
}

function bodyOf(form) {
  const format = form.get("format");
  const subject = form.get("subject");
  const text = form.get("value");
  const record = { headers: headersOf(form.get("headers")) };
  if (form.get("tombstone")) record.value = null;
  else if (format === "json") {
    try {
      record.value = parse(text);
    } catch (error) {
      throw new Error(`The value is no JSON: ${error.message}`);
    }
  } else record.value = text;
  if (form.get("key") !== "") record.key = form.get("key");
  if (form.get("partition") !== "") record.partition = Number(form.get("partition"));
  if (!subject || record.value === null) return { records: [record], value_format: format };
  if (format !== "json") throw new Error("A value that a schema encodes is written as JSON: choose this format.");
  return { records: [record], value_subject: subject };
}

function Form({ topic, close }) {
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setError(null);
    setBusy(true);
    try {
      const { records } = await post(path("v1", "topics", topic, "records"), bodyOf(new FormData(event.target)));
      close();
      toast(`Written to partition ${records[0].partition} at offset ${records[0].offset}.`);
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return html`<form class="stack" onSubmit=${submit}>
    <h2>Produce a record to <code>${topic}</code></h2>
    <div class="grid">
      <div class="span-8"><${Field} label="Key" about="Empty: no key."><input type="text" name="key" autocomplete="off" autofocus /></${Field}></div>
      <div class="span-4"><${Field} label="Partition" about="Empty: the key decides."><input type="number" min="0" name="partition" /></${Field}></div>
    </div>
    <${Field} label="Value"><textarea name="value" rows="8" spellcheck="false"></textarea></${Field}>
    <div class="grid">
      <div class="span-4"><${Field} label="Format"><select name="format"><option value="json">JSON</option><option value="text">Text</option><option value="base64">Base64</option></select></${Field}></div>
      <div class="span-8"><${Field} label="Subject of a schema" about="Encodes the value with its newest version."><input type="text" name="subject" autocomplete="off" /></${Field}></div>
    </div>
    <${Field} label="Headers" about="One name=value in each line."><textarea name="headers" rows="2" spellcheck="false"></textarea></${Field}>
    <label class="check"><input type="checkbox" name="tombstone" /> No value (a tombstone)</label>
    ${error && html`<${Failure} error=${error} />`}
    <div class="foot"><button type="button" class="button" onClick=${() => close()}>Cancel</button><button class="button primary" disabled=${busy}>Write this record</button></div>
  </form>`;
}
