// The command palette: everything that has a name, and what can be done from everywhere.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib/html.js";
import { createStore, useStore } from "../lib/store.js";
import { get } from "../lib/api.js";
import { go, href } from "../lib/router.js";
import { isLoggedIn, isReadOnly, logOut, setReadOnly } from "../lib/session.js";
import { PAGES } from "./navigation.js";
import { Icon } from "./icons.js";
import { switchTheme } from "./frame.js";

const SHOWN = 40;
const isOpen = createStore(false);
export const openPalette = () => isOpen.set(true);

const FIXED = () => [
  ...PAGES.map((each) => ({ text: each.label, kind: "page", icon: each.id, run: () => go(href([each.id])) })),
  ...(isReadOnly.get() ? [] : [{ text: "Create a topic", kind: "command", icon: "plus", run: () => go(href(["topics"], { new: "1" })) }]),
  { text: isReadOnly.get() ? "Allow changes in this tab" : "Read only: change nothing in this tab", kind: "command", icon: "security", run: () => setReadOnly(!isReadOnly.get()) },
  { text: "Switch between dark and light", kind: "command", icon: "theme", run: switchTheme },
  ...(isLoggedIn() ? [{ text: "Log out", kind: "command", icon: "out", run: logOut }] : []),
];

async function named() {
  const lists = await Promise.allSettled([get("/v1/topics"), get("/v1/groups"), get("/subjects"), get("/v1/pipelines")]);
  const [topics, groups, subjects, pipelines] = lists.map((each) => each.value);
  const entries = (names, kind, icon) => names.map((text) => ({ text, kind, icon, run: () => go(href([icon, text])) }));
  return [
    ...entries((topics?.topics ?? []).map((each) => each.name), "topic", "topics"),
    ...entries((groups?.groups ?? []).map((each) => each.group), "group", "groups"),
    ...entries(subjects ?? [], "schema", "schemas"),
    ...entries((pipelines?.pipelines ?? []).map((each) => each.name), "pipeline", "pipelines"),
  ];
}

// Signs between words don't count: "read-only" finds "Read only".
const plain = (text) => text.toLowerCase().replace(/[-._\s]+/g, " ").trim();

// Letters in order, closer together and nearer to the start first; null if one is missing.
function score(text, wanted) {
  const found = text.indexOf(wanted);
  if (found >= 0) return found;
  let at = -1;
  for (const letter of wanted) {
    at = text.indexOf(letter, at + 1);
    if (at < 0) return null;
  }
  return 100 + at;
}

function matching(entries, text) {
  const wanted = plain(text);
  if (!wanted) return entries.slice(0, SHOWN);
  return entries
    .map((each) => ({ each, score: score(plain(each.text), wanted) }))
    .filter(({ score: value }) => value !== null)
    .sort((a, b) => a.score - b.score || a.each.text.length - b.each.text.length)
    .slice(0, SHOWN)
    .map(({ each }) => each);
}

export function Palette() {
  return useStore(isOpen) && html`<${Opened} />`;
}

function Opened() {
  const element = useRef(null);
  const [entries, setEntries] = useState(FIXED());
  const [isLoading, setLoading] = useState(true);
  const [text, setText] = useState("");
  const [active, setActive] = useState(0);
  const [isConfirmed, setConfirmed] = useState(false);
  useLayoutEffect(() => element.current.showModal(), []); // before the next key, which is for its field
  useEffect(() => {
    named().then((names) => {
      setEntries([...FIXED(), ...names]);
      setLoading(false);
    });
  }, []);
  const shown = matching(entries, text);
  // Not for a dialog that is gone already: its close event comes later, and another may be open by then.
  const close = () => element.current && isOpen.set(false);
  const run = (entry) => {
    if (!entry) return;
    close();
    entry.run();
  };
  // Enter may come before the names: what it means is known when they are there.
  useEffect(() => {
    if (!isConfirmed || isLoading) return;
    if (shown.length) run(shown[active]);
    else setConfirmed(false);
  }, [isConfirmed, isLoading]);
  const onKeyDown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      setActive((active + step + shown.length) % Math.max(1, shown.length));
    } else if (event.key === "Enter") {
      event.preventDefault();
      setConfirmed(true);
    }
  };
  useEffect(() => element.current.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" }), [active]);
  return html`<dialog ref=${element} class="palette" aria-label="Search and commands" onCancel=${close} onClose=${close} onMouseDown=${(event) => event.target === element.current && close()}>
    <input type="text" role="combobox" aria-expanded="true" aria-controls="palette-list" aria-activedescendant=${shown.length ? `palette-${active}` : undefined} aria-label="Search and commands"
      placeholder="Topic, group, schema, pipeline, page or command" autocomplete="off" spellcheck="false" autofocus value=${text}
      onInput=${(event) => { setText(event.target.value); setActive(0); setConfirmed(false); }} onKeyDown=${onKeyDown} />
    <ul role="listbox" id="palette-list" aria-label="Results">
      ${shown.map((each, index) => html`<li key=${`${each.kind}/${each.text}`} id="palette-${index}" role="option" aria-selected=${index === active ? "true" : "false"}
        onMouseMove=${() => setActive(index)} onClick=${() => run(each)}><${Icon} name=${each.icon} /><span>${each.text}</span><span class="kind">${each.kind}</span></li>`)}
    </ul>
    ${!shown.length && html`<p class="empty">${isLoading ? "Loading…" : "Nothing is called like this."}</p>`}
  </dialog>`;
}
