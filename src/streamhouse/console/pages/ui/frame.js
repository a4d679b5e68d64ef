// The frame around every page: navigation, path, search, who is logged in.
import { html, useEffect, useState } from "../lib/html.js";
import { useData } from "../lib/live.js";
import { get, isAgentAway } from "../lib/api.js";
import { isLoggedIn, isReadOnly, logOut, needsLogin } from "../lib/session.js";
import { useStore } from "../lib/store.js";
import { Badge, Notice } from "./parts.js";
import { href, useRoute } from "../lib/router.js";
import { PAGES } from "./navigation.js";
import { Icon } from "./icons.js";
import { openPalette } from "./palette.js";
import { showKeys } from "./keys.js";
import { theme } from "./plot.js";

const GAPS = new Set(["pipelines", "agents"]);
const FILES = new URL("..", import.meta.url).pathname;

export function switchTheme() {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("streamhouse.theme", next);
  theme.set(next);
}

function Side({ active, isOpen, onClose }) {
  return html`<aside class="side ${isOpen ? "is-open" : ""}" id="side">
    <a class="brand" href=${href(["overview"])}><img src="${FILES}icon.svg" alt="" />StreamHouse</a>
    <nav aria-label="Pages"><ul>${PAGES.map((each) => html`
      <li key=${each.id}>${GAPS.has(each.id) && html`<div class="gap"></div>`}
        <a href=${href([each.id])} aria-current=${each.id === active ? "page" : undefined} onClick=${onClose}><${Icon} name=${each.id} />${each.label}</a></li>`)}
    </ul></nav>
    <${Footer} />
  </aside>`;
}

function Footer() {
  const me = useData((signal) => get("/v1/whoami", {}, { signal }));
  const cluster = useData((signal) => get("/v1/cluster", {}, { signal }));
  const name = me.data?.principal.replace(/^User:/, "");
  return html`<footer>
    ${name && name !== "ANONYMOUS" && html`<div class="who"><${Icon} name="security" /><span title=${me.data.principal}>${name}</span>
      ${isLoggedIn() && html`<button type="button" class="icon-button" aria-label="Log out" title="Log out" onClick=${logOut}><${Icon} name="out" /></button>`}</div>`}
    ${me.data && name === "ANONYMOUS" && !me.data.unrestricted && html`<button type="button" class="button tiny" onClick=${() => needsLogin.set(true)}>Log in</button>`}
    ${cluster.data && html`<div>StreamHouse ${cluster.data.version}</div>`}
    <div class="row"><a href="/docs/">Docs</a> · <a href="/docs/api">API</a></div>
  </footer>`;
}

function Crumbs({ parts }) {
  const page = PAGES.find((each) => each.id === parts[0]);
  const rest = parts.slice(1);
  return html`<nav aria-label="Path"><ol class="crumbs">
    <li>${rest.length ? html`<a href=${href([parts[0]])}>${page?.label ?? parts[0]}</a>` : html`<span aria-current="page">${page?.label ?? parts[0]}</span>`}</li>
    ${rest.map((each, index) => html`<li key=${index}>${index === rest.length - 1
      ? html`<span aria-current="page">${each}</span>`
      : html`<a href=${href(parts.slice(0, index + 2))}>${each}</a>`}</li>`)}
  </ol></nav>`;
}

const PROBE_MS = 3000;

// Said once for the whole page, whose parts keep what they last had.
function Away() {
  const isAway = useStore(isAgentAway);
  useEffect(() => {
    if (!isAway) return undefined;
    const timer = setInterval(() => get("/health/live").catch(() => null), PROBE_MS);
    return () => clearInterval(timer);
  }, [isAway]);
  return isAway && html`<${Notice} kind="bad">The agent can't be reached. The console tries again.</${Notice}>`;
}

export function Frame({ children }) {
  const { parts } = useRoute();
  const readOnly = useStore(isReadOnly);
  const [menu, setMenu] = useState(false);
  useEffect(() => {
    setMenu(false);
    const page = PAGES.find((each) => each.id === parts[0]);
    document.title = `${[...parts.slice(1).reverse(), page?.label ?? parts[0]].join(" · ")} – StreamHouse`;
  }, [parts.join("/")]);
  return html`<a class="skip" href="#main">Skip to the page</a>
    <div class="frame">
      <${Side} active=${parts[0]} isOpen=${menu} onClose=${() => setMenu(false)} />
      <button type="button" class="curtain ${menu ? "is-open" : ""}" aria-label="Close the navigation" onClick=${() => setMenu(false)}></button>
      <div class="main">
        <header class="top">
          <button type="button" class="icon-button menu-button" aria-label="Navigation" aria-expanded=${menu} aria-controls="side" onClick=${() => setMenu(!menu)}><${Icon} name="menu" /></button>
          <${Crumbs} parts=${parts} />${readOnly && html`<${Badge} kind="info">read only</${Badge}>`}<div class="space"></div>
          <button type="button" class="finder" onClick=${openPalette} aria-label="Search and commands"><${Icon} name="search" /><span>Search or jump to…</span><kbd>Ctrl K</kbd></button>
          <button type="button" class="icon-button" aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)" onClick=${showKeys}><${Icon} name="help" /></button>
          <button type="button" class="icon-button" aria-label="Switch between dark and light" title="Dark or light" onClick=${switchTheme}><${Icon} name="theme" /></button>
        </header>
        <main class="page" id="main" tabindex="-1"><${Away} />${children}</main>
      </div>
    </div>`;
}
