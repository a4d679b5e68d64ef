"""Transactions in a partition's bytes: control batches (markers), and the batches that read_committed readers see.

Owns        the record of a marker: key (version, kind), value (version, the transaction's number); skipping batches of
            aborted transactions and control batches without a copy
Leaves      the batch header to `format.batch`, what a marker changes to `broker.partition.producer_state`, which
            transactions were aborted and where the last stable offset is to the caller
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from struct import Struct
from typing import Final, NamedTuple

from streamhouse.errors import CorruptBatch
from streamhouse.format.batch import (
    HEADER_BYTES,
    NO_SEQUENCE,
    BatchHeader,
    Buffer,
    empty_batch,
    pack_batch,
    read_header,
)
from streamhouse.format.records import read_records
from streamhouse.model.transaction import AbortedTransaction, Marker, ProducerIdentity

MARKER_RECORD_BYTES: Final = 64
"""Limit of a marker's single record, with any header that compaction has written."""

_ATTRIBUTES: Final = 0x30  # transactional control batch
_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_ABORT: Final = 0
_COMMIT: Final = 1

# Length 16; attributes, timestamp and offset deltas 0; a key of 4 bytes. Then a value of 6, and no headers.
_BEFORE_KEY: Final = bytes((16 << 1, 0, 0, 0, 4 << 1))
_BEFORE_VALUE: Final = bytes((6 << 1,))
_AFTER: Final = bytes((0,))


def marker_batch(marker: Marker, *, now_ms: int) -> bytearray:
    """The control batch that ends the transaction; it has no offset yet."""
    kind = _COMMIT if marker.is_commit else _ABORT
    record = _BEFORE_KEY + _KEY.pack(0, kind) + _BEFORE_VALUE + _VALUE.pack(0, marker.number) + _AFTER
    header = BatchHeader(
        base_offset=0,
        size_bytes=0,
        leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=_ATTRIBUTES,
        last_offset_delta=0,
        base_timestamp_ms=now_ms,
        max_timestamp_ms=now_ms,
        producer_id=marker.producer.producer_id,
        producer_epoch=marker.producer.epoch,
        base_sequence=NO_SEQUENCE,
        record_count=1,
    )
    return pack_batch(header, record)


def read_marker(batch: Buffer) -> Marker:
    """Parse a marker; raises `CorruptBatch` for other control batches."""
    header = read_header(batch)
    if header.codec:  # markers are never compressed, and replaying a log doesn't decompress
        raise CorruptBatch(f"a marker is compressed; codec={header.codec}")
    records = read_records(batch, limit_bytes=MARKER_RECORD_BYTES) if header.is_control else []
    if len(records) != 1:
        raise CorruptBatch(f"not a marker; control={header.is_control} records={len(records)}")
    key, value = records[0].key or b"", records[0].value or b""
    if len(key) < _KEY.size or len(value) < _VALUE.size:
        raise CorruptBatch(f"a marker is cut off; key_bytes={len(key)} value_bytes={len(value)}")
    _, kind = _KEY.unpack_from(key)
    _, number = _VALUE.unpack_from(value)
    if kind not in (_ABORT, _COMMIT):
        raise CorruptBatch(f"unknown kind of control batch; kind={kind}")
    producer = ProducerIdentity(header.producer_id, header.producer_epoch)
    return Marker(producer=producer, number=number, is_commit=kind == _COMMIT)


_GLANCE: Final = Struct(">qii5xhi16xq")  # base offset, length, epoch, attributes, last delta, producer id
_PREFIX_BYTES: Final = 12
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20


class AbortedTransactions:
    """The aborted transactions of one partition, indexed by producer and offset."""

    __slots__ = ("_by_producer", "_first_offsets", "_lasts", "_transactions")

    def __init__(self, transactions: Iterable[AbortedTransaction] = ()) -> None:
        self._transactions = tuple(sorted(set(transactions), key=lambda each: (each.last_offset, each.first_offset)))
        self._lasts = [each.last_offset for each in self._transactions]
        # For each transaction the lowest first offset of it and all later ones.
        self._first_offsets = list(accumulate((each.first_offset for each in reversed(self._transactions)), min))[::-1]
        by_producer: dict[int, list[AbortedTransaction]] = {}
        for each in self._transactions:
            by_producer.setdefault(each.producer_id, []).append(each)
        self._by_producer = {
            producer_id: _ranges(sorted(of_producer, key=lambda each: each.first_offset))
            for producer_id, of_producer in by_producer.items()
        }

    def __repr__(self) -> str:
        return f"<AbortedTransactions transactions={len(self._transactions)} producers={len(self._by_producer)}>"

    def __bool__(self) -> bool:
        return bool(self._transactions)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return iter(self._transactions)

    def is_aborted(self, producer_id: int, offset: int) -> bool:
        """Whether a transactional batch of this producer at this offset was aborted."""
        transactions = self._by_producer.get(producer_id)
        if transactions is None:
            return False
        firsts, lasts = transactions
        at = bisect_right(firsts, offset)
        return at > 0 and offset <= lasts[at - 1]

    def within(self, start: int, end: int) -> tuple[AbortedTransaction, ...]:
        """The transactions that may have batches with offsets in [start, end)."""
        overlapping: list[AbortedTransaction] = []
        for at in range(bisect_left(self._lasts, start), len(self._lasts)):
            if self._first_offsets[at] >= end:
                break
            if self._transactions[at].first_offset < end:
                overlapping.append(self._transactions[at])
        return tuple(overlapping)


def _ranges(transactions: Sequence[AbortedTransaction]) -> tuple[list[int], list[int]]:
    """The first offset of each transaction, and the largest last offset of it and all before."""
    return [each.first_offset for each in transactions], list(
        accumulate((each.last_offset for each in transactions), max)
    )


NONE_ABORTED: Final = AbortedTransactions()


def shifted(transactions: Iterable[AbortedTransaction], by: int) -> tuple[AbortedTransaction, ...]:
    """The transactions with shifted offsets."""
    return tuple(each._replace(first_offset=each[1] + by, last_offset=each[2] + by) for each in transactions)


def drop_aborted(pieces: Sequence[Buffer], aborted: Iterable[AbortedTransaction]) -> list[Buffer]:
    """Remove control batches and aborted batches from consecutive batches; returns the remaining ranges."""
    index = aborted if isinstance(aborted, AbortedTransactions) else AbortedTransactions(aborted)
    remaining: list[Buffer] = []
    for piece in pieces:
        remaining += [batches.data for batches in _offset_ranges(piece, index) if batches.is_retained]
    return remaining


def readable(pieces: Sequence[Buffer], aborted: Iterable[AbortedTransaction]) -> list[Buffer]:
    """Like `drop_aborted`, for readers that continue after the last batch: if the last ones are removed, an empty batch
    covers their offsets."""
    index = aborted if isinstance(aborted, AbortedTransactions) else AbortedTransactions(aborted)
    remaining: list[Buffer] = []
    last: _OffsetRange | None = None
    for piece in pieces:
        for last in _offset_ranges(piece, index):
            if last.is_retained:
                remaining.append(last.data)
    if last is not None and not last.is_retained:
        remaining.append(empty_batch(last.base, last.end, leader_epoch=last.leader_epoch))
    return remaining


class _OffsetRange(NamedTuple):
    """Adjacent batches that are all retained, or all removed: offsets [base, end)."""

    data: Buffer
    is_retained: bool
    base: int
    end: int
    leader_epoch: int


def _offset_ranges(piece: Buffer, index: AbortedTransactions) -> Iterator[_OffsetRange]:
    """Split a buffer of batches into retained and removed ranges; the buffer itself if all of it is retained."""
    size, position, begin = len(piece), 0, 0
    is_retained, base, end, epoch = True, 0, 0, -1
    while position < size:
        if size - position < HEADER_BYTES:
            raise CorruptBatch(f"batches end inside a header; position={position} size={size}")
        first, length, leader_epoch, attributes, last_delta, producer_id = _GLANCE.unpack_from(piece, position)
        batch_bytes = length + _PREFIX_BYTES
        if not HEADER_BYTES <= batch_bytes <= size - position:
            raise CorruptBatch(f"batches end inside a batch; position={position} declared={batch_bytes} size={size}")
        is_removed = attributes & _CONTROL or (attributes & _TRANSACTIONAL and index.is_aborted(producer_id, first))
        if position == begin or is_retained == bool(is_removed):
            if position > begin:
                yield _OffsetRange(memoryview(piece)[begin:position], is_retained, base, end, epoch)
            begin, is_retained, base, epoch = position, not is_removed, first, leader_epoch
        end = first + last_delta + 1
        position += batch_bytes
    if size:
        yield _OffsetRange(piece if begin == 0 else memoryview(piece)[begin:], is_retained, base, end, epoch)
