// The agents' metrics, read every two seconds while a page shows them; the last five minutes are kept for plots.
import { get } from "./api.js";
import { createStore } from "./store.js";
import { useEffect } from "./html.js";
import { useStore } from "./store.js";

const EVERY_MS = 2000;
const KEPT = 150;
const metrics = createStore({ points: [], agents: [], error: null });
let readers = 0;
let timer = 0;

// Sum of a metric's samples over all agents and labels, or over those whose labels have all of `labels`.
export function total(samples, name, labels = {}) {
  let sum = 0;
  for (const [key, value] of Object.entries(samples)) {
    const open = key.indexOf("{");
    if ((open < 0 ? key : key.slice(0, open)) !== name) continue;
    if (Object.entries(labels).every(([label, wanted]) => key.includes(`${label}="${wanted}"`))) sum += value;
  }
  return sum;
}

export const labelsOf = (samples, name, label) => [
  ...new Set(Object.keys(samples).filter((key) => key.startsWith(`${name}{`)).map((key) => key.match(new RegExp(`${label}="([^"]*)"`))?.[1])),
].filter(Boolean);

// Rate of a counter between two points, by agent, so that one that was started again doesn't count backwards.
export function rate(now, before, name, labels) {
  if (!before) return null;
  let sum = 0;
  for (const [node, agent] of now.agents) {
    const earlier = before.agents.get(node);
    const elapsed = earlier ? (agent.at_ms - earlier.at_ms) / 1000 : 0;
    if (elapsed > 0) sum += Math.max(0, total(agent.samples, name, labels) - total(earlier.samples, name, labels)) / elapsed;
  }
  return sum;
}

export const gauge = (point, name, labels) => [...point.agents.values()].reduce((sum, agent) => sum + total(agent.samples, name, labels), 0);

// A quantile of a histogram between two points, in its unit; null without observations.
export function quantile(now, before, name, share, labels = {}) {
  const counts = new Map();
  for (const [node, agent] of now.agents) {
    const earlier = before?.agents.get(node);
    for (const [key, value] of Object.entries(agent.samples)) {
      if (!key.startsWith(`${name}_bucket{`) || !Object.entries(labels).every(([label, wanted]) => key.includes(`${label}="${wanted}"`))) continue;
      const limit = key.match(/le="([^"]*)"/)[1];
      const bound = limit === "+Inf" ? Infinity : Number(limit);
      counts.set(bound, (counts.get(bound) ?? 0) + value - (earlier?.samples[key] ?? 0));
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
    const point = { at: Date.now() / 1000, agents: new Map(agents.filter((each) => !each.error).map((each) => [each.node, each])) };
    metrics.set({ points: [...before.points, point].slice(-KEPT), agents, error: null });
  } catch (error) {
    metrics.set({ ...before, error });
  }
}

async function loop() {
  if (!document.hidden) await poll();
  if (readers) timer = setTimeout(loop, EVERY_MS);
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

// One value per point, from a function of two points that follow each other.
export const series = (points, value) => points.map((point, index) => value(point, points[index - 1]));
