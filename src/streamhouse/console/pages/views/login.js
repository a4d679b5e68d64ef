// The login page: user and password, an API key, or an OpenID provider.
import { html, useEffect, useState } from "../lib/html.js";
import { go } from "../lib/router.js";
import { comeBack, goToProvider, logInWithPassword, logInWithToken, RETURN_PATH, ways } from "../lib/session.js";
import { useStore } from "../lib/store.js";
import { Field, Notice } from "../ui/parts.js";

const FILES = new URL("..", import.meta.url).pathname;

export function Login() {
  const [withKey, setWithKey] = useState(false);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const { provider } = useStore(ways);
  const begin = () => goToProvider().catch((failure) => setError(failure.message));
  useEffect(() => {
    if (location.pathname !== RETURN_PATH) return;
    const query = new URLSearchParams(location.search);
    go("/console/overview", { replace: true });
    if (!query.get("state")) return;
    setBusy(true);
    comeBack(query).then((url) => go(url, { replace: true }), (failure) => {
      setError(failure.message);
      setBusy(false);
    });
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    setBusy(true);
    setError("");
    try {
      if (withKey) await logInWithToken(form.get("token").trim());
      else await logInWithPassword(form.get("user"), form.get("password"));
    } catch (failure) {
      setError(failure.message);
      setBusy(false);
    }
  };
  return html`<main class="gate"><form onSubmit=${submit}>
    <h1><img src="${FILES}icon.svg" alt="" />StreamHouse</h1>
    <p class="muted">Log in to this cluster.</p>
    ${error && html`<${Notice} kind="bad">${error}</${Notice}>`}
    ${withKey
      ? html`<${Field} label="API key or token"><input type="password" name="token" autocomplete="off" required autofocus /></${Field}>`
      : html`<${Field} label="User"><input type="text" name="user" autocomplete="username" required autofocus /></${Field}>
        <${Field} label="Password"><input type="password" name="password" autocomplete="current-password" required /></${Field}>`}
    <button class="button primary" disabled=${busy}>${busy ? "Logging in…" : "Log in"}</button>
    <button type="button" class="button quiet" onClick=${() => setWithKey(!withKey)}>${withKey ? "Use a password" : "Use an API key"}</button>
    ${provider && html`<button type="button" class="button" disabled=${busy} onClick=${begin}>Log in with ${new URL(provider.authorize_url).host}</button>`}
  </form></main>`;
}
