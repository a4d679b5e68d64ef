"""Decompression: the five codecs of Kafka's record batches, never beyond a limit.

Data path   slow paths only: record validation, lookup by time, compaction, reading over HTTP and gRPC
Owns        reading Java's framing for snappy and frames for lz4 and zstd; limits of memory and work
Leaves      the limit and the thread to the caller; writing to `format.compression`

A few kilobytes can declare, or expand to, gigabytes, so declared sizes are not trusted. Peak memory is the output, one
piece and an eighth; zstd needs its window in addition. Bytes after the compressed data are an error, because other
readers would treat them differently. The libraries release the GIL inside each call, and each call is short.
"""

import threading
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final

import lz4.frame

from streamhouse.errors import BatchTooLarge, CorruptBatch, UnsupportedCompression
from streamhouse.format.batch import Buffer
from streamhouse.format.compression import GZIP_WBITS, LENGTH, XERIAL_HEADER, XERIAL_MAGIC, Codec

MAX_GZIP_MEMBERS: Final = 1000
MAX_SNAPPY_CHUNKS: Final = 10_000
"""Maximum number of chunks in Java's framing, plus one per `SNAPPY_CHUNK_BYTES`: Java's have 32 KiB before
compression."""
SNAPPY_CHUNK_BYTES: Final = 256

ZSTD_WINDOW_BYTES: Final = 128 << 20
"""Maximum window of a zstd frame, as in Java's reader."""

_PIECE_BYTES: Final = 256 * 1024
_FEED_BYTES: Final = 64 * 1024
_FIRST_FEED_BYTES: Final = 1024

_SNAPPY_RATIO: Final = 22
"""A copy element of snappy has three bytes and produces at most 64."""

# A reader of zstd streams can't tell a cut-off frame from a finished one. This frame is read after the data: its
# content is at the end of the output only if everything before it was complete.
_ZSTD_MARK: Final = b"\x00streamhouse-end"


def decompress(codec: int, data: Buffer, *, limit_bytes: int) -> Buffer:
    """Decompress `data`; raises `CorruptBatch` if it is damaged, `BatchTooLarge` above `limit_bytes`."""
    decode = _DECOMPRESSORS.get(codec)
    if decode is None:
        raise UnsupportedCompression(f"unknown compression codec; codec={codec}")
    if codec != Codec.NONE and not data:
        raise CorruptBatch(f"compressed records are missing; codec={codec}")
    raw = decode(data, limit_bytes)
    if len(raw) > limit_bytes:
        raise BatchTooLarge(limit_bytes)
    return raw


def peak_bytes(codec: int, limit_bytes: int) -> int:
    """Peak memory of decompressing up to `limit_bytes`."""
    window = min(limit_bytes, ZSTD_WINDOW_BYTES) if codec == Codec.ZSTD else 0
    return limit_bytes + window if codec != Codec.NONE else 0


class _Output:
    """Decompressed bytes, up to a limit; a usual batch is one piece and isn't copied."""

    __slots__ = ("_limit_bytes", "data")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.data: bytes | bytearray = b""

    def add(self, piece: bytes) -> None:
        """Add a piece; raises `BatchTooLarge` above the limit."""
        if len(self.data) + len(piece) > self._limit_bytes:
            raise BatchTooLarge(self._limit_bytes)
        if not self.data:
            self.data = piece
            return
        if isinstance(self.data, bytes):
            self.data = bytearray(self.data)
        self.data += piece


def _damaged(codec: Codec, why: object) -> CorruptBatch:
    return CorruptBatch(f"compressed records are damaged; codec={codec.name.lower()} why={why}")


# --- gzip: several consecutive members are one stream, as in RFC 1952 and Java --------------------------------------


def _read_gzip(data: Buffer, limit_bytes: int) -> Buffer:
    output = _Output(limit_bytes)
    view, position, members = memoryview(data), 0, 0
    while position < len(view):
        members += 1
        if members > MAX_GZIP_MEMBERS:
            raise _damaged(Codec.GZIP, f"more parts than {MAX_GZIP_MEMBERS}")
        try:
            position = _read_gzip_member(view, position, output)
        except zlib.error as error:
            raise _damaged(Codec.GZIP, error) from None
    return output.data


def _read_gzip_member(view: memoryview, position: int, output: _Output) -> int:
    """Decompress a member; returns its end. Feeds small pieces, because zlib copies the unused rest of each."""
    member = zlib.decompressobj(GZIP_WBITS)
    feed_bytes = _FIRST_FEED_BYTES
    while not member.eof:
        given = view[position : position + feed_bytes]
        if not given:
            raise _damaged(Codec.GZIP, "cut off")
        piece = member.decompress(given, _PIECE_BYTES)
        output.add(piece)
        while not member.eof and (member.unconsumed_tail or len(piece) == _PIECE_BYTES):
            piece = member.decompress(member.unconsumed_tail, _PIECE_BYTES)
            output.add(piece)
        position += len(given) - len(member.unused_data)
        feed_bytes = min(4 * feed_bytes, _FEED_BYTES)
    return position


# --- snappy: raw, or in Java's framing ------------------------------------------------------------------------------


def _read_snappy(data: Buffer, limit_bytes: int) -> Buffer:
    """Decompress all blocks; they declare their sizes, so the output is allocated once."""
    import cramjam

    view = memoryview(data)
    is_framed = bytes(view[: len(XERIAL_MAGIC)]) == XERIAL_MAGIC
    try:
        blocks = [(block, _snappy_bytes(block)) for block in (_snappy_chunks(view) if is_framed else (view,))]
        size_bytes = sum(size for _, size in blocks)
        if size_bytes > limit_bytes:
            raise BatchTooLarge(limit_bytes)
        raw = bytearray(size_bytes)
        position = 0
        with memoryview(raw) as output:
            for block, size in blocks:
                cramjam.snappy.decompress_raw_into(block, output[position : position + size])
                position += size
    except cramjam.DecompressionError as error:
        raise _damaged(Codec.SNAPPY, error) from None
    return raw


def _snappy_bytes(block: memoryview) -> int:
    """The size that a block declares; raises an error if the block can't contain as much."""
    import cramjam

    declared: int = cramjam.snappy.decompress_raw_len(block)
    if declared > _SNAPPY_RATIO * len(block):
        raise _damaged(Codec.SNAPPY, f"a block of {len(block)} bytes declares {declared}")
    return declared


def _snappy_chunks(view: memoryview) -> Iterator[memoryview]:
    position = parts = 0
    most = MAX_SNAPPY_CHUNKS + len(view) // SNAPPY_CHUNK_BYTES
    while position < len(view):
        parts += 1
        if parts > most:
            raise _damaged(Codec.SNAPPY, f"more parts than {most}")
        # Concatenated streams repeat the header.
        if bytes(view[position : position + len(XERIAL_MAGIC)]) == XERIAL_MAGIC:
            position += len(XERIAL_HEADER)
            continue
        start = position + LENGTH.size
        length = LENGTH.unpack_from(view, position)[0] if start <= len(view) else -1
        if not 0 < length <= len(view) - start:
            raise _damaged(Codec.SNAPPY, f"chunk length {length} at {position}")
        yield view[start : start + length]
        position = start + length
    if position > len(view):
        raise _damaged(Codec.SNAPPY, "header cut off")


# --- lz4: exactly one frame, because Java's reader stops after the first --------------------------------------------


def _read_lz4(data: Buffer, limit_bytes: int) -> Buffer:
    """Decompress the frame. Feeds small pieces, because the unused input is copied for each piece of output."""
    frame = lz4.frame.LZ4FrameDecompressor()
    output = _Output(limit_bytes)
    view, position = memoryview(data), 0
    try:
        while not frame.eof:
            given = view[position : position + _FEED_BYTES] if frame.needs_input else view[:0]
            if frame.needs_input and not given:
                raise _damaged(Codec.LZ4, "cut off")
            position += len(given)
            output.add(frame.decompress(given, max_length=_PIECE_BYTES))
    except (RuntimeError, EOFError) as error:
        raise _damaged(Codec.LZ4, error) from None
    behind = len(view) - position + len(frame.unused_data or b"")
    if behind:
        raise _damaged(Codec.LZ4, f"{behind} bytes behind the frame")
    return output.data


# --- zstd: several consecutive frames are one stream, as in zstd and Java -------------------------------------------


class _ThreadsOwn(threading.local):
    """A decompressor per thread: it is expensive to create and not thread-safe."""

    def __init__(self) -> None:
        import zstandard

        self.mark_frame = zstandard.ZstdCompressor().compress(_ZSTD_MARK)
        self.zstd = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES)


@cache
def _own() -> _ThreadsOwn:
    return _ThreadsOwn()


def _read_zstd(data: Buffer, limit_bytes: int) -> Buffer:
    import zstandard

    output = _Output(limit_bytes + len(_ZSTD_MARK))
    source = b"".join((data, _own().mark_frame))
    try:
        with _own().zstd.stream_reader(source, read_across_frames=True) as reader:
            while piece := reader.read(_PIECE_BYTES):
                output.add(piece)
    except zstandard.ZstdError as error:
        raise _damaged(Codec.ZSTD, error) from None
    except BatchTooLarge:
        raise BatchTooLarge(limit_bytes) from None
    raw = output.data
    if not raw.endswith(_ZSTD_MARK):
        raise _damaged(Codec.ZSTD, "cut off")
    if isinstance(raw, bytes):
        return memoryview(raw)[: -len(_ZSTD_MARK)]
    del raw[-len(_ZSTD_MARK) :]
    return raw


_DECOMPRESSORS: Final[dict[int, Callable[[Buffer, int], Buffer]]] = {
    Codec.NONE: lambda data, limit_bytes: bytes(data[: limit_bytes + 1]),
    Codec.GZIP: _read_gzip,
    Codec.SNAPPY: _read_snappy,
    Codec.LZ4: _read_lz4,
    Codec.ZSTD: _read_zstd,
}
