"""Record walk: whether a payload is exactly so many well-formed records.

Data path   wire -> check_batch -> `format.records.validate_records` -> **walk** -> broker
Owns        the rules of a record's structure, twice: here, and as fast in `_records.c` where that could be built
Leaves      decompression and error texts to `format.records`

Records have an attribute byte, a timestamp delta, an offset delta, key, value and headers, each with its length. A walk
ends at the first flaw and names the record it found it in.
"""

from enum import IntEnum
from typing import NamedTuple

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


class Walked(NamedTuple):
    """How a walk ended. The timestamps and null keys are those of all records only if there was no flaw."""

    flaw: Flaw
    record: int
    min_timestamp_delta: int
    max_timestamp_delta: int
    null_keys: int


class _Fields(NamedTuple):
    end: int
    timestamp_delta: int
    has_key: bool


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
    position, end = 0, len(payload)
    deltas: list[int] = []
    null_keys = 0
    for index in range(count):
        if position == end:
            return _flawed(Flaw.TOO_FEW, index)
        try:
            record = _walk_record(payload, position, end, index if consecutive else None)
        except BadVarint:
            return _flawed(Flaw.NUMBER, index)
        except _Found as found:
            return _flawed(found.flaw, index)
        position = record.end
        deltas.append(record.timestamp_delta)
        null_keys += not record.has_key
    if position != end:
        return _flawed(Flaw.LEFT_OVER, max(count, 0))
    return Walked(Flaw.NONE, len(deltas), min(deltas, default=0), max(deltas, default=0), null_keys)


def _flawed(flaw: Flaw, index: int) -> Walked:
    return Walked(flaw, index, 0, 0, 0)


def _walk_record(payload: Buffer, position: int, payload_end: int, expected: int | None) -> _Fields:
    length, position = read_varint(payload, position, payload_end)
    if not 1 <= length <= payload_end - position:
        raise _Found(Flaw.LENGTH)
    end = position + length
    timestamp_delta, position = read_varint(payload, position + 1, end, VARLONG)
    offset_delta, position = read_varint(payload, position, end)
    if expected is not None and offset_delta != expected:
        raise _Found(Flaw.OFFSET)
    key_length, position = _skip_field(payload, position, end, least=-1, flaw=Flaw.KEY)
    _, position = _skip_field(payload, position, end, least=-1, flaw=Flaw.VALUE)
    if _skip_headers(payload, position, end) != end:
        raise _Found(Flaw.SIZE)
    return _Fields(end, timestamp_delta, key_length >= 0)


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
