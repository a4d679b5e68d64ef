"""Records inside a batch: ours and aiokafka's read each other, and a header can't promise what isn't there."""

import struct
import tracemalloc
from collections.abc import Sequence

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.errors import CorruptBatch, InvalidRecord
from streamhouse.format.batch import (
    HEADER_BYTES,
    assign_offset,
    check_batch,
    read_header,
    stamp_append_time,
    update_crc,
)
from streamhouse.format.compression import Codec
from streamhouse.format.records import (
    CHUNK_RECORDS,
    JUDGED_HEADERS,
    MAX_RECORD_HEADERS,
    Record,
    RecordsSummary,
    build_batch,
    find_records,
    first_record_at,
    iterate_batch,
    read_records,
    validate_records,
)
from streamhouse.model.record import StoredRecord
from tests.format.hostile import MANY_HEADERS, MANY_RECORDS, hostile_batch

LIMIT = 1 << 20
FIELDS = st.one_of(st.none(), st.binary(max_size=60))
RECORDS = st.lists(
    st.builds(
        Record,
        timestamp_ms=st.integers(0, 2**45),
        key=FIELDS,
        value=FIELDS,
        headers=st.lists(st.tuples(st.text(max_size=5), FIELDS), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=8,
)
CODECS = st.sampled_from(list(Codec))
OFFSETS = st.one_of(st.integers(0, 2**62), st.sampled_from([2**31 - 2, 2**32 - 2, 2**53 - 2]))
MIXED = [Record(timestamp_ms=ms, key=b"k", value=b"v") for ms in (100, 300, 200, 300)]


def numbered(records: Sequence[Record], base: int) -> list[Record]:
    return [
        Record(offset=base + n, timestamp_ms=r.timestamp_ms, key=r.key, value=r.value, headers=r.headers)
        for n, r in enumerate(records)
    ]


@given(RECORDS, CODECS, OFFSETS)
def test_reading_undoes_building(records: list[Record], codec: Codec, base: int) -> None:
    batch = build_batch(records, codec=codec, base_offset=base)
    assert read_records(batch, limit_bytes=LIMIT) == numbered(records, base)
    assert read_header(batch).end == base + len(records)


@given(RECORDS, CODECS)
def test_aiokafka_reads_what_we_build(records: list[Record], codec: Codec) -> None:
    batch = build_batch(records, codec=codec)
    theirs = DefaultRecordBatch(batch)
    assert theirs.validate_crc()
    read = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert read == [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in numbered(records, 0)]


@given(RECORDS, CODECS)
def test_we_read_what_aiokafka_builds(records: list[Record], codec: Codec) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for n, record in enumerate(records):
        builder.append(n, record.timestamp_ms, record.key, record.value, list(record.headers))
    batch = bytes(builder.build())
    header = check_batch(batch)
    assert read_records(batch, limit_bytes=LIMIT) == numbered(records, 0)
    summary = validate_records(batch, header, limit_bytes=LIMIT)
    times = [record.timestamp_ms for record in records]
    assert summary == RecordsSummary(min(times), max(times), sum(record.key is None for record in records))


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [0, 1, 3, 5, 2**31 - 1])
def test_a_lying_count_is_refused(codec: Codec, count: int) -> None:
    batch = build_batch(MIXED, codec=codec)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    update_crc(batch)
    with pytest.raises(InvalidRecord):
        validate_records(batch, read_header(batch), limit_bytes=LIMIT)
    with pytest.raises(CorruptBatch):
        read_records(batch, limit_bytes=LIMIT)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_payload_beyond_the_limit_is_refused(codec: Codec) -> None:
    batch = build_batch([Record(value=bytes(5000))], codec=codec)
    header = check_batch(batch)
    for look in (
        lambda: validate_records(batch, header, limit_bytes=5000),
        lambda: read_records(batch, limit_bytes=5000),
        lambda: first_record_at(batch, 0, limit_bytes=5000),
    ):
        with pytest.raises(InvalidRecord, match="too large"):
            look()


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_payload_that_its_codec_cannot_read_is_damage(codec: Codec) -> None:
    batch = build_batch(MIXED)
    struct.pack_into(">h", batch, 21, codec)
    update_crc(batch)
    with pytest.raises(CorruptBatch):
        validate_records(batch, check_batch(batch), limit_bytes=LIMIT)


def test_the_summary_is_right_where_the_header_lies() -> None:
    batch = build_batch(MIXED)
    struct.pack_into(">q", batch, 35, 999_999)
    update_crc(batch)
    assert validate_records(batch, check_batch(batch), limit_bytes=LIMIT) == RecordsSummary(100, 300, 0)


def test_a_timestamp_beyond_64_bits_is_refused() -> None:
    batch = build_batch([Record(timestamp_ms=0), Record(timestamp_ms=2**62)])
    struct.pack_into(">q", batch, 27, 2**63 - 1)
    update_crc(batch)
    with pytest.raises(InvalidRecord, match="timestamp"):
        validate_records(batch, check_batch(batch), limit_bytes=LIMIT)


@given(RECORDS, CODECS, st.data())
def test_mutated_batches_are_refused_or_read_and_nothing_worse(
    records: list[Record], codec: Codec, data: st.DataObject
) -> None:
    batch = build_batch(records, codec=codec)
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(HEADER_BYTES, len(batch) - 1))] = data.draw(st.integers(0, 255))
    update_crc(batch)
    header = check_batch(batch)
    try:
        validate_records(batch, header, limit_bytes=LIMIT)
    except (InvalidRecord, CorruptBatch):
        return
    assert len(read_records(batch, limit_bytes=LIMIT)) == len(records)


@pytest.mark.parametrize(
    ("timestamp_ms", "found"),
    [(0, (50, 100)), (100, (50, 100)), (101, (51, 300)), (300, (51, 300)), (301, None)],
)
@pytest.mark.parametrize("codec", list(Codec))
def test_the_first_record_at_a_time_is_found(codec: Codec, timestamp_ms: int, found: tuple[int, int] | None) -> None:
    batch = build_batch(MIXED, codec=codec, base_offset=50)
    assert first_record_at(batch, timestamp_ms, limit_bytes=LIMIT) == found


def test_append_time_is_the_time_of_every_record() -> None:
    batch = build_batch(MIXED)
    stamp_append_time(batch, 5000)
    assign_offset(batch, base_offset=70, leader_epoch=1)
    assert {record.timestamp_ms for record in read_records(batch, limit_bytes=LIMIT)} == {5000}
    assert first_record_at(batch, 4000, limit_bytes=LIMIT) == (70, 5000)
    assert first_record_at(batch, 5001, limit_bytes=LIMIT) is None
    assert validate_records(batch, read_header(batch), limit_bytes=LIMIT) == RecordsSummary(5000, 5000, 0)


def test_header_names_that_are_not_utf8_can_still_be_read() -> None:
    batch = build_batch([Record(headers=(("??", b"v"),))])
    at = batch.index(b"??")
    batch[at : at + 2] = b"\xff\xfe"
    update_crc(batch)
    assert read_records(batch, limit_bytes=LIMIT)[0].headers == (("\ufffd\ufffd", b"v"),)


def test_a_batch_of_no_records_cannot_be_built() -> None:
    with pytest.raises(InvalidRecord):
        build_batch([])


def test_bytes_behind_the_batch_are_not_read() -> None:
    batch = build_batch(MIXED) + b"what follows in the block"
    assert len(read_records(batch, limit_bytes=LIMIT)) == 4


# --- what a few bytes may become


def test_a_batch_of_too_many_records_or_headers_is_refused() -> None:
    batch = build_batch([Record(headers=(("h", None),) * 3)] * 5, codec=Codec.ZSTD)
    header = read_header(batch)
    assert validate_records(batch, header, limit_bytes=LIMIT, max_records=5, max_headers=3).null_keys == 5
    with pytest.raises(InvalidRecord, match="too many records in a batch; records=5 limit=4"):
        validate_records(batch, header, limit_bytes=LIMIT, max_records=4)
    with pytest.raises(InvalidRecord, match="more headers than a record may have limit=2"):
        validate_records(batch, header, limit_bytes=LIMIT, max_headers=2)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_empty_headers_by_the_million_never_become_objects(codec: Codec) -> None:
    batch = hostile_batch(codec, MANY_HEADERS, size_bytes=16 << 20)
    header = read_header(batch)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRecord, match="headers"):
            validate_records(batch, header, limit_bytes=32 << 20)
        with pytest.raises(InvalidRecord, match=f"too many headers to be read; record=0 limit={MAX_RECORD_HEADERS}"):
            list(iterate_batch(batch, limit_bytes=32 << 20))
        with pytest.raises(InvalidRecord, match="headers"):
            find_records(batch, header, lambda record: True, among=10, limit_bytes=32 << 20)
        assert first_record_at(batch, 0, limit_bytes=32 << 20) == (0, 0)
        assert tracemalloc.get_traced_memory()[1] < 28 << 20
    finally:
        tracemalloc.stop()


def test_the_search_for_records_to_blame_ends_where_they_have_too_many_headers() -> None:
    many = tuple(("", b"") for _ in range(MAX_RECORD_HEADERS))
    batch = build_batch([Record(headers=many)] * 20, codec=Codec.ZSTD)
    seen: list[Record] = []

    def matches(record: Record) -> bool:
        seen.append(record)
        return True

    result = find_records(batch, read_header(batch), matches, among=1000, limit_bytes=32 << 20)
    assert result == list(range(JUDGED_HEADERS // MAX_RECORD_HEADERS)) == list(range(len(seen)))


def test_records_become_objects_as_they_are_requested() -> None:
    batch = hostile_batch(Codec.ZSTD, MANY_RECORDS, size_bytes=5 << 20)
    header = read_header(batch)
    made: list[StoredRecord] = []
    tracemalloc.start()
    try:
        for record in iterate_batch(batch, limit_bytes=32 << 20, from_offset=500_000):
            made.append(record)
            if len(made) == 10:
                break
        first = find_records(batch, header, lambda record: True, among=10, limit_bytes=32 << 20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [record.offset for record in made] == list(range(500_000, 500_010))
    assert first == list(range(10))
    assert peak < (28 << 20) + 1000 * CHUNK_RECORDS


def test_records_before_damage_are_read() -> None:
    batch = build_batch([Record(value=b"%d" % n) for n in range(3)])
    struct.pack_into(">i", batch, 57, 4)
    records = iterate_batch(batch, limit_bytes=LIMIT)
    assert [next(records).value for _ in range(3)] == [b"0", b"1", b"2"]
    with pytest.raises(CorruptBatch, match="fewer records"):
        next(records)
