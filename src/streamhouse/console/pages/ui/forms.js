// A form in a dialog, from a list of fields: [name, label, type or choices, value].
import { html, useState } from "../lib/html.js";
import { showDialog } from "./dialogs.js";
import { Failure, Field } from "./parts.js";
import { toast } from "./toasts.js";

function Input({ name, type = "text", value = "" }) {
  if (Array.isArray(type)) return html`<select name=${name}>${type.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select>`;
  return html`<input type=${type} name=${name} defaultValue=${value} autocomplete=${type === "password" ? "new-password" : "off"} step="any" />`;
}

export function showForm({ title, action, fields, run, done, onDone }) {
  const Form = ({ close }) => {
    const [error, setError] = useState(null);
    const [busy, setBusy] = useState(false);
    const submit = async (event) => {
      event.preventDefault();
      setBusy(true);
      setError(null);
      try {
        await run(Object.fromEntries(new FormData(event.target)));
        close(true);
        toast(done);
        onDone?.();
      } catch (failure) {
        setError(failure);
        setBusy(false);
      }
    };
    return html`<form class="stack" onSubmit=${submit}><h2>${title}</h2>
      ${fields.map(([name, label, type, value]) => html`<${Field} key=${name} label=${label}><${Input} name=${name} type=${type} value=${value} /></${Field}>`)}
      ${error && html`<${Failure} error=${error} />`}
      <div class="foot"><button type="button" class="button" onClick=${() => close()}>Cancel</button><button class="button primary" disabled=${busy}>${action}</button></div></form>`;
  };
  return showDialog(Form, { label: title });
}
