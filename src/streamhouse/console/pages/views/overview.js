// Overview: what the cluster does now, and whether all is well.
import { html, useState } from "../lib/html.js";
import { AgentAway, get } from "../lib/api.js";
import { bytes, duration, number, percent, plural, short, time } from "../lib/format.js";
import { useData } from "../lib/live.js";
import { gauge, labelsOf, quantile, rate, series, useMetrics } from "../lib/metrics.js";
import { href } from "../lib/router.js";
import { Action, Badge, Bar, Card, Empty, Failure, Live, Loaded, PageHead, Tile } from "../ui/parts.js";
import { Plot } from "../ui/plot.js";

const DOCTOR_MS = 15000;
const DOCTOR_AGE_S = 300; // of findings that consoles share: a look is many requests to the object store
const AGENTS_MS = 4000;
const perSecond = (value) => (value === null ? "–" : `${bytes(value)}/s`);
const LAG_MS = 10000;
// List prices of Amazon S3 in us-east-1 for a thousand requests; other stores and regions differ.
const PRICES = { put: 0.005, list: 0.005, get: 0.0004, delete: 0 };
const MONTH_S = 30 * 86400;

// What the requests of an hour like the last minutes would cost in a month.
function monthlyCost(points) {
  const [first, now] = [points[0], points.at(-1)];
  if (!first || first === now) return null;
  const priceOf = (operation) => PRICES[Object.keys(PRICES).find((each) => operation.startsWith(each)) ?? "get"];
  return labelsOf(now, "streamhouse_object_store_requests_total", "operation")
    .reduce((sum, operation) => sum + (rate(now, first, "streamhouse_object_store_requests_total", { operation }) * MONTH_S * priceOf(operation)) / 1000, 0);
}

const money = (value) => (value === null ? "–" : value < 0.01 ? "less than a cent" : `$${value < 10 ? value.toFixed(2) : number(Math.round(value))}`);
const latency = (value) => (value === null || value === undefined ? "–" : duration(value * 1000));

function hitRate(now, before) {
  const hits = rate(now, before, "streamhouse_cache_hits_total");
  const misses = rate(now, before, "streamhouse_cache_misses_total");
  return hits + misses > 0 ? hits / (hits + misses) : null;
}

const p99OfPoints = (points, api) => series(points, `kafka/${api}`, (point, before) => (before ? quantile(point, before, "streamhouse_kafka_request_seconds", 0.99, { api }) : null));

export function Page() {
  const metrics = useMetrics();
  const agents = useData((signal) => get("/v1/agents", {}, { signal }), [], AGENTS_MS);
  const lags = useData((signal) => get("/v1/lag", {}, { signal }), [], LAG_MS);
  const { points, error } = metrics;
  if (error?.status === 403 && !points.length) return html`<${PageHead} title="Overview" /><${Failure} error=${error} />
    <p>The overview shows the whole cluster. What you may see of it is under <a href=${href(["topics"])}>Topics</a> and <a href=${href(["groups"])}>Groups</a>.</p>`;
  const live = (agents.data?.agents ?? []).filter((each) => each.state === "live").length;
  return html`
    <${PageHead} title="Overview" about=${agents.data && `${plural(live, "live agent")} · figures of the last ${duration(Math.max(0, (points.at(-1)?.at - points[0]?.at) * 1000) || 0)}`}
      actions=${html`<${Live} error=${error} />`} />
    ${error && !(error instanceof AgentAway) && html`<${Failure} error=${error} />`}
    <${Figures} points=${points} live=${live} agents=${agents.data?.agents} groups=${lags.data?.groups} />
    <${Plots} points=${points} />
    <div class="grid">
      <div class="span-7"><${Findings} /></div>
      <div class="span-5"><${AgentList} of=${agents} /></div>
    </div>`;
}

function Figures({ points, live, agents, groups }) {
  const now = points.at(-1);
  const before = points.at(-2);
  const of = (name) => series(points, name, (point, earlier) => rate(point, earlier, name));
  const written = of("streamhouse_appended_bytes_total");
  const read = of("streamhouse_fetched_bytes_total");
  const records = now && rate(now, before, "streamhouse_appended_records_total");
  const requests = of("streamhouse_object_store_requests_total");
  const hits = series(points, "cache hits", hitRate);
  const known = hits.filter((each) => each !== null);
  const pressure = now && gauge(now, "streamhouse_buffer_pressure") / Math.max(1, now.agents.size);
  const p99 = (api) => now && quantile(now, points[0] === now ? null : points[0], "streamhouse_kafka_request_seconds", 0.99, { api });
  const slow = now && quantile(now, points[0] === now ? null : points[0], "streamhouse_object_store_seconds", 0.99);
  const away = (agents ?? []).length - live;
  return html`<div class="tiles">
    <${Tile} label="Written" value=${perSecond(written.at(-1) ?? null)} note=${`${short(records)} records/s`} points=${written} />
    <${Tile} label="Read" value=${perSecond(read.at(-1) ?? null)} note=${`${number(now ? gauge(now, "streamhouse_kafka_connections") : null)} connections`} points=${read} color="var(--c2)" />
    <${Tile} label="Store requests" value=${short(requests.at(-1) ?? null)} unit="/s" note=${html`<span title="Requests only, at the list prices of Amazon S3 in us-east-1">${money(monthlyCost(points))} a month on S3 · p99 ${latency(slow)}</span>`} points=${requests} color="var(--c3)" />
    <${Tile} label="Produce, p99" value=${latency(p99("Produce"))} note=${`fetch ${latency(p99("Fetch"))}, with waiting`} points=${p99OfPoints(points, "Produce")} color="var(--c5)" />
    <${LagTile} groups=${groups} />
    <${Tile} label="Cache hits" value=${percent(known.at(-1) ?? null)} note="of all lookups" points=${hits} color="var(--c4)" />
    <${Tile} label="Unflushed" value=${bytes(now ? gauge(now, "streamhouse_buffer_bytes") : null)} note=${`${percent(pressure)} of its memory`} points=${series(points, "unflushed", (point) => gauge(point, "streamhouse_buffer_bytes"))} color="var(--c7)" />
    <${Tile} label="Agents" value=${number(live)} unit=${away > 0 ? `live, ${away} not` : "live"} note=${now ? `${plural(gauge(now, "streamhouse_open_partitions"), "partition")} led` : ""} points=${of("process_cpu_seconds_total")} color="var(--c6)" />
  </div>`;
}

function LagTile({ groups }) {
  const behind = (groups ?? []).filter((each) => each.lag > 0).sort((a, b) => (b.lag_ms ?? 0) - (a.lag_ms ?? 0));
  const stuck = behind.filter((each) => each.health === "stuck").length;
  const worst = behind[0];
  return html`<${Tile} label="Lag" value=${worst ? duration(worst.lag_ms) : groups ? "none" : "–"} unit=${stuck ? `${stuck} stuck` : ""}
    note=${worst ? html`<a href=${href(["groups", worst.group])}>${worst.group}</a> ${short(worst.lag)} records` : groups ? `${plural(groups.length, "group")} caught up` : ""} />`;
}

function Plots({ points }) {
  const now = points.at(-1);
  const times = points.map((each) => each.at);
  const of = (name, labels = {}) => series(points, [name, ...Object.values(labels)].join(), (point, before) => rate(point, before, name, labels));
  const operations = labelsOf(now, "streamhouse_object_store_requests_total", "operation");
  const caches = labelsOf(now, "streamhouse_cache_hits_total", "cache");
  const store = (share) => series(points, `store/${share}`, (point, before) => (before ? quantile(point, before, "streamhouse_object_store_seconds", share) : null));
  const kafka = (api) => p99OfPoints(points, api);
  const hasKafka = labelsOf(now, "streamhouse_kafka_request_seconds_count", "api").length > 0;
  if (points.length < 2) return html`<${Card} title="Throughput"><div class="loading" role="status">Collecting figures…</div></${Card}>`;
  return html`<div class="grid">
    <div class="span-6"><${Card} title="Throughput"><${Plot} label="Throughput" times=${times} format=${perSecond} lines=${[
      { label: "written", values: of("streamhouse_appended_bytes_total"), color: "--c1" },
      { label: "read", values: of("streamhouse_fetched_bytes_total"), color: "--c2" }]} /></${Card}></div>
    <div class="span-6"><${Card} title=${hasKafka ? "Latency, p99, on a logarithmic scale" : "Latency of the object store"}><${Plot} label="Latency" isLog times=${times} format=${latency} lines=${hasKafka
      ? [{ label: "produce", values: kafka("Produce") }, { label: "fetch, with waiting for records", values: kafka("Fetch"), color: "--c2" }, { label: "object store", values: store(0.99), color: "--c3" }]
      : [{ label: "median", values: store(0.5), color: "--c3" }, { label: "p99", values: store(0.99), color: "--c5" }]} /></${Card}></div>
    <div class="span-6"><${Card} title="Requests to the object store, per second"><${Plot} label="Requests to the object store" times=${times} format=${short} lines=${operations.map((operation) => (
      { label: operation, values: of("streamhouse_object_store_requests_total", { operation }) }))} /></${Card}></div>
    <div class="span-6"><${Card} title="Cache hits"><${Plot} label="Cache hits" times=${times} format=${percent} lines=${caches.map((cache) => ({ label: cache, values: series(points, `cache/${cache}`, (point, before) => {
      const hits = rate(point, before, "streamhouse_cache_hits_total", { cache });
      const misses = rate(point, before, "streamhouse_cache_misses_total", { cache });
      return hits + misses > 0 ? hits / (hits + misses) : null;
    }) }))} /></${Card}></div>
  </div>`;
}

const ORDER = { failure: 0, warning: 1, ok: 2 };
const KINDS = { failure: "bad", warning: "warn", ok: "ok" };

export function Findings() {
  const [now, setNow] = useState(null);
  const shared = useData((signal) => get("/v1/doctor", { max_age_s: DOCTOR_AGE_S }, { signal }), [], DOCTOR_MS);
  const look = async () => setNow({ found: await get("/v1/doctor"), at: Date.now() });
  const isNow = now !== null && Date.now() - now.at < DOCTOR_AGE_S * 1000;
  return html`<${Card} title="Doctor" flush actions=${html`<span class="muted small">${isNow ? `as of ${time(now.at).slice(11)}` : `at most ${DOCTOR_AGE_S / 60} min old`}</span><${Action} class="tiny" run=${look}>Look now</${Action}>`}>
    <${Loaded} of=${isNow ? { data: now.found } : shared}>${(found) => {
      const checks = [...found.shared, ...found.own].sort((a, b) => ORDER[a.verdict] - ORDER[b.verdict]);
      const [wrong, fine] = [checks.filter((each) => each.verdict !== "ok"), checks.filter((each) => each.verdict === "ok")];
      return html`${wrong.length > 0 && html`<${Checks} of=${wrong} />`}
        <details class="checks"><summary><${Badge} kind="ok">ok</${Badge}> ${wrong.length ? `${plural(fine.length, "other check")} found nothing` : `All ${plural(fine.length, "check")} found nothing wrong`}</summary><${Checks} of=${fine} /></details>`;
    }}</${Loaded}></${Card}>`;
}

const Checks = ({ of }) => html`<ul class="findings">${of.map((each) => html`<li key=${each.name}><${Badge} kind=${KINDS[each.verdict]}>${each.verdict}</${Badge}>
  <div class="break"><strong>${each.name}</strong><div class="muted">${each.text}</div></div></li>`)}</ul>`;

const STATES = { live: "ok", draining: "info", expired: "bad", recovering: "warn" };

function AgentList({ of }) {
  return html`<${Card} title="Agents" flush actions=${html`<a class="button tiny" href=${href(["agents"])}>Leases</a>`}><${Loaded} of=${of}>${({ agents }) => {
    const most = Math.max(1, ...agents.map((each) => each.partitions));
    return agents.length ? html`<ul class="findings">${agents.map((each) => html`<li key=${each.session}>
      <${Badge} kind=${STATES[each.state]}>${each.state}</${Badge}>
      <div class="stack" style=${{ flex: 1, gap: "5px" }}><div class="row"><strong>Agent ${each.node}</strong><span class="muted small">${each.kafka}</span><span class="num small" style=${{ marginLeft: "auto" }}>${plural(each.partitions, "partition")}</span></div>
      <${Bar} share=${each.partitions / most} /></div></li>`)}</ul>` : html`<${Empty} icon="agents" title="No agents" />`;
  }}</${Loaded}></${Card}>`;
}
