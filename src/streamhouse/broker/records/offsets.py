"""Offsets: where a partition's log begins and ends, and what stands at a time, asked at any agent.

Data path   HTTP, gRPC -> **offsets** -> broker.offsets here, or the leader over Doors.peers
Owns        asking again while the leader is on the move
Leaves      the answers to `broker.reading.offsets`
"""

from collections.abc import Awaitable, Callable
from functools import partial

from streamhouse.broker.doors import EARLIEST_TIME, LATEST_TIME, Doors
from streamhouse.broker.reading.offsets import FoundOffset
from streamhouse.broker.records.here import Here
from streamhouse.broker.records.patience import Patience
from streamhouse.broker.records.seats import Seats
from streamhouse.errors import Retriable, Unavailable
from streamhouse.model.names import TopicPartition


class Offsets:
    def __init__(self, doors: Doors, here: Here, *, seats: Seats) -> None:
        self._doors = doors
        self._here = here
        self._seats = seats

    async def earliest(self, name: TopicPartition) -> FoundOffset:
        return _must(await self._find(name, self._here.earliest, EARLIEST_TIME), name)

    async def latest(self, name: TopicPartition) -> FoundOffset:
        return _must(await self._find(name, self._here.latest, LATEST_TIME), name)

    async def stable_end(self, name: TopicPartition) -> FoundOffset:
        here = partial(self._here.latest, committed=True)
        return _must(await self._find(name, here, LATEST_TIME, committed=True), name)

    async def at_time(self, name: TopicPartition, timestamp_ms: int) -> FoundOffset | None:
        timestamp_ms = max(timestamp_ms, 0)  # negative times have other meanings to Kafka, and no record has one
        here = partial(self._here.at_time, timestamp_ms=timestamp_ms, committed=True)
        return await self._find(name, here, timestamp_ms, committed=True)

    async def _find(
        self,
        name: TopicPartition,
        here: Callable[[TopicPartition], Awaitable[FoundOffset | None]],
        timestamp_ms: int,
        *,
        committed: bool = False,
    ) -> FoundOffset | None:
        patience = Patience(self._doors, self._doors.settings.records.patience_s)
        while True:
            try:
                seat = await self._seats.find(name)
                if seat.address is None:
                    return await here(name)
                left_s = patience.left_s
                return await self._doors.peers.offset(
                    seat.address, name, timestamp_ms, committed=committed, timeout_s=left_s
                )
            except Retriable as error:
                await self._seats.look_again(name)
                await patience.pause(error)


def _must(found: FoundOffset | None, name: TopicPartition) -> FoundOffset:
    if found is None:
        raise Unavailable(f"another agent doesn't know the ends of a log; partition={name}")
    return found
