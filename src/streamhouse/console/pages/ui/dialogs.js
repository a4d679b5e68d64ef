// Dialogs: one at a time, over the page. Every change is asked about before it is made.
import { html, useLayoutEffect, useRef, useState } from "../lib/html.js";
import { createStore, useStore } from "../lib/store.js";
import { Failure } from "./parts.js";

const open = createStore(null);
let dialogs = 0;

// `content({close})` is shown until `close(value)`; the promise has the value, undefined when it is dismissed.
export function showDialog(content, { wide = false, label } = {}) {
  open.get()?.close(undefined);
  return new Promise((resolve) => {
    const close = (value) => {
      open.set(null);
      resolve(value);
    };
    open.set({ id: dialogs++, content, wide, label, close });
  });
}

export function Dialogs() {
  const shown = useStore(open);
  return shown && html`<${Dialog} key=${shown.id} ...${shown} />`;
}

function Dialog({ content: Content, wide, label, close }) {
  const element = useRef(null);
  useLayoutEffect(() => element.current.showModal(), []);
  const onBackdrop = (event) => event.target === element.current && close();
  return html`<dialog ref=${element} class=${wide ? "wide" : ""} aria-label=${label} onClose=${() => close()} onMouseDown=${onBackdrop}>
    <div class="inside"><${Content} close=${close} /></div></dialog>`;
}

// Asks, runs `run`, and shows its error in the dialog; resolves to true when it was done.
export function confirm({ title, about, details, action, danger = false, type, run }) {
  const Content = ({ close }) => {
    const [typed, setTyped] = useState("");
    const [error, setError] = useState(null);
    const [busy, setBusy] = useState(false);
    const submit = async (event) => {
      event.preventDefault();
      setBusy(true);
      setError(null);
      try {
        await run();
        close(true);
      } catch (failure) {
        setError(failure);
        setBusy(false);
      }
    };
    return html`<form onSubmit=${submit} class="stack">
      <h2>${title}</h2>
      <p>${about}</p>
      ${details}
      ${type && html`<label class="field"><span>Type <code>${type}</code> to confirm.</span>
        <input type="text" autocomplete="off" value=${typed} onInput=${(event) => setTyped(event.target.value)} /></label>`}
      ${error && html`<${Failure} error=${error} />`}
      <div class="foot"><button type="button" class="button" onClick=${() => close()}>Cancel</button>
        <button class="button primary ${danger ? "danger" : ""}" disabled=${busy || (type && typed !== type)}>${action}</button></div>
    </form>`;
  };
  return showDialog(Content, { label: title });
}
