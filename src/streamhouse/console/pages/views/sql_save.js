// Save a query: as a pipeline that writes to a topic, or as a materialised view. The statement comes back to the editor.
import { html, useState } from "../lib/html.js";
import { post } from "../lib/api.js";
import { showDialog } from "../ui/dialogs.js";
import { Failure, Field } from "../ui/parts.js";
import { toast } from "../ui/toasts.js";

const NAME = "[A-Za-z_][A-Za-z0-9_]*";
const KINDS = [["pipeline", "A pipeline: writes its rows to a topic as they come"], ["view", "A materialised view: keeps the current row of each key"]];

function statementOf(query, { kind, name, target, key }) {
  const select = query.trim().replace(/;\s*$/, "");
  if (kind === "view") return `CREATE MATERIALIZED VIEW ${name} AS\n${select}`;
  const options = key ? ` WITH (key = '${key}')` : "";
  return `CREATE PIPELINE ${name}${options} AS\nINSERT INTO ${target || name} ${select}`;
}

export const saveQuery = (query, onSaved) => showDialog(({ close }) => html`<${Form} query=${query} close=${close} onSaved=${onSaved} />`, { wide: true, label: "Save the query" });

function Form({ query, close, onSaved }) {
  const [form, setForm] = useState({ kind: "pipeline", name: "", target: "", key: "" });
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const change = (event) => setForm({ ...form, [event.target.name]: event.target.value });
  const statement = statementOf(query, { ...form, name: form.name || "NAME" });
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await post("/v1/sql", { sql: statement });
      close();
      onSaved(statement);
      toast(`Saved as ${form.name}. A supervisor runs it.`);
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return html`<form class="stack" onSubmit=${submit}>
    <h2>Save the query</h2>
    <p class="muted">It goes on with new records from then on, so it reads <code>STREAM(topic)</code>.</p>
    <${Field} label="As"><select name="kind" value=${form.kind} onChange=${change}>${KINDS.map(([id, text]) => html`<option key=${id} value=${id}>${text}</option>`)}</select></${Field}>
    <${Field} label="Name" about="Letters, digits and _"><input type="text" name="name" required pattern=${NAME} autocomplete="off" value=${form.name} onInput=${change} autofocus /></${Field}>
    ${form.kind === "pipeline" && html`<div class="grid">
      <div class="span-6"><${Field} label="Topic" about="Empty: called like the pipeline."><input type="text" name="target" pattern=${NAME} autocomplete="off" value=${form.target} onInput=${change} /></${Field}></div>
      <div class="span-6"><${Field} label="Column that is the key" about="Empty: no key."><input type="text" name="key" pattern=${NAME} autocomplete="off" value=${form.key} onInput=${change} /></${Field}></div></div>`}
    <pre class="code">${statement}</pre>
    ${error && html`<${Failure} error=${error} />`}
    <div class="foot"><button type="button" class="button" onClick=${() => close()}>Cancel</button><button class="button primary" disabled=${busy}>Save</button></div>
  </form>`;
}
