"""ForwardingProducer: sends a batch to the leader of its partition, local or remote, and stores it exactly once.

Data path   publish -> **forwarding_producer** -> broker.append, or the AgentClient -> the leader's log
Owns        retries within the deadline; which errors may be retried; the order of a partition's batches in one call
Leaves      the leader of a partition to `leader_lookup`; sequence numbers to `producer_ids`; waiting for segments to
            `acks`

A batch that this agent appends itself has no sequence numbers unless the client sent some. If its acknowledgement
fails, the client gets the error, because the batch may or may not be recovered. A batch that is sent to another agent
always has sequence numbers, so the leader, and also the next leader, detects a retry.
"""

import asyncio
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.forwarding.acks import BufferedAcks, FlushWaiter
from streamhouse.broker.forwarding.leader_lookup import LeaderLocation, LeaderLookup, LocalBroker
from streamhouse.broker.forwarding.outbound_batch import OutboundBatch
from streamhouse.broker.forwarding.producer_ids import PooledProducerId, ProducerIdPool
from streamhouse.broker.partition.log import PendingAppend
from streamhouse.broker.partition.producer_state import RETAINED_BATCHES, SEQUENCES
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
from streamhouse.limits import iterate_fairly, yield_to_loop
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.record import Acks
from streamhouse.retry import RetryDeadline

SEQUENCE_ERRORS: Final = (OutOfOrderSequence, DuplicateSequence, StaleProducerEpoch)

BATCHES_PER_TURN: Final = 32
"""Batches of one call that are appended before other calls have their turn."""


class StoredBatch(NamedTuple):
    """`offset` is None for a batch with acks=buffered that is still in flight to another agent."""

    offset: int | None
    append_time_ms: int
    partition: PartitionId
    epoch: int


SendResult = StoredBatch | StreamhouseError
_StartedSend = PendingAppend | StoredBatch | StreamhouseError


class ForwardingProducer:
    def __init__(
        self,
        dependencies: Dependencies,
        here: LocalBroker,
        *,
        leader_lookup: LeaderLookup,
        stored: FlushWaiter,
        buffered_acks: BufferedAcks,
    ) -> None:
        self._peers = dependencies.agents
        self._here = here
        self._leader_lookup = leader_lookup
        self._stored = stored
        self._buffered_acks = buffered_acks
        self._id_pool = ProducerIdPool(dependencies.settings.peers, allocate=here.allocate_producer_id)
        self.forwarded = 0
        self.retries = 0

    def __repr__(self) -> str:
        return f"<ForwardingProducer {self._id_pool!r} {self._buffered_acks!r}>"

    async def send(
        self, name: TopicPartition, outbound_batches: Sequence[OutboundBatch], *, acks: Acks, deadline: RetryDeadline
    ) -> list[SendResult]:
        """Send batches; one result per batch, in order. No batch overtakes one that was rejected with a retriable
        error."""
        started: list[_StartedSend] = []
        done: list[SendResult] = []
        try:
            async with asyncio.timeout(deadline.left_s):
                while (at := len(started)) < len(outbound_batches):
                    some = outbound_batches[at : at + RETAINED_BATCHES]
                    started += await self._start_some(name, some, started[-1:], acks, deadline)
                    if at // BATCHES_PER_TURN < len(started) // BATCHES_PER_TURN:
                        await yield_to_loop()
                async for outbound, each in iterate_fairly(zip(outbound_batches, started, strict=True)):
                    done.append(await self._finish(name, outbound, each, acks, deadline))
        except TimeoutError:
            return done + _timed_out(name, started, outbound_batches)[len(done) :]
        return done

    async def _start_some(
        self,
        name: TopicPartition,
        outbound_batches: Sequence[OutboundBatch],
        before: Sequence[_StartedSend],
        acks: Acks,
        deadline: RetryDeadline,
    ) -> list[_StartedSend]:
        """Start the first of these few batches, or all of them if the leader is another agent."""
        if before and isinstance(before[0], Retriable):
            return [before[0]] * len(outbound_batches)
        has_no_ids = all(outbound.identity is None for outbound in outbound_batches)
        if len(outbound_batches) > 1 and acks is not Acks.BUFFERED and has_no_ids:
            try:
                location = await self._leader_lookup.locate(name)
                if location.address is not None:
                    return await self._pipeline(name, outbound_batches, location, acks, deadline)
            except Retriable:
                pass  # `_try` below retries the first batch until its outcome is known
        return [await self._try(name, outbound_batches[0], acks, deadline)]

    async def _pipeline(
        self,
        name: TopicPartition,
        outbound_batches: Sequence[OutboundBatch],
        location: LeaderLocation,
        acks: Acks,
        deadline: RetryDeadline,
    ) -> list[_StartedSend]:
        """Several batches in one pooled producer id, in flight at once, and no more than the leader remembers."""
        pooled = await self._id_pool.acquire(location.partition)
        is_clean = False
        try:
            if pooled.sequence == 0:  # a leader accepts any batch as the first of a producer that it doesn't know
                outbound_batches = outbound_batches[:1]
            starts = list(accumulate((outbound.count for outbound in outbound_batches), initial=pooled.sequence))
            results = await asyncio.gather(
                *(
                    self._once(name, outbound, location, pooled.at(start), acks, deadline)
                    for outbound, start in zip(outbound_batches, starts, strict=False)
                )
            )
            started: list[_StartedSend] = []
            are_stored = True
            for outbound, start, result in zip(outbound_batches, starts, results, strict=False):
                outcome: _StartedSend = result
                if not isinstance(result, StoredBatch):
                    count, pooled.sequence = outbound.count, start % SEQUENCES
                    same_id = pooled if are_stored else None
                    outcome = await self._resend(name, outbound, result, started[-1:], same_id, acks, deadline)
                    are_stored = are_stored and isinstance(outcome, StoredBatch) and outbound.count == count
                started.append(outcome)
            pooled.sequence = starts[-1] % SEQUENCES
            is_clean = are_stored
            return started
        finally:
            if is_clean:
                self._id_pool.release(pooled)
            else:
                self._id_pool.discard(pooled)

    async def _once(
        self,
        name: TopicPartition,
        outbound: OutboundBatch,
        location: LeaderLocation,
        pooled: PooledProducerId,
        acks: Acks,
        deadline: RetryDeadline,
    ) -> SendResult:
        try:
            return await self._deliver(name, outbound, location, pooled, acks, deadline)
        except StreamhouseError as error:
            return error

    async def _resend(
        self,
        name: TopicPartition,
        outbound: OutboundBatch,
        error: StreamhouseError,
        before: Sequence[_StartedSend],
        pooled: PooledProducerId | None,
        acks: Acks,
        deadline: RetryDeadline,
    ) -> _StartedSend:
        """Retry a batch that failed in a pipeline, or return its error, once the batches before it are settled.

        While all of them are stored (`pooled`), it is sent again behind them under the same sequence numbers. Once one
        was rejected for good, the leader has rejected those behind it, too: they get new numbers.
        """
        if before and isinstance(before[0], Retriable):
            return before[0]
        if isinstance(error, Overloaded):
            return error
        if pooled is not None and isinstance(error, (Retriable, *SEQUENCE_ERRORS)):
            self.retries += 1
            return await self._try(name, outbound, acks, deadline, pooled)
        is_not_stored = isinstance(error, (*SEQUENCE_ERRORS, PredecessorRefused))
        if is_not_stored or (isinstance(error, BadRecords) and outbound.exclude(error)):
            return await self._try(name, outbound, acks, deadline)
        return error

    async def _try(
        self,
        name: TopicPartition,
        outbound: OutboundBatch,
        acks: Acks,
        deadline: RetryDeadline,
        lent: PooledProducerId | None = None,
    ) -> _StartedSend:
        try:
            return await self._start(name, outbound, acks, deadline, lent)
        except SEQUENCE_ERRORS as error:
            return IdempotencyKeyReused(name) if outbound.is_keyed else error
        except StreamhouseError as error:
            return error

    async def _start(
        self,
        name: TopicPartition,
        outbound: OutboundBatch,
        acks: Acks,
        deadline: RetryDeadline,
        lent: PooledProducerId | None = None,
    ) -> PendingAppend | StoredBatch:
        """Append the batch locally, or send it to its leader. The caller releases a producer id that is `lent`."""
        pooled = lent
        try:
            while True:
                try:
                    location = await self._leader_lookup.locate(name)
                    if location.address is None and pooled is None:
                        return await self._here.append(name, memoryview(await outbound.batch(None)))
                    if acks is Acks.BUFFERED and pooled is None:
                        return await self._post(name, outbound, location, deadline)
                    if pooled is None and outbound.identity is None:
                        pooled = await self._id_pool.acquire(location.partition)
                    delivered = await self._deliver(name, outbound, location, pooled, acks, deadline)
                    if pooled is not None and pooled is not lent:
                        self._id_pool.stored(pooled, records=outbound.count)
                        pooled = None
                    return delivered
                except BadRecords as error:
                    if not outbound.exclude(error):
                        raise
                except Overloaded:
                    raise
                except Retriable as error:
                    self.retries += 1
                    await self._leader_lookup.invalidate(name)
                    await deadline.wait_to_retry(error)
                except SEQUENCE_ERRORS as error:
                    if pooled is None:
                        raise
                    raise Unavailable(f"the outcome of a batch is unknown; partition={name} why={error}") from error
        finally:
            if pooled is not None and pooled is not lent:
                self._id_pool.discard(pooled)

    async def _deliver(
        self,
        name: TopicPartition,
        outbound: OutboundBatch,
        location: LeaderLocation,
        pooled: PooledProducerId | None,
        acks: Acks,
        deadline: RetryDeadline,
    ) -> StoredBatch:
        """Send a batch that has sequence numbers, once."""
        data = await outbound.batch(pooled.identity if pooled is not None else None)
        if location.address is None:
            pending = await self._here.append(name, memoryview(data))
            await self._here.acknowledge(pending)
            return _stored_batch(pending)
        receipt = await self._peers.append(
            location.address, location.partition, data, timeout_s=deadline.left_s, request_flush=acks is Acks.STORED
        )
        self.forwarded += 1
        return StoredBatch(receipt.offset, receipt.append_time_ms, location.partition, location.epoch)

    async def _post(
        self, name: TopicPartition, outbound: OutboundBatch, location: LeaderLocation, deadline: RetryDeadline
    ) -> StoredBatch:
        """Deliver the batch in the background (acks=buffered)."""
        await self._buffered_acks.send(
            outbound.size_bytes, outbound.count, self._deliver_later(name, outbound, deadline)
        )
        return StoredBatch(None, -1, location.partition, location.epoch)

    async def _deliver_later(self, name: TopicPartition, outbound: OutboundBatch, deadline: RetryDeadline) -> None:
        try:
            async with asyncio.timeout(deadline.left_s):
                started = await self._start(name, outbound, Acks.WAL, deadline)
        except TimeoutError:
            raise Unavailable(f"not acknowledged in time; partition={name}") from None
        if isinstance(started, PendingAppend):
            self._buffered_acks.watch(started, outbound.count)

    async def _finish(
        self, name: TopicPartition, outbound: OutboundBatch, started: _StartedSend, acks: Acks, deadline: RetryDeadline
    ) -> SendResult:
        try:
            if isinstance(started, PendingAppend):
                if acks is Acks.BUFFERED:
                    self._buffered_acks.watch(started, outbound.count)
                    return _stored_batch(started)
                started = await self._acknowledged(name, outbound, started, deadline)
            if acks is Acks.STORED and isinstance(started, StoredBatch) and started.offset is not None:
                await self._stored.wait(name, started.partition, started.offset + outbound.count, epoch=started.epoch)
        except StreamhouseError as error:
            return error
        return started

    async def _acknowledged(
        self, name: TopicPartition, outbound: OutboundBatch, pending: PendingAppend, deadline: RetryDeadline
    ) -> SendResult:
        while True:
            try:
                await self._here.acknowledge(pending)
                return _stored_batch(pending)
            except Retriable as error:
                if outbound.identity is None:
                    raise
                await deadline.wait_to_retry(error)
            again = await self._try(name, outbound, Acks.WAL, deadline)
            if not isinstance(again, PendingAppend):
                return again
            pending = again


def _stored_batch(pending: PendingAppend) -> StoredBatch:
    return StoredBatch(pending.base_offset, pending.append_time_ms, pending.log.partition, pending.log.epoch)


def _timed_out(
    name: TopicPartition, started: Sequence[_StartedSend], outbound_batches: Sequence[OutboundBatch]
) -> list[SendResult]:
    """Known results at the deadline; the rest fail as unacknowledged, though they may have been stored."""
    late = Unavailable(f"not acknowledged in time; partition={name}")
    results: list[SendResult] = [late if isinstance(each, PendingAppend) else each for each in started]
    return results + [late] * (len(outbound_batches) - len(results))
