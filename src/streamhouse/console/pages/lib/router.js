// URLs: every state that is worth sharing has one. `/console/topics/orders?tab=settings` is ["topics", "orders"].
import { createStore, useStore } from "./store.js";

const BASE = "/console";

const decoded = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

function read() {
  const path = location.pathname.startsWith(BASE) ? location.pathname.slice(BASE.length) : "";
  const parts = path.split("/").filter(Boolean).map(decoded);
  return { parts: parts.length ? parts : ["overview"], query: new URLSearchParams(location.search) };
}

const route = createStore(read());
addEventListener("popstate", () => route.set(read()));

export const useRoute = () => useStore(route);

export function href(parts, query = {}) {
  const entries = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = new URLSearchParams(entries).toString();
  return `${BASE}/${parts.map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}

export function go(url, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", url);
  const before = route.get().parts.join("/");
  route.set(read());
  if (before !== route.get().parts.join("/")) scrollTo(0, 0);
}

// One parameter of the URL. Typing replaces the entry of the history, choosing adds one.
export function useQuery(name, fallback = "") {
  const { query } = useRoute();
  const set = (value, options) => setQuery({ [name]: value === fallback ? "" : value }, options);
  return [query.get(name) ?? fallback, set];
}

export function setQuery(changes, options) {
  const { parts, query } = route.get();
  go(href(parts, { ...Object.fromEntries(query), ...changes }), options);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || !url.pathname.startsWith(`${BASE}/`) || link.target || link.hasAttribute("download")) return;
  event.preventDefault();
  go(url.pathname + url.search);
});
