"""Command `streamhouse top`: agents, topics, groups and pipelines with their rates, refreshed until Ctrl-C."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from streamhouse.cli.commands.cluster import STATES
from streamhouse.cli.commands.lag import HEALTH, duration
from streamhouse.cli.commands.pipeline_requests import PHASES, fetch_pipelines, phase_of
from streamhouse.cli.dependencies import Dependencies, dependencies_of, run
from streamhouse.cli.options import Agents, AsJson, http_addresses
from streamhouse.cli.output import Column, console, count, on_terminal, print_json, print_line, print_table, size
from streamhouse.cli.typer_setup import help_text
from streamhouse.client.types import AgentStatus, GroupStanding, PartitionStatus
from streamhouse.clock import SystemClock
from streamhouse.errors import AccessDenied

if TYPE_CHECKING:
    from streamhouse.client.http import Http

HELP: Final = help_text(
    "Watch the cluster: agents with what they write and read per second, the busiest topics, the groups that are "
    "furthest behind, pipelines. Refreshes until Ctrl-C.",
    "streamhouse top",
    "streamhouse top --every 5 --rows 30",
    "streamhouse top --count 2 --json",
)
COUNTERS: Final = {
    "written": "streamhouse_appended_bytes_total",
    "records": "streamhouse_appended_records_total",
    "read": "streamhouse_fetched_bytes_total",
    "cpu": "process_cpu_seconds_total",
}
GAUGES: Final = {"memory": "process_resident_memory_bytes", "pressure": "streamhouse_buffer_pressure"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Responses of the agents at one time (monotonic, in seconds)."""

    at_s: float
    agents: Sequence[AgentStatus]
    metrics: Mapping[int, Mapping[str, float]]
    partitions: Sequence[PartitionStatus]
    groups: Sequence[GroupStanding]
    pipelines: Sequence[Mapping[str, Any]] = field(default=())


def top(
    context: typer.Context,
    every: Annotated[float, typer.Option("--every", min=0.5, metavar="SECONDS", help="Time between refreshes.")] = 2.0,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Maximum rows of each table.")] = 10,
    times: Annotated[
        int | None, typer.Option("--count", min=1, metavar="N", help="Refresh N times only.", show_default=False)
    ] = None,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    run(_watch(dependencies_of(context), http_addresses(agents), every, rows, times, as_json))


async def _watch(deps: Dependencies, address: str, every_s: float, rows: int, times: int | None, as_json: bool) -> None:
    before, refreshes = await _take_snapshot(deps, address), 0
    while times is None or refreshes < times:
        await SystemClock().sleep(every_s)
        now = await _take_snapshot(deps, address)
        report = Report(before, now)
        if as_json:
            print_json(report.as_fields(rows))
        else:
            if on_terminal():
                console().clear()
            report.show(rows)
        before, refreshes = now, refreshes + 1


async def _take_snapshot(deps: Dependencies, address: str) -> Snapshot:
    cluster = deps.cluster_client(address)
    async with deps.http(address) as http:
        agents, listed, pages = await asyncio.gather(http.agents(), cluster.partitions(None), cluster.metrics())
        return Snapshot(
            at_s=SystemClock().monotonic(),
            agents=agents,
            metrics={node: _metrics_of(page) for node, page in pages.items()},
            partitions=listed.partitions,
            groups=await http.group_lags(),
            pipelines=await _pipelines_of(http),
        )


def _metrics_of(page: str) -> Mapping[str, float]:
    metrics = {*COUNTERS.values(), *GAUGES.values()}
    pairs = (line.rpartition(" ")[::2] for line in page.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in pairs if name in metrics}


async def _pipelines_of(http: "Http") -> Sequence[Mapping[str, Any]]:
    try:
        return await fetch_pipelines(http)
    except AccessDenied:
        return ()


class Report:
    """Two snapshots, and what changed between them."""

    def __init__(self, before: Snapshot, now: Snapshot) -> None:
        self._before, self._now = before, now
        self._seconds = max(now.at_s - before.at_s, 0.001)

    def _rate(self, node: int, counter: str) -> float | None:
        name = COUNTERS[counter]
        first, last = (snapshot.metrics.get(node, {}).get(name) for snapshot in (self._before, self._now))
        return None if first is None or last is None or last < first else (last - first) / self._seconds

    def agents(self) -> list[dict[str, Any]]:
        return [
            {
                "node": agent.node,
                "state": agent.state,
                "http": agent.http,
                "partitions": agent.partitions,
                **{counter: self._rate(agent.node, counter) for counter in COUNTERS},
                **{name: self._now.metrics.get(agent.node, {}).get(metric) for name, metric in GAUGES.items()},
            }
            for agent in self._now.agents
        ]

    def topics(self) -> list[dict[str, Any]]:
        """The busiest first; the rate counts offsets below the high watermark, or what was flushed."""
        ends = _ends_by_topic(self._before.partitions)
        sizes: dict[str, int] = {}
        for partition in self._now.partitions:
            sizes[partition.topic] = sizes.get(partition.topic, 0) + partition.bytes
        topics = [
            {
                "topic": topic,
                "records_per_second": max(end - ends.get(topic, end), 0) / self._seconds,
                "stored_bytes": sizes[topic],
            }
            for topic, end in _ends_by_topic(self._now.partitions).items()
        ]
        return sorted(topics, key=lambda partition: (-partition["records_per_second"], partition["topic"]))

    def groups(self) -> list[GroupStanding]:
        return sorted(self._now.groups, key=lambda each: (-(each.lag_ms or 0), -each.lag, each.group))

    def as_fields(self, rows: int) -> dict[str, object]:
        return {
            "agents": self.agents()[:rows],
            "topics": self.topics()[:rows],
            "groups": [
                {"group": standing.group, "health": standing.health, "lag": standing.lag, "lag_ms": standing.lag_ms}
                for standing in self.groups()[:rows]
            ],
            "pipelines": [
                {"pipeline": standing["name"], "phase": phase_of(standing)} for standing in self._now.pipelines[:rows]
            ],
        }

    def show(self, rows: int) -> None:
        self._show_agents(rows)
        if topics := self.topics():
            print_line()
            columns = [
                Column("topic", style="cyan", fold=True),
                Column("records/s", "right"),
                Column("stored", "right"),
            ]
            shown = [[e["topic"], _number(e["records_per_second"]), size(e["stored_bytes"])] for e in topics[:rows]]
            print_table(columns, shown)
        if groups := self.groups():
            print_line()
            columns = [
                Column("group", style="cyan", fold=True),
                Column("health", paint=HEALTH),
                Column("lag", "right"),
                Column("behind", "right"),
            ]
            print_table(columns, [[e.group, e.health, count(e.lag), duration(e.lag_ms)] for e in groups[:rows]])
        if self._now.pipelines:
            print_line()
            columns = [Column("pipeline", style="cyan", fold=True), Column("phase", paint=PHASES)]
            print_table(columns, [[each["name"], phase_of(each)] for each in self._now.pipelines[:rows]])

    def _show_agents(self, rows: int) -> None:
        columns = [
            Column("node", "right", style="cyan"),
            Column("state", paint=STATES),
            Column("http", drop=1),
            Column("partitions", "right"),
            Column("in/s", "right"),
            Column("records/s", "right"),
            Column("out/s", "right"),
            Column("cpu", "right"),
            Column("memory", "right"),
            Column("buffer", "right", drop=2),
        ]
        print_table(columns, [_agent_row(agent) for agent in self.agents()[:rows]])


def _ends_by_topic(partitions: Sequence[PartitionStatus]) -> dict[str, int]:
    ends: dict[str, int] = {}
    for partition in partitions:
        end = partition.flushed_end if partition.high_watermark is None else partition.high_watermark
        ends[partition.topic] = ends.get(partition.topic, 0) + end
    return ends


def _agent_row(agent: Mapping[str, Any]) -> list[str]:
    return [
        str(agent["node"]),
        agent["state"],
        agent["http"],
        count(agent["partitions"]),
        _size(agent["written"]),
        _number(agent["records"]),
        _size(agent["read"]),
        _percent(agent["cpu"]),
        _size(agent["memory"]),
        _percent(agent["pressure"]),
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else count(value)


def _size(value: float | None) -> str:
    return "-" if value is None else size(value)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:.0f} %"
