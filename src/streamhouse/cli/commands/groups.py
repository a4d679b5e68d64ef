"""Commands `streamhouse groups list|describe|reset|delete`; `offset_reset` computes the new offsets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from streamhouse.cli.commands.offset_reset import Move, Target, parse_target, parse_topics, plan
from streamhouse.cli.dependencies import Dependencies, dependencies_of, run
from streamhouse.cli.options import Agents, AsJson, Bootstrap, GroupName, Yes, confirm, kafka_addresses
from streamhouse.cli.output import Column, count, print_json, print_line, print_properties, print_result, print_table
from streamhouse.cli.typer_setup import Command, command_group, help_text
from streamhouse.client.types import Group
from streamhouse.errors import NonEmptyGroup

if TYPE_CHECKING:
    from streamhouse.client.group_lag import PartitionLag

app = command_group("List, describe, reset and delete consumer groups.")


@app.command(
    "list",
    cls=Command,
    help=help_text("List the consumer groups.", "streamhouse groups list", "streamhouse groups list --json"),
)
def list_(context: typer.Context, agents: Agents = None, bootstrap: Bootstrap = None, as_json: AsJson = False) -> None:
    groups = run(_list(dependencies_of(context), kafka_addresses(context, agents, bootstrap)))
    if as_json:
        print_json([{"group": group.name, "state": group.state, "members": len(group.members)} for group in groups])
    elif groups:
        columns = [Column("group", style="cyan", fold=True), Column("state"), Column("members", "right")]
        print_table(columns, [[group.name, group.state, count(len(group.members))] for group in groups])
    else:
        print_line("no groups yet; be the first member of one with: streamhouse consume TOPIC --group NAME")


async def _list(deps: Dependencies, bootstrap: str) -> list[Group]:
    async with deps.admin(bootstrap) as admin:
        return await deps.groups(admin).all()


# --- describe


@app.command(
    "describe",
    cls=Command,
    help=help_text(
        "Show a group's members, assignments, committed offsets and lag. Without a committed offset, lag counts from "
        "the log start.",
        "streamhouse groups describe billing",
        "streamhouse groups describe billing --json",
    ),
)
def describe(
    context: typer.Context, name: GroupName, agents: Agents = None, bootstrap: Bootstrap = None, as_json: AsJson = False
) -> None:
    description = run(_describe(dependencies_of(context), kafka_addresses(context, agents, bootstrap), name))
    if as_json:
        print_json(description.as_json())
    else:
        description.show()


@dataclass(frozen=True, slots=True, kw_only=True)
class _GroupDescription:
    group: Group
    lags: "list[PartitionLag]"

    @property
    def lag(self) -> int:
        return sum(partition.lag for partition in self.lags)

    def as_json(self) -> dict[str, object]:
        return {
            "group": self.group.name,
            "state": self.group.state,
            "protocol": self.group.protocol,
            "lag": self.lag,
            "members": [
                {
                    "member": member.member_id,
                    "client": member.client_id,
                    "host": member.host,
                    "assigned": [
                        {"topic": partition.topic, "partition": partition.partition} for partition in member.assigned
                    ],
                }
                for member in self.group.members
            ],
            "partitions": [
                {
                    "topic": partition.partition.topic,
                    "partition": partition.partition.partition,
                    "committed": partition.committed,
                    "end": partition.end,
                    "lag": partition.lag,
                    "member": partition.member_id,
                }
                for partition in self.lags
            ],
        }

    def show(self) -> None:
        facts = [("group", self.group.name), ("state", self.group.state)]
        facts += [("protocol", self.group.protocol)] if self.group.protocol else []
        print_properties([*facts, ("members", count(len(self.group.members))), ("lag", count(self.lag))])
        if self.lags:
            print_line()
            self._show_lags()
        if self.group.members:
            print_line()
            self._show_members()

    def _show_lags(self) -> None:
        columns = [
            Column("topic", style="cyan", fold=True),
            Column("partition", "right"),
            Column("committed", "right"),
            Column("end", "right"),
            Column("lag", "right"),
            Column("member", drop=1),
        ]
        print_table(columns, map(_row, self.lags))

    def _show_members(self) -> None:
        columns = [
            Column("member", style="cyan"),
            Column("client", drop=2),
            Column("host", drop=1),
            Column("partitions", "right"),
        ]
        rows = [
            [member.member_id, member.client_id, member.host, count(len(member.assigned))]
            for member in self.group.members
        ]
        print_table(columns, rows)


def _row(partition: "PartitionLag") -> list[str]:
    committed = "-" if partition.committed is None else str(partition.committed)
    lag, member = count(partition.lag), partition.member_id or "-"
    return [partition.partition.topic, str(partition.partition.partition), committed, str(partition.end), lag, member]


async def _describe(deps: Dependencies, bootstrap: str, name: str) -> _GroupDescription:
    async with deps.admin(bootstrap) as admin:
        groups = deps.groups(admin)
        described_group = await groups.describe(name)
        return _GroupDescription(group=described_group, lags=await deps.partition_lags(admin, described_group))


# --- reset


@app.command(
    "reset",
    cls=Command,
    help=help_text(
        "Reset the committed offsets of a group. Shows the plan; --execute applies it. The group must have no members.",
        "streamhouse groups reset billing --to-earliest",
        "streamhouse groups reset billing --topic orders:0,2 --to-time -1h --execute",
        "streamhouse groups reset billing --shift-by -100 --execute",
    ),
)
def reset(
    context: typer.Context,
    name: GroupName,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:P,…]",
            help="Topic, or some of its partitions; may be repeated. Default: all.",
        ),
    ] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="Reset to the log start.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Reset to the log end.")] = False,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", min=0, metavar="N", help="Reset to this offset.")
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option("--to-time", metavar="TIME", help="Reset to a time: 2026-11-15T12:00, 1731672000000 (ms) or -1h."),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="Move forward by N offsets; -N: backward.")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Apply the reset; without it, only show it.")] = False,
    agents: Agents = None,
    bootstrap: Bootstrap = None,
    as_json: AsJson = False,
) -> None:
    target = parse_target(earliest=to_earliest, latest=to_latest, offset=to_offset, time=to_time, shift=shift_by)
    topics = parse_topics(topic or [])
    moves = run(
        _reset(dependencies_of(context), kafka_addresses(context, agents, bootstrap), name, target, topics, execute)
    )
    if as_json:
        print_json({"group": name, "executed": execute, "partitions": [_move_as_json(move) for move in moves]})
    else:
        _show_moves(name, moves, execute)


def _move_as_json(move: Move) -> dict[str, object]:
    return {"topic": move.partition.topic, "partition": move.partition.partition, "from": move.before, "to": move.after}


def _show_moves(name: str, moves: list[Move], execute: bool) -> None:
    columns = [
        Column("topic", style="cyan", fold=True),
        Column("partition", "right"),
        Column("from", "right"),
        Column("to", "right"),
        Column("moves", "right", drop=1),
    ]
    print_table(columns, [move.row() for move in moves])
    print_line()
    if execute:
        print_line(f"moved {name}", color="green")
    else:
        print_line("nothing was changed; add --execute to do it", dim=True)


async def _reset(
    deps: Dependencies,
    bootstrap: str,
    name: str,
    target: Target,
    topics: Mapping[str, list[int] | None],
    execute: bool,
) -> list[Move]:
    async with deps.admin(bootstrap) as admin:
        groups = deps.groups(admin)
        if any(each.name == name and each.is_active for each in await groups.all()):
            raise NonEmptyGroup(name)
        moves = await plan(admin, name, target, topics, committed=await groups.committed(name))
        if execute:
            await groups.commit(name, {move.partition: move.after for move in moves})
        return moves


# --- delete


@app.command(
    "delete",
    cls=Command,
    help=help_text(
        "Delete a group and its offsets. Asks for confirmation unless --yes is given. The group must have no members.",
        "streamhouse groups delete billing",
        "streamhouse groups delete billing --yes",
    ),
)
def delete(
    context: typer.Context,
    name: GroupName,
    yes: Yes = False,
    agents: Agents = None,
    bootstrap: Bootstrap = None,
    as_json: AsJson = False,
) -> None:
    confirm(f"Delete {name} and all its offsets?", yes)
    run(_delete(dependencies_of(context), kafka_addresses(context, agents, bootstrap), name))
    print_result({"deleted": name}, f"deleted {name}", as_json)


async def _delete(deps: Dependencies, bootstrap: str, name: str) -> None:
    async with deps.admin(bootstrap) as admin:
        await deps.groups(admin).delete(name)
