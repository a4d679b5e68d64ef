// The HTTP API. Every request has the login of this tab; errors have the agent's own words. `isExact`: the answer has data
// of users, whose large integers must not be rounded.
import { parse, stringify } from "./json.js";
import { authorization, expire, isReadOnly } from "./session.js";
import { createStore } from "./store.js";

// Whether the last request found no agent: the frame of the page says so, once.
export const isAgentAway = createStore(false);

export class ApiError extends Error {
  constructor(status, body) {
    super(body?.detail ?? body?.message ?? body?.title ?? `HTTP ${status}`);
    this.status = status;
    this.fields = body?.errors ?? [];
    this.problems = body?.problems ?? []; // of a statement, with their positions
  }
}

export class AgentAway extends ApiError {
  constructor() {
    super(0, { detail: "The agent can't be reached. The console tries again." });
  }
}

export const path = (...parts) => "/" + parts.map((each) => encodeURIComponent(each)).join("/");

function urlOf(url, query = {}) {
  const entries = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = new URLSearchParams(entries).toString();
  return search ? `${url}?${search}` : url;
}

export async function send(method, url, { query, body, accept = "application/json", signal, reads = method === "GET", login } = {}) {
  if (isReadOnly.get() && !reads) throw new ApiError(0, { detail: "The console is read-only: it changes nothing." });
  const headers = { accept, ...(login ?? authorization()) };
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(urlOf(url, query), {
      method, headers, signal, credentials: "omit", body: body === undefined ? undefined : stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    isAgentAway.set(true);
    throw new AgentAway();
  }
  if (isAgentAway.get()) isAgentAway.set(false);
  if (response.ok) return response;
  if (response.status === 401 && !login) expire();
  throw new ApiError(response.status, await response.json().catch(() => null));
}

async function json(response, isExact = false) {
  if (response.status === 204) return null;
  return isExact ? parse(await response.text()) : response.json();
}

export const get = async (url, query, options) => json(await send("GET", url, { query, ...options }), options?.isExact);
export const post = async (url, body = {}, options) => json(await send("POST", url, { body, ...options }), options?.isExact);
export const put = async (url, body = {}, options) => json(await send("PUT", url, { body, ...options }));
export const patch = async (url, body = {}, options) => json(await send("PATCH", url, { body, ...options }));
export const remove = async (url, query, options) => json(await send("DELETE", url, { query, ...options }));

// The lines of a stream of JSON, as they come. The stream is read no faster than the caller takes them.
export async function* lines(method, url, { onOpen, ...options }) {
  const response = await send(method, url, { accept: "application/x-ndjson", ...options });
  onOpen?.();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      const parts = (rest + (value ?? "")).split("\n");
      rest = done ? "" : parts.pop();
      for (const part of parts) if (part.trim()) yield parse(part);
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => null);
  }
}
