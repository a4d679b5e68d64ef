"""Compression: the five codecs of Kafka's record batches, never beyond a limit.

Data path   slow paths only: record validation, lookup by time, compaction, batches that we build ourselves
Owns        codec numbers; framing (Java's for snappy, frames for lz4 and zstd); the bound on what comes out
Leaves      which limit applies to the caller; the LZ4 blocks of segments to `format.block`

A few kilobytes can declare, or become, gigabytes: nothing here believes a declared size, or makes more than the limit
plus one piece. Bytes behind the compressed data are damage, never ignored, because readers would disagree on them.
"""

import io
import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Final

import cramjam
import lz4.frame
import zstandard

from streamhouse.errors import CorruptBatch, InvalidRecord, UnsupportedCompression
from streamhouse.format.batch import Buffer


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_GZIP_WBITS: Final = 31
_PIECE_BYTES: Final = 1 << 20

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_LENGTH: Final = struct.Struct(">i")

# A reader of zstd streams can't tell a cut-off frame from a finished one. This frame is read behind the data: its
# content comes out at the end only if everything before it was whole.
_ZSTD_MARK: Final = b"\x00streamhouse-end"
_ZSTD_MARK_FRAME: Final = zstandard.ZstdCompressor().compress(_ZSTD_MARK)


def decompress(codec: int, data: Buffer, *, limit_bytes: int) -> bytes:
    """What `data` holds: `CorruptBatch` when it is damaged, `InvalidRecord` when it is more than `limit_bytes`."""
    decode = _DECOMPRESSORS.get(codec)
    if decode is None:
        raise UnsupportedCompression(f"unknown compression codec; codec={codec}")
    if codec != Codec.NONE and not data:
        raise CorruptBatch(f"compressed records are missing; codec={codec}")
    raw = decode(data, limit_bytes)
    if len(raw) > limit_bytes:
        raise _too_large(limit_bytes)
    return raw


def compress(codec: int, data: Buffer) -> bytes:
    """`data` as every Kafka client can read it."""
    encode = _COMPRESSORS.get(codec)
    if encode is None:
        raise UnsupportedCompression(f"unknown compression codec; codec={codec}")
    return encode(data)


def _too_large(limit_bytes: int) -> InvalidRecord:
    return InvalidRecord(f"batch is too large once decompressed; limit_bytes={limit_bytes}")


def _damaged(codec: Codec, why: object) -> CorruptBatch:
    return CorruptBatch(f"compressed records are damaged; codec={codec.name.lower()} why={why}")


def _read_gzip(data: Buffer, limit_bytes: int) -> bytes:
    """Several members in a row are one stream, as RFC 1952 and Java have it."""
    parts: list[bytes] = []
    room = limit_bytes + 1
    rest: Buffer = data
    while rest:
        member = zlib.decompressobj(_GZIP_WBITS)
        try:
            # A limit of 0 would mean none.
            parts.append(member.decompress(rest, max(room, 1)))
        except zlib.error as error:
            raise _damaged(Codec.GZIP, error) from None
        room -= len(parts[-1])
        if room <= 0:
            raise _too_large(limit_bytes)
        if not member.eof:
            raise _damaged(Codec.GZIP, "cut off")
        rest = member.unused_data
    return b"".join(parts)


def _read_snappy(data: Buffer, limit_bytes: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _read_snappy_block(view, limit_bytes, limit_bytes)
    parts: list[bytes] = []
    room = limit_bytes
    position = 0
    while position < len(view):
        # The header may come again where streams were put together.
        if bytes(view[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            continue
        start = position + _LENGTH.size
        length = _LENGTH.unpack_from(view, position)[0] if start <= len(view) else -1
        if not 0 < length <= len(view) - start:
            raise _damaged(Codec.SNAPPY, f"chunk length {length} at {position}")
        parts.append(_read_snappy_block(view[start : start + length], room, limit_bytes))
        room -= len(parts[-1])
        position = start + length
    if position > len(view):
        raise _damaged(Codec.SNAPPY, "header cut off")
    return b"".join(parts)


def _read_snappy_block(block: memoryview, room: int, limit_bytes: int) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(block) > room:
            raise _too_large(limit_bytes)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _damaged(Codec.SNAPPY, error) from None


def _read_lz4(data: Buffer, limit_bytes: int) -> bytes:
    """Exactly one frame: Java's reader stops after the first."""
    frame = lz4.frame.LZ4FrameDecompressor()
    parts: list[bytes] = []
    room = limit_bytes + 1
    rest: Buffer = data
    try:
        while not frame.eof and room > 0:
            parts.append(frame.decompress(rest, max_length=min(room, max(_PIECE_BYTES, 4 * len(data)))))
            room -= len(parts[-1])
            rest = b""
            if frame.needs_input and not frame.eof:
                raise _damaged(Codec.LZ4, "cut off")
    except (RuntimeError, EOFError) as error:
        raise _damaged(Codec.LZ4, error) from None
    if room <= 0:
        raise _too_large(limit_bytes)
    if frame.unused_data:
        raise _damaged(Codec.LZ4, f"{len(frame.unused_data)} bytes behind the frame")
    return b"".join(parts)


def _read_zstd(data: Buffer, limit_bytes: int) -> bytes:
    """Several frames in a row are one stream, as zstd and Java have it."""
    source = io.BytesIO(b"".join((data, _ZSTD_MARK_FRAME)))
    parts: list[bytes] = []
    room = limit_bytes + len(_ZSTD_MARK) + 1
    try:
        with zstandard.ZstdDecompressor().stream_reader(source, read_across_frames=True) as reader:
            while room > 0 and (piece := reader.read(min(room, _PIECE_BYTES))):
                parts.append(piece)
                room -= len(piece)
    except zstandard.ZstdError as error:
        raise _damaged(Codec.ZSTD, error) from None
    if room <= 0:
        raise _too_large(limit_bytes)
    raw = b"".join(parts)
    if not raw.endswith(_ZSTD_MARK):
        raise _damaged(Codec.ZSTD, "cut off")
    return raw[: -len(_ZSTD_MARK)]


def _write_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for position in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[position : position + _XERIAL_BLOCK_BYTES]))
        parts += (_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _write_lz4(data: Buffer) -> bytes:
    # Java's reader refuses blocks that depend on each other.
    framed: bytes = lz4.frame.compress(data, block_linked=False)
    return framed


_DECOMPRESSORS: Final[dict[int, Callable[[Buffer, int], bytes]]] = {
    Codec.NONE: lambda data, limit_bytes: bytes(data[: limit_bytes + 1]),
    Codec.GZIP: _read_gzip,
    Codec.SNAPPY: _read_snappy,
    Codec.LZ4: _read_lz4,
    Codec.ZSTD: _read_zstd,
}

_COMPRESSORS: Final[dict[int, Callable[[Buffer], bytes]]] = {
    Codec.NONE: bytes,
    Codec.GZIP: lambda data: zlib.compress(data, wbits=_GZIP_WBITS),
    Codec.SNAPPY: _write_snappy,
    Codec.LZ4: _write_lz4,
    Codec.ZSTD: lambda data: zstandard.ZstdCompressor().compress(data),
}
