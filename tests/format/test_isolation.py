"""Isolation: who reads committed records gets no marker, and nothing of a transaction that was aborted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.errors import CorruptBatch
from streamhouse.format.batch import Buffer, iter_batches, read_header
from streamhouse.format.records import read_records
from streamhouse.format.run_rewrite import batches_of
from streamhouse.format.transactions import AbortedTransactions, drop_aborted, readable, shifted
from streamhouse.model.transaction import AbortedTransaction
from tests.format.kafka_cleaner import committed
from tests.format.transactional_logs import LIMIT, STEPS, Written, entries, write


def offsets_of(pieces: list[Buffer]) -> list[int]:
    return [
        each.offset
        for piece in pieces
        for batch in batches_of(piece)
        if read_header(batch).record_count
        for each in read_records(batch, limit_bytes=LIMIT)
    ]


def test_what_has_no_transactions_is_given_as_it_is() -> None:
    written = Written()
    written.plain((b"a", b"1"))
    written.plain((b"b", b"2"))
    piece = b"".join(written.log)
    (kept,) = drop_aborted([piece], ())
    assert kept is piece
    (kept,) = readable([piece], ())
    assert kept is piece


def test_markers_and_aborted_batches_are_left_out_without_a_copy() -> None:
    written = Written()
    written.plain((b"a", b"1"), (b"b", b"2"))
    written.send(7, (b"a", b"3"))
    written.send(8, (b"a", b"4"))
    written.finish(7, commit=False)
    written.send(7, (b"c", b"5"))
    written.finish(8, commit=True)
    written.finish(7, commit=True)
    piece = b"".join(written.log)
    kept = drop_aborted([piece], written.aborted)
    assert offsets_of(kept) == [0, 1, 3, 5]
    assert [each.obj for each in kept if isinstance(each, memoryview)] == [piece] * len(kept)


def test_a_plain_batch_of_a_producer_that_aborts_stays() -> None:
    written = Written()
    written.send(7, (b"a", b"1"))
    plain = bytearray(written.log[0])
    plain[22] &= ~0x10  # no transaction's
    aborted = [AbortedTransaction(7, 0, 9)]
    assert drop_aborted([plain], aborted) == [plain]
    assert drop_aborted([written.log[0]], aborted) == []


def test_who_goes_on_behind_the_last_batch_is_taken_over_what_it_may_not_see() -> None:
    written = Written()
    written.send(7, (b"a", b"1"), (b"b", b"2"))
    written.send(7, (b"c", b"3"))
    written.finish(7, commit=False)
    (only,) = readable([b"".join(written.log)], written.aborted)
    header = read_header(only)
    assert (header.base_offset, header.end, header.record_count, header.leader_epoch) == (0, 4, 0, 3)
    assert readable([], written.aborted) == []


def test_overlapping_transactions_of_a_producer_are_both_known() -> None:
    aborted = AbortedTransactions([AbortedTransaction(1, 0, 100), AbortedTransaction(1, 10, 20)])
    assert all(aborted.is_aborted(1, offset) for offset in (0, 15, 21, 100))
    assert not aborted.is_aborted(1, 101)
    assert not aborted.is_aborted(2, 15)


def test_only_transactions_that_reach_into_a_range_are_reported_with_it() -> None:
    aborted = [AbortedTransaction(1, 0, 4), AbortedTransaction(2, 2, 9), AbortedTransaction(3, 10, 12)]
    assert AbortedTransactions(aborted).within(5, 10) == (aborted[1],)
    assert AbortedTransactions(aborted).within(4, 11) == tuple(aborted)
    assert AbortedTransactions(aborted).within(13, 100) == AbortedTransactions(()).within(0, 100) == ()
    assert shifted(aborted[:1], 5) == (AbortedTransaction(1, 5, 9),)


def test_bytes_that_are_no_batches_are_not_guessed_at() -> None:
    written = Written()
    written.plain((b"a", b"1"))
    for damaged in (bytes(written.log[0][:-1]), bytes(written.log[0]) + b"\0" * 30):
        with pytest.raises(CorruptBatch):
            drop_aborted([damaged], ())


RANGES = st.builds(
    lambda producer, first, length: AbortedTransaction(producer, first, first + length),
    st.integers(0, 2),
    st.integers(0, 30),
    st.integers(0, 9),
)


@given(st.lists(RANGES, max_size=12), st.integers(0, 40), st.integers(0, 40))
def test_looking_for_transactions_finds_what_looking_at_each_would(
    aborted: list[AbortedTransaction], start: int, end: int
) -> None:
    known = AbortedTransactions(aborted)
    assert set(known.within(start, end)) == {each for each in aborted if each[1] < end and each[2] >= start}
    for producer in range(3):
        expected = any(each[0] == producer and each[1] <= start <= each[2] for each in aborted)
        assert known.is_aborted(producer, start) == expected


@given(st.lists(STEPS, max_size=30), st.integers(1, 5))
def test_a_reader_gets_what_a_consumer_would_and_arrives_where_it_does(
    steps: list[tuple[object, ...]], batches_each: int
) -> None:
    written = Written()
    write(written, steps)
    for producer in list(written.under_way):
        written.finish(producer, commit=producer == 2)
    log = written.log
    pieces: list[Buffer] = [b"".join(log[at : at + batches_each]) for at in range(0, len(log), batches_each)]
    expected = [item.offset for item in committed(entries(log), written.aborted)]
    assert offsets_of(drop_aborted(pieces, written.aborted)) == expected
    result = readable(pieces, written.aborted)
    assert offsets_of(result) == expected
    if pieces:
        assert iter_batches(result[-1])[-1].end == written.end
