"""Producer state: what idempotent producers had written to a partition, as it stood at the end of a run.

Data path   broker.producers -> **encode_producers** -> run index -> **decode_producers** -> the next leader
Owns        the snapshot's bytes
Leaves      what the state means, and when entries expire, to `broker.producers`

Offsets and sequences are final ones, so that a duplicate is answered with its original offset also after a failover.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from crc32c import crc32c

from streamhouse.errors import CorruptObject
from streamhouse.format.batch import Buffer

# Kafka's window: clients keep at most five batches in flight, so no older one can be asked for.
MAX_REMEMBERED_BATCHES: Final = 5

_VERSION: Final = 1
_HEAD: Final = struct.Struct(">HHI")
_ENTRY: Final = struct.Struct(">qqhH")
_SPAN: Final = struct.Struct(">iiqqq")
_CRC: Final = struct.Struct(">I")


class SequenceSpan(NamedTuple):
    """A stored batch: sequences first to last (they wrap) became offsets [base_offset, end_offset)."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    end_offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerEntry:
    """The newest epoch of a producer and its last batches, oldest first."""

    producer_id: int
    epoch: int
    batches: tuple[SequenceSpan, ...]
    last_timestamp_ms: int


def encode_producers(entries: Sequence[ProducerEntry]) -> bytes:
    parts = [_HEAD.pack(_VERSION, 0, len(entries))]
    for entry in entries:
        if len(entry.batches) > MAX_REMEMBERED_BATCHES:
            raise ValueError(f"too many batches; producer={entry.producer_id} batches={len(entry.batches)}")
        parts.append(_ENTRY.pack(entry.producer_id, entry.last_timestamp_ms, entry.epoch, len(entry.batches)))
        parts.extend(_SPAN.pack(*span) for span in entry.batches)
    body = b"".join(parts)
    return body + _CRC.pack(crc32c(body))


def decode_producers(data: Buffer, *, key: str = "?") -> list[ProducerEntry]:
    """The entries of a snapshot; no bytes at all are the snapshot of a partition without producers."""
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
    if version != _VERSION:
        raise CorruptObject(key, why=f"producer snapshot has unknown version {version}")
    try:
        return _decode_entries(body, count)
    except (struct.error, ValueError) as error:
        raise CorruptObject(key, why=f"producer snapshot is malformed: {error}") from None


def _decode_entries(body: memoryview, count: int) -> list[ProducerEntry]:
    entries: list[ProducerEntry] = []
    position = _HEAD.size
    for _ in range(count):
        producer_id, last_timestamp_ms, epoch, batches = _ENTRY.unpack_from(body, position)
        position += _ENTRY.size
        if batches > MAX_REMEMBERED_BATCHES:
            raise ValueError(f"{batches} batches for producer {producer_id}")
        spans = tuple(SequenceSpan(*_SPAN.unpack_from(body, position + n * _SPAN.size)) for n in range(batches))
        position += batches * _SPAN.size
        entries.append(
            ProducerEntry(producer_id=producer_id, epoch=epoch, batches=spans, last_timestamp_ms=last_timestamp_ms)
        )
    if position != len(body):
        raise ValueError(f"{len(body) - position} bytes left over")
    return entries
