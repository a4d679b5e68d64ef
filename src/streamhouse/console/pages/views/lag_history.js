// Lag over the last day, in records and in time, as the agents measured it.
import { html } from "../lib/html.js";
import { duration, short } from "../lib/format.js";
import { Card } from "../ui/parts.js";
import { Plot } from "../ui/plot.js";

export function LagHistory({ lag }) {
  const samples = lag.history ?? [];
  if (samples.length < 2) return html`<${Card} title="Lag"><p class="muted">The agents measure lag now and then; with two samples there is a plot.</p></${Card}>`;
  const times = samples.map((each) => each.at_ms / 1000);
  return html`<div class="grid">
    <div class="span-6"><${Card} title="Lag, records"><${Plot} label="Lag in records" height=${160} times=${times} format=${short} lines=${[{ label: "records", values: samples.map((each) => each.lag) }]} /></${Card}></div>
    <div class="span-6"><${Card} title="Lag, time"><${Plot} label="Lag in time" height=${160} times=${times} format=${(ms) => (ms === null || ms === undefined ? "–" : duration(ms))} lines=${[{ label: "behind", values: samples.map((each) => each.lag_ms), color: "--c2" }]} /></${Card}></div>
  </div>`;
}
