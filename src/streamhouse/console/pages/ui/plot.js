// Plots over time with uPlot, in the colours of the theme.
import uPlot from "../vendor/uplot.js";
import { html, useEffect, useRef } from "../lib/html.js";
import { createStore, useStore } from "../lib/store.js";

const HEIGHT = 190;
export const theme = createStore(document.documentElement.dataset.theme);

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const clock = (s) => new Date(s * 1000).toTimeString().slice(0, 8);

function optionsOf(lines, format, width, height, isTime, isLog) {
  const axis = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  return {
    width, height, cursor: { sync: { key: "time" }, points: { size: 6 } }, scales: { x: { time: isTime }, y: isLog ? { distr: 3 } : { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.12 : 1] } },
    legend: { live: true },
    series: [{ label: isTime ? "Time" : "Row", value: (_, value) => (value === null || value === undefined ? "–" : isTime ? clock(value) : String(value)) }, ...lines.map((each, index) => ({
      label: each.label, stroke: color(each.color ?? `--c${(index % 8) + 1}`), width: 1.7, spanGaps: true, points: { show: false },
      fill: lines.length < 3 ? `${color(each.color ?? `--c${(index % 8) + 1}`)}1c` : undefined, value: (_, value) => (value === null || value === undefined ? "–" : format(value)),
    }))],
    axes: [{ ...axis, values: (_, values) => values.map((each) => (isTime ? clock(each) : each)), space: 70, size: 30 }, { ...axis, size: 76, values: (_, values) => values.map((each) => (each === null ? "" : format(each))) }],
  };
}

// `isLog`: the axis of values is logarithmic, for values that differ by orders of magnitude.
// `lines`: {label, values, color}; `times`: seconds since 1970, or plain numbers with `isTime` false.
export function Plot({ label, times, lines, format, height = HEIGHT, isTime = true, isLog = false }) {
  const element = useRef(null);
  const plot = useRef(null);
  const dark = useStore(theme);
  const names = lines.map((each) => each.label).join("\n");
  const data = [times, ...lines.map((each) => (isLog ? each.values.map((value) => (value > 0 ? value : null)) : each.values))];
  useEffect(() => {
    const place = element.current; // it is gone from the page when the last change of its size is told
    const made = new uPlot(optionsOf(lines, format, place.clientWidth || 400, height, isTime, isLog), data, place);
    plot.current = made;
    const resized = new ResizeObserver(() => {
      made.setSize({ width: place.clientWidth, height });
      made.setLegend({ idx: made.data[0].length - 1 });
    });
    resized.observe(place);
    return () => {
      resized.disconnect();
      made.destroy();
    };
  }, [names, dark, height, isTime]);
  useEffect(() => {
    plot.current?.setData(data);
    plot.current?.setLegend({ idx: times.length - 1 });
  }, [times, lines]);
  const last = lines.map((each) => `${each.label} ${format(each.values.at(-1) ?? 0)}`).join(", ");
  return html`<div class="plot" ref=${element} role="img" aria-label=${`${label}: ${last}`}></div>`;
}
