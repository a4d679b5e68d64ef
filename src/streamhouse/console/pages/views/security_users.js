// Users and API keys.
import { html, useState } from "../lib/html.js";
import { get, path, post, put, remove } from "../lib/api.js";
import { time } from "../lib/format.js";
import { useData } from "../lib/live.js";
import { basic, userName } from "../lib/session.js";
import { confirm } from "../ui/dialogs.js";
import { showForm } from "../ui/forms.js";
import { Badge, Card, Copy, Field, Loaded } from "../ui/parts.js";
import { Table } from "../ui/table.js";
import { toast } from "../ui/toasts.js";

export function Users() {
  const users = useData((signal) => get("/v1/users", {}, { signal }));
  const create = () => showForm({ title: "Create a user", action: "Create", fields: [["name", "Name"], ["password", "Password", "password"]],
    run: (form) => post("/v1/users", form), onDone: users.reload, done: "The user is created. Without access rules it may do nothing." });
  const change = (row) => showForm({ title: `Change the password of ${row.name}`, action: "Change", fields: [["password", "New password", "password"]], run: (form) => put(path("v1", "users", row.name, "password"), form), onDone: users.reload, done: "The password is changed." });
  const drop = async (row) => (await confirm({ title: `Delete the user ${row.name}?`, danger: true, action: "Delete", about: "Its API keys and its places in roles go with it.", run: () => remove(path("v1", "users", row.name)) })) && users.reload();
  const columns = [
    { id: "name", label: "User", value: (row) => row.name, cell: (row) => html`<span class="break">${row.name}</span>` },
    { id: "mechanisms", label: "Logs in with", value: (row) => row.mechanisms.join(", "), cell: (row) => html`<span class="nowrap">${row.mechanisms.join(", ")}</span>` },
    { id: "created", label: "Created", value: (row) => row.created_at_ms, cell: (row) => html`<span class="nowrap">${time(row.created_at_ms)}</span>` },
    { id: "actions", label: "", cell: (row) => html`<div class="row"><button type="button" class="write button tiny" onClick=${() => change(row)}>Password</button><button type="button" class="write button tiny danger" onClick=${() => drop(row)}>Delete</button></div>` },
  ];
  return html`<${Card} title="Users with passwords" flush actions=${html`<button type="button" class="write button primary tiny" onClick=${create}>Create a user</button>`}>
    <${Loaded} of=${users}>${(data) => html`<${Table} label="Users" urlSort=${false} columns=${columns} rows=${data.users} rowKey=${(row) => row.name} empty="There are no users." />`}</${Loaded}></${Card}>`;
}

export function Keys({ me }) {
  const [made, setMade] = useState("");
  const keys = useData((signal) => get("/v1/keys", {}, { signal }));
  const create = () => showForm({ title: "Create an API key", action: "Create", fields: [["principal", "For", "text", me?.principal], ["description", "Description", "text", ""], ["days", "Days until it expires; empty: until it is revoked", "number", "90"], ["password", "Your password, unless you may make keys for everybody", "password"]],
    run: async (form) => setMade((await post("/v1/keys", { principal: form.principal || null, description: form.description ?? "", ttl_s: form.days ? Number(form.days) * 86400 : null }, { login: form.password ? basic(userName(), form.password) : undefined })).api_key), onDone: keys.reload, done: "The key is created." });
  const revoke = async (row) => {
    if (await confirm({ title: "Revoke this key?", danger: true, action: "Revoke", about: html`Whoever uses <code>${row.key_id}</code> (${row.description || "no description"}) can't log in with it any more.`, run: () => remove(path("v1", "keys", row.key_id)) })) keys.reload();
  };
  const isOver = (row) => row.expires_at_ms !== null && row.expires_at_ms < Date.now();
  const columns = [
    { id: "id", label: "Key", value: (row) => row.key_id, cell: (row) => html`<code>${row.key_id}</code>` },
    { id: "for", label: "For", value: (row) => row.principal },
    { id: "about", label: "Description", value: (row) => row.description },
    { id: "created", label: "Created", value: (row) => row.created_at_ms, cell: (row) => html`<span class="nowrap">${time(row.created_at_ms)}</span>` },
    { id: "expires", label: "Expires", value: (row) => row.expires_at_ms ?? 9e15, cell: (row) => (row.expires_at_ms === null ? "never" : html`<span class="nowrap">${time(row.expires_at_ms)}</span> ${isOver(row) && html`<${Badge} kind="bad">expired</${Badge}>`}`) },
    { id: "revoke", label: "", cell: (row) => html`<button type="button" class="write button tiny danger" onClick=${() => revoke(row)}>Revoke</button>` },
  ];
  return html`${made && html`<${Card} title="The new key, shown once"><div class="stack"><${Field} label="API key"><input type="text" readonly value=${made} onFocus=${(event) => event.target.select()} /></${Field}><div class="row"><${Copy} text=${() => made} /><button type="button" class="button tiny" onClick=${() => { setMade(""); toast("The key is no longer shown."); }}>I have stored it</button></div></div></${Card}>`}
    <${Card} title="API keys" flush actions=${html`<button type="button" class="write button primary tiny" onClick=${create}>Create a key</button>`}>
    <${Loaded} of=${keys}>${(data) => html`<${Table} label="API keys" urlSort=${false} columns=${columns} rows=${data.keys} rowKey=${(row) => row.key_id} empty="There are no keys." />`}</${Loaded}></${Card}>`;
}
