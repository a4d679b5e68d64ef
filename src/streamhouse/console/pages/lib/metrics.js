// The agents' metrics, read every two seconds while a page shows them, less often when there are many agents; the last
// five minutes are kept for plots.
import { get } from "./api.js";
import { DENIED_MS } from "./live.js";
import { createStore } from "./store.js";
import { useEffect } from "./html.js";
import { useStore } from "./store.js";

const EVERY_MS = 2000;
const AGENTS_AT_ONCE = 10;
const KEPT_S = 300;
const metrics = createStore({ points: [], agents: [], error: null });
let readers = 0;
let timer = 0;

// Samples by name, then by labels as written: a figure of five minutes looks at its own samples only.
function byName(samples) {
  const names = {};
  for (const [key, value] of Object.entries(samples)) {
    const open = key.indexOf("{");
    const name = open < 0 ? key : key.slice(0, open);
    (names[name] ??= {})[open < 0 ? "" : key.slice(open)] = value;
  }
  return names;
}

const matcher = (labels) => {
  const wanted = Object.entries(labels).map(([label, value]) => `${label}="${value}"`);
  return (text) => wanted.every((each) => text.includes(each));
};

// Sum of a metric's samples over all labels, or over those whose labels have all of `labels`.
export function total(samples, name, labels = {}) {
  const matches = matcher(labels);
  let sum = 0;
  for (const [text, value] of Object.entries(samples[name] ?? {})) if (matches(text)) sum += value;
  return sum;
}

// The values of a label, in any of the agents.
export function labelsOf(point, name, label) {
  const pattern = new RegExp(`${label}="([^"]*)"`);
  const texts = [...(point?.agents.values() ?? [])].flatMap((agent) => Object.keys(agent.samples[name] ?? {}));
  return [...new Set(texts.map((text) => text.match(pattern)?.[1]))].filter(Boolean);
}

const STARTED = "process_start_time_seconds";

// What an agent had counted before; nothing where it was started again since.
const counted = (agent, earlier) => (earlier && total(earlier.samples, STARTED) === total(agent.samples, STARTED) ? earlier.samples : {});

// Rate of a counter between two points, by agent, so that one that was started again doesn't count backwards.
export function rate(now, before, name, labels) {
  if (!before) return null;
  let sum = 0;
  for (const [node, agent] of now.agents) {
    const earlier = before.agents.get(node);
    const elapsed = earlier ? (agent.at_ms - earlier.at_ms) / 1000 : 0;
    if (elapsed > 0) sum += Math.max(0, total(agent.samples, name, labels) - total(counted(agent, earlier), name, labels)) / elapsed;
  }
  return sum;
}

export const gauge = (point, name, labels) => [...point.agents.values()].reduce((sum, agent) => sum + total(agent.samples, name, labels), 0);

// A quantile of a histogram between two points, in its unit; null without observations.
export function quantile(now, before, name, share, labels = {}) {
  const matches = matcher(labels);
  const counts = new Map();
  for (const [node, agent] of now.agents) {
    const earlier = counted(agent, before?.agents.get(node))[`${name}_bucket`] ?? {};
    for (const [text, value] of Object.entries(agent.samples[`${name}_bucket`] ?? {})) {
      if (!matches(text)) continue;
      const limit = text.match(/le="([^"]*)"/)[1];
      const bound = limit === "+Inf" ? Infinity : Number(limit);
      counts.set(bound, (counts.get(bound) ?? 0) + value - (earlier[text] ?? 0));
    }
  }
  const bounds = [...counts.keys()].sort((a, b) => a - b);
  const all = counts.get(Infinity) ?? 0;
  if (all <= 0) return null;
  let low = 0;
  let below = 0;
  for (const bound of bounds) {
    const count = counts.get(bound);
    if (count >= share * all) return bound === Infinity ? low : low + (bound - low) * ((share * all - below) / Math.max(1e-9, count - below));
    low = bound;
    below = count;
  }
  return low;
}

async function poll() {
  const before = metrics.get();
  try {
    const { agents } = await get("/v1/metrics");
    const read = agents.filter((each) => !each.error).map((each) => [each.node, { ...each, samples: byName(each.samples) }]);
    const point = { at: Date.now() / 1000, agents: new Map(read), figures: new Map() };
    metrics.set({ points: [...before.points, point].filter((each) => point.at - each.at <= KEPT_S), agents, error: null });
  } catch (error) {
    metrics.set({ ...before, error });
  }
}

async function loop() {
  if (!document.hidden) await poll();
  const { agents, error } = metrics.get();
  if (readers) timer = setTimeout(loop, error?.status === 403 ? DENIED_MS : EVERY_MS * Math.max(1, Math.ceil(agents.length / AGENTS_AT_ONCE)));
}

export function useMetrics() {
  useEffect(() => {
    readers += 1;
    if (readers === 1) loop();
    return () => {
      readers -= 1;
      if (!readers) clearTimeout(timer);
    };
  }, []);
  return useStore(metrics);
}

// One value per point, from a function of two points that follow each other. `name` tells figures apart: points keep
// theirs, so that only the newest is computed.
export const series = (points, name, value) => points.map((point, index) => {
  if (!point.figures.has(name)) point.figures.set(name, value(point, points[index - 1]));
  return point.figures.get(name);
});
