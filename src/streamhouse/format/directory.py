"""Directory: the head and the tail of a segment object, and the list of runs in it.

Data path   flush -> **encode_tail** -> segment object -> suffix GET -> **read_directory** -> inspection
Owns        magic, version, footer and directory bytes
Leaves      run indexes to `format.run_index`; readers who have a metadata row need neither directory nor footer
"""

import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from streamhouse.errors import CorruptObject
from streamhouse.format.batch import Buffer
from streamhouse.model.names import Epoch, PartitionId, TopicId

FORMAT_VERSION: Final = 1

_HEAD_MAGIC: Final = b"STRMHSEG"
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
    """A run as the object itself tells it: offsets [base, end), blocks at [position, position + length)."""

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
class NeedMore:
    """The directory begins before the bytes at hand; the last `bytes` of the object hold it."""

    bytes: int


@dataclass(frozen=True, slots=True)
class _Footer:
    directory_position: int
    directory_length: int
    size_bytes: int
    version: int


def encode_header() -> bytes:
    head = _HEAD.pack(_HEAD_MAGIC, FORMAT_VERSION, 0)
    return head + _CRC.pack(crc32c(head))


def check_header(data: Buffer, *, key: str) -> None:
    """Raise `CorruptObject` unless the object begins as a segment of a version that we read."""
    if bytes(data[:HEADER_BYTES]) != encode_header():
        raise CorruptObject(key, why="not a segment, or of an unknown version, or its header is damaged")


def encode_tail(runs: Sequence[DirectoryEntry], *, position: int) -> bytes:
    """Directory and footer for an object in which they begin at `position`."""
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


def read_directory(suffix: Buffer, *, size_bytes: int, key: str) -> Directory | NeedMore:
    """List an object's runs from its last bytes, or say how many of them that takes."""
    if size_bytes < _LEAST_FILE_BYTES:
        raise CorruptObject(key, why=f"{size_bytes} bytes are too few for a segment")
    if len(suffix) > size_bytes:
        raise CorruptObject(key, why=f"suffix has {len(suffix)} bytes of an object of {size_bytes}")
    if len(suffix) < FOOTER_BYTES:
        return NeedMore(_LEAST_DIRECTORY_BYTES + FOOTER_BYTES)
    footer = _read_footer(memoryview(suffix)[-FOOTER_BYTES:], size_bytes, key)
    needed = footer.directory_length + FOOTER_BYTES
    if len(suffix) < needed:
        return NeedMore(needed)
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
