// Small parts that all pages use.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { AgentAway } from "../lib/api.js";
import { useQuery } from "../lib/router.js";
import { toast } from "./toasts.js";
import { Icon } from "./icons.js";

export const Card = ({ title, actions, children, class: name = "", flush = false }) => html`
  <section class="card ${name}">
    ${(title || actions) && html`<header><h2>${title}</h2>${actions && html`<div class="actions">${actions}</div>`}</header>`}
    ${flush ? children : html`<div class="body">${children}</div>`}
  </section>`;

export const PageHead = ({ title, about, actions, badge }) => html`
  <div class="page-head">
    <div class="titles"><h1>${title} ${badge}</h1>${about && html`<p class="muted">${about}</p>`}</div>
    ${actions && html`<div class="actions">${actions}</div>`}
  </div>`;

// A name that breaks behind its dots and dashes, where it must.
export const Breaking = ({ text }) => text.split(/(?<=[._-])/).map((part, index) => html`${index > 0 && html`<wbr />`}${part}`);

export const Badge = ({ kind = "", children }) => html`<span class="badge ${kind}">${children}</span>`;

export const Empty = ({ icon = "search", title, children }) => html`
  <div class="empty"><${Icon} name=${icon} /><strong>${title}</strong><div>${children}</div></div>`;

export const Notice = ({ kind = "", children }) => html`<div class="notice ${kind}" role=${kind === "bad" ? "alert" : "note"}><div>${children}</div></div>`;

// What a request failed with; a refusal says which right is missing, in the agent's words.
export const Problem = ({ of: { line, column, text, hint } }) => html`<div>${line > 0 && `Line ${line}, column ${column}: `}${text}${hint && html`<div class="small">Hint: ${hint}</div>`}</div>`;

export const Failure = ({ error }) => html`
  <${Notice} kind="bad">${error.status === 403 ? "Not allowed: " : ""}${error.problems?.length ? error.problems.map((each, index) => html`<${Problem} key=${index} of=${each} />`) : error.message.replace(/^not authorised; /, "")}${(error.fields ?? []).map(
    (each) => html`<br /><code>${each.path}</code> ${each.reason}`)}</${Notice}>`;

// Whether what is shown is being refreshed.
export const Live = ({ error }) => html`<span class="live ${error ? "is-off" : ""}">${error ? "interrupted" : "live"}</span>`;

// The data of `useData`: loading, the error, or what is shown. Old data stays on the screen while an agent is away, which
// the frame says.
export function Loaded({ of, children }) {
  if (of.data === undefined) return of.error && !(of.error instanceof AgentAway) ? html`<${Failure} error=${of.error} />` : html`<div class="loading" role="status">Loading…</div>`;
  return html`${of.error && !(of.error instanceof AgentAway) && html`<${Failure} error=${of.error} />`}${children(of.data)}`;
}

// On a phone the tabs scroll sideways; the active one is in view.
export function Tabs({ tabs, active, label }) {
  const element = useRef(null);
  useEffect(() => {
    const chosen = element.current.querySelector("[aria-current]");
    if (chosen) element.current.scrollLeft = chosen.offsetLeft + chosen.offsetWidth - element.current.clientWidth + 24;
  }, [active]);
  return html`<nav class="tabs" aria-label=${label} ref=${element}>
    ${tabs.map((each) => html`<a key=${each.id} href=${each.href} aria-current=${each.id === active ? "page" : undefined}>${each.label}</a>`)}
  </nav>`;
}

export const Field = ({ label, about, children }) => html`
  <label class="field"><span>${label}</span>${children}${about && html`<small>${about}</small>`}</label>`;

export function Search({ placeholder, name = "q" }) {
  const [value, setValue] = useQuery(name);
  return html`<input type="search" data-search value=${value} placeholder=${placeholder} aria-label=${placeholder}
    onInput=${(event) => setValue(event.target.value, { replace: true })} />`;
}

export function Choice({ label, value, options, onChange }) {
  return html`<${Field} label=${label}><select value=${value} onChange=${(event) => onChange(event.target.value)}>
    ${options.map(([key, text]) => html`<option key=${key} value=${key} selected=${key === value}>${text}</option>`)}</select></${Field}>`;
}

export function Copy({ text, label = "Copy" }) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text());
      toast("Copied.");
    } catch {
      toast("The browser doesn't allow copying here; it needs https or localhost.", "warn");
    }
  };
  return html`<button type="button" class="button tiny" onClick=${copy}>${label}</button>`;
}

// A button whose action runs once at a time and whose failure is told.
export function Action({ run, children, class: name = "", disabled = false, ...rest }) {
  const [busy, setBusy] = useState(false);
  const click = async () => {
    setBusy(true);
    try {
      await run();
    } catch (error) {
      toast(error.message, "bad");
    } finally {
      setBusy(false);
    }
  };
  return html`<button type="button" class="button ${name}" disabled=${busy || disabled} onClick=${click} ...${rest}>${children}</button>`;
}

export const Bar = ({ share, color = "var(--c1)" }) => html`<div class="bar" aria-hidden="true"><i style=${{ width: `${Math.min(100, Math.max(0, share * 100))}%`, background: color }}></i></div>`;

export const Tile = ({ label, value, unit, note, points, color }) => html`
  <div class="card tile"><span class="label">${label}</span><span class="value">${value} ${unit && html`<small>${unit}</small>`}</span>
    ${note && html`<span class="note">${note}</span>`}${points && html`<${Spark} points=${points} color=${color} />`}</div>`;

function Spark({ points, color = "var(--c1)" }) {
  const known = points.map((each) => each ?? 0);
  const top = Math.max(...known, 1e-9);
  const line = known.map((each, index) => `${(index / Math.max(1, known.length - 1)) * 100},${28 - (each / top) * 26}`).join(" ");
  return html`<svg class="spark" viewBox="0 0 100 30" preserveAspectRatio="none" aria-hidden="true">
    ${known.length > 1 && html`<polygon points="0,30 ${line} 100,30" style=${{ fill: color, opacity: 0.13 }} />
    <polyline points=${line} style=${{ fill: "none", stroke: color, strokeWidth: 1.6, vectorEffect: "non-scaling-stroke" }} />`}</svg>`;
}
