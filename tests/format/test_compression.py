"""Codecs: both directions, against other implementations, and never beyond the limit."""

import contextlib
import gzip
import tracemalloc
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard
from aiokafka import codec as theirs
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.errors import CorruptBatch, InvalidRecord, UnsupportedCompression
from streamhouse.format.compression import Codec, compress
from streamhouse.format.decompression import decompress

COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
DATA = st.one_of(st.binary(max_size=200), st.binary(min_size=1, max_size=20).map(lambda piece: piece * 5000))
TEXT = b"the same words again and again, " * 300

MIB = 1 << 20
XERIAL = b"\x82SNAPPY\x00\0\0\0\1\0\0\0\1"
"""How Java's snappy streams begin."""


def streamed_zstd(data: bytes) -> bytes:
    """A frame that doesn't declare its size, as Java writes them."""
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return stream.compress(data) + stream.flush()


@given(st.sampled_from(list(Codec)), DATA)
def test_decompressing_undoes_compressing_up_to_the_limit(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed, limit_bytes=len(data)) == data
    assert decompress(codec, memoryview(bytearray(packed)), limit_bytes=len(data) + 1) == data
    if data:
        with pytest.raises(InvalidRecord):
            decompress(codec, packed, limit_bytes=len(data) - 1)


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (Codec.GZIP, theirs.gzip_encode(TEXT)),
        (Codec.SNAPPY, theirs.snappy_encode(TEXT)),
        (Codec.SNAPPY, theirs.snappy_encode(TEXT, xerial_compatible=False)),
        (Codec.LZ4, theirs.lz4_encode(TEXT)),
        (Codec.LZ4, lz4.frame.compress(TEXT, content_checksum=True, block_checksum=True, store_size=True)),
        (Codec.LZ4, lz4.frame.compress(TEXT, block_linked=True, block_size=lz4.frame.BLOCKSIZE_MAX64KB)),
        (Codec.ZSTD, theirs.zstd_encode(TEXT)),
        (Codec.ZSTD, streamed_zstd(TEXT)),
        (Codec.ZSTD, zstandard.ZstdCompressor(level=19, write_checksum=True).compress(TEXT)),
    ],
    ids=["gzip", "snappy", "raw snappy", "lz4", "lz4 checksums", "lz4 linked", "zstd", "zstd stream", "zstd checksum"],
)
def test_reads_what_others_write(codec: Codec, packed: bytes) -> None:
    assert decompress(codec, packed, limit_bytes=len(TEXT)) == TEXT


def test_others_read_what_we_write() -> None:
    assert theirs.gzip_decode(compress(Codec.GZIP, TEXT)) == TEXT
    assert theirs.snappy_decode(compress(Codec.SNAPPY, TEXT)) == TEXT
    assert theirs.lz4_decode(compress(Codec.LZ4, TEXT)) == TEXT
    assert theirs.zstd_decode(compress(Codec.ZSTD, TEXT)) == TEXT


def test_lz4_blocks_do_not_depend_on_each_other() -> None:
    assert not lz4.frame.get_frame_info(compress(Codec.LZ4, TEXT))["block_linked"]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.ZSTD])
def test_streams_in_a_row_are_one_stream(codec: Codec) -> None:
    assert decompress(codec, compress(codec, b"one") + compress(codec, b"two"), limit_bytes=6) == b"onetwo"
    with pytest.raises(InvalidRecord):
        decompress(codec, compress(codec, b"one") + compress(codec, b"two"), limit_bytes=5)


def test_a_second_lz4_frame_is_refused() -> None:
    with pytest.raises(CorruptBatch):
        decompress(Codec.LZ4, compress(Codec.LZ4, b"one") + compress(Codec.LZ4, b"two"), limit_bytes=100)


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("trailing", [b"\0", b"x", b"\0" * 32, b"garbage behind the frame"])
def test_bytes_behind_the_compressed_data_are_damage(codec: Codec, trailing: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decompress(codec, compress(codec, TEXT) + trailing, limit_bytes=MIB)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_cut_is_damage(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    # Java's snappy framing has no end: a cut between chunks is for the record count to find.
    uncut = {16} if codec is Codec.SNAPPY else set()
    for length in set(range(len(packed))) - uncut:
        with pytest.raises(CorruptBatch):
            decompress(codec, packed[:length], limit_bytes=MIB)


BOMBS = [
    pytest.param(Codec.GZIP, gzip.compress(bytes(64 * MIB), 6), id="gzip"),
    pytest.param(Codec.GZIP, gzip.compress(bytes(MIB // 2)) * 64, id="gzip in members"),
    pytest.param(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(bytes(64 * MIB))), id="snappy"),
    pytest.param(Codec.SNAPPY, compress(Codec.SNAPPY, bytes(64 * MIB)), id="snappy in chunks"),
    pytest.param(Codec.SNAPPY, b"\xff\xff\xff\xff\x0fabc", id="snappy that declares 4 GiB"),
    pytest.param(Codec.LZ4, lz4.frame.compress(bytes(64 * MIB)), id="lz4"),
    pytest.param(Codec.LZ4, lz4.frame.compress(bytes(64 * MIB), store_size=False), id="lz4 of undeclared size"),
    pytest.param(Codec.ZSTD, zstandard.ZstdCompressor().compress(bytes(64 * MIB)), id="zstd"),
    pytest.param(Codec.ZSTD, streamed_zstd(bytes(64 * MIB)), id="zstd of undeclared size"),
    pytest.param(Codec.ZSTD, zstandard.ZstdCompressor().compress(bytes(MIB // 2)) * 64, id="zstd in frames"),
]


@pytest.mark.parametrize(("codec", "bomb"), BOMBS)
def test_a_bomb_takes_no_more_memory_than_a_few_limits(codec: Codec, bomb: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises((InvalidRecord, CorruptBatch)):
            decompress(codec, bomb, limit_bytes=MIB)
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()


@given(st.sampled_from(COMPRESSING), st.binary(max_size=300))
def test_noise_is_damage_and_nothing_worse(codec: Codec, noise: bytes) -> None:
    with contextlib.suppress(CorruptBatch, InvalidRecord):
        assert len(decompress(codec, noise, limit_bytes=10_000)) <= 10_000


@given(st.sampled_from(COMPRESSING), st.data())
def test_flipped_bits_are_damage_or_other_bytes_and_nothing_worse(codec: Codec, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, TEXT))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(CorruptBatch, InvalidRecord):
        assert len(decompress(codec, packed, limit_bytes=2 * len(TEXT))) <= 2 * len(TEXT)


def test_gzip_may_end_exactly_at_the_limit_of_a_member() -> None:
    packed = gzip.compress(b"x" * 100) + gzip.compress(b"")
    assert decompress(Codec.GZIP, packed, limit_bytes=100) == b"x" * 100


def test_plain_deflate_is_not_gzip() -> None:
    with pytest.raises(CorruptBatch):
        decompress(Codec.GZIP, zlib.compress(TEXT), limit_bytes=MIB)


@pytest.mark.parametrize("codec", [-1, 5, 6, 7])
def test_unknown_codecs_are_named_so(codec: int) -> None:
    with pytest.raises(UnsupportedCompression):
        decompress(codec, b"", limit_bytes=10)
    with pytest.raises(UnsupportedCompression):
        compress(codec, b"")


@pytest.mark.parametrize("codec", COMPRESSING)
def test_decompressing_takes_little_more_memory_than_what_comes_out(codec: Codec) -> None:
    size = 32 * MIB
    packed = compress(codec, bytes(size))
    tracemalloc.start()
    try:
        assert len(decompress(codec, packed, limit_bytes=size)) == size
        assert tracemalloc.get_traced_memory()[1] < 1.4 * size
    finally:
        tracemalloc.stop()


def test_gzip_members_are_not_copied_again_for_each_member_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress(b"x") * 500 + gzip.compress(bytes(range(256)) * 2000, 0)
    given = 0
    make = zlib.decompressobj

    class Counted:
        def __init__(self, wbits: int) -> None:
            self._inner = make(wbits)

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

        def decompress(self, data: bytes, most: int) -> bytes:
            nonlocal given
            given += len(data)
            return self._inner.decompress(data, most)

    monkeypatch.setattr(zlib, "decompressobj", Counted)
    assert len(decompress(Codec.GZIP, packed, limit_bytes=MIB)) == 500 + 256 * 2000
    assert given < 10 * len(packed)


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        pytest.param(Codec.GZIP, gzip.compress(b"") * 20_000, id="gzip members"),
        pytest.param(Codec.SNAPPY, XERIAL + b"\0\0\0\1\0" * 200_000, id="empty snappy chunks"),
        pytest.param(Codec.SNAPPY, XERIAL * 20_000, id="snappy headers"),
    ],
)
def test_streams_of_countless_parts_are_refused(codec: Codec, packed: bytes) -> None:
    with pytest.raises(CorruptBatch, match="parts"):
        decompress(codec, packed, limit_bytes=MIB)


def test_a_snappy_block_that_declares_more_than_it_can_hold_takes_no_memory() -> None:
    declared = 200 * MIB
    block = bytes((declared >> shift) & 0x7F | (0x80 if shift < 21 else 0) for shift in (0, 7, 14, 21)) + b"abc"
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch, match="declares"):
            decompress(Codec.SNAPPY, block, limit_bytes=256 * MIB)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", COMPRESSING)
def test_empty_content_is_no_content(codec: Codec) -> None:
    assert bytes(decompress(codec, compress(codec, b""), limit_bytes=0)) == b""


def test_zstd_of_a_huge_window_is_read_only_as_far_as_javas_reader_would() -> None:
    stream = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(window_log=28, enable_ldm=True),
    ).compressobj()
    packed = stream.compress(TEXT) + stream.flush()
    with pytest.raises(CorruptBatch):
        decompress(Codec.ZSTD, packed, limit_bytes=MIB)
