"""Topic view: everything that is known of a topic, as `topics describe` shows it.

Owns        what is asked for, and how it looks as text and as JSON
Leaves      the asking to `client.admin`, the command to `topics`
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streamhouse.cli.doors import Doors
from streamhouse.cli.output import Column, print_facts, print_table, say
from streamhouse.cli.words import count, size, when

if TYPE_CHECKING:
    from streamhouse.client.types import Config, Partition, TimeRange, Topic

EARLIEST: Final = -2
LATEST: Final = -1
UNKNOWN: Final = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """None stands for what the agent doesn't tell."""

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
            facts.append(("time", f"{when(self.first_ms)} to {when(self.last_ms)}"))
        print_facts(facts)
        say()
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
        say()
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
            UNKNOWN if times is None else when(times.first_ms),
            UNKNOWN if times is None else when(times.last_ms),
        ]

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


async def view_topic(doors: Doors, bootstrap: str, name: str) -> TopicView:
    async with doors.admin(bootstrap) as admin:
        topic = await admin.topic(name)
        starts, ends = await admin.offsets(topic, EARLIEST), await admin.offsets(topic, LATEST)
        return TopicView(
            topic=await admin.topic(name),  # once more: asking for offsets may have given partitions a leader
            agents=(await admin.cluster()).agents,
            starts=starts,
            ends=ends,
            sizes=await admin.sizes(topic),
            times=await admin.times(topic),
            configs=await admin.configs(name),
        )
