// Keys that work on every page: Ctrl-K, /, ?, and g with a letter.
import { html } from "../lib/html.js";
import { go, href } from "../lib/router.js";
import { showDialog } from "./dialogs.js";
import { PAGES } from "./navigation.js";
import { openPalette } from "./palette.js";

const CHORD_MS = 1200;
let chordUntil = 0;

const isTyping = (target) => target.closest?.("input, textarea, select, [contenteditable], dialog");

export function onKey(event) {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openPalette();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  const now = performance.now();
  if (now < chordUntil) {
    chordUntil = 0;
    const page = PAGES.find((each) => each.key === event.key);
    if (page) go(href([page.id]));
  } else if (event.key === "g") chordUntil = now + CHORD_MS;
  else if (event.key === "/") {
    event.preventDefault();
    const field = document.querySelector("main [data-search]");
    if (field) field.focus();
    else openPalette();
  } else if (event.key === "?") showKeys();
}

export const showKeys = () => showDialog(({ close }) => html`
  <h2>Keyboard</h2>
  <dl class="pair">
    <dt><kbd>Ctrl</kbd> <kbd>K</kbd></dt><dd>Search, jump, run a command</dd>
    <dt><kbd>/</kbd></dt><dd>Search on this page</dd>
    ${PAGES.map((each) => html`<dt key=${each.id}><kbd>g</kbd> <kbd>${each.key}</kbd></dt><dd>${each.label}</dd>`)}
    <dt><kbd>Esc</kbd></dt><dd>Close a dialog</dd>
  </dl>
  <div class="foot"><button type="button" class="button" onClick=${() => close()}>Close</button></div>`, { label: "Keyboard" });
