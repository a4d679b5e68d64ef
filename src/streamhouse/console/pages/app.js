// The console's beginning: finds out whether a login is needed, then shows the page of the URL.
import { html, render, useEffect, useErrorBoundary, useState } from "./lib/html.js";
import { useStore } from "./lib/store.js";
import { useRoute } from "./lib/router.js";
import { RETURN_PATH, authorization, expire, learnWays, needsLogin } from "./lib/session.js";
import { Frame } from "./ui/frame.js";
import { Dialogs } from "./ui/dialogs.js";
import { Palette } from "./ui/palette.js";
import { Toasts } from "./ui/toasts.js";
import { Empty, Failure } from "./ui/parts.js";
import { onKey } from "./ui/keys.js";
import { Login } from "./views/login.js";

// The module of each page, loaded when it is first shown.
const VIEWS = {
  overview: () => import("./views/overview.js"),
  topics: () => import("./views/topics.js"),
  groups: () => import("./views/groups.js"),
  schemas: () => import("./views/schemas.js"),
  transactions: () => import("./views/transactions.js"),
  pipelines: () => import("./views/pipelines.js"),
  sql: () => import("./views/sql.js"),
  tables: () => import("./views/tables.js"),
  agents: () => import("./views/agents.js"),
  security: () => import("./views/security.js"),
  settings: () => import("./views/settings.js"),
};

function View() {
  const { parts } = useRoute();
  const [loaded, setLoaded] = useState({});
  const [error, reset] = useErrorBoundary();
  const load = VIEWS[parts[0]];
  useEffect(() => {
    if (error) reset();
    let current = true;
    load?.().then((module) => current && setLoaded({ id: parts[0], Page: module.Page }));
    return () => (current = false);
  }, [parts.join("/")]);
  if (!load) return html`<${Empty} title="No such page">The console has no page with this address.</${Empty}>`;
  if (error) return html`<${Failure} error=${error} />`;
  if (loaded.id !== parts[0]) return html`<div class="loading" role="status">Loading…</div>`;
  return html`<${loaded.Page} key=${parts[0]} parts=${parts.slice(1)} />`;
}

function Console() {
  const locked = useStore(needsLogin);
  return html`${locked ? html`<${Login} />` : html`<${Frame}><${View} /></${Frame}><${Palette} />`}<${Dialogs} /><${Toasts} />`;
}

async function begin() {
  await learnWays();
  const response = await fetch("/v1/whoami", { headers: authorization(), credentials: "omit" }).catch(() => null);
  if (response?.status === 401 || location.pathname === RETURN_PATH) expire();
  document.addEventListener("keydown", (event) => !needsLogin.get() && onKey(event));
  render(html`<${Console} />`, document.getElementById("app"));
}

begin();
