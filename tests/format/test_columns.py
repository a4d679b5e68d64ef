"""Records of many batches become Arrow's columns: the same in C and in Python, and the same as reading them singly."""

import gc
import random
import struct
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.errors import CorruptBatch, InvalidRecord
from streamhouse.format import columnar_decoder as columns_module
from streamhouse.format.batch import HEADER_BYTES, assign_offset, stamp_append_time, update_crc
from streamhouse.format.columnar_decoder import (
    ALL_COLUMNS,
    Binary,
    Column,
    Columns,
    ColumnsRead,
    Payload,
    Selection,
    columns_in_c,
    columns_in_python,
    read_columns,
    read_columns_in_parts,
)
from streamhouse.format.compression import Codec
from streamhouse.format.record_codec import encode_in_python
from streamhouse.format.record_scanner import FieldError
from streamhouse.format.records import Record, build_batch, decode_batch, encode_batch
from streamhouse.model.record import Header, NewRecord, StoredRecord

Read = Callable[[Sequence[Payload], Selection], ColumnsRead]

needs_c = pytest.mark.skipif(not columns_module.IS_COMPILED, reason="the C extension was not built here")
READERS = [pytest.param(columns_in_python, id="python"), pytest.param(columns_in_c, id="c", marks=needs_c)]

LIMIT = 1 << 20
NOW_MS = 1_750_000_000_000
MAX_LONG = 2**63 - 1
FIELDS = st.one_of(st.none(), st.binary(max_size=40))
RECORDS = st.lists(
    st.builds(
        NewRecord,
        value=FIELDS,
        key=FIELDS,
        headers=st.lists(st.tuples(st.text(max_size=5), FIELDS), max_size=3).map(tuple),
        timestamp_ms=st.one_of(st.none(), st.integers(-5, 50)),
    ),
    min_size=1,
    max_size=10,
)


def log_of(batches: Sequence[Sequence[NewRecord]], codec: Codec = Codec.NONE) -> list[bytearray]:
    """Batches one behind the other, from offset 0."""
    log: list[bytearray] = []
    end = 0
    for records in batches:
        batch = encode_batch(records, codec=codec, now_ms=NOW_MS)
        assign_offset(batch, base_offset=end, leader_epoch=1)
        end += len(records)
        log.append(batch)
    return log


def payload_of(records: Sequence[NewRecord], base_offset: int = 0) -> Payload:
    encoded = encode_in_python(records, NOW_MS, 0)
    return bytes(encoded.batch), len(records), base_offset, encoded.base_timestamp_ms, None


def numbers(kind: str, buffer: bytearray) -> list[int]:
    return list(memoryview(buffer).cast("B").cast(kind))  # type: ignore[call-overload]


def fields(column: Binary) -> list[bytes | None]:
    ends = numbers("i", column.offsets)
    assert len(ends) == column.rows + 1
    assert ends[-1] == len(column.data)
    valid = [column.validity is None or column.validity[n >> 3] >> (n & 7) & 1 for n in range(column.rows)]
    assert valid.count(0) == column.nulls
    return [bytes(column.data[ends[n] : ends[n + 1]]) if valid[n] else None for n in range(column.rows)]


def headers(columns: Columns) -> list[tuple[Header, ...]]:
    assert columns.headers
    names, values = fields(columns.headers.names), fields(columns.headers.values)
    pairs = [((name or b"").decode(), value) for name, value in zip(names, values, strict=True)]
    ends = numbers("i", columns.headers.offsets)
    assert ends[-1] == len(pairs)
    return [tuple(pairs[start:end]) for start, end in pairwise(ends)]


def rows(columns: Columns) -> list[StoredRecord]:
    assert columns.offset is not None
    assert columns.timestamp_ms is not None
    assert columns.key
    assert columns.value
    parts = numbers("q", columns.offset), numbers("q", columns.timestamp_ms), fields(columns.key), fields(columns.value)
    assert columns.rows == len(parts[0])
    return [StoredRecord(*row) for row in zip(*parts, headers(columns), strict=True)]


# --- what is read


@given(st.lists(RECORDS, max_size=4), st.sampled_from(list(Codec)))
def test_columns_say_what_the_records_say(batches: list[list[NewRecord]], codec: Codec) -> None:
    log = log_of(batches, codec)
    expected = [record for batch in log for record in decode_batch(batch, limit_bytes=LIMIT)]
    assert rows(read_columns(log, Selection(), limit_bytes=LIMIT)) == expected
    assert rows(read_columns([bytearray().join(log)], Selection(), limit_bytes=LIMIT)) == expected


@given(
    st.lists(RECORDS, max_size=4),
    st.one_of(st.none(), st.integers(-1, 40)),
    st.one_of(st.none(), st.integers(-1, 40)),
    st.one_of(st.none(), st.integers(-6, 51)),
    st.one_of(st.none(), st.integers(-6, 51)),
)
def test_only_records_inside_the_bounds_are_taken(
    batches: list[list[NewRecord]],
    from_offset: int | None,
    end_offset: int | None,
    from_ms: int | None,
    until_ms: int | None,
) -> None:
    log = log_of(batches)
    selection = Selection(ALL_COLUMNS, from_offset, end_offset, from_ms, until_ms)
    expected = [
        record
        for batch in log
        for record in decode_batch(batch, limit_bytes=LIMIT)
        if (from_offset is None or record.offset >= from_offset)
        and (end_offset is None or record.offset < end_offset)
        and (from_ms is None or record.timestamp_ms >= from_ms)
        and (until_ms is None or record.timestamp_ms < until_ms)
    ]
    assert rows(read_columns(log, selection, limit_bytes=LIMIT)) == expected


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("column", list(Column))
def test_only_the_columns_requested_are_made(read: Read, column: Column) -> None:
    columns = read([payload_of([NewRecord(b"v", b"k", (("h", b"1"),))])], Selection(column)).columns
    assert columns
    everything = dict(zip(Column, columns[1:], strict=True))
    assert [name for name, made in everything.items() if made is not None] == [column]
    assert columns.rows == 1


@pytest.mark.parametrize("read", READERS)
def test_no_bound_is_no_bound(read: Read) -> None:
    last = payload_of([NewRecord(b"v", timestamp_ms=MAX_LONG)], base_offset=MAX_LONG)
    columns = read([last], Selection()).columns
    assert columns
    assert rows(columns) == [StoredRecord(MAX_LONG, MAX_LONG, None, b"v", ())]


def test_append_time_has_its_own_type() -> None:
    first, second = log_of([[NewRecord(b"a", timestamp_ms=1)], [NewRecord(b"b", timestamp_ms=2)] * 2])
    stamp_append_time(second, 5000)
    columns = read_columns([first, second], Selection(), limit_bytes=LIMIT)
    assert [record.timestamp_ms for record in rows(columns)] == [1, 5000, 5000]
    assert columns.timestamp_type is not None
    assert numbers("i", columns.timestamp_type) == [0, 1, 1]


def test_control_batches_and_empty_ones_are_left_out() -> None:
    control = build_batch([Record(key=b"\0\0\0\1")], is_control=True)
    emptied = build_batch([Record()], codec=Codec.ZSTD)
    struct.pack_into(">i", emptied, 57, 0)
    (data,) = log_of([[NewRecord(b"data")]])
    columns = read_columns([control + data + emptied], Selection(), limit_bytes=LIMIT)
    assert [record.value for record in rows(columns)] == [b"data"]


def test_nothing_is_nothing() -> None:
    assert rows(read_columns([], Selection(), limit_bytes=LIMIT)) == []
    assert rows(read_columns([b""], Selection(), limit_bytes=LIMIT)) == []


def test_a_batch_outside_the_bounds_is_not_even_opened() -> None:
    closed, opened = log_of([[NewRecord(b"a", timestamp_ms=1)], [NewRecord(b"b", timestamp_ms=9)]])
    closed[HEADER_BYTES:] = b"\xff" * (len(closed) - HEADER_BYTES)
    for selection in (Selection(from_offset=1), Selection(from_ms=2)):
        assert [r.value for r in rows(read_columns([closed, opened], selection, limit_bytes=LIMIT))] == [b"b"]
    with pytest.raises(CorruptBatch):
        read_columns([closed, opened], Selection(), limit_bytes=LIMIT)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_beyond_the_limit_is_refused(codec: Codec) -> None:
    with pytest.raises(InvalidRecord, match="too large"):
        read_columns(log_of([[NewRecord(bytes(5000))]], codec), Selection(), limit_bytes=5000)


def test_a_lying_count_and_cut_off_batches_are_damage() -> None:
    (batch,) = log_of([[NewRecord(b"v")]])
    with pytest.raises(CorruptBatch):
        read_columns([batch + batch[:-1]], Selection(), limit_bytes=LIMIT)
    for count in (-1, 2, 2**31 - 1):
        struct.pack_into(">i", batch, 57, count)
        update_crc(batch)
        with pytest.raises(CorruptBatch):
            read_columns([batch], Selection(), limit_bytes=LIMIT)


@needs_c
def test_a_column_beyond_its_positions_is_refused() -> None:
    payload = payload_of([NewRecord(bytes(64 << 20))])
    for columns in (Selection(Column.VALUE), Selection()):
        with pytest.raises(OverflowError):
            columns_in_c([payload] * 33, columns)
    assert columns_in_c([payload] * 33, Selection(Column.OFFSET)).columns


# --- header names


@pytest.mark.parametrize("read", READERS)
def test_header_names_become_text(read: Read) -> None:
    chance = random.Random(20_240_301)
    alphabet = [*range(0x20, 0x22), 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEF]
    alphabet += [0xF0, 0xF1, 0xF4, 0xF5, 0xFF]
    for _ in range(3_000):
        name = bytes(chance.choices(alphabet, k=9))
        payload = bytes(payload_of([NewRecord(None, None, (("123456789", b"x"),))])[0]).replace(b"123456789", name)
        columns = read([(payload, 1, 0, 0, None)], Selection(Column.HEADERS)).columns
        assert columns
        assert columns.headers
        assert bytes(columns.headers.names.data) == name.decode("utf-8", "replace").encode(), name.hex()


# --- C and Python


@needs_c
def test_c_and_python_agree_on_mutated_payloads() -> None:
    chance = random.Random(20_240_302)
    seeds = [
        [NewRecord(b"value", b"key", (("h", b"v"), ("\u20ac", None)), 5), NewRecord(None, b"", (), 7)],
        [NewRecord(bytes(n), None, (), n) for n in range(9)],
    ]
    seen: set[int] = set()
    for _ in range(15_000):
        payloads = [_mutated(chance.choice(seeds), chance) for _ in range(chance.randint(0, 3))]
        selection = Selection(
            Column(chance.choice([63, 63, chance.randrange(64)])),
            chance.choice([None, 1]),
            chance.choice([None, 5]),
            chance.choice([None, 2]),
            chance.choice([None, 6]),
        )
        read = columns_in_c(payloads, selection)
        assert read == columns_in_python(payloads, selection), (payloads, selection)
        seen.add(read.field_error)
    assert seen == set(FieldError) - {FieldError.OFFSET, FieldError.HEADERS}


def _mutated(records: Sequence[NewRecord], chance: random.Random) -> Payload:
    encoded, count, *_ = payload_of(records)
    payload = bytearray(encoded)
    for _ in range(chance.choice([0, 0, 1, 2])):
        payload[chance.randrange(len(payload))] = chance.choice([0, 1, 2, 3, 127, 128, 255, chance.randrange(256)])
    if chance.random() < 0.1:
        del payload[chance.randrange(len(payload)) :]
    if chance.random() < 0.1:
        count = chance.choice([-1, 0, count + 1, 2**31 - 1])
    base = chance.choice([0, 0, 0, MAX_LONG - 1])
    return bytes(payload), count, base, chance.choice([0, 0, MAX_LONG - 4]), chance.choice([None, None, 3])


@needs_c
@pytest.mark.parametrize("strange", [None, 7, (), b"", (b"", 1, 2, 3), ("text", 0, 0, 0, None), (b"", "", 0, 0, None)])
def test_what_is_no_payload_is_a_type_error(strange: Payload) -> None:
    with pytest.raises(TypeError):
        columns_in_c([payload_of([NewRecord(b"v")]), strange], Selection())


@needs_c
def test_nothing_is_kept_once_columns_are_gone() -> None:
    payload = bytearray(payload_of([NewRecord(b"value", None, (("h", None),))] * 40)[0])
    good: Payload = (payload, 40, 0, 0, None)
    bad: Payload = (payload, 41, 0, 0, 5)
    gc.collect()
    before = sys.getrefcount(payload), sys.getrefcount(None), sys.getallocatedblocks()
    for _ in range(200):
        columns_in_c([good, good], Selection())
        columns_in_c([good, bad], Selection())
        with pytest.raises(TypeError):
            columns_in_c([good, (payload, 1, 0, 0, "soon")], Selection())  # type: ignore[list-item]
    gc.collect()
    assert sys.getrefcount(payload) == before[0]
    assert abs(sys.getrefcount(None) - before[1]) < 50
    assert sys.getallocatedblocks() - before[2] < 100
    payload.append(0)  # would raise if a view of it were still held


# --- Arrow itself, where it is installed


def test_arrow_takes_the_buffers_as_they_are() -> None:
    arrow = pytest.importorskip("pyarrow")
    records = [NewRecord(b"v", None, (("h", b"1"), ("n", None))), NewRecord(None, b"k"), NewRecord(b"", b"\xff" * 9)]
    columns = read_columns(log_of([records]), Selection(), limit_bytes=LIMIT)
    assert columns.headers

    def binary(column: Binary | None, kind: object) -> object:
        assert column
        buffers = [None if part is None else arrow.py_buffer(part) for part in column[2:]]
        return arrow.Array.from_buffers(kind, column.rows, buffers, column.nulls)

    pairs = arrow.StructArray.from_arrays(
        [binary(columns.headers.names, arrow.string()), binary(columns.headers.values, arrow.binary())],
        names=["key", "value"],
    )
    offsets = arrow.Array.from_buffers(
        arrow.int32(), columns.rows + 1, [None, arrow.py_buffer(columns.headers.offsets)]
    )
    batch = arrow.RecordBatch.from_arrays(
        [
            arrow.Array.from_buffers(arrow.int64(), columns.rows, [None, arrow.py_buffer(columns.offset)]),
            binary(columns.key, arrow.binary()),
            binary(columns.value, arrow.binary()),
            arrow.ListArray.from_arrays(offsets, pairs),
        ],
        names=["offset", "key", "value", "headers"],
    )
    batch.validate(full=True)
    assert batch.to_pylist() == [
        {
            "offset": offset,
            "key": record.key,
            "value": record.value,
            "headers": [{"key": name, "value": value} for name, value in record.headers],
        }
        for offset, record in enumerate(records)
    ]


def test_columns_come_in_parts_of_bounded_size() -> None:
    block = b""
    for number in range(4):
        batch = build_batch([Record(value=bytes(1000))] * 10, codec=Codec.ZSTD, base_offset=10 * number)
        block += bytes(batch)
    whole = read_columns([block], Selection(), limit_bytes=LIMIT)
    parts = list(read_columns_in_parts([block], Selection(), limit_bytes=LIMIT, part_bytes=21_000))
    assert [part.rows for part in parts] == [20, 20]
    assert b"".join(part.offset or b"" for part in parts) == bytes(whole.offset or b"")
    assert [part.rows for part in read_columns_in_parts([block], Selection(), limit_bytes=LIMIT, part_bytes=1)] == [
        10
    ] * 4
    none = Selection(from_offset=100)
    assert list(read_columns_in_parts([block], none, limit_bytes=LIMIT)) == []
