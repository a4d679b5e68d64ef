"""Record walk: whether a payload is exactly so many well-formed records.

Data path   wire -> check_batch -> `format.records.validate_records` -> **walk** -> broker; **locate** for compaction
Owns        the rules of a record's structure, twice: here, and as fast in `_records.c` where that could be built
Leaves      decompression and error texts to `format.records`

Records have an attribute byte, a timestamp delta, an offset delta, key, value and headers, each with its length. A walk
ends at the first flaw and names the record it found it in.
"""

from enum import IntEnum
from typing import NamedTuple, TypeAlias

from streamhouse.format.batch import Buffer
from streamhouse.format.varint import VARLONG, BadVarint, read_varint

try:
    from streamhouse.format import _records
except ImportError:  # built without a compiler
    IS_COMPILED = False
else:
    IS_COMPILED = True


class Flaw(IntEnum):
    """What is wrong; the numbers are those of `enum flaw` in `_records.c`."""

    NONE = 0
    TOO_FEW = 1
    LEFT_OVER = 2
    NUMBER = 3
    LENGTH = 4
    OFFSET = 5
    KEY = 6
    VALUE = 7
    HEADER_COUNT = 8
    HEADER = 9
    SIZE = 10
    RANGE = 11


class Walked(NamedTuple):
    """How a walk ended. The timestamps and null keys are those of all records only if there was no flaw."""

    flaw: Flaw
    record: int
    min_timestamp_delta: int
    max_timestamp_delta: int
    null_keys: int


Place: TypeAlias = tuple[int, int, int, int, int, int, int, int, int]
"""Where a record's parts stand in its payload: start (of its length), body (its attributes), rest (behind the timestamp
delta), end; timestamp delta, offset delta; key, key length, value length (-1 for null). A plain tuple: one is made per
record."""


class _Found(Exception):
    """A flaw on its way from a field to the walk; never leaves this module."""

    def __init__(self, flaw: Flaw) -> None:
        self.flaw = flaw


def walk(payload: Buffer, count: int, *, consecutive: bool = True) -> Walked:
    """Walk `count` records that fill the payload; `consecutive` ones have the offset deltas 0, 1, 2 and so on."""
    return walk_in_c(payload, count, consecutive) if IS_COMPILED else walk_in_python(payload, count, consecutive)


def walk_in_c(payload: Buffer, count: int, consecutive: bool) -> Walked:
    flaw, record, *facts = _records.walk(payload, count, consecutive)
    return _flawed(Flaw(flaw), record) if flaw else Walked(Flaw.NONE, record, *facts)


def walk_in_python(payload: Buffer, count: int, consecutive: bool) -> Walked:
    """The same in plain Python: the fallback, and the oracle for the one in C."""
    flaw, places = _locate(payload, count, consecutive)
    if flaw:
        return _flawed(flaw, len(places))
    deltas = [place[4] for place in places]
    null_keys = sum(place[7] < 0 for place in places)
    return Walked(Flaw.NONE, len(deltas), min(deltas, default=0), max(deltas, default=0), null_keys)


def locate(payload: Buffer, count: int) -> tuple[Flaw, list[Place]]:
    """Where each of `count` records that fill the payload stands, up to the first flaw; offsets may have gaps."""
    return locate_in_c(payload, count) if IS_COMPILED else locate_in_python(payload, count)


def locate_in_c(payload: Buffer, count: int) -> tuple[Flaw, list[Place]]:
    flaw, places = _records.locate(payload, count)
    return Flaw(flaw), places


def locate_in_python(payload: Buffer, count: int) -> tuple[Flaw, list[Place]]:
    return _locate(payload, count, False)


def _locate(payload: Buffer, count: int, consecutive: bool) -> tuple[Flaw, list[Place]]:
    position, end = 0, len(payload)
    places: list[Place] = []
    for index in range(count):
        if position == end:
            return Flaw.TOO_FEW, places
        try:
            place = _walk_record(payload, position, end, index if consecutive else None)
        except BadVarint:
            return Flaw.NUMBER, places
        except _Found as found:
            return found.flaw, places
        places.append(place)
        position = place[3]
    return (Flaw.NONE if position == end else Flaw.LEFT_OVER), places


def _flawed(flaw: Flaw, index: int) -> Walked:
    return Walked(flaw, index, 0, 0, 0)


def _walk_record(payload: Buffer, start: int, payload_end: int, expected: int | None) -> Place:
    length, body = read_varint(payload, start, payload_end)
    if not 1 <= length <= payload_end - body:
        raise _Found(Flaw.LENGTH)
    end = body + length
    timestamp_delta, rest = read_varint(payload, body + 1, end, VARLONG)
    offset_delta, position = read_varint(payload, rest, end)
    if expected is not None and offset_delta != expected:
        raise _Found(Flaw.OFFSET)
    key_length, position = _skip_field(payload, position, end, least=-1, flaw=Flaw.KEY)
    key = position - max(key_length, 0)
    value_length, position = _skip_field(payload, position, end, least=-1, flaw=Flaw.VALUE)
    if _skip_headers(payload, position, end) != end:
        raise _Found(Flaw.SIZE)
    return start, body, rest, end, timestamp_delta, offset_delta, key, key_length, value_length


def _skip_headers(payload: Buffer, position: int, end: int) -> int:
    count, position = read_varint(payload, position, end)
    if not 0 <= count <= end - position:
        raise _Found(Flaw.HEADER_COUNT)
    for _ in range(count):
        _, position = _skip_field(payload, position, end, least=0, flaw=Flaw.HEADER)
        _, position = _skip_field(payload, position, end, least=-1, flaw=Flaw.HEADER)
    return position


def _skip_field(payload: Buffer, position: int, end: int, *, least: int, flaw: Flaw) -> tuple[int, int]:
    length, position = read_varint(payload, position, end)
    if not least <= length <= end - position:
        raise _Found(flaw)
    return length, position + max(length, 0)
