// Access rules, roles and quotas.
import { html } from "../lib/html.js";
import { get, path, post, put, remove } from "../lib/api.js";
import { bytes, number } from "../lib/format.js";
import { useData } from "../lib/live.js";
import { useQuery } from "../lib/router.js";
import { confirm } from "../ui/dialogs.js";
import { showForm } from "../ui/forms.js";
import { Badge, Card, Loaded, Search } from "../ui/parts.js";
import { Table } from "../ui/table.js";

const OPERATIONS = ["all", "read", "write", "create", "delete", "alter", "describe", "cluster-action", "describe-configs", "alter-configs", "idempotent-write", "run-code", "run-sql"];
const RESOURCES = ["topic", "group", "cluster", "transactional-id", "delegation-token", "user", "subject", "pipeline", "view", "table"];
const LIMITS = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"];

export function Rules() {
  const [filter] = useQuery("q");
  const rules = useData((signal) => get("/v1/acls", {}, { signal }));
  const create = () => showForm({ title: "Create an access rule", action: "Create", onDone: rules.reload, done: "The rule holds within a second.",
    fields: [["permission", "Rule", ["allow", "deny"]], ["principal", "For", "text", "User:"], ["operation", "Operation", OPERATIONS], ["resource_type", "On", RESOURCES], ["name", "Name; kafka-cluster for the cluster", "text", "*"], ["pattern", "The name is", ["literal", "prefixed"]], ["host", "From", "text", "*"]],
    run: (form) => post("/v1/acls", { acls: [form] }) });
  const drop = async (row) => (await confirm({ title: "Delete this rule?", danger: true, action: "Delete", about: html`${row.permission} <code>${row.principal}</code> ${row.operation} on ${row.resource_type} <code>${row.name}</code>`,
    run: () => remove("/v1/acls", row) })) && rules.reload();
  const columns = [
    { id: "permission", label: "Rule", value: (row) => row.permission, cell: (row) => html`<${Badge} kind=${row.permission === "allow" ? "ok" : "bad"}>${row.permission}</${Badge}>` },
    { id: "principal", label: "For", value: (row) => row.principal, cell: (row) => html`<code class="break">${row.principal}</code>` },
    { id: "operation", label: "Operation", value: (row) => row.operation },
    { id: "type", label: "On", value: (row) => row.resource_type },
    { id: "name", label: "Name", value: (row) => row.name, cell: (row) => html`<code class="break">${row.name}${row.pattern === "prefixed" ? "…" : ""}</code>` },
    { id: "host", label: "From", value: (row) => row.host },
    { id: "delete", label: "", cell: (row) => html`<button type="button" class="write button tiny danger" onClick=${() => drop(row)}>Delete</button>` },
  ];
  return html`<${Card} flush><div class="toolbar"><${Search} placeholder="Filter rules" /><div style=${{ marginLeft: "auto" }}><button type="button" class="write button primary" onClick=${create}>Create a rule</button></div></div>
    <${Loaded} of=${rules}>${(data) => html`<${Table} label="Access rules" urlSort=${false} columns=${columns} rows=${data.acls} rowKey=${(row) => JSON.stringify(row)} filter=${filter} empty="There are no rules." />`}</${Loaded}></${Card}>`;
}

export function Roles() {
  const roles = useData((signal) => get("/v1/roles", {}, { signal }));
  const add = (role = "") => showForm({ title: "Add a member to a role", action: "Add", fields: [["role", "Role", "text", role], ["member", "Member", "text", "User:"]], onDone: roles.reload, done: "Added.",
    run: (form) => post(path("v1", "roles", form.role, "members"), { add: [form.member], remove: [] }) });
  const drop = async (role, member) => (await confirm({ title: "Remove the member?", danger: true, action: "Remove", about: html`<code>${member}</code> loses what the role <code>${role}</code> allows.`,
    run: () => post(path("v1", "roles", role, "members"), { add: [], remove: [member] }) })) && roles.reload();
  const columns = [
    { id: "name", label: "Role", value: (row) => row.name },
    { id: "members", label: "Members", value: (row) => row.members.length, cell: (row) => html`<div class="row">${row.members.map((each) => html`<span key=${each} class="badge">${each} <button type="button" class="write button quiet tiny" aria-label=${`Remove ${each}`} onClick=${() => drop(row.name, each)}>×</button></span>`)}</div>` },
    { id: "add", label: "", cell: (row) => html`<button type="button" class="write button tiny" onClick=${() => add(row.name)}>Add a member</button>` },
  ];
  return html`<${Card} title="Roles" flush actions=${html`<button type="button" class="write button primary tiny" onClick=${() => add()}>Add a role</button>`}>
    <${Loaded} of=${roles}>${(data) => html`<${Table} label="Roles" urlSort=${false} columns=${columns} rows=${data.roles} rowKey=${(row) => row.name} empty="There are no roles. A role is there as long as it has members." />`}</${Loaded}></${Card}>`;
}

const named = (entity) => Object.entries(entity).map(([kind, name]) => `${kind} ${name}`).join(", ");

export function Quotas() {
  const quotas = useData((signal) => get("/v1/quotas", {}, { signal }));
  const set = (row) => showForm({ title: "Set a limit", action: "Set", onDone: quotas.reload, done: "The limit holds for the whole cluster.",
    fields: [...(row ? [] : [["kind", "Of", ["user", "client-id", "ip"]], ["name", "Name; <default> for everybody else", "text", ""]]), ["limit", "Limit", LIMITS], ["value", "Value; empty removes it", "number", ""]],
    run: (form) => put("/v1/quotas", { entity: row?.entity ?? { [form.kind]: form.name }, limits: { [form.limit]: form.value ? Number(form.value) : null } }) });
  const columns = [
    { id: "entity", label: "Of", value: (row) => named(row.entity) },
    { id: "limits", label: "Limits", value: (row) => Object.keys(row.limits).length, cell: (row) => html`<dl class="pair">${Object.entries(row.limits).map(([name, value]) => html`<dt key=${`${name}k`}>${name}</dt><dd key=${`${name}v`}>${name.endsWith("byte_rate") ? `${bytes(value)}/s` : number(value)}</dd>`)}</dl>` },
    { id: "set", label: "", cell: (row) => html`<button type="button" class="write button tiny" onClick=${() => set(row)}>Change</button>` },
  ];
  return html`<${Card} title="Quotas" flush actions=${html`<button type="button" class="write button primary tiny" onClick=${() => set(null)}>Set a limit</button>`}>
    <${Loaded} of=${quotas}>${(data) => html`<${Table} label="Quotas" urlSort=${false} columns=${columns} rows=${data.quotas} rowKey=${(row) => named(row.entity)} empty="There are no limits." />`}</${Loaded}></${Card}>`;
}
