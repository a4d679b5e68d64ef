"""Reset of a group's committed offsets: parse the target, and compute the new offset of each partition."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from streamhouse.cli.output import parse_time
from streamhouse.client.types import EARLIEST, LATEST
from streamhouse.clock import SystemClock
from streamhouse.errors import InvalidPartitions, Rejected
from streamhouse.model.names import TopicPartition

if TYPE_CHECKING:
    from streamhouse.client.kafka_admin import Admin
    from streamhouse.client.types import Topic

FLAGS = "--to-earliest, --to-latest, --to-offset, --to-time and --shift-by"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Exactly one field is set; `at` is `EARLIEST`, `LATEST` or a time in milliseconds."""

    at: int | None = None
    offset: int | None = None
    shift: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """`before` is None if the group has committed nothing."""

    partition: TopicPartition
    before: int | None
    after: int

    def row(self) -> list[str]:
        before = "-" if self.before is None else str(self.before)
        moves = "-" if self.before is None else f"{self.after - self.before:+,d}"
        return [self.partition.topic, str(self.partition.partition), before, str(self.after), moves]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """Log start and end offset of a partition; `at_target` is the offset at the target's end or time, -1 for none."""

    start: int
    end: int
    at_target: int = -1


def parse_target(*, earliest: bool, latest: bool, offset: int | None, time: str | None, shift: int | None) -> Target:
    fields = sum([earliest, latest, offset is not None, time is not None, shift is not None])
    if fields != 1:
        raise typer.BadParameter(f"give one of {FLAGS}", param_hint="--to-…")
    if earliest or latest:
        return Target(at=EARLIEST if earliest else LATEST)
    if time is None:
        return Target(offset=offset, shift=shift)
    try:
        return Target(at=parse_time(time, now_ms=SystemClock().now_ms()))
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{time!r} is not a time such as 2026-11-15T12:00, 1731672000000 or -1h", param_hint="--to-time"
        ) from None


def parse_topics(texts: list[str]) -> dict[str, list[int] | None]:
    """`orders` and `orders:0,2`, by topic; None is for all partitions."""
    topics: dict[str, list[int] | None] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        parts = numbers.split(",")
        if not topic or (colon and not all(part.isascii() and part.isdigit() for part in parts)):
            raise typer.BadParameter(f"{text!r} is not TOPIC or TOPIC:0,2", param_hint="--topic")
        before = topics.get(topic, [])
        topics[topic] = None if not colon or before is None else [*before, *map(int, parts)]
    return topics


def new_offset(target: Target, bounds: LogBounds, before: int | None) -> int | None:
    """The offset to move to, within the log; None to shift from no committed offset."""
    if target.at is not None:  # no record is that late: the end
        offset = bounds.at_target if bounds.at_target >= 0 else bounds.end
    elif target.offset is not None:
        offset = target.offset
    elif before is None or target.shift is None:
        return None
    else:
        offset = before + target.shift
    return min(max(offset, bounds.start), bounds.end)


async def plan(
    admin: "Admin",
    group: str,
    target: Target,
    topics: Mapping[str, list[int] | None],
    *,
    committed: Mapping[TopicPartition, int],
) -> list[Move]:
    """Compute the new offset of each partition of these topics; without topics, of all that the group has committed."""
    selected: dict[str, list[int] | None] = dict(topics)
    if not selected:
        for partition in committed:
            selected[partition.topic] = [*(selected.get(partition.topic) or []), partition.partition]
    if not selected:
        raise Rejected(f"the group has committed nothing, so give the topics; group={group} flag=--topic")
    moves: list[Move] = []
    for name, partitions in sorted(selected.items()):
        topic = await admin.topic(name)
        moves += _moves(group, target, name, await _bounds(admin, topic, target, partitions), committed)
    return moves


async def _bounds(admin: "Admin", topic: "Topic", target: Target, partitions: list[int] | None) -> dict[int, LogBounds]:
    known = {partition.partition for partition in topic.partitions}
    numbers = known if partitions is None else set(partitions)
    if not numbers <= known:
        missing = min(numbers - known)
        raise InvalidPartitions(
            f"no such partition; topic={topic.name} partition={missing} allowed=0 to {len(known) - 1}"
        )
    starts, ends = await admin.offsets(topic, EARLIEST, numbers), await admin.offsets(topic, LATEST, numbers)
    at_target = {} if target.at is None else await admin.offsets(topic, target.at, numbers)
    return {
        number: LogBounds(start=starts[number], end=ends[number], at_target=at_target.get(number, -1))
        for number in sorted(numbers)
    }


def _moves(
    group: str, target: Target, topic: str, bounds: Mapping[int, LogBounds], committed: Mapping[TopicPartition, int]
) -> list[Move]:
    moves: list[Move] = []
    for number, partition_bounds in bounds.items():
        partition = TopicPartition(topic, number)
        before = committed.get(partition)
        after = new_offset(target, partition_bounds, before)
        if after is None:
            raise Rejected(
                f"the group has committed nothing there to shift from; group={group} partition={topic}-{number}"
            )
        moves.append(Move(partition=partition, before=before, after=after))
    return moves
