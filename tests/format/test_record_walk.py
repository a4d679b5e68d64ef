"""The walk over records: each flaw has its name, and C and Python never disagree."""

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.format import record_scanner
from streamhouse.format.batch import HEADER_BYTES
from streamhouse.format.record_scanner import (
    FieldError,
    ScanResult,
    append_varint,
    record_positions_in_python,
    scan_in_c,
    scan_in_python,
)
from streamhouse.format.records import Record, build_batch

Walk = Callable[..., ScanResult]

needs_c = pytest.mark.skipif(not record_scanner.IS_COMPILED, reason="the C extension was not built here")
WALKS = [pytest.param(scan_in_python, id="python"), pytest.param(scan_in_c, id="c", marks=needs_c)]

FIELDS = st.one_of(st.none(), st.binary(max_size=80))
RECORDS = st.builds(
    Record,
    timestamp_ms=st.one_of(st.integers(0, 2**62), st.sampled_from([0, -1, 2**31, 2**32])),
    key=FIELDS,
    value=FIELDS,
    headers=st.lists(st.tuples(st.text(max_size=5), FIELDS), max_size=3).map(tuple),
)


def payload_of(records: Sequence[Record]) -> bytes:
    return bytes(build_batch(records)[HEADER_BYTES:])


def number(value: int) -> bytes:
    out = bytearray()
    append_varint(out, value)
    return bytes(out)


def record(*fields: bytes, length: int | None = None) -> bytes:
    body = b"\0" + b"".join(fields)
    return number(len(body) if length is None else length) + body


GOOD = record(number(0), number(0), number(-1), number(1), b"v", number(0))
SECOND = record(number(5), number(1), number(1), b"k", number(-1), number(1), number(1), b"h", number(-1))


@pytest.mark.parametrize("walk", WALKS)
def test_good_records_give_their_facts(walk: Walk) -> None:
    assert walk(GOOD + SECOND, 2, True) == ScanResult(FieldError.NONE, 2, 0, 5, 1)


FLAWED = [
    ("too few", GOOD, 2, FieldError.TOO_FEW, 1),
    ("none at all", b"", 1, FieldError.TOO_FEW, 0),
    ("far too few", GOOD, 2**31 - 1, FieldError.TOO_FEW, 1),
    ("left over", GOOD + SECOND, 1, FieldError.LEFT_OVER, 1),
    ("one byte left over", GOOD + b"\0", 1, FieldError.LEFT_OVER, 1),
    ("length cut off", GOOD + b"\x80", 2, FieldError.NUMBER, 1),
    ("length of six bytes", b"\x80\x80\x80\x80\x80\x00", 1, FieldError.NUMBER, 0),
    ("length of 33 bits", b"\xff\xff\xff\xff\x1f", 1, FieldError.NUMBER, 0),
    ("length negative", number(-1) + GOOD, 1, FieldError.LENGTH, 0),
    ("length zero", b"\0" + GOOD, 1, FieldError.LENGTH, 0),
    ("length beyond the payload", GOOD[:-1], 1, FieldError.LENGTH, 0),
    ("length huge", number(2**31 - 1) + GOOD, 1, FieldError.LENGTH, 0),
    ("timestamp of eleven bytes", record(b"\x80" * 10 + b"\0", GOOD), 1, FieldError.NUMBER, 0),
    ("timestamp of 65 bits", record(b"\xff" * 9 + b"\x02", GOOD), 1, FieldError.NUMBER, 0),
    ("timestamp beyond the record", record(b"\x80", length=2) + GOOD, 1, FieldError.NUMBER, 0),
    ("offset wrong", record(number(0), number(1), number(-1), number(-1), number(0)), 1, FieldError.OFFSET, 0),
    ("offset again", GOOD + GOOD, 2, FieldError.OFFSET, 1),
    ("key below null", record(number(0), number(0), number(-2), number(-1), number(0)), 1, FieldError.KEY, 0),
    ("key beyond the record", record(number(0), number(0), number(9), b"k", number(-1)) + GOOD, 1, FieldError.KEY, 0),
    ("value below null", record(number(0), number(0), number(-1), number(-2), number(0)), 1, FieldError.VALUE, 0),
    ("value beyond the record", record(number(0), number(0), number(-1), number(9)) + GOOD, 1, FieldError.VALUE, 0),
    ("no header count", record(number(0), number(0), number(-1), number(-1)), 1, FieldError.NUMBER, 0),
    (
        "headers below zero",
        record(number(0), number(0), number(-1), number(-1), number(-1)),
        1,
        FieldError.HEADER_COUNT,
        0,
    ),
    (
        "headers galore",
        record(number(0), number(0), number(-1), number(-1), number(2**31 - 1)),
        1,
        FieldError.HEADER_COUNT,
        0,
    ),
    (
        "header name null",
        record(number(0), number(0), *[number(-1)] * 2, number(1), number(-1)),
        1,
        FieldError.HEADER,
        0,
    ),
    (
        "header value short",
        record(number(0), number(0), *[number(-1)] * 2, *[number(1)] * 2, b"h\4"),
        1,
        FieldError.HEADER,
        0,
    ),
    (
        "bytes behind the headers",
        record(number(0), number(0), *[number(-1)] * 2, number(0), b"?"),
        1,
        FieldError.SIZE,
        0,
    ),
]


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize(
    ("payload", "count", "field_error", "at"), [case[1:] for case in FLAWED], ids=[c[0] for c in FLAWED]
)
def test_a_flaw_is_named_with_its_record(
    walk: Walk, payload: bytes, count: int, field_error: FieldError, at: int
) -> None:
    walked = walk(payload, count, True)
    assert (walked.field_error, walked.record) == (field_error, at)


@pytest.mark.parametrize("walk", WALKS)
def test_offsets_with_gaps_pass_where_they_may(walk: Walk) -> None:
    gap = record(number(0), number(7), number(-1), number(-1), number(0))
    assert walk(GOOD + gap, 2, False).field_error is FieldError.NONE
    assert walk(GOOD + gap, 2, True).field_error is FieldError.OFFSET


@needs_c
@given(st.lists(RECORDS, min_size=1, max_size=6), st.integers(-1, 8), st.booleans())
def test_c_and_python_agree_on_good_records(records: list[Record], count: int, consecutive: bool) -> None:
    payload = payload_of(records)
    assert scan_in_c(payload, len(records), True).field_error is FieldError.NONE
    for n in (len(records), count):
        assert scan_in_c(payload, n, consecutive) == scan_in_python(payload, n, consecutive)


@needs_c
def test_c_and_python_agree_on_mutated_records() -> None:
    chance = random.Random(20_240_131)
    seeds = [GOOD + SECOND, GOOD * 3, *(payload_of([Record(value=chance.randbytes(n))] * n) for n in range(1, 6))]
    seen: set[int] = set()
    for _ in range(20_000):
        payload = _mutated(bytearray(chance.choice(seeds)), chance)
        count, consecutive = chance.randint(0, 6), chance.random() < 0.8
        walked = scan_in_c(payload, count, consecutive)
        assert walked == scan_in_python(payload, count, consecutive), payload.hex()
        seen.add(walked.field_error)
    # A walk adds nothing up, so nothing leaves its range.
    assert seen == set(FieldError) - {FieldError.RANGE, FieldError.HEADERS}


def _mutated(payload: bytearray, chance: random.Random) -> bytes:
    for _ in range(chance.randint(0, 3)):
        payload[chance.randrange(len(payload))] = chance.choice([0, 1, 2, 3, 127, 128, 255, chance.randrange(256)])
    if chance.random() < 0.2:
        del payload[chance.randrange(len(payload)) :]
    return bytes(payload)


# --- where records stand


@given(st.lists(RECORDS, min_size=1, max_size=5))
def test_a_record_is_found_again_by_its_places(records: list[Record]) -> None:
    payload = payload_of(records)
    field_error, places = record_positions_in_python(payload, len(records))
    assert not field_error
    for index, (place, record_) in enumerate(zip(places, records, strict=True)):
        start, body, rest, end, timestamp_delta, offset_delta, key, key_length, value_length = place
        assert (payload[start:body], payload[body]) == (number(end - body), 0)
        assert payload[body + 1 : rest] == number(timestamp_delta)
        assert timestamp_delta == record_.timestamp_ms - records[0].timestamp_ms
        assert offset_delta == index
        assert (payload[key : key + key_length] if key_length >= 0 else None) == record_.key
        assert (value_length >= 0) == (record_.value is not None)
    assert [place[0] for place in places] == [0, *(place[3] for place in places[:-1])]


# --- headers


@pytest.mark.parametrize("walk", WALKS)
def test_a_record_may_have_so_many_headers_and_no_more(walk: Walk) -> None:
    many = record(number(0), number(0), number(-1), number(-1), number(300), b"\0\0" * 300)
    assert walk(many, 1, True, 300).field_error is FieldError.NONE
    assert walk(many, 1, True, 299) == ScanResult(FieldError.HEADERS, 0, 0, 0, 0)
    assert walk(many, 1, True, 0).field_error is FieldError.NONE
    lying = record(number(0), number(0), number(-1), number(-1), number(300), b"\0\0" * 299)
    assert walk(lying, 1, True, 0).field_error is FieldError.NUMBER
