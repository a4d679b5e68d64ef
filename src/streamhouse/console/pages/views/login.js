// The login page: user and password, or an API key.
import { html, useState } from "../lib/html.js";
import { logInWithPassword, logInWithToken } from "../lib/session.js";
import { Field, Notice } from "../ui/parts.js";

const FILES = new URL("..", import.meta.url).pathname;

export function Login() {
  const [withKey, setWithKey] = useState(false);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
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
  </form></main>`;
}
