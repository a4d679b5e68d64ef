"""Segment: an immutable object with the batches of one or many partitions.

Data path   flush -> **encode_segment** -> PUT -> metadata rows -> range GET -> `format.block` -> fetch
Owns        the order of the parts (header, blocks and key filters of each run, run indexes, directory, footer); bytes
            of header, directory, footer
Leaves      blocks to `format.block`, key filters to `format.key_filter`, run indexes to `format.run_index`, I/O to the
            stores
Invariant   every byte is covered by a checksum that a reader of that range checks

Readers with a metadata row need neither directory nor footer. `docs/formats/segment.md` describes the bytes.
"""

import struct
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from streamhouse.errors import CorruptObject, Internal
from streamhouse.format.batch import Buffer
from streamhouse.format.block import BatchSummary, BlockEntry, encode_block, group_into_blocks, summarize_batch
from streamhouse.format.buffers import join
from streamhouse.format.key_filter import FilteredKeys, KeyFilterBuilder, encode_key_filters
from streamhouse.format.run_index import (
    RunIndex,
    encode_run_index,
)
from streamhouse.model.names import Epoch, PartitionId, TopicId
from streamhouse.model.segment import Run

FORMAT_VERSION: Final = 1

SEGMENT_MAGIC: Final = b"STRMHSEG"
_TAIL_MAGIC: Final = b"SHSEGEND"
_DIRECTORY_MAGIC: Final = b"SHDR"

_HEAD: Final = struct.Struct(">8sHH")
_CRC: Final = struct.Struct(">I")
_DIRECTORY_HEAD: Final = struct.Struct(">4sI")
_RUN: Final = struct.Struct(">16si4xqqqQQQQQq")
_FOOTER: Final = struct.Struct(">QQQHH")

HEADER_BYTES: Final = _HEAD.size + _CRC.size
FOOTER_BYTES: Final = _FOOTER.size + _CRC.size + len(_TAIL_MAGIC)
_LEAST_DIRECTORY_BYTES: Final = _DIRECTORY_HEAD.size + _CRC.size
_LEAST_FILE_BYTES: Final = HEADER_BYTES + _LEAST_DIRECTORY_BYTES + FOOTER_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryEntry:
    """A run in the object's directory: offsets [base, end), blocks at [position, position + length)."""

    partition: PartitionId
    epoch: Epoch
    base: int
    end: int
    position: int
    length: int
    index_position: int
    index_length: int
    records: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    version: int
    size_bytes: int
    runs: tuple[DirectoryEntry, ...]


@dataclass(frozen=True, slots=True)
class MoreBytesNeeded:
    """The directory begins before the given bytes; it is in the last `bytes` of the object."""

    bytes: int


@dataclass(frozen=True, slots=True)
class _Footer:
    directory_position: int
    directory_length: int
    size_bytes: int
    version: int


def encode_header() -> bytes:
    head = _HEAD.pack(SEGMENT_MAGIC, FORMAT_VERSION, 0)
    return head + _CRC.pack(crc32c(head))


def check_header(data: Buffer, *, key: str) -> None:
    """Raise `CorruptObject` unless the object begins with the header of a supported segment version."""
    if bytes(data[:HEADER_BYTES]) != encode_header():
        raise CorruptObject(key, why="not a segment, or of an unknown version, or its header is damaged")


def encode_tail(runs: Sequence[DirectoryEntry], *, position: int) -> bytes:
    """Encode directory and footer, which begin at `position` of the object."""
    body = _DIRECTORY_HEAD.pack(_DIRECTORY_MAGIC, len(runs)) + b"".join(map(_encode_run, runs))
    directory = body + _CRC.pack(crc32c(body))
    size_bytes = position + len(directory) + FOOTER_BYTES
    footer = _FOOTER.pack(position, len(directory), size_bytes, FORMAT_VERSION, 0)
    return directory + footer + _CRC.pack(crc32c(footer)) + _TAIL_MAGIC


def _encode_run(run: DirectoryEntry) -> bytes:
    return _RUN.pack(
        run.partition.topic_id.bytes,
        run.partition.partition,
        run.epoch,
        run.base,
        run.end,
        run.position,
        run.length,
        run.index_position,
        run.index_length,
        run.records,
        run.max_timestamp_ms,
    )


def read_directory(suffix: Buffer, *, size_bytes: int, key: str) -> Directory | MoreBytesNeeded:
    """List an object's runs from its last bytes, or return how many are needed."""
    if size_bytes < _LEAST_FILE_BYTES:
        raise CorruptObject(key, why=f"{size_bytes} bytes are too few for a segment")
    if len(suffix) > size_bytes:
        raise CorruptObject(key, why=f"suffix has {len(suffix)} bytes of an object of {size_bytes}")
    if len(suffix) < FOOTER_BYTES:
        return MoreBytesNeeded(_LEAST_DIRECTORY_BYTES + FOOTER_BYTES)
    footer = _read_footer(memoryview(suffix)[-FOOTER_BYTES:], size_bytes, key)
    needed = footer.directory_length + FOOTER_BYTES
    if len(suffix) < needed:
        return MoreBytesNeeded(needed)
    runs = _read_runs(memoryview(suffix)[-needed:-FOOTER_BYTES], key)
    return Directory(version=footer.version, size_bytes=size_bytes, runs=runs)


def _read_footer(view: memoryview, size_bytes: int, key: str) -> _Footer:
    position, length, declared_size, version, _ = _FOOTER.unpack_from(view)
    (crc,) = _CRC.unpack_from(view, _FOOTER.size)
    if bytes(view[-len(_TAIL_MAGIC) :]) != _TAIL_MAGIC:
        raise CorruptObject(key, why="footer has no magic: not a segment, or cut off")
    if crc32c(view[: _FOOTER.size]) != crc:
        raise CorruptObject(key, why="footer checksum is wrong")
    if version != FORMAT_VERSION:
        raise CorruptObject(key, why=f"format version {version} is unknown")
    if declared_size != size_bytes or position + length + FOOTER_BYTES != size_bytes:
        raise CorruptObject(key, why=f"object has {size_bytes} bytes, its footer says {declared_size}")
    return _Footer(position, length, declared_size, version)


def _read_runs(view: memoryview, key: str) -> tuple[DirectoryEntry, ...]:
    if len(view) < _LEAST_DIRECTORY_BYTES:
        raise CorruptObject(key, why=f"directory has {len(view)} bytes")
    body = view[: -_CRC.size]
    (crc,) = _CRC.unpack_from(view, len(body))
    if crc32c(body) != crc:
        raise CorruptObject(key, why="directory checksum is wrong")
    magic, count = _DIRECTORY_HEAD.unpack_from(body)
    if magic != _DIRECTORY_MAGIC or _DIRECTORY_HEAD.size + count * _RUN.size != len(body):
        raise CorruptObject(key, why=f"directory has magic {magic!r} and {len(body)} bytes for {count} runs")
    return tuple(_decode_run(*fields) for fields in _RUN.iter_unpack(body[_DIRECTORY_HEAD.size :]))


def _decode_run(topic: bytes, partition: int, epoch: int, base: int, end: int, *rest: int) -> DirectoryEntry:
    position, length, index_position, index_length, records, max_timestamp_ms = rest
    return DirectoryEntry(
        partition=PartitionId(TopicId(uuid.UUID(bytes=topic)), partition),
        epoch=Epoch(epoch),
        base=base,
        end=end,
        position=position,
        length=length,
        index_position=index_position,
        index_length=index_length,
        records=records,
        max_timestamp_ms=max_timestamp_ms,
    )


NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInput:
    """A partition's input for a segment: batches with offsets in [base, end), one per buffer."""

    partition: PartitionId
    epoch: Epoch
    base: int
    end: int
    batches: Sequence[Buffer]
    producers: bytes
    keep_blocks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLayout:
    """The position of a run in the object; becomes a metadata row."""

    entry: DirectoryEntry

    def run(self, object_key: str) -> Run:
        entry = self.entry
        return Run(
            partition=entry.partition,
            base=entry.base,
            end=entry.end,
            stored_base=entry.base,
            epoch=entry.epoch,
            object_key=object_key,
            position=entry.position,
            length=entry.length,
            index_position=entry.index_position,
            index_length=entry.index_length,
            records=entry.records,
            max_timestamp_ms=entry.max_timestamp_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRun:
    """A run's index, which begins at `index_position`, and its decoded blocks by position."""

    index: RunIndex
    index_position: int
    blocks: Mapping[int, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedSegment:
    """A segment ready for its PUT. `body` may share memory with the batches, which must not change until it is stored.
    `kept` are the decoded runs that have `keep_blocks`, for the cache. `decompressed_bytes` were decompressed for key
    filters."""

    body: list[Buffer]
    size_bytes: int
    layouts: tuple[RunLayout, ...]
    kept: tuple[DecodedRun, ...]
    decompressed_bytes: int


def encode_segment(
    runs: Sequence[RunInput],
    *,
    block_bytes: int = 1 << 20,
    key_filters: FilteredKeys = "all",
    decompress_bytes: int | None = None,
) -> EncodedSegment:
    """Encode runs as one object, with key filters of these blocks, for which about `decompress_bytes` of compressed
    batches are decompressed. Most of the work releases the GIL: call it in a thread."""
    filters = KeyFilterBuilder(key_filters, decompress_bytes=decompress_bytes)
    body: list[Buffer] = [encode_header()]
    position = len(body[0])
    drafts: list[_RunDraft] = []
    kept: list[DecodedRun] = []
    for run in runs:
        draft = _encode_blocks(run, body, position=position, block_bytes=block_bytes, filters=filters)
        position += draft.length + draft.index.key_filter_bytes
        drafts.append(draft)
    entries: list[DirectoryEntry] = []
    for run, draft in zip(runs, drafts, strict=True):
        index = encode_run_index(draft.index)
        if run.keep_blocks:
            kept.append(DecodedRun(index=draft.index, index_position=position, blocks=draft.kept))
        body.append(index)
        entries.append(draft.entry(index_position=position, index_length=len(index)))
        position += len(index)
    tail = encode_tail(entries, position=position)
    body.append(tail)
    layouts = tuple(RunLayout(entry=entry) for entry in entries)
    return EncodedSegment(
        body=body,
        size_bytes=position + len(tail),
        layouts=layouts,
        kept=tuple(kept),
        decompressed_bytes=filters.decompressed_bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunDraft:
    """A run with encoded blocks and key filters, without its index."""

    index: RunIndex
    position: int
    length: int
    records: int
    kept: dict[int, bytes]

    def entry(self, *, index_position: int, index_length: int) -> DirectoryEntry:
        return DirectoryEntry(
            partition=self.index.partition,
            epoch=self.index.epoch,
            base=self.index.stored_base,
            end=self.index.stored_end,
            position=self.position,
            length=self.length,
            index_position=index_position,
            index_length=index_length,
            records=self.records,
            max_timestamp_ms=max((block.max_timestamp_ms for block in self.index.blocks), default=NO_TIMESTAMP),
        )


def _encode_blocks(
    run: RunInput, body: list[Buffer], *, position: int, block_bytes: int, filters: KeyFilterBuilder
) -> _RunDraft:
    facts = [summarize_batch(batch) for batch in run.batches]
    _check_order(run, facts)
    entries: list[BlockEntry] = []
    block_filters: list[bytes] = []
    kept: dict[int, bytes] = {}
    start = position
    for batches in group_into_blocks(facts, block_bytes):
        block = encode_block(batches, stored_base=run.base, position=position)
        body.extend(block.pieces)
        entries.append(block.entry)
        block_filters.append(filters.build(batches))
        if run.keep_blocks:
            # Copied: a view of a batch would keep the whole produce request in memory.
            kept[position] = block.whole if isinstance(block.whole, bytes) else join(each.data for each in batches)
        position += block.entry.stored_bytes
    stored_filters = encode_key_filters(block_filters)
    if stored_filters:
        body.append(stored_filters)
    index = RunIndex(
        partition=run.partition,
        epoch=run.epoch,
        stored_base=run.base,
        stored_end=run.end,
        blocks=tuple(entries),
        producers=run.producers,
        key_filter_bytes=len(stored_filters),
    )
    records = sum(fact.records for fact in facts)
    return _RunDraft(index=index, position=start, length=position - start, records=records, kept=kept)


def _check_order(run: RunInput, facts: Sequence[BatchSummary]) -> None:
    """Raise `Internal` for offsets that overlap or are outside of the run, before they become durable."""
    expected = run.base
    for fact in facts:
        if fact.base < expected or fact.end <= fact.base:
            raise Internal(f"batch out of order; partition={run.partition} base={fact.base} expected={expected}")
        expected = fact.end
    if expected > run.end:
        raise Internal(f"batch beyond its run; partition={run.partition} end={expected} run_end={run.end}")
