// Creating and changing topics. What each setting means comes from the agent.
import { html, useState } from "../lib/html.js";
import { get, patch, path, post } from "../lib/api.js";
import { settingValue } from "../lib/format.js";
import { useData } from "../lib/live.js";
import { go, href, useQuery } from "../lib/router.js";
import { confirm, showDialog } from "../ui/dialogs.js";
import { Badge, Breaking, Card, Failure, Field, Loaded, Search } from "../ui/parts.js";
import { Table } from "../ui/table.js";
import { toast } from "../ui/toasts.js";

const COMMON = ["retention.ms", "retention.bytes", "cleanup.policy"];

export const createTopic = () => showDialog(NewTopic, { label: "Create a topic" });

function NewTopic({ close }) {
  const [error, setError] = useState(null);
  const known = useData((signal) => get("/v1/topic-settings", {}, { signal }));
  const submit = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const settings = Object.fromEntries(COMMON.map((name) => [name, form.get(name)]).filter(([, value]) => value));
    try {
      const made = await post("/v1/topics", { name: form.get("name"), partitions: Number(form.get("partitions")), settings });
      close();
      toast(`Topic ${made.name} created.`);
      go(href(["topics", made.name]));
    } catch (failure) {
      setError(failure);
    }
  };
  const about = Object.fromEntries((known.data?.settings ?? []).map((each) => [each.name, each]));
  return html`<form class="stack" onSubmit=${submit}>
    <h2>Create a topic</h2>
    <${Field} label="Name" about="Letters, digits and . _ -"><input type="text" name="name" required maxlength="249" pattern="[A-Za-z0-9._\\-]+" autocomplete="off" autofocus /></${Field}>
    <${Field} label="Partitions" about="The number can grow later, never shrink; keys then go to other partitions."><input type="number" name="partitions" min="1" value="3" required /></${Field}>
    ${COMMON.map((name) => html`<${Field} key=${name} label=${name} about=${about[name]?.about}><input type="text" name=${name} autocomplete="off" placeholder=${about[name]?.default ?? ""} /></${Field}>`)}
    <p class="muted small">A setting that is left empty has its default, which is shown in grey. Every other setting is on the topic's page.</p>
    ${error && html`<${Failure} error=${error} />`}
    <div class="foot"><button type="button" class="button" onClick=${() => close()}>Cancel</button><button class="button primary">Create</button></div>
  </form>`;
}

export function growTopic(topic, onDone) {
  const Form = ({ close }) => {
    const [error, setError] = useState(null);
    const submit = async (event) => {
      event.preventDefault();
      try {
        await patch(path("v1", "topics", topic.name), { partitions: Number(new FormData(event.target).get("partitions")) });
        close();
        toast("The topic has more partitions.");
        onDone();
      } catch (failure) {
        setError(failure);
      }
    };
    return html`<form class="stack" onSubmit=${submit}><h2>More partitions</h2>
      <p>Records with a key go to other partitions from then on; what is stored stays where it is. The number can't shrink again.</p>
      <${Field} label="Partitions"><input type="number" name="partitions" min=${topic.partitions + 1} value=${topic.partitions + 1} required /></${Field}>
      ${error && html`<${Failure} error=${error} />`}
      <div class="foot"><button type="button" class="button" onClick=${() => close()}>Cancel</button><button class="button primary">Add partitions</button></div></form>`;
  };
  return showDialog(Form, { label: "More partitions" });
}

export function TopicSettings({ topic, onChanged }) {
  const [filter] = useQuery("q");
  const [own] = useQuery("own");
  const known = useData((signal) => get("/v1/topic-settings", {}, { signal }));
  return html`<${Card} flush><div class="toolbar"><${Search} placeholder="Filter settings" />
      <a class="button tiny" href=${href(["topics", topic.name], { tab: "settings", own: own ? "" : "1" })}>${own ? "Show all" : "Only those of this topic"}</a></div>
    <${Loaded} of=${known}>${({ settings }) => {
      const rows = settings.map((each) => ({ ...each, value: topic.effective_settings[each.name], isOwn: each.name in topic.settings })).filter((each) => (own ? each.isOwn : true));
      const columns = [
        { id: "name", label: "Setting", value: (row) => row.name, cell: (row) => html`<code class="setting"><${Breaking} text=${row.name} /></code> ${row.isOwn && html`<${Badge} kind="info">own</${Badge}>`}` },
        { id: "value", label: "Value", value: (row) => row.value ?? "", cell: (row) => html`<span class="mono break wide">${row.value ?? "–"}</span><div class="muted small">${settingValue(row.name, row.value)}</div>` },
        { id: "about", label: "Meaning", value: (row) => row.about },
        { id: "change", label: "", cell: (row) => html`<button type="button" class="write button tiny" aria-label=${`Change ${row.name}`} onClick=${() => changeSetting(topic, row, onChanged)}>Change</button>` },
      ];
      return html`<${Table} label="Settings" columns=${columns} rows=${rows} rowKey=${(row) => row.name} filter=${filter} empty="The topic has no settings of its own." />`;
    }}</${Loaded}></${Card}>`;
}

function changeSetting(topic, setting, onChanged) {
  const Form = ({ close }) => {
    const [value, setValue] = useState(setting.value ?? "");
    const ask = async (event, next) => {
      event.preventDefault();
      close();
      const done = await confirm({
        title: `Change ${setting.name}?`, action: "Change", danger: /retention|cleanup/.test(setting.name),
        about: next === null ? "The topic gets the default of the cluster again." : html`From <code>${setting.value ?? ""}</code> to <code>${next}</code> ${settingValue(setting.name, next)}.`,
        run: () => patch(path("v1", "topics", topic.name), { settings: { [setting.name]: next } }),
      });
      if (done) {
        toast(`${setting.name} changed.`);
        onChanged();
      }
    };
    return html`<form class="stack" onSubmit=${(event) => ask(event, value)}>
      <h2><code>${setting.name}</code></h2><p>${setting.about}</p>
      <${Field} label=${`Value (${setting.type})`} about=${`Default: ${setting.default || "none"} ${settingValue(setting.name, setting.default)}`}>
        <input type="text" autocomplete="off" value=${value} onInput=${(event) => setValue(event.target.value)} autofocus /></${Field}>
      <div class="foot">${setting.isOwn && html`<button type="button" class="button" onClick=${(event) => ask(event, null)}>Use the default</button>`}
        <button type="button" class="button" onClick=${() => close()}>Cancel</button><button class="button primary">Continue</button></div></form>`;
  };
  return showDialog(Form, { label: setting.name });
}
