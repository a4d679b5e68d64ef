"""Results for idempotent producers: new, duplicate, out of order, stale."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.broker.partition.producer_state import FIRST_KEY_ID, RETAINED_BATCHES, SEQUENCES, ProducerTable
from streamhouse.errors import AbortedSequence, DuplicateSequence, OutOfOrderSequence, StaleProducerEpoch
from streamhouse.format.batch import BatchHeader, Buffer, read_header
from streamhouse.format.producer_snapshot import decode_producers, encode_producers
from streamhouse.format.records import Record, build_batch
from streamhouse.format.transactions import marker_batch
from streamhouse.model.transaction import AbortedTransaction, Marker, ProducerIdentity

NAME = "orders-0"


def table(limit: int = 100) -> ProducerTable:
    return ProducerTable(limit=limit, expire_ms=1000)


def header(sequence: int, *, records: int = 1, producer: int = 7, epoch: int = 0) -> BatchHeader:
    batch = build_batch(
        [Record(value=b"v")] * records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence
    )
    return read_header(batch)


def store(producers: ProducerTable, *batches: BatchHeader) -> None:
    offset = 100
    for each in batches:
        assert producers.check_sequence(NAME, each) is None
        producers.record(each, offset, now_ms=0)
        offset += each.last_offset_delta + 1


def test_batches_in_sequence_are_new() -> None:
    store(table(), header(0, records=3), header(3), header(4, records=2))


def test_a_duplicate_gets_its_original_offset() -> None:
    producers = table()
    store(producers, header(0, records=3), header(3))
    result = producers.check_sequence(NAME, header(0, records=3))
    assert result is not None
    assert (result.base_offset, result.end_offset) == (100, 103)


def test_five_batches_are_remembered_and_older_ones_are_known_to_be_duplicates() -> None:
    producers = table()
    store(producers, *(header(n) for n in range(RETAINED_BATCHES + 1)))
    assert producers.check_sequence(NAME, header(1)) is not None
    with pytest.raises(DuplicateSequence):
        producers.check_sequence(NAME, header(0))


def test_what_lies_before_a_window_that_has_forgotten_nothing_was_never_stored() -> None:
    producers = table()
    store(producers, header(3), header(4))
    with pytest.raises(OutOfOrderSequence):
        producers.check_sequence(NAME, header(2))


def test_a_gap_is_out_of_order() -> None:
    producers = table()
    store(producers, header(0))
    with pytest.raises(OutOfOrderSequence, match="expected=1 got=2"):
        producers.check_sequence(NAME, header(2))


def test_a_batch_that_overlaps_a_stored_one_is_out_of_order() -> None:
    producers = table()
    store(producers, header(0, records=3))
    with pytest.raises(OutOfOrderSequence):
        producers.check_sequence(NAME, header(1, records=3))


def test_sequences_wrap_after_the_largest_integer() -> None:
    producers = table()
    store(producers, header(2**31 - 2, records=2), header(0), header(1))
    duplicate = producers.check_sequence(NAME, header(2**31 - 2, records=2))
    assert duplicate is not None
    assert duplicate.base_offset == 100


def test_a_batch_may_straddle_the_wrap() -> None:
    producers = table()
    straddling = header(2**31 - 2, records=4)
    assert straddling.last_sequence == 1
    store(producers, straddling, header(2))


def test_a_newer_epoch_begins_at_zero() -> None:
    producers = table()
    store(producers, header(0), header(1))
    with pytest.raises(OutOfOrderSequence):
        producers.check_sequence(NAME, header(2, epoch=1))
    store(producers, header(0, epoch=1))


def test_an_older_epoch_is_stale() -> None:
    producers = table()
    store(producers, header(0, epoch=3))
    with pytest.raises(StaleProducerEpoch):
        producers.check_sequence(NAME, header(1, epoch=2))


def test_a_new_epoch_does_not_take_the_old_ones_batches_for_duplicates() -> None:
    producers = table()
    store(producers, header(0), header(0, epoch=1))
    assert producers.check_sequence(NAME, header(1, epoch=1)) is None


def test_an_unknown_producer_is_taken_at_its_word() -> None:
    assert table().check_sequence(NAME, header(41)) is None


def test_the_longest_silent_producer_is_forgotten_first() -> None:
    producers = table(limit=2)
    store(producers, header(0, producer=1), header(0, producer=2), header(1, producer=1), header(0, producer=3))
    assert len(producers) == 2
    assert producers.check_sequence(NAME, header(9, producer=2)) is None
    with pytest.raises(OutOfOrderSequence):
        producers.check_sequence(NAME, header(9, producer=1))


def test_silence_is_counted_from_the_append_not_from_the_records() -> None:
    producers = table()
    producers.record(header(0), 0, now_ms=5000)
    assert len(producers.entries(now_ms=6000)) == 1
    assert producers.entries(now_ms=6001) == []


def test_a_copy_does_not_change_with_its_original() -> None:
    producers = table()
    store(producers, header(0))
    copy = producers.copy()
    store(producers, header(1))
    assert copy.check_sequence(NAME, header(1)) is None


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.integers(0, 2**31 - 1))
def test_a_snapshot_judges_as_the_table_it_was_made_of(counts: list[int], first: int) -> None:
    producers, sequence, batches = table(), first, []
    for count in counts:
        batches.append(header(sequence, records=count))
        sequence = (sequence + count) % 2**31
    store(producers, *batches)
    restored = ProducerTable(decode_producers(encode_producers(producers.entries(now_ms=0))), limit=10, expire_ms=1)
    for each in (*batches[-RETAINED_BATCHES:], header(sequence)):
        assert restored.check_sequence(NAME, each) == producers.check_sequence(NAME, each)


def test_a_producer_in_doubt_says_where_it_is_once() -> None:
    producers = table()
    store(producers, header(0), header(1))
    producers.mark_uncertain()
    store(producers, header(7))
    with pytest.raises(OutOfOrderSequence):
        producers.check_sequence(NAME, header(9))
    assert producers.check_sequence(NAME, header(8)) is None


def test_a_producer_in_doubt_is_still_known_by_what_it_had_stored() -> None:
    producers = table()
    store(producers, *(header(sequence) for sequence in range(10, 10 + RETAINED_BATCHES)))
    producers.mark_uncertain()
    result = producers.check_sequence(NAME, header(10 + RETAINED_BATCHES - 1))
    assert result is not None
    assert result.base_offset == 100 + RETAINED_BATCHES - 1
    with pytest.raises(DuplicateSequence):
        producers.check_sequence(NAME, header(3))
    with pytest.raises(StaleProducerEpoch):
        producers.copy().check_sequence(NAME, header(0, epoch=-1))


def test_a_producer_in_doubt_may_have_begun_a_new_epoch_unseen() -> None:
    producers = table()
    store(producers, header(0))
    with pytest.raises(OutOfOrderSequence):
        producers.check_sequence(NAME, header(3, epoch=1))
    producers.mark_uncertain()
    assert producers.copy().check_sequence(NAME, header(3, epoch=1)) is None


def test_a_snapshot_says_who_is_in_doubt_and_still_recognises_duplicates() -> None:
    producers = table()
    store(producers, header(0), header(0, producer=8))
    producers.mark_uncertain()
    store(producers, header(5))
    entries = decode_producers(encode_producers(producers.copy().entries(now_ms=0)))
    assert [(entry.producer_id, entry.is_doubtful) for entry in entries] == [(8, True), (7, False)]
    restored = ProducerTable(entries, limit=100, expire_ms=1000)
    original = restored.check_sequence(NAME, header(0, producer=8))
    assert original is not None
    assert original == producers.check_sequence(NAME, header(0, producer=8))
    assert (
        restored.check_sequence(NAME, header(9, producer=8)) is None
    )  # what lies between may be on a disk that nobody reads


# --- idempotency keys


def test_keys_take_no_producers_place_and_the_oldest_go_first() -> None:
    producers = ProducerTable(limit=2, expire_ms=1000, key_limit=3)
    for producer in (1, 2):
        producers.record(header(0, producer=producer), 0, now_ms=0)
    for key in range(10):
        producers.record(header(5, producer=FIRST_KEY_ID + key), key, now_ms=0)
    assert [entry.producer_id for entry in producers.entries(now_ms=0)] == [
        1,
        2,
        *(FIRST_KEY_ID + key for key in (7, 8, 9)),
    ]
    producers.record(header(0, producer=3), 20, now_ms=0)
    assert [entry.producer_id for entry in producers.entries(now_ms=0)] == [
        2,
        3,
        *(FIRST_KEY_ID + key for key in (7, 8, 9)),
    ]


def test_keys_are_in_snapshots_and_expire_as_producers_do() -> None:
    producers = ProducerTable(limit=2, expire_ms=1000, key_limit=3)
    producers.record(header(5, producer=FIRST_KEY_ID), 40, now_ms=0)
    producers.record(header(6, producer=FIRST_KEY_ID + 1), 41, now_ms=900)
    again = ProducerTable(
        decode_producers(encode_producers(producers.entries(now_ms=1000))), limit=2, expire_ms=1000, key_limit=3
    )
    result = again.check_sequence("p", header(5, producer=FIRST_KEY_ID))
    assert result is not None
    assert result.base_offset == 40
    assert [entry.producer_id for entry in again.entries(now_ms=1500)] == [FIRST_KEY_ID + 1]


def test_a_key_that_was_copied_is_judged_in_the_copy_alone() -> None:
    producers = ProducerTable(limit=2, expire_ms=1000, key_limit=3)
    copy = producers.copy()
    copy.record(header(5, producer=FIRST_KEY_ID), 40, now_ms=0)
    assert producers.check_sequence("p", header(5, producer=FIRST_KEY_ID)) is None
    with pytest.raises(OutOfOrderSequence):
        copy.check_sequence("p", header(9, producer=FIRST_KEY_ID))


def test_what_a_batch_leaves_out_is_known() -> None:
    known = table()
    assert known.sequence_gap(header(0)) is None
    assert known.sequence_gap(header(3)) == 0, "a producer begins with 0"
    known.record(header(0, records=2), 0, now_ms=0)
    assert [known.sequence_gap(header(sequence)) for sequence in (0, 1, 2, 3)] == [None, None, None, 2]
    assert known.sequence_gap(header(0, epoch=1)) is None
    assert known.sequence_gap(header(2, epoch=1)) == 0
    known.record(header(SEQUENCES - 1, epoch=1), 2, now_ms=0)
    assert [known.sequence_gap(header(sequence, epoch=1)) for sequence in (0, 1, SEQUENCES - 2)] == [None, 0, None]
    assert known.sequence_gap(header(7)) is None, "a producer of an older epoch is refused whatever it sends"


def test_an_idempotency_key_leaves_nothing_out() -> None:
    known = table()
    assert known.sequence_gap(header(12345, producer=FIRST_KEY_ID + 1)) is None
    known.record(header(12345, producer=FIRST_KEY_ID + 1), 0, now_ms=0)
    assert known.sequence_gap(header(23456, producer=FIRST_KEY_ID + 1)) is None


# --- transactions


def within(sequence: int, *, producer: int = 7, epoch: int = 0) -> BatchHeader:
    batch = build_batch(
        [Record(value=b"v")],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    return read_header(batch)


def end(number: int, *, commit: bool = False, producer: int = 7, epoch: int = 0) -> Marker:
    return Marker(producer=ProducerIdentity(producer, epoch), number=number, is_commit=commit)


def test_a_producer_with_an_open_transaction_makes_no_room_for_others() -> None:
    producers = table(limit=2)
    producers.record(within(0, producer=1), 100, now_ms=0)
    for producer in range(2, 9):
        producers.record(header(0, producer=producer), 100 + producer, now_ms=0)
        assert len(producers) == 2
        assert producers.open_transactions() == {1: 100}
    producers.end(end(1, producer=1), 200, now_ms=0)
    for producer in range(2, 4):
        producers.record(header(1, producer=producer), 201 + producer, now_ms=0)
    assert producers.check_sequence(NAME, within(5, producer=1)) is None  # forgotten like anybody else


def test_a_table_of_open_transactions_alone_grows_and_shrinks_again() -> None:
    producers = table(limit=2)
    for producer in range(20):
        producers.record(within(0, producer=producer), producer, now_ms=0)
    assert len(producers.open_transactions()) == 20
    for producer in range(20):
        producers.end(end(1, producer=producer), 100 + producer, now_ms=0)
    for producer in range(30, 60):
        producers.record(header(0, producer=producer), 200 + producer, now_ms=0)
    assert len(producers) == 2


def test_a_producer_with_an_open_transaction_does_not_expire() -> None:
    producers = table()
    producers.record(within(0, producer=1), 100, now_ms=0)
    producers.record(header(0, producer=2), 101, now_ms=0)
    (entry,) = producers.entries(now_ms=10_000)
    assert (entry.producer_id, entry.transaction_first) == (1, 100)


def test_a_snapshot_shows_the_next_leader_what_is_open_and_which_marker_came_last() -> None:
    producers = table()
    producers.record(within(0), 100, now_ms=0)
    producers.end(end(3, commit=True), 101, now_ms=0)
    producers.record(within(1), 102, now_ms=0)
    restored = ProducerTable(decode_producers(encode_producers(producers.entries(now_ms=0))), limit=100, expire_ms=1000)
    assert restored.open_transactions() == {7: 102}
    assert restored.has_marker(NAME, end(3))
    assert not restored.has_marker(NAME, end(4))
    assert restored.end(end(4), 110, now_ms=0) == AbortedTransaction(7, 102, 110)


def test_replaying_a_log_finds_what_is_open_and_what_was_aborted() -> None:
    producers = table()
    markers = [marker_batch(end(number), now_ms=0) for number in (1, 2)]
    batches: list[tuple[BatchHeader, int, Buffer]] = [
        (within(0), 100, b""),
        (within(1), 101, b""),
        (read_header(markers[0]), 102, markers[0]),
        (read_header(markers[1]), 103, markers[1]),
        (within(2), 104, b""),
    ]
    producers.replay(batches, now_ms=0)
    assert producers.aborted == [AbortedTransaction(7, 100, 102)]
    assert producers.open_transactions() == {7: 104}
    assert producers.copy().aborted == []


def test_sequences_begin_anew_behind_a_marker_that_raised_the_epoch_and_go_on_behind_any_other() -> None:
    producers = table()
    producers.record(within(0), 100, now_ms=0)
    producers.end(end(1), 101, now_ms=0)
    assert producers.check_sequence(NAME, within(1)) is None
    producers.end(end(2, epoch=1), 102, now_ms=0)
    assert producers.sequence_gap(within(2, epoch=1)) == 0
    with pytest.raises(OutOfOrderSequence, match="expected=0 got=2"):
        producers.check_sequence(NAME, within(2, epoch=1))
    assert producers.check_sequence(NAME, within(0, epoch=1)) is None


def restored(producers: ProducerTable) -> ProducerTable:
    """As the next leader reads it."""
    return ProducerTable(decode_producers(encode_producers(producers.entries(now_ms=0))), limit=100, expire_ms=1000)


@pytest.mark.parametrize("is_restored", [False, True])
def test_what_an_aborted_transaction_had_stored_is_no_original_for_a_later_batch(is_restored: bool) -> None:
    producers = table()
    producers.record(within(0), 100, now_ms=0)
    producers.record(within(1), 101, now_ms=0)
    producers.end(end(1), 102, now_ms=0)
    if is_restored:
        producers = restored(producers)
    for sequence in (0, 1):
        assert not producers.is_duplicate(within(sequence))
        with pytest.raises(AbortedSequence, match=f"producer=7 sequence={sequence}"):
            producers.check_sequence(NAME, within(sequence))
    assert producers.sequence_gap(within(3)) == 2
    assert producers.check_sequence(NAME, within(2)) is None


@pytest.mark.parametrize("is_restored", [False, True])
def test_duplicates_within_the_transaction_after_an_aborted_one_are_known(is_restored: bool) -> None:
    producers = table()
    producers.record(within(0), 100, now_ms=0)
    producers.end(end(1), 101, now_ms=0)
    for number in range(1, RETAINED_BATCHES + 1):
        producers.record(within(number), 101 + number, now_ms=0)
        if is_restored:
            producers = restored(producers)
        span = producers.check_sequence(NAME, within(number))
        assert span is not None
        assert span.base_offset == 101 + number
        with pytest.raises((OutOfOrderSequence, DuplicateSequence)):
            producers.check_sequence(NAME, within(0))


def test_what_a_committed_transaction_had_stored_is_still_an_original() -> None:
    producers = table()
    producers.record(within(0), 100, now_ms=0)
    producers.end(end(1, commit=True), 101, now_ms=0)
    span = producers.check_sequence(NAME, within(0))
    assert span is not None
    assert span.base_offset == 100


def test_what_is_aborted_in_doubt_begins_where_the_doubt_does() -> None:
    """Batches of it may be on a disk that comes back: when they are appended again, this must be known."""
    producers = table()
    producers.record(header(0, producer=1), 50, now_ms=0)
    producers.mark_uncertain(100)
    assert producers.end(end(1, producer=1), 200, now_ms=0) == AbortedTransaction(1, 100, 200)
    producers.record(within(4, producer=2), 201, now_ms=0)
    assert producers.end(end(1, producer=2), 202, now_ms=0) == AbortedTransaction(2, 100, 202)
    assert producers.end(end(1, producer=3), 203, now_ms=0) == AbortedTransaction(3, 100, 203)


def test_a_transaction_that_began_after_the_doubt_was_settled_begins_with_its_first_batch() -> None:
    producers = table()
    producers.mark_uncertain(100)
    assert producers.end(end(1, commit=True), 200, now_ms=0) is None
    assert producers.end(end(2), 201, now_ms=0) is None
    producers.record(within(0), 202, now_ms=0)
    assert producers.end(end(3), 203, now_ms=0) == AbortedTransaction(7, 202, 203)


def test_an_open_transaction_of_a_producer_in_doubt_stays_open_and_the_producer_in_doubt() -> None:
    producers = table()
    producers.record(within(0), 100, now_ms=0)
    producers.record(header(0, producer=8), 101, now_ms=0)
    producers.mark_uncertain(102)
    entries = decode_producers(encode_producers(producers.entries(now_ms=0)))
    assert [(entry.producer_id, entry.is_doubtful) for entry in entries] == [(7, True), (8, True)]
    restored = ProducerTable(entries, limit=100, expire_ms=1000)
    assert restored.check_sequence(NAME, within(9)) is None  # what lies between may be on that disk
    assert restored.end(end(1), 300, now_ms=0) == AbortedTransaction(7, 100, 300)
