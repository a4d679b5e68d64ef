"""Commands `streamhouse topics …`: create, list, describe, alter and delete topics."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from streamhouse.cli.dependencies import Dependencies, dependencies_of, run
from streamhouse.cli.options import Agents, AsJson, Bootstrap, TopicName, Yes, confirm, kafka_addresses, pairs
from streamhouse.cli.output import (
    Column,
    count,
    counted,
    format_time,
    print_json,
    print_line,
    print_properties,
    print_result,
    print_table,
    size,
)
from streamhouse.cli.typer_setup import Command, command_group, help_text
from streamhouse.errors import InvalidConfig

if TYPE_CHECKING:
    from streamhouse.client.types import Config, Partition, TimeRange, Topic

EARLIEST: Final = -2
LATEST: Final = -1
UNKNOWN: Final = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """A topic with its offsets, sizes and settings; None for what the agent does not report."""

    topic: "Topic"
    agents: Mapping[int, str]
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    sizes: Mapping[int, int] | None
    times: "Mapping[int, TimeRange] | None"
    configs: "list[Config] | None"

    @property
    def records(self) -> int:
        return sum(self.ends.values()) - sum(self.starts.values())

    @property
    def first_ms(self) -> int | None:
        return min((time.first_ms for time in (self.times or {}).values()), default=None)

    @property
    def last_ms(self) -> int | None:
        return max((time.last_ms for time in (self.times or {}).values()), default=None)

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.topic.name,
            "internal": self.topic.internal,
            "bytes": None if self.sizes is None else sum(self.sizes.values()),
            "first_ms": self.first_ms,
            "last_ms": self.last_ms,
            "partitions": [self._partition_as_json(partition) for partition in self.topic.partitions],
            "configs": None if self.configs is None else {c.name: c.value for c in self.configs},
        }

    def _partition_as_json(self, partition: "Partition") -> dict[str, object]:
        number = partition.partition
        times = (self.times or {}).get(number)
        return {
            "partition": number,
            "leader": partition.leader,
            "epoch": partition.epoch,
            "start": self.starts[number],
            "end": self.ends[number],
            "bytes": None if self.sizes is None else self.sizes.get(number, 0),
            "first_ms": None if times is None else times.first_ms,
            "last_ms": None if times is None else times.last_ms,
        }

    def show(self, *, every_config: bool) -> None:
        facts = [
            ("topic", self.topic.name),
            ("partitions", count(len(self.topic.partitions))),
            ("records", count(self.records)),
        ]
        if self.sizes is not None:
            facts.append(("size", size(sum(self.sizes.values()))))
        if self.first_ms is not None and self.last_ms is not None:
            facts.append(("time", f"{format_time(self.first_ms)} to {format_time(self.last_ms)}"))
        print_properties(facts)
        print_line()
        columns = [
            Column("partition", "right", "cyan"),
            Column("leader", drop=3),
            Column("epoch", "right", drop=4),
            Column("start", "right"),
            Column("end", "right"),
            Column("records", "right"),
            Column("size", "right"),
            Column("first", drop=2),
            Column("last", drop=1),
        ]
        print_table(columns, [self._row(partition) for partition in self.topic.partitions])
        print_line()
        self._show_configs(every_config)

    def _row(self, partition: "Partition") -> list[str]:
        number, leader = partition.partition, partition.leader
        start, end = self.starts[number], self.ends[number]
        times = (self.times or {}).get(number)
        return [
            str(number),
            f"{leader} ({self.agents[leader]})" if leader in self.agents else str(leader),
            str(partition.epoch),
            str(start),
            str(end),
            count(end - start),
            UNKNOWN if self.sizes is None else size(self.sizes.get(number, 0)),
            UNKNOWN if times is None else format_time(times.first_ms),
            UNKNOWN if times is None else format_time(times.last_ms),
        ]

    def _show_configs(self, every: bool) -> None:
        if self.configs is None:
            print_line("settings: this agent does not report them", dim=True)
            return
        shown = [config for config in self.configs if every or config.own]
        if shown:
            columns = [Column("setting", style="cyan"), Column("value", fold=True), Column("from")]
            print_table(columns, [[c.name, c.value or "", "topic" if c.own else "default"] for c in shown])
        else:
            print_line("settings: all defaults; --all shows them", dim=True)


async def view_topic(deps: Dependencies, bootstrap: str, name: str) -> TopicView:
    async with deps.admin(bootstrap) as admin:
        topic = await admin.topic(name)
        starts, ends = await admin.offsets(topic, EARLIEST), await admin.offsets(topic, LATEST)
        return TopicView(
            topic=await admin.topic(name),  # again: requests for offsets may have elected leaders
            agents=(await admin.cluster()).agents,
            starts=starts,
            ends=ends,
            sizes=await admin.sizes(topic),
            times=await admin.times(topic),
            configs=await admin.configs(name),
        )


app = command_group("Create, list, describe, alter and delete topics.")


@app.command(
    "create",
    cls=Command,
    help=help_text(
        "Create a topic.",
        "streamhouse topics create orders --partitions 3",
        "streamhouse topics create clicks --config retention.ms=3600000 --config message.timestamp.type=LogAppendTime",
    ),
)
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, help="Number of partitions. Default: the agent's topics.default_partitions."
        ),
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="Topic setting; may be repeated.")
    ] = None,
    agents: Agents = None,
    bootstrap: Bootstrap = None,
    as_json: AsJson = False,
) -> None:
    configs = dict(pairs(config or [], "--config"))
    topic = run(
        _create(dependencies_of(context), kafka_addresses(context, agents, bootstrap), name, partitions, configs)
    )
    number = len(topic.partitions)
    fields = {"name": topic.name, "partitions": number, "configs": configs}
    print_result(fields, f"created {topic.name} with {counted(number, 'partition')}", as_json)


async def _create(
    deps: Dependencies, bootstrap: str, name: str, partitions: int | None, configs: dict[str, str]
) -> "Topic":
    async with deps.admin(bootstrap) as admin:
        await admin.create_topic(name, partitions=partitions, configs=configs)
        return await admin.new_topic(name)


@app.command(
    "list",
    cls=Command,
    help=help_text("List the topics.", "streamhouse topics list", "streamhouse topics list --records --json"),
)
def list_(
    context: typer.Context,
    records: Annotated[
        bool, typer.Option("--records", help="Count offsets in use; sends a request to every leader.")
    ] = False,
    agents: Agents = None,
    bootstrap: Bootstrap = None,
    as_json: AsJson = False,
) -> None:
    topics = run(_list(dependencies_of(context), kafka_addresses(context, agents, bootstrap), records))
    if as_json:
        print_json([_fetch_topics(topic, number) for topic, number in topics])
    elif topics:
        columns = [Column("topic", style="cyan", fold=True), Column("partitions", "right")]
        extra = [Column("records", "right")] if records else []
        print_table([*columns, *extra], [_row(topic, number) for topic, number in topics])
    else:
        print_line("no topics yet; create one with: streamhouse topics create NAME")


def _fetch_topics(topic: "Topic", number: int | None) -> dict[str, object]:
    fields: dict[str, object] = {"name": topic.name, "partitions": len(topic.partitions), "internal": topic.internal}
    return fields if number is None else fields | {"records": number}


def _row(topic: "Topic", number: int | None) -> list[str]:
    return [topic.name, count(len(topic.partitions)), *([] if number is None else [count(number)])]


async def _list(deps: Dependencies, bootstrap: str, records: bool) -> "list[tuple[Topic, int | None]]":
    async with deps.admin(bootstrap) as admin:
        topics = await admin.topics()
        if not records:
            return [(topic, None) for topic in topics]
        counted_topics: list[tuple[Topic, int | None]] = []
        for topic in topics:
            starts, ends = await admin.offsets(topic, EARLIEST), await admin.offsets(topic, LATEST)
            counted_topics.append((topic, sum(ends.values()) - sum(starts.values())))
        return counted_topics


@app.command(
    "describe",
    cls=Command,
    help=help_text(
        "Show a topic's partitions (leader, epoch, offsets, size, time range) and its settings.",
        "streamhouse topics describe orders",
        "streamhouse topics describe orders --json",
    ),
)
def describe(
    context: typer.Context,
    name: TopicName,
    all_: Annotated[bool, typer.Option("--all", help="Include settings with default values.")] = False,
    agents: Agents = None,
    bootstrap: Bootstrap = None,
    as_json: AsJson = False,
) -> None:
    view = run(view_topic(dependencies_of(context), kafka_addresses(context, agents, bootstrap), name))
    if as_json:
        print_json(view.as_json())
    else:
        view.show(every_config=all_)


@app.command(
    "alter",
    cls=Command,
    help=help_text(
        "Change a topic's settings or add partitions. Either all changes apply or none.",
        "streamhouse topics alter orders --config retention.ms=3600000 --delete-config cleanup.policy",
        "streamhouse topics alter orders --partitions 6",
    ),
)
def alter(
    context: typer.Context,
    name: TopicName,
    config: Annotated[
        list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="Topic setting; may be repeated.")
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="KEY", help="Reset a setting to its default; may be repeated."),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="New number of partitions; can only grow.")
    ] = None,
    agents: Agents = None,
    bootstrap: Bootstrap = None,
    as_json: AsJson = False,
) -> None:
    configs = _changes(config or [], delete_config or [])
    if not configs and partitions is None:
        raise typer.BadParameter("give a change: --config, --delete-config or --partitions")
    count, own = run(
        _alter(dependencies_of(context), kafka_addresses(context, agents, bootstrap), name, configs, partitions)
    )
    if as_json:
        print_json({"name": name, "partitions": count, "configs": own})
        return
    settings = ", ".join(f"{key}={value}" for key, value in own.items()) or "all settings are the defaults"
    print_line(f"altered {name}: {counted(count, 'partition')}, {settings}", color="green")


def _changes(config: list[str], delete_config: list[str]) -> dict[str, str | None]:
    """Return the new value of each given setting; None resets it to the default."""
    changes: dict[str, str | None] = dict(pairs(config, "--config"))
    for key in delete_config:
        if key in changes:
            raise typer.BadParameter(f"{key} can't be set and deleted at once", param_hint="--delete-config")
        changes[key] = None
    return changes


async def _alter(
    deps: Dependencies, bootstrap: str, name: str, configs: Mapping[str, str | None], partitions: int | None
) -> tuple[int, dict[str, str | None]]:
    """Alter a topic; return its number of partitions and its own settings. New settings are returned as they were sent,
    because the agent that serves the next request may not have read them yet."""
    async with deps.admin(bootstrap) as admin:
        known = {config.name for config in await admin.configs(name) or ()}
        for key in configs:
            if known and key not in known:  # deleting a setting that doesn't exist would be no error
                raise InvalidConfig(f"unknown topic setting; name={key!r}")
        for dry_run in (True, False):
            if configs:
                await admin.alter_topic(name, configs, dry_run=dry_run)
            if partitions is not None:
                await admin.grow_topic(name, partitions, dry_run=dry_run)
        own = {config.name: config.value for config in await admin.configs(name) or () if config.own}
        changed: dict[str, str | None] = {**own, **configs}
        own = {key: value for key, value in changed.items() if value is not None}
        return partitions or len((await admin.topic(name)).partitions), dict(sorted(own.items()))


@app.command(
    "delete",
    cls=Command,
    help=help_text(
        "Delete a topic and its records. Asks for confirmation unless --yes is given.",
        "streamhouse topics delete orders",
        "streamhouse topics delete orders --yes",
    ),
)
def delete(
    context: typer.Context,
    name: TopicName,
    yes: Yes = False,
    agents: Agents = None,
    bootstrap: Bootstrap = None,
    as_json: AsJson = False,
) -> None:
    confirm(f"Delete {name} and all its records?", yes)
    run(_delete(dependencies_of(context), kafka_addresses(context, agents, bootstrap), name))
    print_result({"deleted": name}, f"deleted {name}", as_json)


async def _delete(deps: Dependencies, bootstrap: str, name: str) -> None:
    async with deps.admin(bootstrap) as admin:
        await admin.delete_topic(name)
