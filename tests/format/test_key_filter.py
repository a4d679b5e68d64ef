"""Key filters: a block that holds a key never says no; others do, nearly always; sizes follow the different keys."""

import random
import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.errors import CorruptObject
from streamhouse.format import key_filter
from streamhouse.format.batch import HEADER_BYTES
from streamhouse.format.block import summarize_batch
from streamhouse.format.compression import Codec
from streamhouse.format.key_filter import (
    BITS_PER_KEY,
    FilteredKeys,
    KeyFilterBuilder,
    decode_key_filters,
    encode_key_filters,
    key_hash,
    may_have_key,
    may_hold,
)
from streamhouse.format.record_scanner import FieldError, scan
from streamhouse.format.records import Record, build_batch
from tests.format.segments import ORDERS, directory_of, filters_of, run_of, stored

_records = pytest.importorskip("streamhouse.format._records")
pytestmark = pytest.mark.skipif(not key_filter.IS_COMPILED, reason="built without a compiler")

KEYS = st.lists(st.none() | st.binary(max_size=40) | st.sampled_from([b"a", b"b"]), min_size=1, max_size=30)


def filter_of(keys: Sequence[bytes | None], *, codec: Codec = Codec.NONE, which: FilteredKeys = "all") -> bytes:
    records = [Record(key=key, value=b"v", headers=(("h", key),)) for key in keys]
    batches = [build_batch(records[at : at + 7], codec=codec, base_offset=at) for at in range(0, len(records), 7)]
    return KeyFilterBuilder(which).build([summarize_batch(batch) for batch in batches])


@given(KEYS, st.sampled_from(list(Codec)))
def test_what_is_in_a_block_is_found(keys: list[bytes | None], codec: Codec) -> None:
    result = filter_of(keys, codec=codec)
    assert result == filter_of(keys)
    assert all(may_hold(result, key_hash(key)) for key in keys if key is not None)
    # The oracle: the bits of exactly these keys, as Parquet's filters have them.
    words = [0] * (len(result) // 4)
    for key in keys:
        if key is not None:
            hashed = key_hash(key)
            bucket = ((hashed >> 32) * (len(result) // 32)) >> 32
            for number, salt in enumerate(key_filter._SALTS):
                words[bucket * 8 + number] |= 1 << ((hashed % 2**32 * salt % 2**32) >> 27)
    assert result == struct.pack(f"<{len(words)}I", *words)


def test_one_block_in_a_hundred_is_read_in_vain() -> None:
    result = filter_of([b"key-%d" % n for n in range(5000)])
    assert len(result) == pytest.approx(5000 * BITS_PER_KEY / 8, abs=32)
    wrong = sum(may_hold(result, key_hash(b"other-%d" % n)) for n in range(20_000))
    assert wrong < 20_000 * 0.02


def test_the_size_follows_the_different_keys_not_the_records() -> None:
    chance = random.Random(1)
    result = filter_of([b"key-%d" % chance.randrange(100) for _ in range(5000)])
    assert len(result) <= 2 * 32 * (100 * BITS_PER_KEY // 256 + 1)
    assert not all(may_hold(result, key_hash(b"other-%d" % n)) for n in range(100))


def test_hashes_are_those_of_murmur_hash_64a() -> None:
    # Computed with the reference implementation by Austin Appleby, seed 0.
    assert key_hash(b"") == 0
    assert key_hash(b"a") == 0x071717D2D36B6B11
    assert key_hash(b"hello") == 0x1E68D17C457BF117
    assert key_hash(b"customer-1234567") == 0x8FB309F8BB1B42A9


@pytest.mark.parametrize(
    ("which", "codec", "has_filter"),
    [("none", Codec.NONE, False), ("uncompressed", Codec.NONE, True), ("uncompressed", Codec.ZSTD, False)],
)
def test_only_the_blocks_that_are_wanted_have_a_filter(which: FilteredKeys, codec: Codec, has_filter: bool) -> None:
    assert bool(filter_of([b"a"], which=which, codec=codec)) is has_filter


def test_a_block_without_a_filter_may_hold_any_key() -> None:
    assert may_hold(b"", key_hash(b"a"))
    filters = decode_key_filters(encode_key_filters([b"", filter_of([b"a"]), filter_of([None])]))
    assert [filters.may_hold(number, key_hash(b"b")) for number in range(4)] == [True, False, False, True]
    assert encode_key_filters([b"", b""]) == b""


@pytest.mark.parametrize(
    ("codec", "limit", "has_filter"), [(Codec.ZSTD, 3, False), (Codec.ZSTD, 4, True), (Codec.NONE, 0, True)]
)
def test_a_block_that_expands_too_much_has_no_filter(
    monkeypatch: pytest.MonkeyPatch, codec: Codec, limit: int, has_filter: bool
) -> None:
    batches = [build_batch([Record(key=b"a", value=bytes(100_000))], codec=codec) for _ in range(4)]
    monkeypatch.setattr(key_filter, "MAX_PAYLOAD_BYTES", limit * 101_000)
    assert bool(KeyFilterBuilder("all").build([summarize_batch(batch) for batch in batches])) is has_filter


def test_compressed_batches_are_decompressed_within_a_limit() -> None:
    """About it: the block that reaches it still has a filter."""
    blocks = [
        [summarize_batch(build_batch([Record(key=b"a", value=bytes(1000))], codec=codec))]
        for codec in (Codec.ZSTD, Codec.NONE, Codec.LZ4, Codec.ZSTD, Codec.NONE)
    ]
    builder = KeyFilterBuilder("all", decompress_bytes=1500)
    assert [bool(builder.build(block)) for block in blocks] == [True, True, True, False, True]
    assert 2000 < builder.decompressed_bytes < 2100
    assert not KeyFilterBuilder("all", decompress_bytes=0).build(blocks[0])


def test_a_block_that_can_not_be_decompressed_counts_as_much_as_it_may_have_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_filter, "MAX_PAYLOAD_BYTES", 50_000)
    builder = KeyFilterBuilder("all")
    assert not builder.build([summarize_batch(build_batch([Record(value=bytes(100_000))], codec=Codec.ZSTD))])
    assert builder.decompressed_bytes == 50_000


@pytest.mark.parametrize("compiled", [True, False])
@given(keys=KEYS, key=st.binary(max_size=2) | st.sampled_from([b"a", b"b", b"v"]))
def test_a_key_is_found_without_decoding_records(compiled: bool, keys: list[bytes | None], key: bytes) -> None:
    records = [Record(key=each, value=b"v", headers=(("h", b"a"),)) for each in keys]
    payload = memoryview(build_batch(records))[HEADER_BYTES:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_filter, "IS_COMPILED", compiled)
        result = may_have_key(payload, len(records), key)
    assert result if key in keys else not (compiled and result)


@given(st.binary(max_size=200), st.integers(-1, 40))
def test_bytes_that_are_no_records_may_have_any_key(payload: bytes, count: int) -> None:
    is_readable = scan(payload, count).field_error is FieldError.NONE
    assert is_readable or _records.filter_hashes(payload, count) is not None or may_have_key(payload, count, b"?" * 99)


@given(st.binary(max_size=200), st.integers(0, 40))
def test_bytes_that_are_no_records_have_no_filter(payload: bytes, count: int) -> None:
    result = _records.filter_hashes(payload, count)
    assert result is None or len(result) <= 8 * count


def test_damaged_filters_are_noticed() -> None:
    data = bytearray(encode_key_filters([filter_of([b"a"])]))
    for at in range(len(data)):
        data[at] ^= 4
        with pytest.raises(CorruptObject):
            decode_key_filters(data)
        data[at] ^= 4
    for length in range(len(data)):
        with pytest.raises(CorruptObject):
            decode_key_filters(data[:length])


def test_a_segment_of_an_earlier_day_has_no_filters_and_reads_the_same() -> None:
    run = run_of(ORDERS, 0, [b"x"] * 4)
    before, now = stored([run], key_filters="none"), stored([run])
    assert filters_of(before, directory_of(before).runs[0]) is None
    assert filters_of(now, directory_of(now).runs[0]) is not None
