"""Block: about a mebibyte of one partition's batches, the unit that is read, checked and cached.

Data path   buffer -> flush -> **encode_block** -> segment object -> range GET -> **decode_block** -> fetch
Owns        which batches share a block, whether to use LZ4, the checksum of the stored bytes
Leaves      positions of blocks to `format.run_index`, their objects to the metadata rows

A mixed block is treated like the majority of its bytes: batches that producers compressed are not compressed again.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import lz4.block
from crc32c import crc32c

from streamhouse.errors import CorruptObject, Internal
from streamhouse.format.batch import HEADER_BYTES, Buffer
from streamhouse.format.buffers import join

RAW: Final = 0
LZ4: Final = 1

# LZ4's maximum ratio is 255; an entry with a larger one is rejected before memory is allocated.
_LZ4_MAX_RATIO: Final = 255

_FACTS: Final = struct.Struct(">qi9xhi8xq14xi")
_PREFIX_BYTES: Final = 12
_CODEC_MASK: Final = 0x07

# With this acceleration, JSON records shrink to 0.43 instead of 0.40, in 12 % less time (half-random data: 37 %).
_ACCELERATION: Final = 4

_SAMPLE_PIECES: Final = 4
_SAMPLE_PIECE_BYTES: Final = 4096
_WORTH_TRYING: Final = 0.95
_WORTH_KEEPING: Final = 0.95

# Batches at least this large are written without a copy; smaller ones are joined, because a PUT of many small buffers
# costs more than the copy.
_JOIN_BELOW_BYTES: Final = 16 * 1024


class BlockEntry(NamedTuple):
    """The run index's entry of a block. Offsets [first, end) are relative to the run's stored base."""

    first: int
    end: int
    max_timestamp_ms: int
    position: int
    stored_bytes: int
    raw_bytes: int
    codec: int
    crc: int


class BatchSummary(NamedTuple):
    """The properties of a batch that a block needs."""

    data: Buffer
    base: int
    end: int
    max_timestamp_ms: int
    records: int
    compressed: bool


class EncodedBlock(NamedTuple):
    """The stored bytes of a block, and its batches in one buffer if compressing them took one."""

    pieces: list[Buffer]
    entry: BlockEntry
    whole: Buffer | None


def summarize_batch(data: Buffer) -> BatchSummary:
    """Summarize a batch; a buffer that isn't exactly one batch is a bug."""
    if len(data) < HEADER_BYTES:
        raise Internal(f"not a record batch; bytes={len(data)}")
    base, length, attributes, last_delta, max_timestamp_ms, records = _FACTS.unpack_from(data)
    if length + _PREFIX_BYTES != len(data):
        raise Internal(f"not exactly one record batch; declared={length + _PREFIX_BYTES} bytes={len(data)}")
    return BatchSummary(data, base, base + last_delta + 1, max_timestamp_ms, records, bool(attributes & _CODEC_MASK))


def group_into_blocks(batches: Iterable[BatchSummary], block_bytes: int) -> Iterator[list[BatchSummary]]:
    """Cut a run into blocks of at most `block_bytes`; a larger batch is a block of its own."""
    block: list[BatchSummary] = []
    size = 0
    for batch in batches:
        if block and size + len(batch.data) > block_bytes:
            yield block
            block, size = [], 0
        block.append(batch)
        size += len(batch.data)
    if block:
        yield block


def encode_block(batches: Sequence[BatchSummary], *, stored_base: int, position: int) -> EncodedBlock:
    """Encode whole batches as a block, with its index entry for `position`."""
    raw_bytes = sum(len(batch.data) for batch in batches)
    codec, pieces, whole = _encode_stored(batches, raw_bytes)
    crc = 0
    for piece in pieces:
        crc = crc32c(piece, crc)
    entry = BlockEntry(
        first=batches[0].base - stored_base,
        end=batches[-1].end - stored_base,
        max_timestamp_ms=max(batch.max_timestamp_ms for batch in batches),
        position=position,
        stored_bytes=sum(len(piece) for piece in pieces),
        raw_bytes=raw_bytes,
        codec=codec,
        crc=crc,
    )
    return EncodedBlock(pieces, entry, whole)


def _encode_stored(batches: Sequence[BatchSummary], raw_bytes: int) -> tuple[int, list[Buffer], Buffer | None]:
    """Choose the codec; returns it with the stored pieces, and the batches in one buffer if they were joined."""
    compressed_bytes = sum(len(batch.data) for batch in batches if batch.compressed)
    if compressed_bytes * 2 < raw_bytes and _is_worth_trying(batches, raw_bytes):
        whole = _joined(batches)
        packed = _compress(whole)
        if len(packed) < raw_bytes * _WORTH_KEEPING:
            return LZ4, [packed], whole
        return RAW, [whole], whole
    if raw_bytes < len(batches) * _JOIN_BELOW_BYTES:
        whole = _joined(batches)
        return RAW, [whole], whole
    return RAW, [batch.data for batch in batches], None


def _joined(batches: Sequence[BatchSummary]) -> Buffer:
    return batches[0].data if len(batches) == 1 else join([batch.data for batch in batches])


def _is_worth_trying(batches: Sequence[BatchSummary], raw_bytes: int) -> bool:
    """Whether a few samples compress well: much cheaper than compressing an incompressible mebibyte."""
    if raw_bytes <= 2 * _SAMPLE_PIECES * _SAMPLE_PIECE_BYTES:
        return True
    sample = b"".join(_sample(batches, raw_bytes))
    return len(_compress(sample)) < len(sample) * _WORTH_TRYING


def _sample(batches: Sequence[BatchSummary], raw_bytes: int) -> Iterator[Buffer]:
    """Pieces at even distances; one that begins at the end of a batch is shorter."""
    step = (raw_bytes - _SAMPLE_PIECE_BYTES) // (_SAMPLE_PIECES - 1)
    at = due = 0
    for batch in batches:
        end = at + len(batch.data)
        while due < end and due <= step * (_SAMPLE_PIECES - 1):
            yield memoryview(batch.data)[due - at : due - at + _SAMPLE_PIECE_BYTES]
            due += step
        at = end


def _compress(data: Buffer) -> bytes:
    packed: bytes = lz4.block.compress(data, mode="fast", acceleration=_ACCELERATION, store_size=False)
    return packed


def decode_block(stored: Buffer, entry: BlockEntry, *, key: str = "?") -> bytes:
    """Decode a block from the bytes [position, position + stored_bytes) of the object `key`."""
    if len(stored) != entry.stored_bytes:
        raise _corrupt(key, entry, f"block has {len(stored)} bytes instead of {entry.stored_bytes}")
    actual = crc32c(stored)
    if actual != entry.crc:
        raise _corrupt(key, entry, f"block checksum is {actual:08x} instead of {entry.crc:08x}")
    if entry.codec == RAW:
        raw = bytes(stored)
    elif entry.codec == LZ4:
        raw = _decompressed(stored, entry, key)
    else:
        raise _corrupt(key, entry, f"block has unknown codec {entry.codec}")
    if len(raw) != entry.raw_bytes:
        raise _corrupt(key, entry, f"block holds {len(raw)} bytes instead of {entry.raw_bytes}")
    return raw


def _decompressed(stored: Buffer, entry: BlockEntry, key: str) -> bytes:
    if entry.raw_bytes > entry.stored_bytes * _LZ4_MAX_RATIO:
        raise _corrupt(key, entry, f"{entry.stored_bytes} bytes of LZ4 can't hold {entry.raw_bytes}")
    try:
        raw: bytes = lz4.block.decompress(stored, uncompressed_size=entry.raw_bytes)
    except lz4.block.LZ4BlockError as error:
        raise _corrupt(key, entry, f"LZ4 says {error}") from None
    return raw


def _corrupt(key: str, entry: BlockEntry, why: str) -> CorruptObject:
    return CorruptObject(key, why=f"{why}, position {entry.position}")
