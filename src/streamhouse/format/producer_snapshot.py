"""Producer snapshot: the state of a partition's idempotent producers at the end of a run.

Data path   broker.producers -> **encode_producers** -> run index -> **decode_producers** -> the next leader
Owns        the snapshot's bytes
Leaves      the meaning of the state, and expiry, to `partition.producer_state`

Offsets and sequences are final, so that a duplicate gets its original offset also after a failover.

Version 2 has transactions. It is only written if there are any, so that earlier releases can read the others.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from streamhouse.errors import CorruptObject
from streamhouse.format.batch import Buffer

# Kafka's window: clients have at most five batches in flight, so older ones are never repeated.
MAX_REMEMBERED_BATCHES: Final = 5

_PLAIN: Final = 1
_TRANSACTIONAL: Final = 2
_HEAD: Final = struct.Struct(">HHI")
_ENTRY: Final = struct.Struct(">qqhH")
_TRANSACTIONS: Final = struct.Struct(">qiI")
_SPAN: Final = struct.Struct(">iiqqq")
_CRC: Final = struct.Struct(">I")
_DOUBTFUL: Final = 0x1

NO_MARKER: Final = -1
ABORTED: Final = -1
"""Instead of a span's first sequence: see `SequenceSpan`."""
_NO_OFFSET: Final = -1


class SequenceSpan(NamedTuple):
    """A stored batch: sequences first to last (they wrap) became offsets [base_offset, end_offset).

    If `first_sequence` is `ABORTED`, the span only has the last sequence: the transactions of this batch and those
    before it were aborted, so a batch with their sequences is not a duplicate.
    """

    first_sequence: int
    last_sequence: int
    base_offset: int
    end_offset: int
    timestamp_ms: int


class ProducerEntry(NamedTuple):
    """The newest epoch of a producer and its last batches, oldest first; none after a marker that raised its epoch.

    `transaction_first` is the first offset of its open transaction, `marker_number` the transaction number of its last
    marker. `is_doubtful`: later batches may be in unreadable ranges. A tuple, because one is made per batch.
    """

    producer_id: int
    epoch: int
    batches: tuple[SequenceSpan, ...]
    last_timestamp_ms: int
    transaction_first: int | None = None
    marker_number: int = NO_MARKER
    is_doubtful: bool = False

    @property
    def has_transactions(self) -> bool:
        """Whether the entry needs version 2."""
        return self.transaction_first is not None or self.marker_number != NO_MARKER


def encode_producers(entries: Sequence[ProducerEntry]) -> bytes:
    version = _TRANSACTIONAL if any(entry.has_transactions or entry.is_doubtful for entry in entries) else _PLAIN
    parts = [_HEAD.pack(version, 0, len(entries))]
    for entry in entries:
        if len(entry.batches) > MAX_REMEMBERED_BATCHES:
            raise ValueError(f"too many batches; producer={entry.producer_id} batches={len(entry.batches)}")
        parts.append(_ENTRY.pack(entry.producer_id, entry.last_timestamp_ms, entry.epoch, len(entry.batches)))
        if version == _TRANSACTIONAL:
            parts.append(_encode_transactions(entry))
        parts.extend(_SPAN.pack(*span) for span in entry.batches)
    body = b"".join(parts)
    return body + _CRC.pack(crc32c(body))


def _encode_transactions(entry: ProducerEntry) -> bytes:
    first = _NO_OFFSET if entry.transaction_first is None else entry.transaction_first
    return _TRANSACTIONS.pack(first, entry.marker_number, _DOUBTFUL if entry.is_doubtful else 0)


def decode_producers(data: Buffer, *, key: str = "?") -> list[ProducerEntry]:
    """Decode a snapshot; empty bytes are a partition without producers."""
    if not data:
        return []
    view = memoryview(data)
    if len(view) < _HEAD.size + _CRC.size:
        raise CorruptObject(key, why=f"producer snapshot has {len(view)} bytes")
    body = view[: -_CRC.size]
    (crc,) = _CRC.unpack_from(view, len(body))
    if crc32c(body) != crc:
        raise CorruptObject(key, why="producer snapshot checksum is wrong")
    version, _, count = _HEAD.unpack_from(body)
    if version not in (_PLAIN, _TRANSACTIONAL):
        raise CorruptObject(key, why=f"producer snapshot has unknown version {version}")
    try:
        return _decode_entries(body, count, version)
    except (struct.error, ValueError) as error:
        raise CorruptObject(key, why=f"producer snapshot is malformed: {error}") from None


def _decode_entries(body: memoryview, count: int, version: int) -> list[ProducerEntry]:
    entries: list[ProducerEntry] = []
    position = _HEAD.size
    for _ in range(count):
        producer_id, last_timestamp_ms, epoch, batches = _ENTRY.unpack_from(body, position)
        position += _ENTRY.size
        first, number, flags = _NO_OFFSET, NO_MARKER, 0
        if version == _TRANSACTIONAL:
            first, number, flags = _TRANSACTIONS.unpack_from(body, position)
            position += _TRANSACTIONS.size
        if batches > MAX_REMEMBERED_BATCHES:
            raise ValueError(f"{batches} batches for producer {producer_id}")
        spans = tuple(SequenceSpan(*_SPAN.unpack_from(body, position + n * _SPAN.size)) for n in range(batches))
        position += batches * _SPAN.size
        entries.append(
            ProducerEntry(
                producer_id=producer_id,
                epoch=epoch,
                batches=spans,
                last_timestamp_ms=last_timestamp_ms,
                transaction_first=None if first == _NO_OFFSET else first,
                marker_number=number,
                is_doubtful=bool(flags & _DOUBTFUL),
            )
        )
    if position != len(body):
        raise ValueError(f"{len(body) - position} bytes left over")
    return entries
