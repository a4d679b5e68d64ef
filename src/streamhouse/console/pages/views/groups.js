// Consumer groups: the list, and one group with members, lag and reset.
import { html } from "../lib/html.js";
import { get, path, remove } from "../lib/api.js";
import { ago, duration, number, plural, short } from "../lib/format.js";
import { useData } from "../lib/live.js";
import { go, href, useQuery } from "../lib/router.js";
import { visible } from "../lib/session.js";
import { confirm } from "../ui/dialogs.js";
import { Badge, Card, Failure, Live, Loaded, Notice, PageHead, Search, Tile } from "../ui/parts.js";
import { Table } from "../ui/table.js";
import { toast } from "../ui/toasts.js";
import { resetGroup } from "./group_reset.js";
import { LagHistory } from "./lag_history.js";

const LIST_MS = 10000;
const LIVE_MS = 3000;
const STATES = { Stable: "ok", Empty: "", Dead: "bad", PreparingRebalance: "warn", CompletingRebalance: "warn", Assigning: "warn", Reconciling: "warn" };

export const Page = ({ parts }) => (parts.length ? html`<${GroupPage} key=${parts[0]} name=${parts[0]} />` : html`<${GroupList} />`);

async function listed(signal) {
  const [{ groups }, lags] = await Promise.all([get("/v1/groups", {}, { signal }), get("/v1/lag", { history: "true" }, { signal })]);
  const byName = new Map(lags.groups.map((each) => [each.group, each]));
  return groups.map((each) => ({ ...each, lag: byName.get(each.group) ?? null }));
}

const HEALTH = { "caught up": "ok", shrinking: "info", steady: "warn", growing: "warn", stuck: "bad", stopped: "warn" };
export const Health = ({ of }) => of && html`<${Badge} kind=${HEALTH[of] ?? ""}>${of}</${Badge}>`;

// What to do about a group that is not well.
const HINTS = {
  stuck: ["bad", html`In some partitions records wait, but the committed offset doesn't move. The consumer hangs, fails at a record, doesn't commit, or is slow; or an <a href=${href(["transactions"], { state: "open" })}>open transaction</a> holds the records back.`],
  stopped: ["warn", "Records wait, and the group has no members: start its consumers, or delete the group if it isn't needed any more."],
  growing: ["warn", "Records come faster than the group commits: add members, up to the number of partitions, or make them faster."],
};
const Hint = ({ of }) => HINTS[of] && html`<${Notice} kind=${HINTS[of][0]}>${HINTS[of][1]}</${Notice}>`;

// Whether the lag grows, and how fast.
const trend = (rate) => (rate === null || rate === undefined ? "" : Math.abs(rate) < 0.05 ? "steady" : `${rate > 0 ? "grows by" : "shrinks by"} ${short(Math.abs(rate))}/s`);

function Sparkline({ samples }) {
  const top = Math.max(1, ...samples.map((each) => each.lag));
  return samples.length > 1 && html`<svg style=${{ display: "block" }} width="90" height="20" viewBox="0 0 100 20" preserveAspectRatio="none" aria-hidden="true"><polyline style=${{ fill: "none", stroke: "var(--c1)", strokeWidth: 1.5, vectorEffect: "non-scaling-stroke" }}
    points=${samples.map((each, index) => `${(index / (samples.length - 1)) * 100},${19 - (each.lag / top) * 18}`).join(" ")} /></svg>`;
}

function GroupList() {
  const [filter] = useQuery("q");
  const groups = useData(listed, [], LIST_MS);
  const columns = [
    { id: "group", label: "Group", value: (row) => row.group, cell: (row) => html`<a class="name" href=${href(["groups", row.group])}>${row.group}</a>` },
    { id: "state", label: "State", minor: true, value: (row) => row.state, cell: (row) => html`<${Badge} kind=${STATES[row.state] ?? ""}>${row.state}</${Badge}>` },
    { id: "protocol", label: "Protocol", minor: true, value: (row) => row.protocol_type || "–" },
    { id: "health", label: "Health", value: (row) => row.lag?.health ?? "", cell: (row) => html`<${Health} of=${row.lag?.health} />` },
    { id: "lag", label: "Lag, records", right: true, value: (row) => row.lag?.lag ?? -1, cell: (row) => number(row.lag?.lag) },
    { id: "time", label: "Lag, time", right: true, value: (row) => row.lag?.lag_ms ?? -1, cell: (row) => duration(row.lag?.lag_ms) },
    { id: "trend", label: "Trend", value: (row) => row.lag?.records_per_second ?? 0, cell: (row) => html`<span class="nowrap">${trend(row.lag?.records_per_second)}</span>` },
    { id: "day", label: "Last day", minor: true, cell: (row) => row.lag && html`<${Sparkline} samples=${row.lag.history} />` },
  ];
  return html`<${PageHead} title="Groups" about=${groups.data && plural(groups.data.length, "consumer group")} />
    <${Card} flush><div class="toolbar"><${Search} placeholder="Filter groups" /></div>
      <${Loaded} of=${groups}>${(rows) => html`<${Table} label="Groups" columns=${columns} rows=${rows} rowKey=${(row) => row.group} filter=${filter} empty=${`There are no consumer groups${visible()} yet.`} />`}</${Loaded}></${Card}>`;
}

function GroupPage({ name }) {
  const group = useData((signal) => get(path("v1", "groups", name), {}, { signal }), [name], LIVE_MS);
  const lag = useData((signal) => get(path("v1", "groups", name, "lag"), {}, { signal }), [name], LIVE_MS);
  const deleteGroup = async () => {
    const done = await confirm({
      title: "Delete the group?", danger: true, action: "Delete", type: name,
      about: "Its committed offsets are deleted. Consumers of this group start where auto.offset.reset says.",
      run: () => remove(path("v1", "groups", name)),
    });
    if (done) {
      toast(`Group ${name} deleted.`);
      go(href(["groups"]));
    }
  };
  if (group.error && !group.data) return html`<${PageHead} title=${name} /><${Failure} error=${group.error} />`;
  const reload = () => [group.reload(), lag.reload()];
  return html`<${PageHead} title=${name} badge=${group.data && html`<${Badge} kind=${STATES[group.data.state] ?? ""}>${group.data.state}</${Badge}> <${Health} of=${lag.data?.health} />`}
      about=${group.data && `${plural(group.data.members.length, "member")}${group.data.protocol ? ` · ${group.data.protocol}` : ""}`}
      actions=${html`<button type="button" class="write button" onClick=${() => resetGroup(name, lag.data?.partitions ?? [], reload)}>Reset offsets</button>
        <button type="button" class="write button danger" onClick=${deleteGroup}>Delete</button>`} />
    <${Loaded} of=${lag}>${(data) => html`<${Hint} of=${data.health} /><${Summary} lag=${data} members=${group.data?.members ?? []} /><${LagHistory} lag=${data} />`}</${Loaded}>
    <${Loaded} of=${group}>${(data) => html`<${Members} group=${data} lag=${lag.data} />`}</${Loaded}>
    <${Loaded} of=${lag}>${(data) => html`<${Partitions} lag=${data} members=${group.data?.members ?? []} error=${lag.error} />`}</${Loaded}>`;
}

function Summary({ lag, members }) {
  const without = lag.partitions.filter((each) => each.committed === null).length;
  const assigned = new Set(members.flatMap((each) => each.assigned.map((place) => `${place.topic}/${place.partition}`)));
  const unread = lag.partitions.filter((each) => each.lag && !assigned.has(`${each.topic}/${each.partition}`)).length;
  return html`<div class="tiles">
    <${Tile} label="Lag" value=${number(lag.lag)} unit="records" note=${trend(lag.records_per_second)} />
    <${Tile} label="Behind" value=${duration(lag.lag_ms)} note="age of the oldest record that isn't committed" />
    <${Tile} label="Partitions" value=${number(lag.partitions.length)} note=${without ? `${number(without)} without a commit` : "all have commits"} />
    <${Tile} label="Members" value=${number(members.length)} note=${unread ? `nobody reads ${plural(unread, "partition")} with lag` : ""} />
  </div>`;
}

// "orders 0-5, clicks 3": partitions by topic, neighbours together.
function places(assigned) {
  const topics = new Map();
  for (const each of assigned) topics.set(each.topic, [...(topics.get(each.topic) ?? []), each.partition]);
  return [...topics].map(([topic, partitions]) => `${topic} ${ranges(partitions.sort((a, b) => a - b))}`).join(", ");
}

function ranges(numbers) {
  const parts = [];
  for (const each of numbers) {
    const last = parts.at(-1);
    if (last && last[1] === each - 1) last[1] = each;
    else parts.push([each, each]);
  }
  return parts.map(([from, to]) => (from === to ? from : `${from}–${to}`)).join(" ");
}

function Members({ group, lag }) {
  const offsets = new Map((lag?.partitions ?? []).map((each) => [`${each.topic}/${each.partition}`, each]));
  const own = (row) => row.assigned.map((each) => offsets.get(`${each.topic}/${each.partition}`)).filter(Boolean);
  const lastCommit = (row) => Math.max(0, ...own(row).map((each) => each.committed_at_ms ?? 0));
  const lagOf = (row) => own(row).reduce((sum, each) => sum + (each.lag ?? 0), 0);
  const columns = [
    { id: "client", label: "Client", value: (row) => row.client, cell: (row) => html`<span class="nowrap">${row.client}</span>` },
    { id: "host", label: "Host", minor: true, value: (row) => row.host },
    { id: "member", label: "Member", value: (row) => row.instance ?? row.member, cell: (row) => html`<span class="mono break small">${row.instance ?? row.member}</span>` },
    { id: "assigned", label: "Partitions", value: (row) => row.assigned.length, cell: (row) => html`<span class="small break">${places(row.assigned) || "none"}</span>` },
    { id: "lag", label: "Lag", right: true, value: lagOf, cell: (row) => number(lagOf(row)) },
    { id: "at", label: "Last commit", right: true, value: (row) => -lastCommit(row), cell: (row) => html`<span class="nowrap">${lastCommit(row) ? ago(lastCommit(row)) : row.assigned.length ? "none" : "–"}</span>` },
  ];
  return html`<${Card} title="Members" flush><${Table} label="Members" urlSort=${false} columns=${columns} rows=${[...group.members].sort((a, b) => a.client.localeCompare(b.client))} rowKey=${(row) => row.member} empty="The group has no members now; its offsets are kept." /></${Card}>`;
}

function Partitions({ lag, members, error }) {
  const owners = new Map(members.flatMap((member) => member.assigned.map((each) => [`${each.topic}/${each.partition}`, member.client])));
  const columns = [
    { id: "topic", label: "Topic", value: (row) => row.topic, cell: (row) => html`<a class="name" href=${href(["topics", row.topic], { tab: "records", partition: row.partition, ...(row.committed === null ? {} : { from: "offset", offset: row.committed }) })}>${row.topic}</a>` },
    { id: "partition", label: "Partition", right: true, value: (row) => row.partition },
    { id: "committed", label: "Committed", right: true, value: (row) => row.committed ?? -1, cell: (row) => (row.committed === null ? html`<span class="muted">no commit</span>` : number(row.committed)) },
    { id: "end", label: "End", right: true, value: (row) => row.end ?? -1, cell: (row) => number(row.end) },
    { id: "lag", label: "Lag, records", right: true, value: (row) => row.lag ?? -1, cell: (row) => number(row.lag) },
    { id: "time", label: "Lag, time", right: true, value: (row) => row.lag_ms ?? -1, cell: (row) => html`${row.stuck && members.length > 0 && html`<${Badge} kind="bad">stuck</${Badge}> `}${duration(row.lag_ms)}` },
    { id: "at", label: "Last commit", right: true, value: (row) => -(row.committed_at_ms ?? 0), cell: (row) => ago(row.committed_at_ms) },
    { id: "reader", label: "Read by", value: (row) => owners.get(`${row.topic}/${row.partition}`) ?? "–" },
  ];
  return html`<${Card} title="Offsets" flush actions=${html`<${Live} error=${error} />`}><${Table} label="Offsets" columns=${columns} rows=${lag.partitions} rowKey=${(row) => `${row.topic}/${row.partition}`} empty="The group has committed no offsets." /></${Card}>`;
}
