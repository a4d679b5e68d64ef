"""Command `streamhouse lag`: how far consumer groups are behind, in records and in time."""

from collections.abc import Sequence
from typing import Annotated, Final

import typer
from msgspec import to_builtins

from streamhouse.cli.dependencies import Dependencies, dependencies_of, run
from streamhouse.cli.options import Agents, AsJson, complete_group, http_addresses
from streamhouse.cli.output import (
    Column,
    console,
    count,
    format_time,
    on_terminal,
    print_json,
    print_line,
    print_properties,
    print_table,
)
from streamhouse.cli.typer_setup import help_text
from streamhouse.client.types import GroupStanding, LagSample, PartitionStanding
from streamhouse.clock import SystemClock

HELP: Final = help_text(
    "Show how far consumer groups are behind, in records and in time: the age of the first record that is not "
    "committed. With a group, all its partitions. The lag of all groups is what was last measured, twice a minute; "
    "that of one group is measured now.",
    "streamhouse lag",
    "streamhouse lag billing",
    "streamhouse lag --watch",
)
HEALTH: Final = {
    "caught up": "green",
    "shrinking": "green",
    "steady": "yellow",
    "growing": "red",
    "stuck": "bold red",
    "stopped": "yellow",
}
UNKNOWN: Final = "-"
BARS: Final = " ▁▂▃▄▅▆▇█"
WIDTH: Final = 24
"""Characters of a plot."""

WATCH_S: Final = 2.0


def lag(
    context: typer.Context,
    group: Annotated[
        str | None,
        typer.Argument(metavar="GROUP", autocompletion=complete_group, show_default=False, help="Default: all."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every two seconds until Ctrl-C.")] = False,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    run(_show(dependencies_of(context), http_addresses(agents), group, watch, as_json))


async def _show(deps: Dependencies, address: str, group: str | None, watch: bool, as_json: bool) -> None:
    async with deps.http(address) as http:
        while True:
            standings = [await http.group_lag(group)] if group is not None else await http.group_lags()
            if watch and on_terminal() and not as_json:
                console().clear()
            if as_json:
                print_json(to_builtins(standings[0] if group is not None else {"groups": standings}))
            elif group is not None:
                _print_group(standings[0])
            else:
                _print_groups(standings)
            if not watch:
                return
            await SystemClock().sleep(WATCH_S)


def _print_groups(standings: Sequence[GroupStanding]) -> None:
    if not standings:
        print_line("no groups yet; be the first member of one with: streamhouse consume TOPIC --group NAME")
        return
    columns = [
        Column("group", style="cyan", fold=True),
        Column("health", paint=HEALTH),
        Column("lag", "right"),
        Column("behind", "right"),
        Column("change/s", "right", drop=2),
        Column("last hour", drop=1),
    ]
    rows = [
        [
            standing.group,
            standing.health,
            UNKNOWN if standing.at_ms is None else count(standing.lag),
            duration(standing.lag_ms),
            _rate(standing.records_per_second),
            plot(standing.history),
        ]
        for standing in sorted(standings, key=lambda standing: (-(standing.lag_ms or 0), standing.group))
    ]
    print_table(columns, rows)


def _print_group(standing: GroupStanding) -> None:
    print_properties(
        [
            ("group", standing.group),
            ("health", standing.health),
            ("lag", f"{count(standing.lag)} records"),
            ("behind", duration(standing.lag_ms)),
            ("change", f"{_rate(standing.records_per_second)} records/s"),
            ("last hour", plot(standing.history)),
        ]
    )
    if standing.partitions:
        print_line()
        columns = [
            Column("topic", style="cyan", fold=True),
            Column("partition", "right"),
            Column("committed", "right"),
            Column("end", "right"),
            Column("lag", "right"),
            Column("behind", "right"),
            Column("last commit", drop=2),
            Column("state", paint=HEALTH),
            Column("member", drop=1),
        ]
        print_table(columns, map(_partition_row, standing.partitions))


def _partition_row(partition: PartitionStanding) -> list[str]:
    state = (
        "unknown"
        if partition.lag is None
        else "stuck"
        if partition.stuck
        else "waiting"
        if partition.lag
        else "caught up"
    )
    return [
        partition.topic,
        str(partition.partition),
        UNKNOWN if partition.committed is None else str(partition.committed),
        UNKNOWN if partition.end is None else str(partition.end),
        UNKNOWN if partition.lag is None else count(partition.lag),
        duration(partition.lag_ms),
        UNKNOWN if partition.committed_at_ms is None else format_time(partition.committed_at_ms)[:19],
        state,
        partition.member or UNKNOWN,
    ]


def _rate(records_per_second: float | None) -> str:
    return UNKNOWN if records_per_second is None else f"{records_per_second:+,.1f}"


def duration(ms: int | None) -> str:
    """`0 s`, `45 s`, `3 min`, `2 h 5 min`, `4 d 3 h`."""
    if ms is None:
        return UNKNOWN
    seconds = ms // 1000
    if seconds < 60:
        return f"{seconds} s" if ms >= 1000 or not ms else f"{ms} ms"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if hours < 1:
        return f"{minutes} min"
    return f"{hours} h {minutes % 60} min" if days < 1 else f"{days} d {hours % 24} h"


def plot(samples: Sequence[LagSample]) -> str:
    """The lag of the last hour as bars, the highest of each period."""
    if len(samples) < 2:
        return ""
    end_ms = samples[-1].at_ms
    step_ms = 3_600_000 // WIDTH
    heights: list[int | None] = [None] * WIDTH
    for sample in samples:
        index = WIDTH - 1 - (end_ms - sample.at_ms) // step_ms
        if index >= 0:
            heights[index] = max(heights[index] or 0, sample.lag)
    top = max((sample for sample in heights if sample is not None), default=0)
    return "".join(_bar(sample, top) for sample in heights).lstrip()


def _bar(height: int | None, top: int) -> str:
    if height is None:
        return " "
    return BARS[1 + (len(BARS) - 2) * height // top] if top else BARS[1]
