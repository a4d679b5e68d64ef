// Who is logged in. Passwords are not kept: a password is exchanged for an API key of the user's own that expires, and
// only this tab knows it. Requests carry it in a header, so other sites and other ports of this host can't use it.
import { createStore } from "./store.js";

const STORED = "streamhouse.login";
const HOURS = 12;

const read = () => {
  try {
    return JSON.parse(sessionStorage.getItem(STORED));
  } catch {
    return null;
  }
};

let login = read();
export const needsLogin = createStore(false);

export const authorization = () => (login ? { authorization: `Bearer ${login.token}` } : {});
export const isLoggedIn = () => login !== null;

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

export async function logInWithPassword(user, password) {
  const bytes = new TextEncoder().encode(`${user}:${password}`);
  const basic = btoa(String.fromCharCode(...bytes));
  const response = await fetch("/v1/keys", {
    method: "POST",
    credentials: "omit",
    headers: { authorization: `Basic ${basic}`, "content-type": "application/json" },
    body: JSON.stringify({ description: "console", ttl_s: HOURS * 3600 }),
  });
  const made = await checked(response);
  keep({ token: made.api_key, keyId: made.key.key_id });
  needsLogin.set(false);
}

export async function logInWithToken(token) {
  const headers = { authorization: `Bearer ${token}` };
  await checked(await fetch("/v1/whoami", { headers, credentials: "omit" }));
  keep({ token, keyId: null });
  needsLogin.set(false);
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
