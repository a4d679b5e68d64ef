"use strict";
// The page is made of /openapi.json alone: what the document has, it shows, and what it shows can be tried.

const make = (name, attributes = {}, ...children) => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key in element && key !== "list") element[key] = value; else element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
};

let api = {};
const nameOf = (reference) => reference.split("/").pop();
const resolve = (schema) => (schema && schema.$ref ? api.components.schemas[nameOf(schema.$ref)] : schema);

// --- shapes, as people write them

function typeOf(schema) {
  if (!schema || Object.keys(schema).length === 0) return "anything";
  if (schema.$ref) return nameOf(schema.$ref);
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(" | ");
  if (schema.type === "array") return `[${typeOf(schema.items)}, …]`;
  if (schema.type === "object" && schema.additionalProperties) return `{name: ${typeOf(schema.additionalProperties)}, …}`;
  return schema.type || "anything";
}

function shape(schema) {
  const found = resolve(schema);
  if (!found || !found.properties) return typeOf(schema);
  const required = new Set(found.required || []);
  const lines = Object.entries(found.properties).map(
    ([name, each]) => `  ${name}${required.has(name) ? "" : "?"}: ${typeOf(each)}`);
  return `{\n${lines.join("\n")}\n}`;
}

const EXAMPLES = { name: "orders", topic: "orders", partitions: 3, partition: 0, node: 1, value: { amount: 12.5 }, key: "customer-7" };

function example(schema, name = "") {
  const found = resolve(schema);
  if (!found) return null;
  if (found.properties) {
    const wanted = new Set(found.required || []);
    if (found.properties.key) wanted.add("key");
    if (wanted.size === 0) Object.keys(found.properties).slice(0, 1).forEach((each) => wanted.add(each));
    const made = {};
    for (const [each, inner] of Object.entries(found.properties)) if (wanted.has(each)) made[each] = example(inner, each);
    return made;
  }
  if (name in EXAMPLES) return EXAMPLES[name];
  if (found.default !== undefined) return found.default;
  if (found.enum) return found.enum[0];
  if (found.anyOf) return example(found.anyOf[0], name);
  if (found.type === "array") return [example(found.items)];
  if (found.type === "integer" || found.type === "number") return found.minimum || 0;
  if (found.type === "boolean") return false;
  if (found.type === "object") return {};
  if (found.type === "null") return null;
  return found.type === "string" ? "" : { any: "JSON" };
}

// --- one operation

function field(parameter) {
  const schema = parameter.schema, id = `p-${Math.random().toString(36).slice(2)}`;
  const options = schema.enum || (schema.$ref && resolve(schema).enum);
  let input;
  if (options) input = make("select", { id }, make("option", { value: "" }, "—"), ...options.map((each) => make("option", {}, each)));
  else if (schema.type === "boolean") input = make("input", { id, type: "checkbox" });
  else input = make("input", { id, type: "text", spellcheck: false, autocomplete: "off" });
  if (schema.default !== undefined && input.type === "text") input.placeholder = schema.default;
  if (parameter.in === "path") input.value = EXAMPLES[parameter.name] ?? "";
  const row = make("div", { className: input.type === "checkbox" ? "field checked" : "field" },
    make("label", { htmlFor: id }, parameter.name, make("small", {}, parameter.in)), input,
    parameter.description ? make("span", { className: "quiet" }, parameter.description) : null);
  return { row, parameter, value: () => (input.type === "checkbox" ? (input.checked ? "true" : "") : input.value) };
}

function requestOf(path, method, fields, body, media, accept) {
  let target = path;
  const query = new URLSearchParams(), headers = {};
  for (const { parameter, value } of fields) {
    const text = value();
    if (parameter.in === "path") target = target.replace(`{${parameter.name}}`, encodeURIComponent(text));
    else if (text !== "" && parameter.in === "query") query.set(parameter.name, text);
    else if (text !== "") headers[parameter.name] = text;
  }
  if (String(query)) target += `?${query}`;
  if (accept) headers.Accept = accept;
  if (body !== null) headers["Content-Type"] = media;
  return { target, init: { method: method.toUpperCase(), headers, ...(body !== null ? { body } : {}) } };
}

function curlOf({ target, init }) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const parts = ["curl", ...(init.method === "GET" ? [] : ["-X", init.method]), quoted(location.origin + target)];
  for (const [name, value] of Object.entries(init.headers)) parts.push("-H", quoted(`${name}: ${value}`));
  if (init.body !== undefined) parts.push("--data-binary", quoted(init.body));
  return parts.join(" ");
}

async function send(request, panel, stop) {
  const control = new AbortController();
  const status = make("span", { className: "status" }, "…"), text = make("pre", {}, "");
  panel.replaceChildren(make("h3", {}, "Answer"), status, make("pre", { className: "shape" }, curlOf(request)), text);
  stop.hidden = false;
  stop.onclick = () => control.abort();
  try {
    const answer = await fetch(request.target, { ...request.init, signal: control.signal });
    status.textContent = `${answer.status} ${answer.statusText}`;
    status.classList.add(answer.ok ? "good" : "bad");
    const kind = answer.headers.get("content-type") || "";
    if (kind.includes("event-stream") || kind.includes("ndjson")) await follow(answer, text);
    else if (kind.includes("json")) text.textContent = JSON.stringify(await answer.json(), null, 2);
    else if (kind.startsWith("text/")) text.textContent = await answer.text();
    else text.textContent = `${(await answer.arrayBuffer()).byteLength} bytes of ${kind || "nothing"}`;
  } catch (error) {
    text.textContent += error.name === "AbortError" ? "\n— stopped —" : `\n${error}`;
  } finally {
    stop.hidden = true;
  }
}

async function follow(answer, text) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    text.textContent = (text.textContent + part.value).slice(-100000);
    text.scrollTop = text.scrollHeight;
  }
}

function picker(label, options) {
  const select = make("select", { ariaLabel: label }, ...options.map((each) => make("option", {}, each)));
  return { select, row: make("div", { className: "field" }, make("label", {}, label), select) };
}

function tryIt(path, method, operation) {
  const fields = (operation.parameters || []).map(field);
  const content = operation.requestBody ? operation.requestBody.content : null;
  const good = Object.entries(operation.responses).find(([status]) => status.startsWith("2"))[1];
  const accepts = Object.keys(good.content || {});
  const form = make("div", {}, make("h3", {}, fields.length ? "Parameters" : "Try it"), ...fields.map((each) => each.row));
  const accept = accepts.length > 1 ? picker("Accept", accepts) : null;
  if (accept) form.append(accept.row);
  let body = null, media = null;
  if (content) {
    media = picker("Content-Type", Object.keys(content));
    body = make("textarea", { spellcheck: false, ariaLabel: "Body" });
    const fill = () => {
      const kind = media.select.value;
      const made = kind.endsWith("ndjson") ? '{"key": "customer-7", "value": {"amount": 12.5}}\n' : "hello";
      body.value = kind === "application/json" ? JSON.stringify(example(content[kind].schema), null, 2) : made;
    };
    media.select.onchange = fill;
    fill();
    form.append(make("h3", {}, "Body"), media.row, body);
  }
  const panel = make("div", {}), stop = make("button", { type: "button", hidden: true }, "Stop");
  const go = make("button", { type: "button", className: "send" }, "Send");
  go.onclick = () => send(
    requestOf(path, method, fields, body ? body.value : null, media && media.select.value, accept && accept.select.value),
    panel, stop);
  form.append(make("div", { className: "actions" }, go, stop), panel);
  return form;
}

function described(operation) {
  const told = make("div", {});
  const content = operation.requestBody ? operation.requestBody.content : {};
  for (const [media, { schema }] of Object.entries(content)) {
    told.append(make("h3", {}, `Body · ${media}`), make("pre", { className: "shape" }, schema.description || shape(schema)));
  }
  const rows = [];
  for (const [status, answer] of Object.entries(operation.responses)) {
    if (!status.startsWith("2")) { rows.push(make("tr", {}, make("td", {}, status), make("td", {}, answer.description))); continue; }
    for (const [media, { schema }] of Object.entries(answer.content || { nothing: { schema: {} } })) {
      told.append(make("h3", {}, `${status} · ${media}`));
      if (answer.content) told.append(make("pre", { className: "shape" }, schema.description || (schema.anyOf || [schema]).map(shape).join("\n— or —\n")));
    }
  }
  told.append(make("h3", {}, "Problems"), make("table", {}, make("tbody", {}, ...rows)));
  return told;
}

function card(path, method, operation) {
  const details = make("details", { className: "operation", id: operation.operationId },
    make("summary", {}, make("span", { className: `method ${method}` }, method), make("span", { className: "path" }, path),
      make("span", { className: "summary" }, operation.summary)));
  details.ontoggle = () => {
    if (!details.open || details.dataset.made) return;
    details.dataset.made = "yes";
    details.append(make("div", { className: "inside" },
      operation.description ? make("p", {}, operation.description) : null, tryIt(path, method, operation), described(operation)));
  };
  return details;
}

// --- the page

function show() {
  document.getElementById("about").textContent = api.info.description;
  document.getElementById("version").textContent = `Version ${api.info.version} · OpenAPI ${api.openapi} ·`;
  const index = document.getElementById("index"), operations = document.getElementById("operations");
  operations.replaceChildren();
  for (const { name } of api.tags) {
    const links = [];
    operations.append(make("h2", { className: "tag", id: `tag-${name}` }, name));
    for (const [path, methods] of Object.entries(api.paths)) {
      for (const [method, operation] of Object.entries(methods)) {
        if (!operation.tags.includes(name)) continue;
        operations.append(card(path, method, operation));
        const link = make("a", { href: `#${operation.operationId}`, title: operation.summary },
          make("span", { className: `method ${method}` }, method), make("span", {}, path.replace("/v1", "")));
        link.dataset.text = `${method} ${path} ${operation.summary}`.toLowerCase();
        links.push(link);
      }
    }
    index.append(make("h2", {}, name), ...links);
  }
  const shapes = document.getElementById("shapes");
  shapes.append(make("h2", { className: "tag" }, "Shapes"));
  for (const [name, schema] of Object.entries(api.components.schemas).sort()) {
    shapes.append(make("details", { id: `shape-${name}` }, make("summary", {}, name),
      schema.description ? make("p", { className: "quiet" }, schema.description) : null,
      make("pre", { className: "shape" }, shape(schema))));
  }
}

function openNamed() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target instanceof HTMLDetailsElement) { target.open = true; target.scrollIntoView(); }
}

document.getElementById("filter").oninput = (event) => {
  const wanted = event.target.value.toLowerCase();
  for (const link of document.querySelectorAll("#index a")) {
    link.hidden = !link.dataset.text.includes(wanted);
    link.style.display = link.hidden ? "none" : "";
  }
};
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement === document.body) {
    event.preventDefault();
    document.getElementById("filter").focus();
  }
});
window.addEventListener("hashchange", openNamed);
fetch("/openapi.json").then((answer) => answer.json()).then((document_) => { api = document_; show(); openNamed(); });
