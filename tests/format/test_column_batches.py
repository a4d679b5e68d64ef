"""Rows of columns become batches: the same in C and in Python, and the same as encoding records singly."""

import gc
import random
import sys
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamhouse.errors import InvalidRecord
from streamhouse.format import columnar_encoder
from streamhouse.format.batch import HEADER_BYTES, Buffer, check_batch, read_header
from streamhouse.format.columnar_decoder import _bytes_column, _fixed, _headers_column
from streamhouse.format.columnar_encoder import (
    BytesColumn,
    ColumnBatch,
    EncodedColumns,
    HeadersColumn,
    NumberColumn,
    RecordColumns,
    RowPartitions,
    encode_columns,
    encode_columns_in_c,
    encode_columns_in_python,
    finished,
    partition_rows,
    partition_rows_in_c,
    partition_rows_in_python,
)
from streamhouse.format.compression import Codec
from streamhouse.format.partitioner import partition_for
from streamhouse.format.record_scanner import FieldError
from streamhouse.format.records import decode_batch, encode_batch, validate_records
from streamhouse.model.record import Header, NewRecord, StoredRecord
from tests.support.depth import examples

Encode = Callable[[RecordColumns, Buffer, int, int, int], EncodedColumns]
Choose = Callable[[int, BytesColumn | None, NumberColumn | None, int, int], RowPartitions]

needs_c = pytest.mark.skipif(not columnar_encoder.IS_COMPILED, reason="the C extension was not built here")
ENCODERS = [
    pytest.param(encode_columns_in_python, id="python"),
    pytest.param(encode_columns_in_c, id="c", marks=needs_c),
]
CHOOSERS = [
    pytest.param(partition_rows_in_python, id="python"),
    pytest.param(partition_rows_in_c, id="c", marks=needs_c),
]

NOW_MS = 1_750_000_000_000
LIMIT = 1 << 20
FIELDS = st.one_of(st.none(), st.binary(max_size=40))
TIMES = st.one_of(st.none(), st.integers(-5, 50), st.sampled_from([-(2**63), 2**63 - 1, NOW_MS]))
RECORDS = st.lists(
    st.builds(
        NewRecord,
        value=FIELDS,
        key=FIELDS,
        headers=st.lists(st.tuples(st.text(max_size=5), FIELDS), max_size=3).map(tuple),
        timestamp_ms=TIMES,
    ),
    max_size=20,
)


def bits(flags: Sequence[bool]) -> bytes:
    result = bytearray((len(flags) + 7) // 8)
    for at, flag in enumerate(flags):
        result[at >> 3] |= flag << (at & 7)
    return bytes(result)


def bytes_of(fields: Sequence[bytes | None], first: int = 0) -> BytesColumn:
    """A column that begins behind `first` rows of something else."""
    made = _bytes_column([b"other"] * first + list(fields))
    return BytesColumn(first, made.validity, made.offsets, made.data)


def numbers_of(kind: str, numbers: Sequence[int | None], first: int = 0) -> NumberColumn:
    known = [7] * first + [number or 0 for number in numbers]
    return NumberColumn(first, bits([True] * first + [n is not None for n in numbers]), _fixed(kind, known))


def headers_of(lists: Sequence[Sequence[Header]], first: int = 0) -> HeadersColumn:
    made = _headers_column([[("other", b"")]] * first + list(lists))
    names = BytesColumn(0, None, made.names.offsets, made.names.data)
    values = BytesColumn(0, made.values.validity, made.values.offsets, made.values.data)
    return HeadersColumn(first, None, made.offsets, names, values)


def columns_of(records: Sequence[NewRecord], first: int = 0) -> RecordColumns:
    return RecordColumns(
        len(records),
        bytes_of([record.key for record in records], first),
        bytes_of([record.value for record in records], first),
        numbers_of("q", [record.timestamp_ms for record in records], first),
        headers_of([record.headers for record in records], first),
    )


def stored(batches: Sequence[ColumnBatch], codec: Codec = Codec.NONE) -> list[tuple[int, StoredRecord]]:
    """What a reader finds, by partition, when each partition's batches follow each other."""
    results: list[tuple[int, StoredRecord]] = []
    ends: dict[int, int] = {}
    for made in batches:
        batch = finished(made, codec=codec, base_offset=ends.get(made.partition, 0))
        ends[made.partition] = ends.get(made.partition, 0) + made.records
        results += [(made.partition, record) for record in decode_batch(batch, limit_bytes=LIMIT)]
    return results


def expected(records: Sequence[NewRecord], partitions: Sequence[int]) -> list[tuple[int, StoredRecord]]:
    results: list[tuple[int, StoredRecord]] = []
    for partition in sorted(set(partitions)):
        own = [record for record, number in zip(records, partitions, strict=True) if number == partition]
        for offset, (value, key, headers, time_ms, _) in enumerate(own):
            time_ms = NOW_MS if time_ms is None else time_ms
            results.append((partition, StoredRecord(offset, time_ms, key, value, headers)))
    return results


@pytest.mark.parametrize("encode", ENCODERS)
@given(records=RECORDS, first=st.integers(0, 9), payload_bytes=st.integers(1, 300), data=st.data())
def test_every_row_is_a_record_of_its_partition_in_its_order(
    encode: Encode, records: list[NewRecord], first: int, payload_bytes: int, data: st.DataObject
) -> None:
    partitions = data.draw(st.lists(st.integers(0, 4), min_size=len(records), max_size=len(records)))
    field_error, row, batches = encode(columns_of(records, first), _fixed("i", partitions), 5, NOW_MS, payload_bytes)
    assert (field_error, row) == (FieldError.NONE, len(records))
    assert stored(batches) == expected(records, partitions)
    for made in batches:
        assert made.records == 1 or len(made.batch) - HEADER_BYTES <= payload_bytes


@needs_c
@given(records=RECORDS, first=st.integers(0, 9), payload_bytes=st.integers(1, 300), data=st.data())
def test_c_and_python_make_the_same_batches(
    records: list[NewRecord], first: int, payload_bytes: int, data: st.DataObject
) -> None:
    partitions = data.draw(st.lists(st.integers(0, 4), min_size=len(records), max_size=len(records)))
    arguments = (columns_of(records, first), _fixed("i", partitions), 5, NOW_MS, payload_bytes)
    assert encode_columns_in_c(*arguments) == encode_columns_in_python(*arguments)


@needs_c
@settings(max_examples=examples(300))
@given(seed=st.integers(0, 2**32))
def test_c_and_python_agree_about_damaged_columns(seed: int) -> None:
    chance = random.Random(seed)
    rows = chance.randrange(1, 6)

    def positions(count: int) -> bytearray:
        ends = sorted(chance.randrange(0, 9) for _ in range(count + 1))
        if chance.random() < 0.3:
            ends[chance.randrange(count + 1)] = chance.choice([-1, 10_000, -(2**31), 2**31 - 1])
        return _fixed("i", ends)

    def damaged(count: int) -> BytesColumn:
        validity = chance.choice([None, chance.randbytes((count + 7) // 8)])
        return BytesColumn(0, validity, positions(count), chance.randbytes(chance.randrange(6, 12)))

    def damaged_headers() -> HeadersColumn:
        names = _bytes_column([chance.choice([None, b"n", b"\xff"]) for _ in range(9)])
        return HeadersColumn(
            0, None, positions(rows), BytesColumn(0, names.validity, names.offsets, names.data), damaged(9)
        )

    columns = RecordColumns(rows, damaged(rows), damaged(rows), None, chance.choice([None, damaged_headers()]))
    partitions = _fixed("i", [chance.randrange(3) for _ in range(rows)])
    arguments = (columns, partitions, 3, NOW_MS, 60)
    assert encode_columns_in_c(*arguments) == encode_columns_in_python(*arguments)
    assert (
        partition_rows_in_c(rows, columns.key, None, 3, 1)[0]
        == partition_rows_in_python(rows, columns.key, None, 3, 1)[0]
    )


@pytest.mark.parametrize("choose", CHOOSERS)
def test_keys_go_where_kafka_puts_them_and_rows_without_one_go_round(choose: Choose) -> None:
    keys = [b"a", None, b"order-1", None, b"", None, None]
    refused, partitions, following = choose(7, bytes_of(keys, 3), None, 5, 4)
    turns = iter([4, 0, 1, 2])
    want = [next(turns) if key is None else partition_for(key, 5) for key in keys]
    assert (refused, list(memoryview(partitions).cast("i")), following) == (None, want, 3)


@pytest.mark.parametrize("choose", CHOOSERS)
def test_a_row_gets_the_partition_that_it_requests(choose: Choose) -> None:
    given_ones = numbers_of("i", [2, None, 0], first=2)
    refused, partitions, _ = choose(3, bytes_of([b"a", b"order-1", None]), given_ones, 7, 0)
    assert (refused, list(memoryview(partitions).cast("i"))) == (None, [2, partition_for(b"order-1", 7), 0])


@pytest.mark.parametrize("choose", CHOOSERS)
@pytest.mark.parametrize("wanted", [-1, 7, 2**31 - 1])
def test_a_row_that_requests_a_partition_that_is_not_there_is_reported(choose: Choose, wanted: int) -> None:
    assert choose(3, None, numbers_of("i", [2, wanted, 0]), 7, 0).refused == 1


@needs_c
@given(keys=st.lists(FIELDS, max_size=20), count=st.integers(1, 50), data=st.data())
def test_c_and_python_choose_the_same_partitions(keys: list[bytes | None], count: int, data: st.DataObject) -> None:
    request = st.lists(st.none() | st.integers(0, count - 1), min_size=len(keys), max_size=len(keys))
    given_ones = data.draw(st.none() | request.map(lambda numbers: numbers_of("i", numbers)))
    arguments = (len(keys), bytes_of(keys), given_ones, count, data.draw(st.integers(0, count - 1)))
    assert partition_rows_in_c(*arguments) == partition_rows_in_python(*arguments)


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_are_what_agents_take(codec: Codec) -> None:
    records = [NewRecord(b"value %d" % n, b"key", (("h", None),), n) for n in range(100)]
    (made,) = encode_columns(columns_of(records), _fixed("i", [0] * 100), count=1, now_ms=NOW_MS, batch_bytes=LIMIT)
    batch = finished(made, codec=codec, base_offset=0)
    header = check_batch(batch)
    assert validate_records(batch, header, limit_bytes=LIMIT).max_timestamp_ms == header.max_timestamp_ms == 99
    assert decode_batch(batch, limit_bytes=LIMIT) == decode_batch(
        encode_batch(records, codec=codec, now_ms=NOW_MS), limit_bytes=LIMIT
    )


def test_an_append_time_is_the_time_of_every_record() -> None:
    records = [NewRecord(b"v", None, (), 5), NewRecord(b"w", None, (), None)]
    (made,) = encode_columns(columns_of(records), _fixed("i", [0, 0]), count=1, now_ms=NOW_MS, batch_bytes=LIMIT)
    batch = finished(made, codec=Codec.NONE, base_offset=3, append_time_ms=NOW_MS + 1)
    assert read_header(batch).is_log_append_time
    assert [(r.offset, r.timestamp_ms) for r in decode_batch(batch, limit_bytes=LIMIT)] == [
        (3, NOW_MS + 1),
        (4, NOW_MS + 1),
    ]


def test_a_header_without_a_name_is_refused_with_its_row() -> None:
    columns = columns_of([NewRecord(b"v", None, (), 5), NewRecord(b"v", None, (("h", b""),), 5)])
    assert columns.headers is not None
    names = columns.headers.names._replace(validity=b"\x00")
    columns = columns._replace(headers=columns.headers._replace(names=names))
    with pytest.raises(InvalidRecord, match="row=1 why=a header has no name"):
        encode_columns(columns, _fixed("i", [0, 0]), count=1, now_ms=NOW_MS, batch_bytes=LIMIT)


@needs_c
def test_columns_that_are_too_short_are_refused_before_they_are_read() -> None:
    whole = bytes_of([b"a", b"b"])
    partitions = _fixed("i", [0, 0])
    for column in (whole._replace(offsets=whole.offsets[:8]), whole._replace(first=1), whole._replace(validity=b"")):
        with pytest.raises(ValueError, match="shorter"):
            encode_columns_in_c(RecordColumns(2, None, column), partitions, 1, NOW_MS, 100)
    with pytest.raises(ValueError, match="shorter"):
        encode_columns_in_c(RecordColumns(2, None, whole), partitions[:4], 1, NOW_MS, 100)
    with pytest.raises(ValueError, match="out of range"):
        encode_columns_in_c(RecordColumns(2, None, whole), _fixed("i", [0, 1]), 1, NOW_MS, 100)
    with pytest.raises(TypeError):
        encode_columns_in_c(RecordColumns(2, None, [1]), partitions, 1, NOW_MS, 100)  # type: ignore[arg-type]


@needs_c
def test_nothing_is_kept_and_nothing_is_lost() -> None:
    """Every way out of the C function lets go of what it took."""
    records = [NewRecord(b"v" * 100, b"k", (("h", b"x"),), 5)] * 50
    columns, partitions = columns_of(records), _fixed("i", [0] * 50)
    assert columns.value is not None
    before = sys.getrefcount(columns.value.data)
    for _ in range(200):
        encode_columns_in_c(columns, partitions, 1, NOW_MS, 300)
        with pytest.raises(ValueError, match="shorter"):
            encode_columns_in_c(columns._replace(timestamp_ms=NumberColumn(0, None, b"")), partitions, 1, NOW_MS, 300)
    gc.collect()
    after = sys.getrefcount(columns.value.data)  # pytest keeps what it sees in an assert
    assert after == before


def test_rows_spread_evenly_without_keys() -> None:
    _, partitions, _ = partition_rows(1000, None, None, count=8, start=3)
    chosen = list(memoryview(partitions).cast("i"))
    assert {chosen.count(number) for number in range(8)} == {125}
