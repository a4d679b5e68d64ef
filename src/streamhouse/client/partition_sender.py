"""Partition sender: sends the batches of one partition to its leader, in order, several in flight, none stored twice.

After a failure nothing new is sent. When every batch in flight has a response, `plan_retries` decides which batches are
retried, which fail, and whether a new producer id is needed. The rules that prevent loss and duplicates:

- a batch that may have been stored is retried with its own sequence number, or never;
- after giving up on a batch that may have been stored, the sender uses a new producer id;
- after a rejected batch, those behind it take over its sequence numbers, if every attempt of each had a response:
  then the agent has stored none of them, and no copy is in flight that it might store later;
- otherwise the numbers are never reused: the sender retries each batch with its own number until it knows the outcome,
  then sends what was not stored with a new producer id.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias

from streamhouse.client.delivery import NO_SEQUENCE, Batch, Delivery
from streamhouse.clock import Clock, wait_first
from streamhouse.errors import Internal, StreamhouseError, Unavailable
from streamhouse.model.record import NewRecord

SEQUENCES: Final = 2**31
"""Sequence numbers wrap around to 0."""

FIRST_BACKOFF_S: Final = 0.05
MAX_BACKOFF_S: Final = 1.0


class ProducerIdentity(NamedTuple):
    """Producer id and epoch of the batches; -1 if they have no sequence numbers."""

    producer_id: int = -1
    epoch: int = -1


ANONYMOUS: Final = ProducerIdentity()


class Stored(NamedTuple):
    """A batch that was stored; without an offset if the agent did not return one."""

    base_offset: int | None
    timestamp_ms: int | None = None


class NotStored(Exception):
    """A batch was not stored, or may not have been.

    `kind`: `again` (retriable), `refused` (rejected for good), `lost` (the agent expects another sequence number) or
    `unknown` (an unexpected error, not retriable). `may_be_stored`: this attempt may have stored the batch, or may
    still do so.
    """

    def __init__(
        self,
        error: StreamhouseError,
        *,
        kind: str = "again",
        may_be_stored: bool | None = None,
        rejected_positions: Sequence[int] = (),
        splits: bool = False,
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.kind = kind
        self.may_be_stored = kind in ("again", "unknown") if may_be_stored is None else may_be_stored
        self.rejected_positions = tuple(rejected_positions)  # positions of the rejected records, if not all were
        self.splits = splits  # smaller batches may be accepted


class Transport(Protocol):
    """The interface between a sender and its producer."""

    async def encode(self, records: list[NewRecord], identity: ProducerIdentity, sequence: int) -> bytes: ...
    async def post(self, partition: int, body: bytes) -> Stored: ...
    async def init_producer_id(self) -> ProducerIdentity: ...
    async def refresh_leaders(self) -> None: ...
    def release(self, batch: Batch) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPlan:
    """What to do with the batches in flight after a failure."""

    retried: list[Batch]
    failed: list[tuple[Batch, StreamhouseError]]
    sequence: int | None  # the next sequence number; None: unchanged
    needs_new_producer_id: bool


Failures: TypeAlias = Mapping[Batch, NotStored]
FailedBatches: TypeAlias = list[tuple[Batch, StreamhouseError]]


def plan_retries(
    failed: Sequence[Batch], failures: Failures, *, now: float, numbered: bool = True, newest_stored: int = 0
) -> RetryPlan:
    """Decide what is retried and what fails; changes the sequence numbers of retried batches, and splits batches.

    `failed` are all batches that have a sequence number and are not known to be stored, in sequence order;
    `newest_stored` is the send count of the last batch that was stored.
    """
    first = next((at for at, batch in enumerate(failed) if _has_ended(batch, failures[batch])), len(failed))
    behind = failed[first:]
    needs_new_id = any(
        batch.may_be_stored
        or (failures[batch].kind == "lost" and batch.sent_alone)
        or batch.send_count < newest_stored  # the agent had forgotten the producer id, and accepted a later batch
        for batch in behind
    )
    if any(failure.kind == "unknown" for failure in failures.values()):
        return _give_up(failed, [], failures)
    if numbered and any(failures[batch].may_be_stored for batch in (failed if needs_new_id else behind)):
        return _resend_unchanged(failed, failures, now=now)
    retried, rejected = _split_failed(failed, failures)
    if any(now >= batch.expires_at for batch in retried):
        return _give_up(retried, rejected, failures)
    for batch in retried:
        if needs_new_id or batch in behind:
            batch.sequence, batch.may_be_stored = NO_SEQUENCE, False
    return RetryPlan(
        retried=retried,
        failed=rejected,
        sequence=behind[0].sequence if behind and not needs_new_id else None,
        needs_new_producer_id=needs_new_id,
    )


def _resend_unchanged(failed: Sequence[Batch], failures: Failures, *, now: float) -> RetryPlan:
    """Retry all batches as they are: nothing can be decided before each has a response that says if it was stored."""
    if any(now >= batch.expires_at for batch in failed):
        return _give_up(failed, [], failures)
    return RetryPlan(retried=list(failed), failed=[], sequence=None, needs_new_producer_id=False)


def _give_up(left: Sequence[Batch], rejected: FailedBatches, failures: Failures) -> RetryPlan:
    """Fail everything, and never use the sequence numbers again."""
    unsure = next((failure for failure in failures.values() if failure.may_be_stored), next(iter(failures.values())))
    reasons = [failures.get(batch, unsure) for batch in left]
    given_up = [
        (batch, (why if why.kind == "refused" else unsure).error) for batch, why in zip(left, reasons, strict=True)
    ]
    return RetryPlan(retried=[], failed=[*rejected, *given_up], sequence=None, needs_new_producer_id=True)


def _has_ended(batch: Batch, failure: NotStored) -> bool:
    """Whether the batch is never retried as it is: rejected, or out of sequence with nothing missing before it."""
    return failure.kind == "refused" or (failure.kind == "lost" and batch.sent_alone)


def _split_failed(failed: Sequence[Batch], failures: Failures) -> tuple[list[Batch], FailedBatches]:
    """The batches to retry, and those that fail."""
    retried: list[Batch] = []
    rejected: FailedBatches = []
    gap_may_fill = False  # a copy of a failed batch may still be stored, so that copies of later ones are accepted
    for batch in failed:
        failure = failures[batch]
        if _has_ended(batch, failure):
            gap_may_fill = gap_may_fill or batch.may_be_stored
            kept, refused = _split_rejected(batch, failure)
            retried += kept
            rejected += [(part, failure.error) for part in refused]
        elif batch.may_be_stored and gap_may_fill:
            rejected.append((batch, failure.error))
        else:
            retried.append(batch)
    return retried, rejected


def _split_rejected(batch: Batch, failure: NotStored) -> tuple[list[Batch], list[Batch]]:
    """The parts of a rejected batch to retry, and those that fail: all of it if another attempt may have stored it."""
    positions, count = range(len(batch.records)), len(batch.records)
    if batch.may_be_stored:
        return [], [batch]
    if failure.rejected_positions and len(failure.rejected_positions) < count:
        accepted = [at for at in positions if at not in failure.rejected_positions]
        return [batch.split_off(accepted)], [batch.split_off(failure.rejected_positions)]
    if failure.splits and count > 1:
        return [batch.split_off(positions[: count // 2]), batch.split_off(positions[count // 2 :])], []
    return [], [batch]


class PartitionSender:
    def __init__(
        self,
        partition: int,
        transport: Transport,
        *,
        clock: Clock,
        batch_bytes: int,
        linger_s: float,
        timeout_s: float,
        max_in_flight: int,
        numbered: bool,
    ) -> None:
        self.partition = partition
        self._transport = transport
        self._clock = clock
        self._batch_bytes = batch_bytes
        self._linger_s = linger_s
        self._timeout_s = timeout_s
        self._max_in_flight = max_in_flight
        self._numbered = numbered
        self._identity: ProducerIdentity | None = None if numbered else ANONYMOUS
        self._next_sequence = 0
        self._sent = 0
        self._newest_stored = 0
        self._is_known = not numbered  # an agent has stored a batch with the current producer id
        self._waiting: deque[Batch] = deque()
        self._in_flight: list[Batch] = []
        self._failures: dict[Batch, NotStored] = {}  # batches in flight that were not stored
        self._requests: set[asyncio.Task[None]] = set()
        self._open: Batch | None = None
        self._changed = asyncio.Event()
        self._backoff_s = FIRST_BACKOFF_S
        self._flush_requested = False
        self._last_error: StreamhouseError | None = None  # of the last failed attempt

    def __repr__(self) -> str:
        return f"<PartitionSender {self.partition} waiting={len(self._waiting)} in_flight={len(self._in_flight)}>"

    @property
    def has_open_batch(self) -> bool:
        return self._open is not None

    def batches(self) -> list[Batch]:
        """All batches without a final result."""
        return [*self._in_flight, *self._waiting]

    def append(self, record: NewRecord, size_bytes: int) -> tuple[Delivery, bool]:
        """Add a record to the open batch; returns also whether a batch became full."""
        batch, full = self._open, False
        if batch is not None and batch.size_bytes + size_bytes > self._batch_bytes:
            batch, full = None, True
        if batch is None:
            now = self._clock.monotonic()
            batch = Batch(partition=self.partition, opened_at=now, expires_at=now + self._timeout_s)
            self._open = batch
            self._waiting.append(batch)
            self._changed.set()
        delivery = batch.add(record, size_bytes)
        if batch.size_bytes >= self._batch_bytes:
            self._open, full = None, True
            self._changed.set()
        return delivery, full

    def flush_now(self) -> None:
        """Send pending records without lingering."""
        self._flush_requested = True
        self._changed.set()

    async def run(self) -> None:
        try:
            while True:
                await self._step()
        except Exception as error:  # noqa: BLE001 (no delivery may wait for a sender that has stopped)
            self.fail_all(Internal(f"the sender of a partition failed; partition={self.partition} why={error!r}"))
        finally:
            requests = list(self._requests)
            for request in requests:
                request.cancel()
            await asyncio.gather(*requests, return_exceptions=True)

    def fail_all(self, error: StreamhouseError) -> None:
        """Fail all batches; the sender no longer runs."""
        for batch in self.batches():
            self._fail(batch, error)
        self._in_flight.clear()
        self._waiting.clear()
        self._failures.clear()

    async def _step(self) -> None:
        self._changed.clear()
        if self._waiting and self._waiting[0].sequence != NO_SEQUENCE and len(self._in_flight) < self._max_in_flight:
            await self._send_next()  # it has a sequence number: its result decides about the others
        elif self._failures:
            if len(self._failures) == len(self._in_flight):
                await self._retry_failed()
            else:
                await self._changed.wait()
        elif self._waiting and len(self._in_flight) < self._in_flight_limit and self._is_remembered:
            await self._send_next()
        else:
            self._flush_requested = self._flush_requested and bool(self._waiting)
            await self._changed.wait()

    @property
    def _in_flight_limit(self) -> int:
        """One until the agent knows the producer id: it would accept any batch as the first."""
        return self._max_in_flight if self._is_known else 1

    @property
    def _is_remembered(self) -> bool:
        """Whether agents would still recognise the oldest batch in flight as a duplicate after storing another new
        batch. They remember as many batches of a producer as may be in flight, and this batch may be stored and sent
        again."""
        if not self._numbered or not self._in_flight:
            return True
        return self._sent + 1 - min(batch.send_count for batch in self._in_flight) < self._max_in_flight

    async def _send_next(self) -> None:
        batch = self._waiting[0]
        now = self._clock.monotonic()
        left_s = batch.opened_at + self._linger_s - now
        if batch is self._open and left_s > 0 and not self._flush_requested:
            await self._wait_for_change(left_s)
            return
        if now >= batch.expires_at and batch.sequence == NO_SEQUENCE:
            self._dequeue()
            self._fail(batch, self._last_error or Unavailable("the batch was not sent in time"))
            return
        if self._identity is None and not await self._has_producer_id(batch):
            return
        assert self._identity is not None
        self._dequeue()
        if batch.sequence == NO_SEQUENCE and self._numbered:
            self._sent += 1
            batch.send_count, batch.sequence = self._sent, self._next_sequence
            self._next_sequence = (self._next_sequence + len(batch.records)) % SEQUENCES
        batch.sent_alone = not self._in_flight
        self._in_flight.append(batch)
        body = await self._transport.encode(batch.records, self._identity, batch.sequence)
        request = asyncio.get_running_loop().create_task(self._send(batch, body))
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)

    def _dequeue(self) -> None:
        if self._waiting.popleft() is self._open:
            self._open = None

    async def _has_producer_id(self, batch: Batch) -> bool:
        try:
            self._identity = await self._transport.init_producer_id()
        except StreamhouseError as error:
            self._last_error = error
            await self._back_off()
            return False
        self._next_sequence = 0
        self._is_known = False
        return True

    async def _send(self, batch: Batch, body: bytes) -> None:
        try:
            stored = await self._transport.post(self.partition, body)
        except NotStored as failure:
            self._failed(batch, failure)
        except Exception as error:  # noqa: BLE001 (unknown result, as after a lost response)
            broken = Internal(f"a batch could not be sent; partition={self.partition} why={error!r}")
            self._failed(batch, NotStored(broken, kind="unknown"))
        else:
            self._in_flight.remove(batch)
            self._is_known, self._newest_stored = True, max(self._newest_stored, batch.send_count)
            self._backoff_s, self._last_error = FIRST_BACKOFF_S, None
            batch.succeed(stored.base_offset, stored.timestamp_ms)
            self._transport.release(batch)
        finally:
            self._changed.set()

    def _failed(self, batch: Batch, failure: NotStored) -> None:
        self._failures[batch] = failure
        batch.may_be_stored = batch.may_be_stored or (self._numbered and failure.may_be_stored)

    async def _retry_failed(self) -> None:
        failed, failures = self._in_flight, self._failures
        self._in_flight, self._failures = [], {}
        self._last_error = failures[failed[0]].error
        plan = plan_retries(
            failed, failures, now=self._clock.monotonic(), numbered=self._numbered, newest_stored=self._newest_stored
        )
        if plan.needs_new_producer_id and self._numbered:
            self._identity = None
        elif plan.sequence is not None:
            self._next_sequence = plan.sequence
        for batch, error in plan.failed:
            self._fail(batch, error)
        self._waiting.extendleft(reversed(plan.retried))
        if any(failure.kind == "again" for failure in failures.values()):
            await self._back_off()

    async def _back_off(self) -> None:
        """Wait, then look the leader up again."""
        await self._clock.sleep(self._backoff_s)
        self._backoff_s = min(self._backoff_s * 2, MAX_BACKOFF_S)
        await self._transport.refresh_leaders()

    async def _wait_for_change(self, seconds: float) -> None:
        """Wait for a change, at most `seconds`."""
        await wait_first(self._changed.wait(), self._clock.sleep(seconds))

    def _fail(self, batch: Batch, error: StreamhouseError) -> None:
        batch.fail(error)
        self._transport.release(batch)
