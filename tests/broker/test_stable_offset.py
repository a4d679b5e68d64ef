"""Transactions in a log: what is decided, what is void, and what a marker does, whenever it comes."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamhouse.broker.partition.log import PartitionLog, PendingAppend
from streamhouse.broker.partition.producer_state import ProducerTable
from streamhouse.broker.partition.stable_offset import AbortedIndex, LastStableOffset, index_aborted
from streamhouse.errors import (
    AppendFailed,
    ConcurrentTransactions,
    InvalidTransactionState,
    MarkerFenced,
    StaleProducerEpoch,
    Stopping,
)
from streamhouse.format.batch import check_batch, read_header
from streamhouse.format.producer_snapshot import decode_producers, encode_producers
from streamhouse.format.transactions import read_marker
from streamhouse.model.cluster import PartitionState
from streamhouse.model.names import Epoch, SessionId
from streamhouse.model.topic import parse_topic_config
from streamhouse.model.transaction import AbortedTransaction, Marker, ProducerIdentity
from tests.broker.support import MANY_BYTES, NOW_MS, ORDERS, ManualWal, batch, idempotent, settle
from tests.broker.test_log import PARTITION
from tests.support.depth import examples


def open_log(
    wal: ManualWal,
    *,
    flushed_end: int = 0,
    producers: ProducerTable | None = None,
    aborted: AbortedIndex | None = None,
    kept: int = 100,
) -> PartitionLog:
    state = PartitionState(
        partition=PARTITION, epoch=Epoch(3), holder=SessionId("s-1"), log_start=0, flushed_end=flushed_end
    )
    table = producers if producers is not None else new_table()
    config = parse_topic_config({})
    return PartitionLog(ORDERS, state, config, producers=table, wal=wal, aborted=aborted, aborted_kept=kept)


def new_table(limit: int = 100) -> ProducerTable:
    return ProducerTable(limit=limit, expire_ms=1000)


def put(log: PartitionLog, data: memoryview) -> PendingAppend:
    return log.append(check_batch(data), data, now=1.0, now_ms=NOW_MS)


def within(sequence: int, *, producer: int = 7, epoch: int = 0, records: int = 1) -> memoryview:
    """A batch of a transaction."""
    return idempotent(*[b"t"] * records, sequence=sequence, producer=producer, epoch=epoch, is_transactional=True)


def end(number: int, *, commit: bool, producer: int = 7, epoch: int = 0) -> Marker:
    return Marker(producer=ProducerIdentity(producer, epoch), number=number, is_commit=commit)


def mark(log: PartitionLog, marker: Marker) -> PendingAppend:
    return log.append_marker(marker, now=1.0, now_ms=NOW_MS)


async def commit_all(wal: ManualWal) -> None:
    for commit in wal.commits:
        if not commit.done():
            commit.set_result(None)
    await settle()


async def test_the_last_stable_offset_is_where_the_oldest_open_transaction_begins() -> None:
    wal = ManualWal()
    log = open_log(wal)
    put(log, batch(b"a"))
    put(log, within(0, producer=7))
    put(log, within(0, producer=8))
    await commit_all(wal)
    assert (log.last_stable_offset, log.high_watermark) == (1, 3)
    mark(log, end(1, commit=True, producer=7))
    await commit_all(wal)
    assert (log.last_stable_offset, log.high_watermark) == (2, 4)
    mark(log, end(1, commit=False, producer=8))
    await commit_all(wal)
    assert (log.last_stable_offset, log.high_watermark) == (5, 5)


async def test_without_transactions_everything_durable_is_stable() -> None:
    wal = ManualWal()
    log = open_log(wal)
    put(log, idempotent(b"a", sequence=0))
    assert log.last_stable_offset == 0
    await commit_all(wal)
    assert log.last_stable_offset == 1


async def test_what_is_open_and_not_durable_does_not_raise_the_last_stable_offset_above_the_high_watermark() -> None:
    wal = ManualWal()
    log = open_log(wal)
    put(log, batch(b"a"))
    put(log, within(0))
    assert log.last_stable_offset == 0


async def test_a_marker_decides_when_it_is_durable_and_not_before() -> None:
    wal = ManualWal()
    log = open_log(wal)
    put(log, within(0))
    await wal.commit(0)
    pending = mark(log, end(1, commit=True))
    assert (log.last_stable_offset, log.high_watermark) == (0, 1)
    await wal.commit(1)
    assert (log.last_stable_offset, log.high_watermark) == (pending.end, 2)


async def test_a_marker_that_the_wal_lost_has_decided_nothing() -> None:
    wal = ManualWal()
    log = open_log(wal)
    put(log, within(0))
    await wal.commit(0)
    mark(log, end(1, commit=True))
    await wal.fail(1, AppendFailed("no disk"))
    log.seal()
    assert log.last_stable_offset == 0


async def test_the_next_transaction_may_begin_before_the_marker_is_durable() -> None:
    wal = ManualWal()
    log = open_log(wal)
    put(log, within(0))
    mark(log, end(1, commit=True))
    put(log, within(1))
    await wal.commit(0)
    assert log.last_stable_offset == 0
    await wal.commit(1)
    await wal.commit(2)
    assert (log.last_stable_offset, log.high_watermark) == (2, 3)


async def test_a_marker_is_a_control_batch_at_the_end_of_the_log() -> None:
    wal = ManualWal()
    log = open_log(wal)
    put(log, within(0))
    marker = end(4, commit=False, epoch=1)
    pending = mark(log, marker)
    assert (pending.base_offset, pending.end, log.next_offset) == (1, 2, 2)
    stored = wal.entries[-1]
    header = read_header(stored.batch)
    assert (stored.base, stored.end, header.base_offset, header.leader_epoch) == (1, 2, 1, 3)
    assert header.is_control
    assert header.is_transactional
    assert read_marker(stored.batch) == marker


async def test_a_number_is_taken_once_and_a_caller_that_comes_again_waits_for_the_first() -> None:
    wal = ManualWal()
    log = open_log(wal)
    put(log, within(0))
    mark(log, end(4, commit=True))
    again = mark(log, end(4, commit=True))
    assert (again.commit, log.next_offset, len(wal.entries)) == (None, 2, 2)
    waiting = asyncio.ensure_future(again.wait_durable())
    await wal.commit(0)
    assert not waiting.done()
    await wal.commit(1)
    assert waiting.done()
    waiting.result()


async def test_a_late_marker_of_an_earlier_number_does_not_end_the_transaction_that_is_open_now() -> None:
    wal = ManualWal()
    log = open_log(wal)
    put(log, within(0))
    mark(log, end(4, commit=True))
    put(log, within(1))
    mark(log, end(4, commit=True))
    mark(log, end(3, commit=False))
    await commit_all(wal)
    assert (log.last_stable_offset, log.high_watermark) == (2, 3)
    assert list(log.aborted_between(0, 100)) == []


async def test_a_marker_of_a_producer_that_was_replaced_is_refused() -> None:
    log = open_log(ManualWal())
    put(log, within(0, epoch=2))
    with pytest.raises(MarkerFenced):
        mark(log, end(4, commit=True, epoch=1))
    assert log.next_offset == 1


async def test_a_marker_raises_the_epoch_and_whatever_comes_late_of_the_one_before_is_refused() -> None:
    log = open_log(ManualWal())
    put(log, within(0))
    mark(log, end(1, commit=True, epoch=1))
    for late in (within(0), within(1)):
        with pytest.raises(StaleProducerEpoch):
            put(log, late)
    assert put(log, within(0, epoch=1)).base_offset == 2


async def test_a_marker_where_nothing_was_written_is_remembered_too() -> None:
    log = open_log(ManualWal())
    mark(log, end(3, commit=False, epoch=5))
    assert list(log.aborted_between(0, 100)) == []
    with pytest.raises(StaleProducerEpoch):
        put(log, within(0, epoch=4))


async def test_a_duplicate_of_a_committed_transactions_batch_opens_none() -> None:
    wal = ManualWal()
    log = open_log(wal)
    first = put(log, within(0))
    mark(log, end(1, commit=True))
    await commit_all(wal)
    again = put(log, within(0))
    assert (again.commit, again.base_offset) == (None, first.base_offset)
    assert not log.needs_verification(check_batch(within(0)))
    assert log.last_stable_offset == log.high_watermark == 2


async def test_a_batch_outside_of_the_producers_open_transaction_is_refused() -> None:
    log = open_log(ManualWal())
    put(log, within(0))
    with pytest.raises(InvalidTransactionState):
        put(log, idempotent(b"a", sequence=1))
    mark(log, end(1, commit=True))
    put(log, idempotent(b"a", sequence=1))


async def test_only_the_first_batch_of_a_transaction_needs_verification() -> None:
    log = open_log(ManualWal())
    assert not log.needs_verification(check_batch(idempotent(b"a", sequence=0)))
    assert log.needs_verification(check_batch(within(0)))
    put(log, within(0))
    assert not log.needs_verification(check_batch(within(1)))
    assert log.needs_verification(check_batch(within(0, epoch=1)))
    mark(log, end(1, commit=True))
    assert log.needs_verification(check_batch(within(1)))


async def test_a_response_is_worth_nothing_once_a_marker_of_the_producer_came() -> None:
    log = open_log(ManualWal())
    header = check_batch(within(0))
    token = log.transaction_token(7)
    mark(log, end(1, commit=True, producer=8))
    assert log.verify(header, token)
    mark(log, end(1, commit=True))
    assert not log.verify(header, token)
    assert log.verify(header, log.transaction_token(7))


async def test_aborted_transactions_are_reported_by_what_they_have_in_a_range() -> None:
    log = open_log(ManualWal())
    put(log, within(0, records=2))  # 0-1
    put(log, batch(b"a"))  # 2
    mark(log, end(1, commit=False))  # 3
    put(log, within(2))  # 4
    mark(log, end(2, commit=True))  # 5
    put(log, within(3))  # 6
    mark(log, end(3, commit=False))  # 7
    first, second = AbortedTransaction(7, 0, 3), AbortedTransaction(7, 6, 7)
    assert list(log.aborted_between(0, 8)) == [first, second]
    assert list(log.aborted_between(3, 6)) == [first]
    assert list(log.aborted_between(4, 6)) == []
    assert list(log.aborted_between(4, 7)) == [second]


async def test_the_log_start_takes_aborted_transactions_along_and_is_never_above_the_last_stable_offset() -> None:
    wal = ManualWal()
    log = open_log(wal)
    put(log, within(0))
    mark(log, end(1, commit=False))
    put(log, within(1))
    put(log, within(2))
    await commit_all(wal)
    log.advance_log_start(1)
    assert list(log.aborted_between(0, 4)) == [AbortedTransaction(7, 0, 1)]
    log.advance_log_start(3)
    assert list(log.aborted_between(0, 4)) == []
    assert log.last_stable_offset == 3
    mark(log, end(2, commit=False))
    await commit_all(wal)
    assert log.last_stable_offset == 5
    assert list(log.aborted_between(3, 5)) == [AbortedTransaction(7, 2, 4)]


async def test_what_others_placed_behind_an_open_transaction_is_not_stable() -> None:
    wal = ManualWal()
    log = open_log(wal)
    put(log, within(0))
    await commit_all(wal)
    taken = log.unflushed()
    log.flushed(1, log.producers_after(taken, now_ms=NOW_MS))
    await log.barrier.shut()
    log.external_commit_applied(11)
    assert (log.last_stable_offset, log.high_watermark) == (0, 11)
    mark(log, end(1, commit=False))
    await commit_all(wal)
    assert log.last_stable_offset == 12
    assert list(log.aborted_between(0, 12)) == [AbortedTransaction(7, 0, 11)]


async def test_readers_of_the_tail_get_whole_batches_up_to_a_limit() -> None:
    wal, data = ManualWal(), [batch(b"a", b"b"), within(0), batch(b"c")]
    log = open_log(wal)
    for each in data:
        put(log, each)
    await commit_all(wal)
    assert log.read_tail(0, max_bytes=MANY_BYTES, at_least_one=True, until=log.last_stable_offset) == data[:1]
    assert log.read_tail(2, max_bytes=MANY_BYTES, at_least_one=True, until=2) == []
    assert log.read_tail(0, max_bytes=MANY_BYTES, at_least_one=True, until=1) == []


async def test_what_is_kept_in_memory_has_a_limit_and_the_oldest_that_are_flushed_go() -> None:
    wal = ManualWal()
    log = open_log(wal, kept=2)
    for number in range(4):
        put(log, within(number))
        mark(log, end(number, commit=False))
    await commit_all(wal)
    assert len(log.aborted_between(0, 8)) == 4  # none of them is a row yet
    assert log.aborted_complete_from == 0
    taken = [item for item in log.unflushed() if item.end <= 2]
    log.flushed(2, log.producers_after(taken, now_ms=NOW_MS))
    assert [each.last_offset for each in log.aborted_between(0, 8)] == [3, 5, 7]
    assert log.aborted_complete_from == 2
    log.flushed(8, log.producers_after(log.unflushed(), now_ms=NOW_MS))
    assert [each.last_offset for each in log.aborted_between(0, 8)] == [5, 7]
    assert log.aborted_complete_from == 4


def test_a_log_keeps_all_rows_or_requests_them() -> None:
    rows = [AbortedTransaction(7, at, at + 1) for at in range(0, 6, 2)]
    assert index_aborted(rows, flushed_end=9, kept=4) == AbortedIndex(tuple(rows), 0)
    assert index_aborted(rows, flushed_end=9, kept=3) == AbortedIndex((), 9)


def test_a_marker_that_compaction_takes_is_forgotten() -> None:
    rows = [AbortedTransaction(7, at, at + 1) for at in range(0, 6, 2)]
    stability = LastStableOffset({}, AbortedIndex(tuple(rows)), kept=10)
    stability.forget([3])
    assert list(stability.aborted_between(0, 10)) == [rows[0], rows[2]]
    assert list(stability.aborted_between(2, 4)) == []


# --- against a model


class _Event(NamedTuple):
    producer: int
    offset: int
    end: int
    is_marker: bool = False
    is_commit: bool = False


@dataclass(kw_only=True)
class _Model:
    """What was placed, one after the other; what isn't durable when the log is opened again never was."""

    events: list[_Event] = field(default_factory=list)

    def undecided(self, high_watermark: int) -> Iterator[int]:
        begun: dict[int, int] = {}
        for event in self.events:
            if not event.is_marker:
                begun.setdefault(event.producer, event.offset)
            elif event.end <= high_watermark:
                begun.pop(event.producer, None)
        yield from begun.values()

    def last_stable(self, high_watermark: int) -> int:
        return min([high_watermark, *self.undecided(high_watermark)])

    def aborted(self, start: int, until: int) -> list[AbortedTransaction]:
        found: list[AbortedTransaction] = []
        begun: dict[int, int] = {}
        for event in self.events:
            if not event.is_marker:
                begun.setdefault(event.producer, event.offset)
                continue
            first = begun.pop(event.producer, None)
            if first is not None and not event.is_commit and event.offset >= start and first < until:
                found.append(AbortedTransaction(event.producer, first, event.offset))
        return found


class _Scene:
    """A log, the rows that its flushes wrote, and the model of both."""

    def __init__(self) -> None:
        self.wal = ManualWal()
        self.log = open_log(self.wal)
        self.model = _Model()
        self.rows: list[AbortedTransaction] = []
        self.sequences = dict.fromkeys(range(3), 0)
        self.epochs = dict.fromkeys(range(3), 0)
        self.numbers = dict.fromkeys(range(3), 0)
        self.committed = 0

    def batch(self, producer: int) -> None:
        data = within(self.sequences[producer], producer=producer, epoch=self.epochs[producer])
        try:
            pending = put(self.log, data)
        except ConcurrentTransactions:  # of a new epoch, while what the one before began is open
            assert not [each for each in self.model.events if each.producer == producer][-1].is_marker
            return
        self.sequences[producer] += 1
        self.model.events.append(_Event(producer, pending.base_offset, pending.end))

    def marker(self, producer: int, *, commit: bool, bump: bool) -> None:
        if bump:
            self.epochs[producer] += 1
            self.sequences[producer] = 0
        self.numbers[producer] += 1
        marker = end(self.numbers[producer], commit=commit, producer=producer, epoch=self.epochs[producer])
        pending = mark(self.log, marker)
        event = _Event(producer, pending.base_offset, pending.end, is_marker=True, is_commit=commit)
        self.model.events.append(event)
        assert mark(self.log, marker).commit is None

    def commit(self) -> None:
        if self.committed < len(self.wal.commits):
            self.wal.commits[self.committed].set_result(None)
            self.committed += 1

    def flush(self, limit_bytes: int | None = None) -> None:
        if taken := self.log.unflushed(limit_bytes=limit_bytes):
            table = self.log.producers_after(taken, now_ms=NOW_MS)
            self.rows += table.aborted
            self.log.flushed(taken[-1].end, table)

    async def reopen(self) -> None:
        """The agent dies, and another one leads what is durable."""
        high_watermark = self.log.high_watermark
        self.log.close(Stopping("bye"))
        self.log.seal()
        taken = self.log.unflushed()
        table = self.log.producers_after(taken, now_ms=NOW_MS)
        self.rows += table.aborted
        snapshot = decode_producers(encode_producers(table.entries(now_ms=NOW_MS)))
        for commit in self.wal.commits[self.committed :]:
            commit.cancel()
        self.wal, self.committed = ManualWal(), 0
        producers = ProducerTable(snapshot, limit=100, expire_ms=1000)
        self.log = open_log(
            self.wal, flushed_end=high_watermark, producers=producers, aborted=AbortedIndex(tuple(self.rows))
        )
        self.model.events = [event for event in self.model.events if event.end <= high_watermark]
        for producer in self.sequences:  # with another epoch, so that nothing depends on what was lost
            self.epochs[producer] += 1
            self.sequences[producer] = 0

    def check(self, start: int, length: int) -> None:
        stable = self.model.last_stable(self.log.high_watermark)
        assert self.log.last_stable_offset == stable
        until = min(start + length, stable)
        if start < until:
            assert list(self.log.aborted_between(start, until)) == self.model.aborted(start, until)


PRODUCERS = st.integers(0, 2)
STEP = st.one_of(
    st.tuples(st.just("batch"), PRODUCERS),
    st.tuples(st.just("batch"), PRODUCERS),
    st.tuples(st.just("marker"), PRODUCERS, st.booleans(), st.booleans()),
    st.tuples(st.just("commit")),
    st.tuples(st.just("commit")),
    st.tuples(st.just("flush"), st.sampled_from([None, 100, 200])),
    st.tuples(st.just("reopen")),
)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.tuples(STEP, st.integers(0, 30), st.integers(1, 30)), max_size=50))
def test_stable_and_void_is_what_a_simple_model_says_however_steps_interleave(
    steps: list[tuple[tuple[object, ...], int, int]],
) -> None:
    asyncio.run(_walk(steps))


async def _walk(steps: list[tuple[tuple[object, ...], int, int]]) -> None:
    scene = _Scene()
    for (what, *how), start, length in steps:
        match what, how:
            case "batch", [int(producer)]:
                scene.batch(producer)
            case "marker", [int(producer), bool(commit), bool(bump)]:
                scene.marker(producer, commit=commit, bump=bump)
            case "commit", []:
                scene.commit()
            case "flush", [limit_bytes]:
                scene.flush(limit_bytes if isinstance(limit_bytes, int) else None)
            case "reopen", []:
                await scene.reopen()
        for _ in range(3):
            await asyncio.sleep(0)
        scene.check(start, length)
