"""Key filter: which blocks of a run may hold records of a key.

Data path   flush, merge -> **KeyFilterBuilder** per block -> segment object -> ranged GET -> **KeyFilters** -> search
Owns        the hash of a key, the filter of a block, the bytes of a run's filters; finding a key in undecoded records
Leaves      where they are in the object to `format.segment` and `format.run_index`, what is read to `broker.segments`

A filter is a split-block Bloom filter as in Parquet: buckets of 256 bits, of which a key sets 8. A block that holds a
key always says so; one that doesn't says so in 99 of 100 cases. A block without a filter may hold any key. Filters are
built in C only (`_key_filter.c`): without it, runs have none. `docs/formats/segment.md` describes the bytes.
"""

import struct
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from crc32c import crc32c

from streamhouse.errors import CorruptBatch, CorruptObject, InvalidRecord
from streamhouse.format.batch import HEADER_BYTES, Buffer, read_header
from streamhouse.format.block import BatchSummary
from streamhouse.format.records import stored_payload

try:
    from streamhouse.format import _records

    IS_COMPILED = hasattr(_records, "has_key")
except ImportError:  # built without a compiler
    IS_COMPILED = False

FilteredKeys: TypeAlias = Literal["none", "uncompressed", "all"]
"""Which blocks get a filter: none, those without compressed batches, all."""

BITS_PER_KEY: Final = 10
"""Bits per distinct key of a block; about one block in a hundred is read unnecessarily."""

MAX_PAYLOAD_BYTES: Final = 64 * 1024 * 1024
"""A block of batches that decompress to more has no filter: a mebibyte of hostile ones would take gigabytes."""

MAX_KEYS: Final = 1 << 20
"""A block with more records has no filter."""

_MAGIC: Final = b"SHKF"
_VERSION: Final = 1
_HEAD: Final = struct.Struct(">4sHHI")
_CRC: Final = struct.Struct(">I")

_BUCKET: Final = struct.Struct("<8I")
_SALTS: Final = struct.unpack(
    ">8I", bytes.fromhex("47b6137b 44974d91 8824ad5b a2b7289d 705495c7 2df1424b 9efc4947 5c6bfb31")
)
_MULTIPLIER: Final = 0xC6A4A7935BD1E995
_WORD: Final = 0xFFFFFFFF
_LONG: Final = 0xFFFFFFFFFFFFFFFF


def key_hash(key: bytes) -> int:
    """MurmurHash64A of a key, with seed 0."""
    hashed = len(key) * _MULTIPLIER & _LONG
    whole = len(key) & ~7
    for at in range(0, whole, 8):
        word = int.from_bytes(key[at : at + 8], "little") * _MULTIPLIER & _LONG
        word = (word ^ word >> 47) * _MULTIPLIER & _LONG
        hashed = (hashed ^ word) * _MULTIPLIER & _LONG
    if whole < len(key):
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * _MULTIPLIER & _LONG
    hashed = (hashed ^ hashed >> 47) * _MULTIPLIER & _LONG
    return hashed ^ hashed >> 47


class KeyFilterBuilder:
    """Builds the filters of a segment's blocks.

    Of compressed batches it decompresses `decompress_bytes` in all, beyond that by one block at most; further blocks
    with compressed batches get no filter.
    """

    __slots__ = ("_limit_bytes", "_which", "decompressed_bytes")

    def __init__(self, which: FilteredKeys, *, decompress_bytes: int | None = None) -> None:
        self._which = which
        self._limit_bytes = decompress_bytes
        self.decompressed_bytes = 0

    def build(self, batches: Sequence[BatchSummary]) -> bytes:
        """The filter of a block; empty if it is to have none, or has batches that can't be read, or too many
        records."""
        if not IS_COMPILED or self._which == "none":
            return b""
        if any(batch.compressed for batch in batches) and not self._may_decompress():
            return b""
        if sum(batch.records for batch in batches) > MAX_KEYS:
            return b""
        hashes, left_bytes = bytearray(), MAX_PAYLOAD_BYTES
        for batch in batches:
            try:
                payload = _payload(batch, left_bytes)
            except (CorruptBatch, InvalidRecord):
                self.decompressed_bytes += left_bytes  # unknown, and no more than this
                return b""
            if batch.compressed:
                left_bytes -= len(payload)
                self.decompressed_bytes += len(payload)
            found = _records.filter_hashes(payload, batch.records)
            if found is None:
                return b""
            hashes += found
        return bytes(_records.key_filter(hashes, BITS_PER_KEY))

    def _may_decompress(self) -> bool:
        is_left = self._limit_bytes is None or self.decompressed_bytes < self._limit_bytes
        return self._which == "all" and is_left


def _payload(batch: BatchSummary, limit_bytes: int) -> Buffer:
    if not batch.compressed:
        return memoryview(batch.data)[HEADER_BYTES:]
    return stored_payload(batch.data, read_header(batch.data), limit_bytes)


def may_hold(block: Buffer, hashed: int) -> bool:
    """Whether a block with this filter may hold the key with this hash."""
    if not len(block):
        return True
    number = (hashed >> 32) * (len(block) // _BUCKET.size) >> 32
    low = hashed & _WORD
    words = _BUCKET.unpack_from(block, number * _BUCKET.size)
    return all(word >> ((low * salt & _WORD) >> 27) & 1 for word, salt in zip(words, _SALTS, strict=True))


def may_have_key(payload: Buffer, count: int, key: bytes) -> bool:
    """Whether one of the `count` decompressed records of a batch may have this key: surely not if False. Releases the
    GIL."""
    if IS_COMPILED:
        return _records.has_key(payload, count, key)
    return key in bytes(payload)


class KeyFilters:
    """The filters of a run, by block."""

    __slots__ = ("_blocks", "weight")

    def __init__(self, blocks: Sequence[Buffer]) -> None:
        self._blocks = blocks
        self.weight = sum(map(len, blocks))

    def __len__(self) -> int:
        return len(self._blocks)

    def may_hold(self, number: int, hashed: int) -> bool:
        return number >= len(self._blocks) or may_hold(self._blocks[number], hashed)


def encode_key_filters(blocks: Sequence[bytes]) -> bytes:
    """The filters of a run's blocks, in order; no bytes if no block has one."""
    if not any(blocks):
        return b""
    lengths = struct.pack(f">{len(blocks)}I", *map(len, blocks))
    body = b"".join([_HEAD.pack(_MAGIC, _VERSION, 0, len(blocks)), lengths, *blocks])
    return body + _CRC.pack(crc32c(body))


def decode_key_filters(data: Buffer, *, key: str = "?") -> KeyFilters:
    """The filters in these bytes of the object `key`; raises `CorruptObject`."""
    view = memoryview(data)
    if len(view) < _HEAD.size + _CRC.size:
        raise CorruptObject(key, why=f"key filters have {len(view)} bytes")
    body = view[: -_CRC.size]
    (declared,) = _CRC.unpack_from(view, len(body))
    if crc32c(body) != declared:
        raise CorruptObject(key, why="checksum of the key filters is wrong")
    magic, version, _, count = _HEAD.unpack_from(body)
    start = _HEAD.size + 4 * count
    if magic != _MAGIC or version != _VERSION or start > len(body):
        raise CorruptObject(key, why=f"key filters have magic {magic!r} and version {version}")
    lengths = struct.unpack_from(f">{count}I", body, _HEAD.size)
    if start + sum(lengths) != len(body) or any(length % _BUCKET.size for length in lengths):
        raise CorruptObject(key, why=f"key filters have {len(body)} bytes for {count} blocks")
    blocks: list[memoryview] = []
    for length in lengths:
        blocks.append(body[start : start + length])
        start += length
    return KeyFilters(blocks)
