"""Ends: where partitions end, asked of whoever leads each of them, some at once.

Data path   groups, topics -> **ends** -> broker.records
Owns        how many are asked at once; that one that can't be asked doesn't spoil the answer
Leaves      finding the leaders to `broker.records`
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from streamhouse.broker.broker import Broker
from streamhouse.errors import StreamhouseError
from streamhouse.model.names import TopicPartition
from streamhouse.wire.http.records.tail import PARALLEL


async def ends_of(broker: Broker, names: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
    """The high watermarks; None where nobody could tell, or the topic is gone."""

    async def end(name: TopicPartition) -> int | None:
        try:
            return (await broker.records.latest(name)).offset
        except StreamhouseError:
            return None

    return await each_of(names, end)


async def each_of(
    names: Iterable[TopicPartition], ask: Callable[[TopicPartition], Awaitable[int | None]]
) -> dict[TopicPartition, int | None]:
    """The same question about each partition, some of them at once."""
    turns = asyncio.Semaphore(PARALLEL)

    async def one(name: TopicPartition) -> tuple[TopicPartition, int | None]:
        async with turns:
            return name, await ask(name)

    return dict(await asyncio.gather(*map(one, names)))
