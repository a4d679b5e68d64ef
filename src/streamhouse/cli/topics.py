"""Topics: create, list, describe, delete.

Owns        what the four commands ask for and print
Leaves      the asking to `client.admin`
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from streamhouse.cli.doors import Doors, doors_of, run
from streamhouse.cli.help import HelpfulCommand, described, group
from streamhouse.cli.options import AsJson, Bootstrap, TopicName, bootstrap_address, pairs
from streamhouse.cli.output import Column, print_facts, print_json, print_table, say
from streamhouse.cli.words import count, counted

if TYPE_CHECKING:
    from streamhouse.client.nouns import Config, Topic

app = group("Create, list, describe and delete topics.")

_EARLIEST = -2
_LATEST = -1


@app.command(
    "create",
    cls=HelpfulCommand,
    help=described(
        "Create a topic.",
        "streamhouse topics create orders --partitions 3",
        "streamhouse topics create clicks --config retention.ms=3600000 --config message.timestamp.type=LogAppendTime",
    ),
)
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="Default: the agent's topics.default_partitions.")
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="Topic setting; may be repeated.")
    ] = None,
    bootstrap: Bootstrap = None,
    as_json: AsJson = False,
) -> None:
    configs = dict(pairs(config or [], "--config"))
    topic = run(_create(doors_of(context), bootstrap_address(bootstrap), name, partitions, configs))
    if as_json:
        print_json({"name": topic.name, "partitions": len(topic.partitions), "configs": configs})
    else:
        say(f"created {topic.name} with {counted(len(topic.partitions), 'partition')}", color="green")


async def _create(doors: Doors, bootstrap: str, name: str, partitions: int | None, configs: dict[str, str]) -> "Topic":
    async with doors.admin(bootstrap) as admin:
        await admin.create_topic(name, partitions=partitions, configs=configs)
        return await admin.topic(name)


@app.command(
    "list",
    cls=HelpfulCommand,
    help=described("List the topics.", "streamhouse topics list", "streamhouse topics list --records --json"),
)
def list_(
    context: typer.Context,
    records: Annotated[
        bool, typer.Option("--records", help="Also count offsets in use, which asks the leader of every partition.")
    ] = False,
    bootstrap: Bootstrap = None,
    as_json: AsJson = False,
) -> None:
    topics = run(_list(doors_of(context), bootstrap_address(bootstrap), records))
    if as_json:
        print_json([_listed(topic, number) for topic, number in topics])
    elif topics:
        columns = [Column("topic", style="cyan", fold=True), Column("partitions", "right")]
        extra = [Column("records", "right")] if records else []
        print_table([*columns, *extra], [_row(topic, number) for topic, number in topics])
    else:
        say("no topics yet; make one with: streamhouse topics create NAME")


def _listed(topic: "Topic", number: int | None) -> dict[str, object]:
    told: dict[str, object] = {"name": topic.name, "partitions": len(topic.partitions), "internal": topic.internal}
    return told if number is None else told | {"records": number}


def _row(topic: "Topic", number: int | None) -> list[str]:
    return [topic.name, count(len(topic.partitions)), *([] if number is None else [count(number)])]


async def _list(doors: Doors, bootstrap: str, records: bool) -> "list[tuple[Topic, int | None]]":
    async with doors.admin(bootstrap) as admin:
        topics = await admin.topics()
        if not records:
            return [(topic, None) for topic in topics]
        counted_topics: list[tuple[Topic, int | None]] = []
        for topic in topics:
            starts, ends = await admin.offsets(topic, _EARLIEST), await admin.offsets(topic, _LATEST)
            counted_topics.append((topic, sum(ends.values()) - sum(starts.values())))
        return counted_topics


@app.command(
    "describe",
    cls=HelpfulCommand,
    help=described(
        "Show a topic's partitions (leader, epoch, offsets) and its settings.",
        "streamhouse topics describe orders",
        "streamhouse topics describe orders --json",
    ),
)
def describe(
    context: typer.Context,
    name: TopicName,
    all_: Annotated[bool, typer.Option("--all", help="Also settings that have their default value.")] = False,
    bootstrap: Bootstrap = None,
    as_json: AsJson = False,
) -> None:
    told = run(_describe(doors_of(context), bootstrap_address(bootstrap), name))
    if as_json:
        print_json(told.as_json())
    else:
        told.show(every_config=all_)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Described:
    """A topic with everything that is known of it."""

    topic: "Topic"
    agents: Mapping[int, str]
    starts: dict[int, int]
    ends: dict[int, int]
    configs: "list[Config] | None"

    @property
    def records(self) -> int:
        return sum(self.ends.values()) - sum(self.starts.values())

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.topic.name,
            "internal": self.topic.internal,
            "partitions": [
                {
                    "partition": p.partition,
                    "leader": p.leader,
                    "epoch": p.epoch,
                    "start": self.starts[p.partition],
                    "end": self.ends[p.partition],
                }
                for p in self.topic.partitions
            ],
            "configs": None if self.configs is None else {c.name: c.value for c in self.configs},
        }

    def show(self, *, every_config: bool) -> None:
        print_facts(
            [
                ("topic", self.topic.name),
                ("partitions", count(len(self.topic.partitions))),
                ("records", count(self.records)),
            ]
        )
        say()
        columns = [
            Column("partition", "right", "cyan"),
            Column("leader", drop=1),
            Column("epoch", "right"),
            Column("start", "right"),
            Column("end", "right"),
            Column("records", "right"),
        ]
        print_table(columns, [self._row(p.partition, p.leader, p.epoch) for p in self.topic.partitions])
        say()
        self._show_configs(every_config)

    def _row(self, number: int, leader: int, epoch: int) -> list[str]:
        start, end = self.starts[number], self.ends[number]
        where = f"{leader} ({self.agents[leader]})" if leader in self.agents else str(leader)
        return [str(number), where, str(epoch), str(start), str(end), count(end - start)]

    def _show_configs(self, every: bool) -> None:
        if self.configs is None:
            say("settings: this agent does not tell them", dim=True)
            return
        shown = [config for config in self.configs if every or config.own]
        if shown:
            columns = [Column("setting", style="cyan"), Column("value", fold=True), Column("from")]
            print_table(columns, [[c.name, c.value or "", "topic" if c.own else "default"] for c in shown])
        else:
            say("settings: all defaults; --all shows them", dim=True)


async def _describe(doors: Doors, bootstrap: str, name: str) -> _Described:
    async with doors.admin(bootstrap) as admin:
        topic = await admin.topic(name)
        starts, ends = await admin.offsets(topic, _EARLIEST), await admin.offsets(topic, _LATEST)
        return _Described(
            topic=await admin.topic(name),  # once more: asking for offsets may have given partitions a leader
            agents=(await admin.cluster()).agents,
            starts=starts,
            ends=ends,
            configs=await admin.configs(name),
        )


@app.command(
    "delete",
    cls=HelpfulCommand,
    help=described(
        "Delete a topic and its records. Asks first, unless told --yes.",
        "streamhouse topics delete orders",
        "streamhouse topics delete orders --yes",
    ),
)
def delete(
    context: typer.Context,
    name: TopicName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = None,
    as_json: AsJson = False,
) -> None:
    if not yes:
        typer.confirm(f"Delete {name} and all its records?", abort=True, err=True)
    run(_delete(doors_of(context), bootstrap_address(bootstrap), name))
    if as_json:
        print_json({"deleted": name})
    else:
        say(f"deleted {name}", color="green")


async def _delete(doors: Doors, bootstrap: str, name: str) -> None:
    async with doors.admin(bootstrap) as admin:
        await admin.delete_topic(name)
