"""The batch header: what it says, what a client may not send, and what placing changes."""

import struct
from collections.abc import Callable

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from streamhouse import errors
from streamhouse.format.batch import (
    HEADER_BYTES,
    BatchHeader,
    BatchSpan,
    assign_offset,
    check_batch,
    correct_max_timestamp,
    empty_batch,
    iter_batches,
    read_header,
    shift_offsets,
    stamp_append_time,
    update_crc,
    without_log_fields,
)
from streamhouse.format.records import Record, build_batch, read_records

OFFSETS = st.one_of(
    st.integers(0, 2**62),
    st.sampled_from([2**31 - 2, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53 - 1, 2**53, 2**53 + 1, 2**62]),
)


def a_batch(count: int = 3, **fields: int) -> bytearray:
    records = [Record(timestamp_ms=1000 + n, key=b"k", value=b"value-%d" % n) for n in range(count)]
    return build_batch(records, **fields)  # type: ignore[arg-type]


def with_field(offset: int, code: str, value: int, *, sealed: bool = True) -> bytearray:
    """A good batch in which one header field says something else."""
    batch = a_batch()
    struct.pack_into(">" + code, batch, offset, value)
    if sealed:
        update_crc(batch)
    return batch


def test_the_header_says_what_another_client_wrote() -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=True,
        producer_id=77,
        producer_epoch=4,
        base_sequence=11,
        batch_size=1 << 16,
    )
    for n, timestamp_ms in enumerate((500, 900, 700)):
        builder.append(n, timestamp_ms, b"key", b"value", [])
    batch = bytes(builder.build())
    header = check_batch(batch)
    theirs = DefaultRecordBatch(bytearray(batch))
    assert header == BatchHeader(
        base_offset=0,
        size_bytes=len(batch),
        leader_epoch=header.leader_epoch,
        magic=2,
        crc=theirs.crc,
        attributes=theirs.attributes,
        last_offset_delta=2,
        base_timestamp_ms=500,
        max_timestamp_ms=900,
        producer_id=77,
        producer_epoch=4,
        base_sequence=11,
        record_count=3,
    )
    assert header.is_transactional
    assert not header.is_control
    assert not header.is_log_append_time
    assert not header.has_delete_horizon
    assert (header.codec, header.end, header.last_sequence) == (0, 3, 13)


@pytest.mark.parametrize(("base", "last"), [(0, 2), (2**31 - 3, 2**31 - 1), (2**31 - 2, 0), (2**31 - 1, 1), (-1, -1)])
def test_sequences_start_again_at_zero_after_the_largest(base: int, last: int) -> None:
    assert read_header(a_batch(3, base_sequence=base)).last_sequence == last


REFUSED: list[tuple[str, Callable[[], bytes | bytearray], type[errors.StreamhouseError]]] = [
    ("nothing", lambda: b"", errors.InvalidRecord),
    ("two batches", lambda: a_batch() + a_batch(), errors.InvalidRecord),
    ("trailing bytes", lambda: a_batch() + b"\0", errors.CorruptBatch),
    ("half a second batch", lambda: a_batch() + a_batch()[:70], errors.CorruptBatch),
    ("magic 0", lambda: with_field(16, "b", 0), errors.UnsupportedFormat),
    ("magic 1", lambda: with_field(16, "b", 1), errors.UnsupportedFormat),
    ("a short message of magic 1", lambda: bytes(with_field(16, "b", 1)[:34]), errors.UnsupportedFormat),
    ("magic 3", lambda: with_field(16, "b", 3), errors.CorruptBatch),
    ("a negative magic", lambda: with_field(16, "b", -1), errors.CorruptBatch),
    ("a wrong checksum", lambda: with_field(17, "I", 12345, sealed=False), errors.CorruptBatch),
    ("a length of zero", lambda: with_field(8, "i", 0), errors.CorruptBatch),
    ("a negative length", lambda: with_field(8, "i", -1), errors.CorruptBatch),
    ("a length without room for the header", lambda: with_field(8, "i", 48), errors.CorruptBatch),
    ("a huge length", lambda: with_field(8, "i", 2**31 - 1), errors.CorruptBatch),
    ("a base offset", lambda: a_batch(base_offset=5), errors.InvalidRecord),
    ("a count of zero", lambda: with_field(57, "i", 0), errors.InvalidRecord),
    ("a negative count", lambda: with_field(57, "i", -3), errors.InvalidRecord),
    ("a count that offsets deny", lambda: with_field(57, "i", 4), errors.InvalidRecord),
    ("a negative last offset", lambda: with_field(23, "i", -1), errors.InvalidRecord),
    ("the largest last offset", lambda: with_field(23, "i", 2**31 - 1), errors.InvalidRecord),
    ("codec 5", lambda: with_field(21, "h", 5), errors.UnsupportedCompression),
    ("codec 7", lambda: with_field(21, "h", 7), errors.UnsupportedCompression),
    ("a control batch", lambda: a_batch(is_control=True), errors.InvalidRecord),
    ("append time of the client's own", lambda: a_batch(is_log_append_time=True), errors.InvalidTimestamp),
    ("a producer without sequence", lambda: a_batch(producer_id=1, producer_epoch=0), errors.InvalidRecord),
    ("a producer without epoch", lambda: a_batch(producer_id=1, base_sequence=0), errors.InvalidRecord),
    ("a negative producer", lambda: a_batch(producer_id=-2), errors.InvalidRecord),
    ("a transaction of nobody", lambda: a_batch(is_transactional=True), errors.InvalidRecord),
]


@pytest.mark.parametrize(("make", "error"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_refuses_from_a_client(make: Callable[[], bytes | bytearray], error: type[errors.StreamhouseError]) -> None:
    with pytest.raises(error):
        check_batch(make())


def test_refuses_a_batch_cut_off_anywhere() -> None:
    batch = a_batch()
    for length in range(1, len(batch)):
        with pytest.raises(errors.CorruptBatch):
            check_batch(batch[:length])


def test_accepts_what_clients_without_idempotence_leave_in_epoch_and_sequence() -> None:
    for epoch, sequence in [(-1, -1), (0, 0), (-1, 0)]:
        check_batch(a_batch(producer_id=-1, producer_epoch=epoch, base_sequence=sequence))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_judges_any_kind_of_buffer(kind: Callable[[bytearray], bytes | bytearray | memoryview]) -> None:
    assert check_batch(kind(a_batch())).record_count == 3


def test_every_flipped_bit_behind_the_length_is_refused_unless_it_is_the_leader_epoch() -> None:
    batch = a_batch()
    for at in [*range(12), *range(16, len(batch))]:
        for bit in range(8):
            batch[at] ^= 1 << bit
            with pytest.raises(errors.Rejected):
                check_batch(batch)
            batch[at] ^= 1 << bit


def test_a_batch_is_read_where_it_stands_in_a_larger_buffer() -> None:
    first, second = a_batch(2), a_batch(5)
    assert read_header(first + second, len(first)).record_count == 5


@given(base=OFFSETS, epoch=st.integers(0, 2**31 - 1))
def test_placing_changes_offset_and_epoch_and_keeps_the_checksum(base: int, epoch: int) -> None:
    batch = a_batch()
    before = read_header(batch)
    assign_offset(batch, base_offset=base, leader_epoch=epoch)
    after = read_header(batch)
    assert after == before._replace(base_offset=base, leader_epoch=epoch) == before.appended_at(base, epoch)
    assert type(before.appended_at(base, epoch)) is BatchHeader
    assert after.end == base + 3
    assign_offset(batch, base_offset=0, leader_epoch=-1)
    assert check_batch(batch) == before


def test_append_time_replaces_the_largest_timestamp_and_seals_again() -> None:
    batch = a_batch()
    stamp_append_time(batch, 123_456)
    header = read_header(batch)
    assert header.is_log_append_time
    assert (header.max_timestamp_ms, header.base_timestamp_ms) == (123_456, 1000)
    assert DefaultRecordBatch(batch).validate_crc()


@given(base=OFFSETS, epoch=st.integers(0, 1000), count=st.integers(1, 5))
def test_a_stored_batch_made_new_is_what_a_plain_client_sends(base: int, epoch: int, count: int) -> None:
    stored = a_batch(count, producer_id=7, producer_epoch=2, base_sequence=40)
    stamp_append_time(stored, 123_456)
    assign_offset(stored, base_offset=base, leader_epoch=epoch)
    before = bytes(stored)
    new = without_log_fields(memoryview(stored))
    header = check_batch(new)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert (header.is_log_append_time, header.is_transactional) == (False, False)
    correct_max_timestamp(new, 1000 + count - 1)
    plain = a_batch(count)
    assign_offset(plain, base_offset=0, leader_epoch=-1)
    assert new == plain
    assert stored == before, "the original is left alone"


def test_a_largest_timestamp_that_lies_is_corrected_and_sealed() -> None:
    batch = with_field(35, "q", 999_999)
    header = correct_max_timestamp(batch, 1002)
    assert check_batch(batch) == header == check_batch(a_batch())


@given(st.lists(st.integers(1, 5), max_size=6), OFFSETS)
def test_spans_find_consecutive_batches(counts: list[int], base: int) -> None:
    data, expected = bytearray(), []
    for count in counts:
        batch = a_batch(count, base_offset=base)
        expected.append(BatchSpan(len(data), len(batch), base, base + count, 999 + count))
        data += batch
        base += count
    assert iter_batches(data) == iter_batches(memoryview(bytes(data))) == expected


def test_spans_never_run_astray() -> None:
    data = a_batch() + a_batch()
    for length in range(1, len(data)):
        if length != len(data) // 2:
            with pytest.raises(errors.CorruptBatch):
                iter_batches(data[:length])
    for declared in (-(2**31), -12, 0, HEADER_BYTES - 13, 2**31 - 1):
        with pytest.raises(errors.CorruptBatch):
            iter_batches(with_field(8, "i", declared))


@given(st.lists(st.integers(1, 4), max_size=5), OFFSETS, st.integers(-5, 2**61))
def test_shifted_batches_are_the_same_batches_elsewhere(counts: list[int], base: int, by: int) -> None:
    data = bytearray()
    for count in counts:
        data += a_batch(count, base_offset=base)
        base += count
    moved = shift_offsets(data, by=by, leader_epoch=9)
    assert [(s.base, s.end) for s in iter_batches(moved)] == [(s.base + by, s.end + by) for s in iter_batches(data)]
    assert all(read_header(moved, s.position).leader_epoch == 9 for s in iter_batches(moved))
    assert shift_offsets(moved, by=-by, leader_epoch=-1) == bytes(data)


@pytest.mark.parametrize(("end", "reaches"), [(8, 8), (1_500_007, 1_500_007), (2**40, 7 + 2**31)])
def test_an_empty_batch_takes_readers_as_far_as_a_batch_may_reach(end: int, reaches: int) -> None:
    data = empty_batch(7, end, leader_epoch=3)
    header = read_header(data)
    assert (header.base_offset, header.end, header.leader_epoch, header.record_count) == (7, reaches, 3, 0)
    assert header.crc == crc32c(bytes(data[21:]))
    assert [(span.base, span.end) for span in iter_batches(data)] == [(7, reaches)]
    assert list(read_records(data, limit_bytes=1000)) == []
