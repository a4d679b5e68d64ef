"""Lane: the batches of one partition on their way to its leader: in order, several at a time, none twice.

Data path   producer -> **lane** -> an agent's Kafka listener
Owns        when a batch leaves; sequence numbers; what becomes of batches that were not stored
Leaves      bytes of batches to `format.records`; requests, leaders and memory to `producer`

A failure grounds the lane: once every batch under way has its answer, `mend` decides which go again, which are over
and whether the agents must know the lane under another producer id. The rules that keep records from being lost or
stored twice:
- a batch that may have been stored goes again with its own sequence number, or never again;
- after one whose fate nobody knows was given up, the lane writes under a new producer id;
- after one that was refused, those behind it take its sequence numbers, if all tries of all of them were answered: the
  agent has stored none of them, and no copy is on its way that it might store later;
- otherwise the numbers are never used again: the lane finds out what became of every batch by trying it again with its
  own number, then writes what was not stored under a new producer id.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias

from streamhouse.client.delivery import NO_SEQUENCE, Batch, Delivery
from streamhouse.clock import Clock
from streamhouse.errors import Internal, StreamhouseError, Unavailable
from streamhouse.model.record import NewRecord

SEQUENCES: Final = 2**31
"""Sequence numbers begin again behind the last."""

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0


class Identity(NamedTuple):
    """Whom the agents know a lane as; -1 where batches have no sequence."""

    producer_id: int = -1
    epoch: int = -1


ANONYMOUS: Final = Identity()


class Stored(NamedTuple):
    """Where a batch went; no offset where nobody said."""

    base_offset: int | None
    timestamp_ms: int | None = None


class NotStored(Exception):
    """Why a batch was not stored, or may not have been.

    `kind` is what to do: `again` (it may go well later), `refused` (it never will), `lost` (the agent expects another
    sequence) or `unknown` (something unforeseen happened: trying again has no sense). `may_be_stored` says that this
    try may have stored it, or may still do so.
    """

    def __init__(
        self,
        error: StreamhouseError,
        *,
        kind: str = "again",
        may_be_stored: bool | None = None,
        blamed: Sequence[int] = (),
        splits: bool = False,
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.kind = kind
        self.may_be_stored = kind in ("again", "unknown") if may_be_stored is None else may_be_stored
        self.blamed = tuple(blamed)  # positions of the records that were refused, where only some were
        self.splits = splits  # several smaller batches may go well


class Wire(Protocol):
    """What a lane needs of its producer."""

    async def encode(self, records: list[NewRecord], identity: Identity, sequence: int) -> bytes: ...
    async def post(self, partition: int, body: bytes) -> Stored: ...
    async def introduce(self) -> Identity: ...
    async def look_again(self) -> None: ...
    def release(self, batch: Batch) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Mending:
    """What becomes of batches that failed together."""

    again: list[Batch]
    over: list[tuple[Batch, StreamhouseError]]
    sequence: int | None  # where numbering goes on; None: as if nothing had happened
    anew: bool  # under a new producer id


Answers: TypeAlias = Mapping[Batch, NotStored]
Ended: TypeAlias = list[tuple[Batch, StreamhouseError]]


def mend(
    failed: Sequence[Batch], answers: Answers, *, now: float, numbered: bool = True, newest_stored: int = 0
) -> Mending:
    """Decide; touches only the sequence numbers of the batches that go again, and takes apart what must be.

    `failed` are all batches that have a number and are not known to be stored, in the order of their numbers;
    `newest_stored` is the launch of the last one that was stored.
    """
    first = next((at for at, batch in enumerate(failed) if _has_ended(batch, answers[batch])), len(failed))
    behind = failed[first:]
    anew = numbered and any(
        batch.may_be_stored
        or (answers[batch].kind == "lost" and batch.flew_alone)
        or batch.launch < newest_stored  # the agent had forgotten the producer, and took what came for the first
        for batch in behind
    )
    if any(answer.kind == "unknown" for answer in answers.values()):
        return _given_up(failed, [], answers)
    if numbered and behind and any(answers[batch].may_be_stored for batch in (failed if anew else behind)):
        return _with_own_numbers(failed, answers, now=now)
    again, over = _sorted_out(failed, answers, first)
    if any(now >= batch.expires_at for batch in again):
        return _given_up(again, over, answers)
    for batch in again:
        if anew or batch in behind:
            batch.sequence, batch.may_be_stored = NO_SEQUENCE, False
    return Mending(again=again, over=over, sequence=behind[0].sequence if behind and not anew else None, anew=anew)


def _with_own_numbers(failed: Sequence[Batch], answers: Answers, *, now: float) -> Mending:
    """Nothing can be decided yet: all go again as they are, until each has an answer that says what became of it."""
    if any(now >= batch.expires_at for batch in failed):
        return _given_up(failed, [], answers)
    return Mending(again=list(failed), over=[], sequence=None, anew=False)


def _given_up(left: Sequence[Batch], over: Ended, answers: Answers) -> Mending:
    """What is left is over as well, and nothing is stored under the numbers of any of them again."""
    trouble = next((answer for answer in answers.values() if answer.may_be_stored), next(iter(answers.values())))
    reasons = [answers.get(batch, trouble) for batch in left]
    given_up = [
        (batch, (why if why.kind == "refused" else trouble).error) for batch, why in zip(left, reasons, strict=True)
    ]
    return Mending(again=[], over=[*over, *given_up], sequence=None, anew=True)


def _has_ended(batch: Batch, answer: NotStored) -> bool:
    """Whether the batch as it is will not go again: it was refused, or was lost where nothing before it was missing."""
    return answer.kind == "refused" or (answer.kind == "lost" and batch.flew_alone)


def _sorted_out(failed: Sequence[Batch], answers: Answers, first: int) -> tuple[list[Batch], Ended]:
    """What goes again, and what doesn't."""
    again: list[Batch] = []
    over: Ended = []
    gap_may_fill = False  # a copy of a batch that ended may still be stored, and let copies of those behind it in
    for at, batch in enumerate(failed):
        answer = answers[batch]
        if _has_ended(batch, answer):
            gap_may_fill = gap_may_fill or batch.may_be_stored
            kept, refused = _refused(batch, answer)
            again += kept
            over += [(part, answer.error) for part in refused]
        elif at > first and batch.may_be_stored and gap_may_fill:
            over.append((batch, answer.error))
        else:
            again.append(batch)
    return again, over


def _refused(batch: Batch, answer: NotStored) -> tuple[list[Batch], list[Batch]]:
    """What of a batch that ended goes again in parts, and what doesn't: nothing, if another try may have stored it."""
    everybody, number = range(len(batch.records)), len(batch.records)
    if batch.may_be_stored:
        return [], [batch]
    if answer.blamed and len(answer.blamed) < number:
        blamed = set(answer.blamed)
        return [batch.part([at for at in everybody if at not in blamed])], [batch.part(answer.blamed)]
    if answer.splits and number > 1:
        return [batch.part(everybody[: number // 2]), batch.part(everybody[number // 2 :])], []
    return [], [batch]


class Lane:
    def __init__(
        self,
        partition: int,
        wire: Wire,
        *,
        clock: Clock,
        batch_bytes: int,
        linger_s: float,
        timeout_s: float,
        max_in_flight: int,
        numbered: bool,
    ) -> None:
        self.partition = partition
        self._wire = wire
        self._clock = clock
        self._batch_bytes = batch_bytes
        self._linger_s = linger_s
        self._timeout_s = timeout_s
        self._max_in_flight = max_in_flight
        self._numbered = numbered
        self._identity: Identity | None = None if numbered else ANONYMOUS
        self._next_sequence = 0
        self._launches = 0
        self._newest_stored = 0
        self._is_known = not numbered  # whether an agent has stored a batch under the present identity
        self._waiting: deque[Batch] = deque()
        self._flying: list[Batch] = []
        self._answers: dict[Batch, NotStored] = {}  # of those that were not stored; once all are in, the lane mends
        self._flights: set[asyncio.Task[None]] = set()
        self._open: Batch | None = None
        self._changed = asyncio.Event()
        self._pause_s = FIRST_PAUSE_S
        self._hurried = False
        self._trouble: StreamhouseError | None = None  # why nothing could be stored lately

    def __repr__(self) -> str:
        return f"<Lane {self.partition} waiting={len(self._waiting)} flying={len(self._flying)}>"

    @property
    def has_open_batch(self) -> bool:
        return self._open is not None

    def batches(self) -> list[Batch]:
        """All that have not ended yet."""
        return [*self._flying, *self._waiting]

    def append(self, record: NewRecord, size_bytes: int) -> tuple[Delivery, bool]:
        """Take a record along; says also whether a batch became full by it."""
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

    def hurry(self) -> None:
        """What is there leaves without waiting for more."""
        self._hurried = True
        self._changed.set()

    async def run(self) -> None:
        try:
            while True:
                await self._step()
        except Exception as error:  # noqa: BLE001 (whatever it was: nobody may wait for this lane any more)
            self.abandon(Internal(f"a producer's lane broke; partition={self.partition} why={error!r}"))
        finally:
            flights = list(self._flights)
            for flight in flights:
                flight.cancel()
            await asyncio.gather(*flights, return_exceptions=True)

    def abandon(self, error: StreamhouseError) -> None:
        """Nobody will run this lane any more: what is left is over."""
        for batch in self.batches():
            self._end(batch, error)
        self._flying.clear()
        self._waiting.clear()
        self._answers.clear()

    async def _step(self) -> None:
        self._changed.clear()
        if self._waiting and self._waiting[0].sequence != NO_SEQUENCE and len(self._flying) < self._max_in_flight:
            await self._launch_next()  # it has a number already: what becomes of it decides about the others
        elif self._answers:
            if len(self._answers) == len(self._flying):
                await self._mend()
            else:
                await self._changed.wait()
        elif self._waiting and len(self._flying) < self._most_in_flight:
            await self._launch_next()
        else:
            self._hurried = self._hurried and bool(self._waiting)
            await self._changed.wait()

    @property
    def _most_in_flight(self) -> int:
        """One while the agent doesn't know the producer: it would take any batch for the first."""
        return self._max_in_flight if self._is_known else 1

    async def _launch_next(self) -> None:
        batch = self._waiting[0]
        now = self._clock.monotonic()
        left_s = batch.opened_at + self._linger_s - now
        if batch is self._open and left_s > 0 and not self._hurried:
            await self._for(left_s)
            return
        if now >= batch.expires_at and batch.sequence == NO_SEQUENCE:
            self._take()
            self._end(batch, self._trouble or Unavailable("the batch's turn did not come in time"))
            return
        if self._identity is None and not await self._introduced(batch):
            return
        assert self._identity is not None
        self._take()
        if batch.sequence == NO_SEQUENCE and self._numbered:
            self._launches += 1
            batch.launch, batch.sequence = self._launches, self._next_sequence
            self._next_sequence = (self._next_sequence + len(batch.records)) % SEQUENCES
        batch.flew_alone = not self._flying
        self._flying.append(batch)
        body = await self._wire.encode(batch.records, self._identity, batch.sequence)
        flight = asyncio.get_running_loop().create_task(self._fly(batch, body))
        self._flights.add(flight)
        flight.add_done_callback(self._flights.discard)

    def _take(self) -> None:
        if self._waiting.popleft() is self._open:
            self._open = None

    async def _introduced(self, batch: Batch) -> bool:
        try:
            self._identity = await self._wire.introduce()
        except StreamhouseError as error:
            self._trouble = error
            await self._rest()
            return False
        self._next_sequence = 0
        self._is_known = False
        return True

    async def _fly(self, batch: Batch, body: bytes) -> None:
        try:
            stored = await self._wire.post(self.partition, body)
        except NotStored as answer:
            self._failed(batch, answer)
        except Exception as error:  # noqa: BLE001 (its fate is unknown, like that of any answer that was lost)
            broken = Internal(f"a batch could not be sent; partition={self.partition} why={error!r}")
            self._failed(batch, NotStored(broken, kind="unknown"))
        else:
            self._flying.remove(batch)
            self._is_known, self._newest_stored = True, max(self._newest_stored, batch.launch)
            self._pause_s, self._trouble = FIRST_PAUSE_S, None
            batch.succeed(stored.base_offset, stored.timestamp_ms)
            self._wire.release(batch)
        finally:
            self._changed.set()

    def _failed(self, batch: Batch, answer: NotStored) -> None:
        self._answers[batch] = answer
        batch.may_be_stored = batch.may_be_stored or (self._numbered and answer.may_be_stored)

    async def _mend(self) -> None:
        failed, answers = self._flying, self._answers
        self._flying, self._answers = [], {}
        self._trouble = answers[failed[0]].error
        mending = mend(
            failed, answers, now=self._clock.monotonic(), numbered=self._numbered, newest_stored=self._newest_stored
        )
        if mending.anew and self._numbered:
            self._identity = None
        elif mending.sequence is not None and self._numbered:
            self._next_sequence = mending.sequence
        for batch, error in mending.over:
            self._end(batch, error)
        self._waiting.extendleft(reversed(mending.again))
        if any(answer.kind == "again" for answer in answers.values()):
            await self._rest()

    async def _rest(self) -> None:
        """Wait a little, and look who leads now."""
        await self._clock.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
        await self._wire.look_again()

    async def _for(self, seconds: float) -> None:
        """Until something changes, or so long."""
        changed = asyncio.ensure_future(self._changed.wait())
        pause = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait({changed, pause}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            pause.cancel()

    def _end(self, batch: Batch, error: StreamhouseError) -> None:
        batch.fail(error)
        self._wire.release(batch)
