// Lag over time: what this page has seen since it was opened.
import { html, useEffect, useState } from "../lib/html.js";
import { short } from "../lib/format.js";
import { Card } from "../ui/parts.js";
import { Plot } from "../ui/plot.js";

const KEPT = 300;

export function LagHistory({ lag }) {
  const [points, setPoints] = useState([]);
  useEffect(() => setPoints((before) => [...before, { at: Date.now() / 1000, lag: lag.lag }].slice(-KEPT)), [lag]);
  if (points.length < 2) return null;
  return html`<${Card} title="Lag since this page was opened"><${Plot} label="Lag" height=${150} times=${points.map((each) => each.at)} format=${short}
    lines=${[{ label: "records", values: points.map((each) => each.lag) }]} /></${Card}>`;
}
