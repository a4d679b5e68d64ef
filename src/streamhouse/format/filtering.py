"""Filtering: the records of a payload that stay, by their offsets, without an object per record.

Data path   none: segments -> batches -> **filter_records** -> batches that take their place
Owns        leaving records out, counting their times from a delete horizon; twice: here, and in `_compaction.c` where
            that could be built
Leaves      which offsets stay, the header and its horizon to `format.compaction`
"""

from typing import NamedTuple

from streamhouse.format.batch import BatchHeader, Buffer
from streamhouse.format.record_walk import Flaw, Place, locate_in_python
from streamhouse.format.records import malformed
from streamhouse.format.varint import append_varint

try:
    from streamhouse.format import _records

    IS_COMPILED = hasattr(_records, "filter")
except ImportError:  # built without a compiler
    IS_COMPILED = False


class Wanted(NamedTuple):
    """What stays: `offsets` is int64 numbers in the machine's order, ascending; records without a key never do.

    With `retime_by`, timestamp deltas grow by that, provided that a tombstone stays. Both are numbers of 64 bits, and
    so is the sum: whatever it loses above them was lost by `retime_by` before.
    """

    offsets: Buffer
    drop_tombstones: bool = False
    retime_by: int | None = None


class Filtered(NamedTuple):
    """What stays of a payload; `records` is None where none does, and where all do as they are."""

    flaw: Flaw
    record: int
    kept: int
    latest_delta: int
    is_retimed: bool
    records: Buffer | None


def wrapped(number: int) -> int:
    """The number's lowest 64 bits, as a signed one."""
    return (number + 2**63) % 2**64 - 2**63


def filter_records(payload: Buffer, header: BatchHeader, wanted: Wanted) -> Filtered:
    """What stays of a batch whose records were decompressed; raises `CorruptBatch` where they are none."""
    act = filter_in_c if IS_COMPILED else filter_in_python
    found = act(payload, header.record_count, header.base_offset, wanted)
    if found.flaw:
        raise malformed(found.flaw, found.record)
    return found


def retimed(payload: Buffer, header: BatchHeader, *, by_ms: int) -> bytes:
    """All records of a batch, which are few, with timestamp deltas that are larger by that."""
    flaw, places = locate_in_python(payload, header.record_count)
    if flaw:
        raise malformed(flaw, len(places))
    return _retimed(memoryview(payload), places, by_ms=by_ms)


def filter_in_c(payload: Buffer, count: int, base_offset: int, wanted: Wanted) -> Filtered:
    flaw, record, kept, latest, is_retimed, records = _records.filter(payload, count, base_offset, *wanted)
    return Filtered(Flaw(flaw), record, kept, latest, bool(is_retimed), records)


def filter_in_python(payload: Buffer, count: int, base_offset: int, wanted: Wanted) -> Filtered:
    """The same in plain Python: the fallback, and the oracle for the one in C."""
    flaw, places = locate_in_python(payload, count)
    if flaw:
        return Filtered(flaw, len(places), 0, 0, False, None)
    kept = _kept(places, base_offset, wanted)
    is_retimed = wanted.retime_by is not None and any(place[8] < 0 for place in kept)
    latest = max((place[4] for place in kept), default=0)
    if not kept or (len(kept) == count and not is_retimed):
        return Filtered(Flaw.NONE, count, len(kept), latest, is_retimed, None)
    view = memoryview(payload)
    if is_retimed:
        records: Buffer = _retimed(view, kept, by_ms=wanted.retime_by or 0)
    else:
        records = b"".join([view[place[0] : place[3]] for place in kept])
    return Filtered(Flaw.NONE, count, len(kept), latest, is_retimed, records)


def _kept(places: list[Place], base_offset: int, wanted: Wanted) -> list[Place]:
    ends = base_offset + max((place[5] for place in places), default=0)
    offsets = {each for each in memoryview(wanted.offsets).cast("B").cast("q") if base_offset <= each <= ends}
    return [
        place
        for place in places
        if place[7] >= 0 and base_offset + place[5] in offsets and not (wanted.drop_tombstones and place[8] < 0)
    ]


def _retimed(payload: memoryview, kept: list[Place], *, by_ms: int) -> bytes:
    """The records with other timestamp deltas, because they are counted from another base."""
    records = bytearray()
    for _, body, rest, end, timestamp_delta, *_ in kept:
        head = bytearray(payload[body : body + 1])
        append_varint(head, wrapped(timestamp_delta + by_ms))
        append_varint(records, len(head) + end - rest)
        records += head
        records += payload[rest:end]
    return bytes(records)
