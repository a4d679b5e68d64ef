"""Commands `streamhouse partitions list|move`: leaders, epochs and offsets; move a partition to another agent."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from streamhouse.cli.commands.cluster import format_remaining
from streamhouse.cli.dependencies import Dependencies, dependencies_of, run
from streamhouse.cli.options import Agents, AsJson, complete_topic, http_addresses
from streamhouse.cli.output import (
    Column,
    StatusLine,
    count,
    counted,
    print_json,
    print_line,
    print_note,
    print_table,
    size,
)
from streamhouse.cli.typer_setup import Command, command_group, help_text
from streamhouse.client.types import PartitionStatus
from streamhouse.clock import SystemClock
from streamhouse.errors import Unavailable

if TYPE_CHECKING:
    from streamhouse.client.cluster_client import PartitionSurvey
    from streamhouse.client.http import Http

app = command_group("List partitions and move their leadership.")

POLL_S: Final = 0.2


@app.command(
    "list",
    cls=Command,
    help=help_text(
        "List partitions with leader, epoch, lease, log start offset, flushed offset, high watermark, last stable "
        "offset and size. A last stable offset below the high watermark means that a transaction is open. The command "
        "sends a request to every leader.",
        "streamhouse partitions list",
        "streamhouse partitions list orders --json",
    ),
)
def list_(
    context: typer.Context,
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="TOPIC",
            help="Topic name. Default: all topics.",
            autocompletion=complete_topic,
            show_default=False,
        ),
    ] = None,
    internal: Annotated[bool, typer.Option("--internal", help="Include the shards of consumer groups.")] = False,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    survey = run(dependencies_of(context).cluster_client(http_addresses(agents)).partitions(topic))
    for agent in survey.silent:
        print_note(f"agent {agent.node} does not answer on http://{agent.http}; its high watermarks are unknown")
    partitions = [
        partition for partition in survey.partitions if internal or topic or not partition.topic.startswith("__")
    ]
    if as_json:
        print_json({"partitions": [as_fields(partition) for partition in partitions], "silent": _silent_nodes(survey)})
    elif not partitions:
        print_line("no partitions yet; create a topic with: streamhouse topics create NAME")
    else:
        _show(partitions)


def _silent_nodes(survey: "PartitionSurvey") -> list[int]:
    return [agent.node for agent in survey.silent]


def as_fields(partition: PartitionStatus) -> dict[str, object]:
    return {name: getattr(partition, name) for name in partition.__struct_fields__}


def _show(partitions: Sequence[PartitionStatus]) -> None:
    columns = [
        Column("topic", style="cyan"),
        Column("part", "right"),
        Column("leader", "right"),
        Column("pinned to", "right", drop=3),
        Column("epoch", "right", drop=4),
        Column("lease ends in", "right", drop=5),
        Column("start", "right", drop=6),
        Column("flushed", "right"),
        Column("high watermark", "right"),
        Column("stable", "right", drop=2),
        Column("size", "right", drop=1),
    ]
    print_table(columns, [_row(partition) for partition in partitions])
    idle = sum(partition.leader is None for partition in partitions)
    rest = f"; {count(idle)} in brackets: the agent that becomes leader on the first request" if idle else ""
    print_line(
        f"{counted(len(partitions), 'partition')}, {size(sum(partition.bytes for partition in partitions))}{rest}",
        dim=True,
    )
    if held := sum(partition.is_held_back for partition in partitions):
        print_line(
            f"{counted(held, 'partition')} held back by open transactions; see: streamhouse transactions list --open",
            color="yellow",
        )


def _row(partition: PartitionStatus) -> list[str]:
    return [
        partition.topic,
        str(partition.partition),
        leader(partition),
        "-" if partition.pinned_to is None else str(partition.pinned_to),
        str(partition.epoch),
        format_remaining(partition.lease_expires_in_ms),
        count(partition.log_start),
        count(partition.flushed_end),
        "?" if partition.high_watermark is None else count(partition.high_watermark),
        stable(partition),
        size(partition.bytes),
    ]


def stable(partition: PartitionStatus) -> str:
    """Format the last stable offset: `-` without a leader, `?` if the leader does not respond."""
    if partition.last_stable_offset is None:
        return "-" if partition.leader is None else "?"
    return count(partition.last_stable_offset)


def leader(partition: PartitionStatus) -> str:
    """Format the leader: `2`; `2 > 3` while it moves; `(3)`, the next leader, if there is none; `-` without agents."""
    if partition.leader is None:
        return "-" if partition.owner is None else f"({partition.owner})"
    return f"{partition.leader} > {partition.owner}" if partition.is_moving else str(partition.leader)


@app.command(
    "move",
    cls=Command,
    help=help_text(
        "Pin the leadership of a partition to an agent, or release it with --unpin. No data moves and clients see no "
        "errors. While that agent is down, another one leads.",
        "streamhouse partitions move orders 3 --to 2",
        "streamhouse partitions move orders 3 --unpin",
    ),
)
def move(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic, show_default=False)],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0, show_default=False)],
    to: Annotated[
        int | None, typer.Option("--to", metavar="NODE", min=0, help="Node id of the new leader.", show_default=False)
    ] = None,
    unpin: Annotated[bool, typer.Option("--unpin", help="Let the cluster choose the leader again.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the new leader has taken over.")] = True,
    timeout: Annotated[int, typer.Option("--timeout", metavar="S", min=1, help="Timeout, in seconds.")] = 30,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    if (to is None) == (not unpin):
        raise typer.BadParameter("give --to NODE or --unpin", param_hint="--to")
    moved = run(
        _move(dependencies_of(context), http_addresses(agents), topic, partition, to, wait_s=timeout if wait else None)
    )
    if as_json:
        print_json({"partition": as_fields(moved)})
    else:
        print_line(_describe_move(moved), color=None if moved.is_moving else "green")


def _describe_move(moved: PartitionStatus) -> str:
    name = f"{moved.topic}-{moved.partition}"
    if moved.is_moving:
        return f"{name} moves from agent {moved.leader} to agent {moved.owner}"
    if moved.leader is None:
        return f"{name}: no leader; agent {moved.owner} becomes leader on the first request"
    return f"{name}: agent {moved.leader} leads it"


async def _move(
    deps: Dependencies, address: str, topic: str, partition: int, node: int | None, *, wait_s: float | None
) -> PartitionStatus:
    async with deps.http(address) as http:
        moved = await http.move(topic, partition, node)
        return moved if wait_s is None else await _wait_until_moved(http, moved, wait_s)


async def _wait_until_moved(http: "Http", moved: PartitionStatus, wait_s: float) -> PartitionStatus:
    clock, line = SystemClock(), StatusLine()
    deadline = clock.monotonic() + wait_s
    try:
        while moved.is_moving:
            line.show(_describe_move(moved))
            if clock.monotonic() >= deadline:
                raise Unavailable(f"{_describe_move(moved)}; not done after {wait_s:g} s, continues in the background")
            await clock.sleep(POLL_S)
            (moved,) = [
                partition_status
                for partition_status in await http.partitions(moved.topic)
                if partition_status.partition == moved.partition
            ]
    finally:
        line.clear()
    return moved
