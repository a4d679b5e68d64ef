"""Consumers that act as Kafka's clients do, and a record of the responses that they got."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from streamhouse.broker.groups import Groups, JoinResult, LeaveRequest, MemberRef, OffsetToCommit, SyncRequest
from streamhouse.errors import (
    FencedInstance,
    IllegalGeneration,
    MemberIdRequired,
    RebalanceInProgress,
    Retriable,
    StreamhouseError,
    UnknownMember,
)
from streamhouse.model.names import TopicPartition
from tests.broker.groups.scene import ORDERS, StandingClock, join

T = TypeVar("T")


class ConnectionLost(Exception):
    """The agent at the other end has died."""


@dataclass
class Link:
    """A way to an agent, until it dies."""

    groups: Groups
    dead: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self, call: Coroutine[Any, Any, T]) -> T:
        pending = asyncio.ensure_future(call)
        died = asyncio.ensure_future(self.dead.wait())
        try:
            await asyncio.wait({pending, died}, return_when=asyncio.FIRST_COMPLETED)
            if self.dead.is_set():
                raise ConnectionLost
            return await pending
        finally:
            for task in (pending, died):
                task.cancel()
            await asyncio.gather(pending, died, return_exceptions=True)


@dataclass
class Book:
    """What the group promised, and whether it kept its word."""

    acknowledged: dict[TopicPartition, int] = field(default_factory=dict)
    owners: dict[tuple[int, TopicPartition], str] = field(default_factory=dict)
    turns: int = 0

    def assigned(self, generation: int, partition: TopicPartition, member_id: str) -> None:
        owner = self.owners.setdefault((generation, partition), member_id)
        assert owner == member_id, f"two owners of {partition} in generation {generation}"

    def fetched(self, partition: TopicPartition, offset: int) -> None:
        assert offset >= self.acknowledged.get(partition, 0), f"{partition} went back to {offset}"

    def committed(self, partition: TopicPartition, offset: int) -> None:
        self.acknowledged[partition] = max(offset, self.acknowledged.get(partition, 0))


class Consumer:
    """Joins, reads a record of each of its partitions every second, and commits."""

    def __init__(self, clock: StandingClock, newest: Callable[[], Link], book: Book) -> None:
        self._clock = clock
        self._newest = newest
        self._link = newest()
        self._book = book
        self._member_id = ""
        self.joined: JoinResult | None = None
        self.positions: dict[TopicPartition, int] = {}

    async def live(self) -> None:
        self._link = self._newest()
        while True:
            try:
                await self._turn()
                await self._clock.sleep(1.0)
            except MemberIdRequired as error:
                self._member_id = error.member_id
            except RebalanceInProgress:
                self.joined = None
            except (UnknownMember, IllegalGeneration, FencedInstance):
                self.joined, self._member_id = None, ""
            except (Retriable, ConnectionLost):
                self._link = self._newest()
                await self._clock.sleep(0.2)

    async def _turn(self) -> None:
        if self.joined is None:
            await self._join()
            return
        caller = MemberRef(member_id=self._member_id, generation=self.joined.generation)
        await self._link.ask(self._link.groups.heartbeat("g", caller))
        for partition in self.positions:
            self.positions[partition] += 1
        offsets = {name: OffsetToCommit(offset=offset) for name, offset in self.positions.items()}
        await self._link.ask(self._link.groups.commit("g", caller, offsets))
        for name, offset in offsets.items():
            self._book.committed(name, offset.offset)
        self._book.turns += 1

    async def _join(self) -> None:
        groups = self._link.groups
        self.positions = {}
        joined = await self._link.ask(groups.join("g", join(self._member_id, learns_id=True)))
        self._member_id = joined.member_id
        ask = SyncRequest(member_id=joined.member_id, generation=joined.generation, assignments=assign(joined))
        synced = await self._link.ask(groups.sync("g", ask))
        mine = [ORDERS[int(number)] for number in synced.assignment.decode().split()]
        for partition in mine:
            self._book.assigned(joined.generation, partition, joined.member_id)
        result = (await self._link.ask(groups.fetch({"g": mine})))["g"]
        if isinstance(result, StreamhouseError):
            raise result
        for partition in mine:
            offset = result[partition].offset if partition in result else 0
            self._book.fetched(partition, offset)
            self.positions[partition] = offset
        self.joined = joined

    async def leave(self) -> None:
        with suppress(StreamhouseError, ConnectionLost):
            await self._link.ask(self._link.groups.leave("g", [LeaveRequest(member_id=self._member_id)]))


def assign(joined: JoinResult) -> dict[str, bytes]:
    """Assign partitions round-robin; nothing by a follower, which doesn't know the members."""
    count = len(joined.members)
    return {
        member.member_id: " ".join(str(each) for each in range(len(ORDERS)) if each % count == place).encode()
        for place, member in enumerate(joined.members)
    }
