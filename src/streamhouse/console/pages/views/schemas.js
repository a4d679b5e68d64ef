// Schemas: the subjects, and one subject with its versions, their differences, and a check of a draft.
import { html, useState } from "../lib/html.js";
import { get, path, post, remove } from "../lib/api.js";
import { plural } from "../lib/format.js";
import { parse, stringify } from "../lib/json.js";
import { useData } from "../lib/live.js";
import { sourcesOf } from "../lib/pipelines.js";
import { go, href, useQuery } from "../lib/router.js";
import { visible } from "../lib/session.js";
import { Diff } from "../ui/diff.js";
import { confirm } from "../ui/dialogs.js";
import { Action, Badge, Card, Choice, Copy, Empty, Failure, Loaded, Notice, PageHead, Search, Tabs } from "../ui/parts.js";
import { Table } from "../ui/table.js";
import { toast } from "../ui/toasts.js";

const LIST_MS = 15000;
const REGISTRY = "application/vnd.schemaregistry.v1+json";

export const Page = ({ parts }) => (parts.length ? html`<${SubjectPage} key=${parts[0]} subject=${parts[0]} />` : html`<${SubjectList} />`);

// A subject named after a topic by Kafka's usual rule.
const topicOf = (subject) => subject.match(/^(.+)-(?:key|value)$/)?.[1];

function SubjectList() {
  const [filter] = useQuery("q");
  const subjects = useData((signal) => get("/subjects", {}, { signal, accept: REGISTRY }), [], LIST_MS);
  const level = useData((signal) => get("/config", {}, { signal, accept: REGISTRY }), []);
  const columns = [
    { id: "subject", label: "Subject", value: (row) => row, cell: (row) => html`<a class="name" href=${href(["schemas", row])}>${row}</a>` },
    { id: "topic", label: "Topic", value: (row) => topicOf(row) ?? "", cell: (row) => topicOf(row) && html`<a class="name" href=${href(["topics", topicOf(row)])}>${topicOf(row)}</a>` },
    { id: "part", label: "Encodes", value: (row) => row.match(/-(key|value)$/)?.[1] ?? "–" },
  ];
  return html`<${PageHead} title="Schemas" about=${subjects.data && `${plural(subjects.data.length, "subject")}${level.data ? ` · compatibility ${level.data.compatibilityLevel}` : ""}`}
      actions=${html`<a class="write button primary" href=${href(["schemas", "new"], { tab: "draft" })}>Register a schema</a>`} />
    <${Card} flush><div class="toolbar"><${Search} placeholder="Filter subjects" /></div>
      <${Loaded} of=${subjects}>${(rows) => html`<${Table} label="Subjects" columns=${columns} rows=${rows} rowKey=${(row) => row} filter=${filter} empty=${`There are no schemas${visible()} yet.`} />`}</${Loaded}></${Card}>`;
}

async function versionsOf(subject, signal) {
  const numbers = await get(path("subjects", subject, "versions"), {}, { signal, accept: REGISTRY });
  return Promise.all(numbers.slice(-50).map((number) => get(path("subjects", subject, "versions", String(number)), {}, { signal, accept: REGISTRY })));
}

// JSON with line breaks, so that two versions can be compared by lines; Protobuf as it is.
export function pretty(text) {
  try {
    return stringify(parse(text), 2);
  } catch {
    return text;
  }
}

function SubjectPage({ subject }) {
  const [tab] = useQuery("tab", "versions");
  const isNew = subject === "new" && tab === "draft";
  const versions = useData((signal) => (isNew ? Promise.resolve([]) : versionsOf(subject, signal)), [subject]);
  const level = useData((signal) => get(path("config", subject), { defaultToGlobal: "true" }, { signal, accept: REGISTRY }).catch(() => null), [subject]);
  if (isNew) return html`<${PageHead} title="Register a schema" /><${Draft} versions=${[]} />`;
  const deleteSubject = async () => {
    const done = await confirm({ title: "Delete the subject?", danger: true, action: "Delete", type: subject,
      about: "Its versions can't be used for new records any more. Their ids stay known, so that stored records can be read.", run: () => remove(path("subjects", subject)) });
    if (done) {
      toast(`Subject ${subject} deleted.`);
      go(href(["schemas"]));
    }
  };
  const tabs = [["versions", "Versions"], ["diff", "Differences"], ["draft", "Check a draft"]];
  return html`<${PageHead} title=${subject} badge=${level.data && html`<${Badge}>${level.data.compatibilityLevel}</${Badge}>`}
      about=${versions.data && html`${plural(versions.data.length, "version")}${topicOf(subject) ? html` · <a href=${href(["topics", topicOf(subject)])}>${topicOf(subject)}</a>` : ""}`}
      actions=${html`<button type="button" class="write button danger" onClick=${deleteSubject}>Delete</button>`} />
    <${Tabs} label="Parts of the subject" active=${tab} tabs=${tabs.map(([id, label]) => ({ id, label, href: href(["schemas", subject], { tab: id === "versions" ? "" : id }) }))} />
    ${tab === "versions" && html`<${Users} subject=${subject} />`}
    <${Loaded} of=${versions}>${(found) => tab === "draft" ? html`<${Draft} subject=${subject} versions=${found} onRegistered=${versions.reload} />`
      : tab === "diff" ? html`<${Differences} versions=${found} />` : html`<${Versions} versions=${found} />`}</${Loaded}>`;
}

// Topics whose records it encodes, by its name or by their settings, and pipelines that read or write these.
async function usersOf(subject, signal) {
  const [{ topics }, pipelines] = await Promise.all([get("/v1/topics", {}, { signal }), get("/v1/pipelines", {}, { signal }).catch(() => ({ pipelines: [] }))]);
  const named = topics.filter((each) => each.name === topicOf(subject) || each.name === subject).map((each) => each.name);
  const isOf = (name) => named.includes(name);
  return { topics: named, pipelines: pipelines.pipelines.filter((each) => isOf(each.target) || sourcesOf(each).some(isOf)) };
}

function Users({ subject }) {
  const users = useData((signal) => usersOf(subject, signal), [subject]);
  return html`<${Card} title="Used by"><${Loaded} of=${users}>${({ topics, pipelines }) => html`<dl class="pair">
    <dt>Topics</dt><dd>${topics.length ? topics.map((each, index) => html`${index > 0 && ", "}<a key=${each} href=${href(["topics", each])}>${each}</a>`) : "none of that name"}</dd>
    <dt>Pipelines</dt><dd>${pipelines.length ? pipelines.map((each, index) => html`${index > 0 && ", "}<a key=${each.name} href=${href(["pipelines", each.name])}>${each.name}</a>`) : "none that read or write these topics"}</dd></dl>`}</${Loaded}></${Card}>`;
}

function Versions({ versions }) {
  return [...versions].reverse().map((each) => html`<${Card} key=${each.version} title=${html`Version ${each.version}`} actions=${html`
      <${Badge}>${each.schemaType ?? "AVRO"}</${Badge}><span class="muted small">id ${each.id}</span><${Copy} text=${() => pretty(each.schema)} />`}>
    <pre class="code" tabindex="0">${pretty(each.schema)}</pre>
    ${each.references?.length > 0 && html`<p class="muted small">Refers to ${each.references.map((reference, index) => html`${index > 0 && ", "}<a href=${href(["schemas", reference.subject])}>${reference.subject} ${reference.version}</a>`)}</p>`}
  </${Card}>`);
}

function Differences({ versions }) {
  const last = versions.at(-1)?.version;
  const [from, setFrom] = useQuery("from", String(versions.at(-2)?.version ?? last));
  const [to, setTo] = useQuery("to", String(last));
  if (versions.length < 2) return html`<${Card}><${Empty} icon="schemas" title="One version">With a second one there is something to compare.</${Empty}></${Card}>`;
  const options = versions.map((each) => [String(each.version), `Version ${each.version}`]);
  const text = (version) => pretty(versions.find((each) => String(each.version) === version)?.schema ?? "");
  return html`<${Card} flush><div class="toolbar"><${Choice} label="From" value=${from} options=${options} onChange=${setFrom} /><${Choice} label="To" value=${to} options=${options} onChange=${setTo} /></div>
    <div class="body"><${Diff} before=${text(from)} after=${text(to)} /></div></${Card}>`;
}

function Draft({ subject: given, versions, onRegistered }) {
  const newest = versions.at(-1);
  const [subject, setSubject] = useState(given ?? "");
  const [type, setType] = useState(newest?.schemaType ?? "AVRO");
  const [text, setText] = useState(newest ? pretty(newest.schema) : "");
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState(null);
  const body = { schema: text, schemaType: type };
  const check = async () => {
    setAnswer(null);
    setError(null);
    try {
      if (versions.length) setAnswer(await post(`${path("compatibility", "subjects", subject, "versions")}?verbose=true`, body, { accept: REGISTRY, reads: true }));
      else setAnswer({ is_compatible: true, messages: ["There is no version yet that it could break."] });
    } catch (failure) {
      setError(failure);
    }
  };
  const register = async () => {
    const done = await confirm({ title: "Register this version?", action: "Register", about: html`Producers of <code>${subject}</code> can use it at once. It stays known for ever.`,
      run: () => post(path("subjects", subject, "versions"), body, { accept: REGISTRY }) });
    if (!done) return;
    toast("Registered.");
    if (given) onRegistered();
    else go(href(["schemas", subject]));
  };
  return html`<${Card}><div class="stack">
    <div class="row">${!given && html`<label class="field"><span>Subject</span><input type="text" value=${subject} placeholder="orders-value" onInput=${(event) => setSubject(event.target.value)} /></label>`}
      <${Choice} label="Type" value=${type} options=${[["AVRO", "Avro"], ["JSON", "JSON Schema"], ["PROTOBUF", "Protobuf"]]} onChange=${setType} /></div>
    <label class="field"><span>Schema</span><textarea rows="18" spellcheck="false" value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>
    ${error && html`<${Failure} error=${error} />`}
    ${answer && html`<${Notice} kind=${answer.is_compatible ? "ok" : "bad"}>${answer.is_compatible ? "It fits the versions that are there." : "It doesn't fit the versions that are there."}
      ${(answer.messages ?? []).map((each, index) => html`<div key=${index} class="small">${each}</div>`)}</${Notice}>`}
    ${newest && text !== pretty(newest.schema) && html`<details><summary>Differences to version ${newest.version}</summary><${Diff} before=${pretty(newest.schema)} after=${text} /></details>`}
    <div class="row"><${Action} run=${check} disabled=${!subject || !text}>Check</${Action}><${Action} class="write primary" run=${register} disabled=${!subject || !text}>Register</${Action}></div>
  </div></${Card}>`;
}
