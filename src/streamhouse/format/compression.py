"""Compression: the five codecs of Kafka's record batches, as every Kafka client can read them.

Data path   slow paths only: compaction, batches that agents build
Owns        codec numbers; framing (Java's for snappy, frames for lz4 and zstd)
Leaves      reading to `format.decompression`; the LZ4 blocks of segments to `format.block`

The libraries of snappy and zstd are imported when they are used first: most agents do without their memory.
"""

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Final

import lz4.frame

from streamhouse.errors import UnsupportedCompression
from streamhouse.format.batch import Buffer


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


GZIP_WBITS: Final = 31

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
LENGTH: Final = struct.Struct(">i")


def compress(codec: int, data: Buffer) -> bytes:
    """Compress `data` in the framing that every Kafka client can read."""
    encode = _COMPRESSORS.get(codec)
    if encode is None:
        raise UnsupportedCompression(f"unknown compression codec; codec={codec}")
    return encode(data)


def _write_snappy(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data)
    parts = [XERIAL_HEADER]
    for position in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[position : position + _XERIAL_BLOCK_BYTES]))
        parts += (LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _write_zstd(data: Buffer) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor().compress(data)


def _write_lz4(data: Buffer) -> bytes:
    # Java's reader rejects dependent blocks.
    framed: bytes = lz4.frame.compress(data, block_linked=False)
    return framed


_COMPRESSORS: Final[dict[int, Callable[[Buffer], bytes]]] = {
    Codec.NONE: bytes,
    Codec.GZIP: lambda data: zlib.compress(data, wbits=GZIP_WBITS),
    Codec.SNAPPY: _write_snappy,
    Codec.LZ4: _write_lz4,
    Codec.ZSTD: _write_zstd,
}
