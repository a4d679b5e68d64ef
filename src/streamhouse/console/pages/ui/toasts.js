// Short messages about what was done, read aloud by screen readers.
import { html } from "../lib/html.js";
import { createStore, useStore } from "../lib/store.js";

const SHOWN_MS = 6000;
const toasts = createStore([]);
let next = 0;

export function toast(text, kind = "ok") {
  const id = next++;
  toasts.set([...toasts.get(), { id, text, kind }].slice(-4));
  setTimeout(() => toasts.set(toasts.get().filter((each) => each.id !== id)), SHOWN_MS);
}

export function Toasts() {
  const shown = useStore(toasts);
  return html`<div class="toasts" role="status" aria-live="polite">
    ${shown.map((each) => html`<div key=${each.id} class="notice ${each.kind}">${each.text}</div>`)}</div>`;
}
