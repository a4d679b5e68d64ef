"""Positions: where reading begins, as clients say it, becomes offsets.

Data path   Fetch, Consume, ListOffsets, ResetGroup -> **positions** -> broker's offsets
Owns        which partitions a position means, how many may be named, that one partition's failure stays its own
Leaves      finding offsets to the broker
"""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from streamhouse.broker.broker import Broker
from streamhouse.broker.reading.offsets import FoundOffset
from streamhouse.errors import Rejected, StreamhouseError
from streamhouse.model.names import TopicPartition

from .generated import streamhouse_pb2 as pb
from .requests import named, number_of, partition_of

AT_ONCE: Final = 64
"""Offsets that one call looks for at the same time."""

NOWHERE: Final = FoundOffset(-1)


class Start(NamedTuple):
    """A partition, and where reading it begins; `found` is an error when that can't be said."""

    name: TopicPartition
    found: FoundOffset | StreamhouseError


async def find_starts(
    broker: Broker, positions: Sequence[pb.Position], *, limit: int, field: str = "positions", or_end: bool = True
) -> list[Start]:
    """Where each position begins, topic by topic. With `or_end`, a time that has no record yet means the log's end.

    Raises `Rejected` for what can't be understood, and what is wrong with a topic as a whole.
    """
    asked = [each for number, one in enumerate(positions) for each in await _spread(broker, one, f"{field}[{number}]")]
    if len(asked) > limit:
        raise Rejected(f"too many partitions; field={field} asked={len(asked)} limit={limit}")
    turns = asyncio.Semaphore(AT_ONCE)

    async def start(name: TopicPartition, position: pb.Position) -> Start:
        try:
            async with turns:
                return Start(name, await _find(broker, name, position, or_end=or_end))
        except StreamhouseError as error:
            return Start(name, error)

    return await asyncio.gather(*(start(name, position) for name, position in asked))


async def _spread(broker: Broker, position: pb.Position, field: str) -> list[tuple[TopicPartition, pb.Position]]:
    """One entry per partition."""
    named(position.topic, f"{field}.topic")
    if position.WhichOneof("start") == "offset":
        number_of(position.offset, f"{field}.offset")
    if position.HasField("partition"):
        return [(partition_of(position.topic, position.partition, f"{field}.partition"), position)]
    topic = await broker.topic(position.topic)
    return [(TopicPartition(topic.name, number), position) for number in range(topic.partitions)]


async def _find(broker: Broker, name: TopicPartition, position: pb.Position, *, or_end: bool) -> FoundOffset:
    kind = position.WhichOneof("start")
    if kind == "offset":
        return FoundOffset(position.offset)
    if kind == "timestamp_ms":
        found = await broker.records.at_time(name, position.timestamp_ms)
        if found is not None or not or_end:
            return found if found is not None else NOWHERE
    elif position.edge == pb.EDGE_EARLIEST:
        return await broker.records.earliest(name)
    return await broker.records.stable_end(name)
