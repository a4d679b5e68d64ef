"""Run index: which block of a run contains an offset, and the producer snapshot at the run's end.

Data path   flush -> **encode_run_index** -> segment object -> ranged GET -> **decode_run_index** -> fetch, recovery
Owns        the index's bytes; the search for a block
Leaves      blocks to `format.block`, the producer snapshot's bytes to `format.producer_snapshot`

If the index is damaged, two of its parts may still be used: the snapshot, which has its own checksum, and the block
entries, if they cover the run's bytes without a gap, because each block has its own checksum, too.
"""

import struct
import uuid
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from streamhouse.errors import CorruptObject
from streamhouse.format.batch import Buffer
from streamhouse.format.block import BlockEntry
from streamhouse.format.producer_snapshot import decode_producers
from streamhouse.model.names import Epoch, PartitionId, TopicId

_MAGIC: Final = b"SHRI"
_VERSION: Final = 1
_HEAD: Final = struct.Struct(">4sHH16siIqqqII")
_ENTRY: Final = struct.Struct(">qqqQIIII")
_CRC: Final = struct.Struct(">I")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIndex:
    """A run's blocks, oldest first. Offsets in `blocks` count from `stored_base`; blocks may leave gaps. The run's key
    filters, if there are any, stand in the object directly behind its blocks."""

    partition: PartitionId
    epoch: Epoch
    stored_base: int
    stored_end: int
    blocks: tuple[BlockEntry, ...]
    producers: bytes
    key_filter_bytes: int = 0

    def block_for(self, offset: int) -> int:
        """The index in `blocks` at which a reader of the relative offset starts; `len(blocks)` if no block is at or
        above it."""
        return bisect_right(self.blocks, offset, key=_end)


def _end(entry: BlockEntry) -> int:
    return entry.end


def encode_run_index(index: RunIndex) -> bytes:
    body = b"".join(
        [
            _HEAD.pack(
                _MAGIC,
                _VERSION,
                0,
                index.partition.topic_id.bytes,
                index.partition.partition,
                len(index.blocks),
                index.epoch,
                index.stored_base,
                index.stored_end,
                len(index.producers),
                index.key_filter_bytes,
            ),
            *(_ENTRY.pack(*entry) for entry in index.blocks),
            index.producers,
        ]
    )
    return body + _CRC.pack(crc32c(body))


def decode_run_index(data: Buffer, *, key: str = "?") -> RunIndex:
    """Decode the index from the bytes [index_position, index_position + index_length) of the object `key`."""
    if len(data) < _HEAD.size + _CRC.size:
        raise CorruptObject(key, why=f"run index has {len(data)} bytes")
    view = memoryview(data)
    (declared,) = _CRC.unpack_from(data, len(data) - _CRC.size)
    actual = crc32c(view[: -_CRC.size])
    if actual != declared:
        raise CorruptObject(key, why=f"run index checksum is {actual:08x} instead of {declared:08x}")
    return _parse(view[: -_CRC.size], key)


def _parse(view: memoryview, key: str) -> RunIndex:
    magic, version, _, topic, partition, count, epoch, base, end, producers_bytes, filters = _HEAD.unpack_from(view)
    if magic != _MAGIC or version != _VERSION:
        raise CorruptObject(key, why=f"run index has magic {magic!r} and version {version}")
    producers_at = _HEAD.size + count * _ENTRY.size
    if producers_at + producers_bytes != len(view):
        raise CorruptObject(key, why=f"run index has {len(view)} bytes for {count} blocks")
    return RunIndex(
        partition=PartitionId(TopicId(uuid.UUID(bytes=topic)), partition),
        epoch=Epoch(epoch),
        stored_base=base,
        stored_end=end,
        blocks=_entries(view[_HEAD.size : producers_at]),
        producers=bytes(view[producers_at:]),
        key_filter_bytes=filters,
    )


def _entries(view: memoryview) -> tuple[BlockEntry, ...]:
    return tuple(BlockEntry._make(fields) for fields in _ENTRY.iter_unpack(view))


def salvage_producers(data: Buffer, *, key: str = "?") -> bytes:
    """The producer snapshot of a damaged index; raises `CorruptObject` if the snapshot is damaged, too."""
    view = memoryview(data)[: -_CRC.size]
    for start in _snapshot_starts(view):
        snapshot = bytes(view[start:])
        try:
            decode_producers(snapshot, key=key)
        except CorruptObject:
            continue
        if snapshot:  # empty bytes have no checksum
            return snapshot
    raise CorruptObject(key, why="run index and producer snapshot are damaged")


def salvage_blocks(data: Buffer, *, position: int, length: int, key: str = "?") -> tuple[BlockEntry, ...]:
    """The block entries of a damaged index, if they cover the bytes [position, position + length) of the object; only
    the positions in them can be trusted. Raises `CorruptObject`."""
    view = memoryview(data)[: -_CRC.size]
    for end in _snapshot_starts(view):
        entries = _entries(view[_HEAD.size : end])
        ends = [entry.position + entry.stored_bytes for entry in entries]
        if (
            entries
            and [entry.position for entry in entries] == [position, *ends[:-1]]
            and ends[-1] == position + length
        ):
            return entries
    raise CorruptObject(key, why="run index is damaged, and so are its entries")


def _snapshot_starts(view: memoryview) -> list[int]:
    """Where the entries end and where the snapshot begins: by the number of entries, and by the snapshot's length."""
    if len(view) < _HEAD.size:
        return []
    *_, count, _, _, _, producers_bytes, _ = _HEAD.unpack_from(view)
    places = (_HEAD.size + count * _ENTRY.size, len(view) - producers_bytes)
    return [at for at in places if _HEAD.size <= at <= len(view) and (at - _HEAD.size) % _ENTRY.size == 0]
