"""Delivery: a batch reaches its partition's leader, here or elsewhere, and is stored once however often it is tried.

Data path   publishing -> **delivery** -> broker.append, or Doors.peers -> the leader's log
Owns        trying again within the deadline, what is safe to try again, the order of a partition's batches in one call
Leaves      who leads to `seats`, the numbers of forwarded batches to `lanes`, waiting for segments to `stored`

What this agent places itself carries no numbers unless it brought some: a failed acknowledgement is then told, since
nobody can know whether recovery finds the batch. Everything that leaves this agent has numbers, so a second try of it
is recognised, also by the next leader.
"""

import asyncio
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from streamhouse.broker.dependencies import Doors
from streamhouse.broker.forwarding.acks import Buffering, Stored
from streamhouse.broker.forwarding.leader_lookup import Here, Seat, Seats
from streamhouse.broker.forwarding.outbound_batch import Letter
from streamhouse.broker.forwarding.producer_ids import Lane, Lanes
from streamhouse.broker.partition.log import Placed
from streamhouse.broker.partition.producer_state import SEQUENCES, WINDOW
from streamhouse.errors import (
    BadRecords,
    DuplicateSequence,
    IdempotencyKeyReused,
    OutOfOrderSequence,
    Overloaded,
    PredecessorRefused,
    Retriable,
    StaleProducerEpoch,
    StreamhouseError,
    Unavailable,
)
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.record import Acks
from streamhouse.retry import Patience

OUT_OF_LINE: Final = (OutOfOrderSequence, DuplicateSequence, StaleProducerEpoch)


class Delivered(NamedTuple):
    """`offset` is None for what is still on its way to another agent."""

    offset: int | None
    append_time_ms: int
    partition: PartitionId
    epoch: int


Outcome = Delivered | StreamhouseError
_Begun = Placed | Delivered | StreamhouseError


class Delivery:
    def __init__(self, doors: Doors, here: Here, *, seats: Seats, stored: Stored, buffering: Buffering) -> None:
        self._peers = doors.peers
        self._here = here
        self._seats = seats
        self._stored = stored
        self._buffering = buffering
        self._lanes = Lanes(doors.settings.peers, allocate=here.allocate_producer_id)
        self.forwarded = 0
        self.retries = 0

    def __repr__(self) -> str:
        return f"<Delivery {self._lanes!r} {self._buffering!r}>"

    async def send(
        self, name: TopicPartition, letters: Sequence[Letter], *, acks: Acks, patience: Patience
    ) -> list[Outcome]:
        """What became of each, in order. What is refused for now is not overtaken by what comes after it."""
        begun: list[_Begun] = []
        done: list[Outcome] = []
        try:
            async with asyncio.timeout(patience.left_s):
                while len(begun) < len(letters):
                    begun += await self._begin_some(name, letters[len(begun) :], begun[-1:], acks, patience)
                for letter, each in zip(letters, begun, strict=True):
                    done.append(await self._finish(name, letter, each, acks, patience))
        except TimeoutError:
            return done + _late(name, begun, letters)[len(done) :]
        return done

    async def _begin_some(
        self, name: TopicPartition, letters: Sequence[Letter], before: Sequence[_Begun], acks: Acks, patience: Patience
    ) -> list[_Begun]:
        """The first of these; or several, where they go to another agent."""
        if before and isinstance(before[0], Retriable):
            return [before[0]] * len(letters)
        some = letters[:WINDOW]
        if len(some) > 1 and acks is not Acks.BUFFERED and all(letter.identity is None for letter in some):
            try:
                seat = await self._seats.find(name)
                if seat.address is not None:
                    return await self._together(name, some, seat, acks, patience)
            except Retriable:
                pass  # the first of them is tried until it is known what becomes of it
        return [await self._try(name, letters[0], acks, patience)]

    async def _together(
        self, name: TopicPartition, letters: Sequence[Letter], seat: Seat, acks: Acks, patience: Patience
    ) -> list[_Begun]:
        """Several batches in one lane, in flight at once, and no more than the leader remembers."""
        lane = await self._lanes.take(seat.partition)
        is_clean = False
        try:
            if lane.sequence == 0:  # of a producer that it doesn't know a leader would take any batch as the first
                letters = letters[:1]
            starts = list(accumulate((letter.count for letter in letters), initial=lane.sequence))
            results = await asyncio.gather(
                *(
                    self._once(name, letter, seat, lane.at(start), acks, patience)
                    for letter, start in zip(letters, starts, strict=False)
                )
            )
            begun: list[_Begun] = []
            are_stored = True
            for letter, start, result in zip(letters, starts, results, strict=False):
                settled: _Begun = result
                if not isinstance(result, Delivered):
                    count, lane.sequence = letter.count, start % SEQUENCES
                    place = lane if are_stored else None
                    settled = await self._again(name, letter, result, begun[-1:], place, acks, patience)
                    are_stored = are_stored and isinstance(settled, Delivered) and letter.count == count
                begun.append(settled)
            lane.sequence = starts[-1] % SEQUENCES
            is_clean = are_stored
            return begun
        finally:
            if is_clean:
                self._lanes.give_back(lane)
            else:
                self._lanes.drop(lane)

    async def _once(
        self, name: TopicPartition, letter: Letter, seat: Seat, lane: Lane, acks: Acks, patience: Patience
    ) -> Outcome:
        try:
            return await self._deliver(name, letter, seat, lane, acks, patience)
        except StreamhouseError as error:
            return error

    async def _again(
        self,
        name: TopicPartition,
        letter: Letter,
        error: StreamhouseError,
        before: Sequence[_Begun],
        lane: Lane | None,
        acks: Acks,
        patience: Patience,
    ) -> _Begun:
        """What becomes of a batch that was sent with others and failed, now that those before it are settled.

        As long as all of them are stored (`lane`), it has its place behind them, under the numbers it had. Once one was
        refused for good, those behind it were out of line, or told to wait for it, which means not stored: they may
        begin anew.
        """
        if before and isinstance(before[0], Retriable):
            return before[0]
        if isinstance(error, Overloaded):
            return error
        if lane is not None and isinstance(error, (Retriable, *OUT_OF_LINE)):
            self.retries += 1
            return await self._try(name, letter, acks, patience, lane)
        is_not_stored = isinstance(error, (*OUT_OF_LINE, PredecessorRefused))
        if is_not_stored or (isinstance(error, BadRecords) and letter.leave_out(error)):
            return await self._try(name, letter, acks, patience)
        return error

    async def _try(
        self, name: TopicPartition, letter: Letter, acks: Acks, patience: Patience, lent: Lane | None = None
    ) -> _Begun:
        try:
            return await self._begin(name, letter, acks, patience, lent)
        except OUT_OF_LINE as error:
            return IdempotencyKeyReused(name) if letter.is_keyed else error
        except StreamhouseError as error:
            return error

    async def _begin(
        self, name: TopicPartition, letter: Letter, acks: Acks, patience: Patience, lent: Lane | None = None
    ) -> Placed | Delivered:
        """Place the batch here, or have it acknowledged elsewhere; a lane that is `lent` stays the caller's."""
        lane = lent
        try:
            while True:
                try:
                    seat = await self._seats.find(name)
                    if seat.address is None and lane is None:
                        return await self._here.append(name, memoryview(await letter.batch(None)))
                    if acks is Acks.BUFFERED and lane is None:
                        return await self._post(name, letter, seat, patience)
                    if lane is None and letter.identity is None:
                        lane = await self._lanes.take(seat.partition)
                    delivered = await self._deliver(name, letter, seat, lane, acks, patience)
                    if lane is not None and lane is not lent:
                        self._lanes.stored(lane, records=letter.count)
                        lane = None
                    return delivered
                except BadRecords as error:
                    if not letter.leave_out(error):
                        raise
                except Overloaded:
                    raise
                except Retriable as error:
                    self.retries += 1
                    await self._seats.look_again(name)
                    await patience.pause(error)
                except OUT_OF_LINE as error:
                    if lane is None:
                        raise
                    raise Unavailable(f"nobody knows what became of a batch; partition={name} why={error}") from error
        finally:
            if lane is not None and lane is not lent:
                self._lanes.drop(lane)

    async def _deliver(
        self, name: TopicPartition, letter: Letter, seat: Seat, lane: Lane | None, acks: Acks, patience: Patience
    ) -> Delivered:
        """One try of a batch that has numbers."""
        data = await letter.batch(lane.identity if lane is not None else None)
        if seat.address is None:
            placed = await self._here.append(name, memoryview(data))
            await self._here.acknowledge(placed)
            return _delivered(placed)
        told = await self._peers.append(
            seat.address, seat.partition, data, timeout_s=patience.left_s, flush_soon=acks is Acks.STORED
        )
        self.forwarded += 1
        return Delivered(told.offset, told.append_time_ms, seat.partition, seat.epoch)

    async def _post(self, name: TopicPartition, letter: Letter, seat: Seat, patience: Patience) -> Delivered:
        """Have it delivered behind the caller's back."""
        await self._buffering.post(letter.size_bytes, letter.count, self._deliver_later(name, letter, patience))
        return Delivered(None, -1, seat.partition, seat.epoch)

    async def _deliver_later(self, name: TopicPartition, letter: Letter, patience: Patience) -> None:
        try:
            async with asyncio.timeout(patience.left_s):
                begun = await self._begin(name, letter, Acks.WAL, patience)
        except TimeoutError:
            raise Unavailable(f"not acknowledged in time; partition={name}") from None
        if isinstance(begun, Placed):
            self._buffering.watch(begun, letter.count)

    async def _finish(
        self, name: TopicPartition, letter: Letter, begun: _Begun, acks: Acks, patience: Patience
    ) -> Outcome:
        try:
            if isinstance(begun, Placed):
                if acks is Acks.BUFFERED:
                    self._buffering.watch(begun, letter.count)
                    return _delivered(begun)
                begun = await self._acknowledged(name, letter, begun, patience)
            if acks is Acks.STORED and isinstance(begun, Delivered) and begun.offset is not None:
                await self._stored.wait(name, begun.partition, begun.offset + letter.count, epoch=begun.epoch)
        except StreamhouseError as error:
            return error
        return begun

    async def _acknowledged(self, name: TopicPartition, letter: Letter, placed: Placed, patience: Patience) -> Outcome:
        while True:
            try:
                await self._here.acknowledge(placed)
                return _delivered(placed)
            except Retriable as error:
                if letter.identity is None:
                    raise
                await patience.pause(error)
            again = await self._try(name, letter, Acks.WAL, patience)
            if not isinstance(again, Placed):
                return again
            placed = again


def _delivered(placed: Placed) -> Delivered:
    return Delivered(placed.base_offset, placed.append_time_ms, placed.log.partition, placed.log.epoch)


def _late(name: TopicPartition, begun: Sequence[_Begun], letters: Sequence[Letter]) -> list[Outcome]:
    """Time is over: what is known already is told, the rest may have been stored, or not."""
    late = Unavailable(f"not acknowledged in time; partition={name}")
    told: list[Outcome] = [late if isinstance(each, Placed) else each for each in begun]
    return told + [late] * (len(letters) - len(told))
