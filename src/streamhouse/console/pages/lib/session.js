// Who is logged in. Passwords are not kept: a password is exchanged for an API key of the user's own that expires, and
// only this tab knows it. Requests carry it in a header, so other sites and other ports of this host can't use it.
import { createStore } from "./store.js";

const STORED = "streamhouse.login";
const READ_ONLY = "streamhouse.read_only";
const HOURS = 12;

const read = () => {
  try {
    return JSON.parse(sessionStorage.getItem(STORED));
  } catch {
    return null;
  }
};

let login = read();
const PENDING = "streamhouse.pending";
export const RETURN_PATH = "/console/login";

export const needsLogin = createStore(false);
export const ways = createStore({ provider: null, read_only: false, tail_records: 1000 });
export const isReadOnly = createStore(false);

export const authorization = () => (login ? { authorization: `Bearer ${login.token}` } : {});
export const isLoggedIn = () => login !== null;
// Lists have what the user may see; an empty one says so.
export const visible = () => (login ? " that you may see" : "");
export const userName = () => login?.user ?? "";

function keep(next) {
  login = next;
  if (next) sessionStorage.setItem(STORED, JSON.stringify(next));
  else sessionStorage.removeItem(STORED);
}

async function checked(response) {
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(response.status === 401 ? "Wrong user, password or key." : body.detail ?? `HTTP ${response.status}`);
  return body;
}

// For a request for which the key of this tab is not enough: one that makes a key which outlives it.
export function basic(user, password) {
  const bytes = new TextEncoder().encode(`${user}:${password}`);
  return { authorization: `Basic ${btoa(String.fromCharCode(...bytes))}` };
}

export async function logInWithPassword(user, password) {
  const response = await fetch("/v1/keys", {
    method: "POST",
    credentials: "omit",
    headers: { ...basic(user, password), "content-type": "application/json" },
    body: JSON.stringify({ description: "console", ttl_s: HOURS * 3600 }),
  });
  const made = await checked(response);
  keep({ token: made.api_key, keyId: made.key.key_id, user });
  needsLogin.set(false);
}

export async function logInWithToken(token) {
  const headers = { authorization: `Bearer ${token}` };
  const me = await checked(await fetch("/v1/whoami", { headers, credentials: "omit" }));
  keep({ token, keyId: null, user: me.principal.replace(/^User:/, "") });
  needsLogin.set(false);
}

// What this cluster's logins are, and whether the console may change anything; this tab can choose to change nothing.
export async function learnWays() {
  const known = await fetch("/v1/login", { credentials: "omit" }).then(checked).catch(() => ways.get());
  ways.set(known);
  setReadOnly(known.read_only || sessionStorage.getItem(READ_ONLY) === "1");
}

export function setReadOnly(value) {
  const next = value || ways.get().read_only;
  if (next) sessionStorage.setItem(READ_ONLY, "1");
  else sessionStorage.removeItem(READ_ONLY);
  document.documentElement.toggleAttribute("data-read-only", next);
  isReadOnly.set(next);
}

const urlSafe = (bytes) => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const chance = () => urlSafe(crypto.getRandomValues(new Uint8Array(32)));

// To the provider, with the hash of a secret that only this tab knows (PKCE), and a state that must come back.
export async function goToProvider() {
  const { authorize_url: url, client_id, scope } = ways.get().provider;
  if (!crypto.subtle) throw new Error("The browser allows this login over https or on localhost only.");
  const pending = { verifier: chance(), state: chance(), url: location.pathname + location.search };
  sessionStorage.setItem(PENDING, JSON.stringify(pending));
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(pending.verifier)));
  const query = { response_type: "code", client_id, scope, redirect_uri: location.origin + RETURN_PATH, state: pending.state, code_challenge: urlSafe(hash), code_challenge_method: "S256" };
  location.assign(`${url}${url.includes("?") ? "&" : "?"}${new URLSearchParams(query)}`);
}

// Back from the provider: exchanges the code, and returns the address that was wanted. Throws if it isn't our answer.
export async function comeBack(query) {
  const pending = JSON.parse(sessionStorage.getItem(PENDING) ?? "null");
  sessionStorage.removeItem(PENDING);
  if (query.get("error")) throw new Error(`The provider refused: ${query.get("error_description") ?? query.get("error")}`);
  if (!pending || !query.get("code") || query.get("state") !== pending.state) throw new Error("This login was not begun here. Log in again.");
  const body = { code: query.get("code"), verifier: pending.verifier, redirect_uri: location.origin + RETURN_PATH };
  const { tokens } = await checked(await fetch("/v1/login/code", { method: "POST", credentials: "omit", headers: { "content-type": "application/json" }, body: JSON.stringify(body) }));
  for (const token of tokens) {
    try {
      await logInWithToken(token);
      return pending.url.startsWith(RETURN_PATH) ? "/console/overview" : pending.url;
    } catch {
      // the next one may be for this cluster
    }
  }
  throw new Error("The agent accepts none of the provider's tokens. Its audience or scope differs.");
}

// Ends the login here; a key that the password was exchanged for is revoked.
export async function logOut() {
  if (login?.keyId) {
    await fetch(`/v1/keys/${login.keyId}`, { method: "DELETE", headers: authorization(), credentials: "omit" }).catch(() => null);
  }
  expire();
}

export function expire() {
  keep(null);
  needsLogin.set(true);
}
