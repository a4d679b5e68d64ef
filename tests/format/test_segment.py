"""Segments: what goes in comes out, blocks are found, and no damage passes."""

import os
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.errors import CorruptObject, Internal
from streamhouse.format.batch import iter_batches
from streamhouse.format.block import LZ4, RAW, BlockEntry, decode_block
from streamhouse.format.compression import Codec
from streamhouse.format.run_index import RunIndex, decode_run_index
from streamhouse.format.segment import (
    FOOTER_BYTES,
    Directory,
    MoreBytesNeeded,
    RunInput,
    encode_segment,
    read_directory,
)
from streamhouse.model.names import Epoch, PartitionId, TopicId
from tests.format.segments import (
    CLICKS,
    KEY,
    ORDERS,
    batches_from,
    contents,
    directory_of,
    joined,
    read_everything,
    run_of,
    stored,
)

EDGES = [0, 2**31 - 3, 2**32 - 3, 2**53 - 3, 2**62]
PARTITIONS = st.builds(PartitionId, st.uuids().map(TopicId), st.integers(0, 2**31 - 1))
VALUES = st.one_of(st.binary(max_size=50), st.binary(min_size=1, max_size=10).map(lambda piece: piece * 200))
RUNS = st.builds(
    run_of,
    PARTITIONS,
    st.one_of(st.integers(0, 2**62), st.sampled_from(EDGES)),
    st.lists(VALUES, max_size=12),
    codec=st.sampled_from(list(Codec)),
    producers=st.binary(max_size=40),
)
WORDS = [b"the same words again and again " * 40] * 12
NOISE = [random.Random(n).randbytes(1200) for n in range(12)]


def index_of(data: bytes, run: int = 0) -> RunIndex:
    entry = directory_of(data).runs[run]
    return decode_run_index(data[entry.index_position : entry.index_position + entry.index_length], key=KEY)


def block_bytes_of(data: bytes, entry: BlockEntry) -> bytes:
    return data[entry.position : entry.position + entry.stored_bytes]


# --- round trips ------------------------------------------------------------------------------------------------


@given(st.lists(RUNS, max_size=5), st.sampled_from([1, 200, 1000, 1 << 20]))
def test_reading_undoes_encoding(runs: list[RunInput], block_bytes: int) -> None:
    assert contents(read_everything(stored(runs, block_bytes=block_bytes))) == contents(runs)


@given(RUNS, st.sampled_from([1, 300, 1 << 20]))
def test_a_block_is_found_for_every_offset(run: RunInput, block_bytes: int) -> None:
    data = stored([run], block_bytes=block_bytes)
    index = index_of(data)
    for span in iter_batches(joined(run.batches)):
        for offset in (span.base, span.end - 1):
            block = index.blocks[index.block_for(offset - index.stored_base)]
            raw = decode_block(block_bytes_of(data, block), block, key=KEY)
            assert any(each.base <= offset < each.end for each in iter_batches(raw))
    assert index.block_for(run.end - run.base) == len(index.blocks)


def test_a_reader_in_a_gap_begins_at_the_next_block() -> None:
    batches = batches_from(100, [b"a", b"b"]) + batches_from(500, [b"c", b"d"])
    run = RunInput(partition=ORDERS, epoch=Epoch(7), base=90, end=600, batches=batches, producers=b"")
    index = index_of(stored([run], block_bytes=1))
    assert [(block.first, block.end) for block in index.blocks] == [(10, 12), (410, 412)]
    assert [index.block_for(offset) for offset in (0, 10, 11, 12, 409, 411, 412, 509)] == [0, 0, 0, 1, 1, 1, 2, 2]


def test_a_layout_becomes_the_metadata_row() -> None:
    runs = [run_of(ORDERS, 2**40, WORDS), run_of(CLICKS, 5, NOISE, producers=b"state")]
    encoded = encode_segment(runs, block_bytes=3000)
    data = b"".join(encoded.body)
    for run, layout in zip(runs, encoded.layouts, strict=True):
        row = layout.run(KEY)
        assert (row.partition, row.base, row.end, row.stored_base) == (run.partition, run.base, run.end, run.base)
        assert (row.epoch, row.object_key, row.records, row.max_timestamp_ms) == (7, KEY, 12, 1010)
        index = decode_run_index(data[row.index_position : row.index_position + row.index_length])
        assert index.producers == run.producers
        assert index.blocks[0].position == row.position
        assert sum(block.stored_bytes for block in index.blocks) == row.length
        assert max(block.max_timestamp_ms for block in index.blocks) == row.max_timestamp_ms


@pytest.mark.parametrize("words", [WORDS, NOISE])
@pytest.mark.parametrize("block_bytes", [1, 3000])
def test_what_is_kept_of_a_run_is_what_a_reader_would_decode(words: list[bytes], block_bytes: int) -> None:
    encoded = encode_segment([replace(run_of(ORDERS, 9, words), keep_blocks=True)], block_bytes=block_bytes)
    data, (kept,) = b"".join(encoded.body), encoded.kept
    index = index_of(data)
    assert kept.index == index
    assert kept.blocks == {
        entry.position: decode_block(data[entry.position : entry.position + entry.stored_bytes], entry)
        for entry in index.blocks
    }
    assert all(isinstance(block, bytes) for block in kept.blocks.values())  # no view of a request


def test_an_empty_run_and_an_empty_file_are_segments_too() -> None:
    empty = RunInput(partition=ORDERS, epoch=Epoch(1), base=9, end=9, batches=[], producers=b"p")
    assert contents(read_everything(stored([empty]))) == [(ORDERS, 1, 9, 9, b"", b"p")]
    assert read_everything(stored([])) == []
    assert directory_of(stored([empty])).runs[0].max_timestamp_ms == -1


# --- blocks -----------------------------------------------------------------------------------------------------


def test_blocks_hold_whole_batches_up_to_their_size() -> None:
    run = run_of(ORDERS, 0, NOISE)
    sizes = [len(batch) for batch in run.batches]
    blocks = index_of(stored([run], block_bytes=sum(sizes[:3]))).blocks
    assert [block.raw_bytes for block in blocks] == [sum(sizes[:3]), sum(sizes[3:])]


def test_a_batch_larger_than_a_block_is_a_block_of_its_own() -> None:
    small, large = [b"s"] * 2, [bytes(5000)] * 2
    batches = batches_from(0, small) + batches_from(2, large) + batches_from(4, small)
    run = RunInput(partition=ORDERS, epoch=Epoch(7), base=0, end=6, batches=batches, producers=b"")
    blocks = index_of(stored([run], block_bytes=1000)).blocks
    assert [(block.first, block.end) for block in blocks] == [(0, 2), (2, 4), (4, 6)]


def test_what_shrinks_is_stored_as_lz4_and_what_does_not_is_stored_raw() -> None:
    data = stored([run_of(ORDERS, 0, WORDS), run_of(ORDERS, 12, NOISE)])
    words, noise = index_of(data, 0).blocks[0], index_of(data, 1).blocks[0]
    assert words.codec == LZ4
    assert words.stored_bytes < words.raw_bytes / 4
    assert (noise.codec, noise.stored_bytes) == (RAW, noise.raw_bytes)


def test_large_noise_is_stored_raw_and_large_words_as_lz4() -> None:
    for value, codec in ((os.urandom(300_000), RAW), (WORDS[0] * 250, LZ4)):
        data = stored([run_of(ORDERS, 0, [value])])
        assert index_of(data).blocks[0].codec == codec
        assert contents(read_everything(data)) == contents([run_of(ORDERS, 0, [value])])


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_the_producer_compressed_is_not_compressed_again(codec: Codec) -> None:
    # Zeros leave even a compressed batch compressible: only the header's codec can be the reason.
    run = run_of(ORDERS, 0, [bytes(100_000)] * 4, codec=codec)
    assert {block.codec for block in index_of(stored([run])).blocks} == {RAW}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_large_batches_that_stay_raw_are_not_copied(codec: Codec) -> None:
    batches = batches_from(0, [os.urandom(50_000) for _ in range(3)], codec=codec)
    run = RunInput(partition=ORDERS, epoch=Epoch(7), base=0, end=3, batches=batches, producers=b"")
    body = encode_segment([run]).body
    assert [batch for batch in batches if any(piece is batch for piece in body)] == batches


def test_words_between_noise_are_found_wherever_they_are() -> None:
    noise, words = [os.urandom(20_000)] * 2, [WORDS[0] * 50] * 8
    for values in (noise + words, words + noise, words[:4] + noise + words[:4]):
        assert index_of(stored([run_of(ORDERS, 0, values)])).blocks[0].codec == LZ4


# --- what must not be written -----------------------------------------------------------------------------------


def test_refuses_batches_that_overlap_or_leave_their_run() -> None:
    first, second = batches_from(10, [b"a", b"b"]), batches_from(11, [b"c", b"d"])
    for batches, base, end in [(first + second, 10, 20), (second + first, 10, 20), (first, 11, 20), (first, 0, 11)]:
        with pytest.raises(Internal):
            encode_segment(
                [RunInput(partition=ORDERS, epoch=Epoch(7), base=base, end=end, batches=batches, producers=b"")]
            )


def test_refuses_buffers_that_are_not_exactly_one_batch() -> None:
    good = batches_from(0, [b"a", b"b"])[0]
    for bad in (good + good, good[:-1], good[:20], b""):
        with pytest.raises(Internal):
            encode_segment([RunInput(partition=ORDERS, epoch=Epoch(7), base=0, end=2, batches=[bad], producers=b"")])


# --- damage -----------------------------------------------------------------------------------------------------


def a_small_file() -> bytes:
    """Two runs, one LZ4 and one raw, in a few hundred bytes."""
    return stored(
        [run_of(ORDERS, 2**40, [b"aaaaaaaa" * 9], producers=b"p"), run_of(CLICKS, 7, [b"x"], codec=Codec.LZ4)]
    )


def test_every_flipped_bit_is_seen() -> None:
    data = bytearray(a_small_file())
    assert [index_of(bytes(data), run).blocks[0].codec for run in (0, 1)] == [LZ4, RAW]
    for at in range(len(data)):
        for bit in range(8):
            data[at] ^= 1 << bit
            with pytest.raises(CorruptObject):
                read_everything(bytes(data))
            data[at] ^= 1 << bit


def test_every_cut_is_seen() -> None:
    data = a_small_file()
    for length in range(len(data)):
        with pytest.raises(CorruptObject):
            read_everything(data[:length])


def test_bytes_that_were_added_are_seen() -> None:
    data = a_small_file()
    for wrong in (data + b"\0", b"\0" + data, data + data):
        with pytest.raises(CorruptObject):
            read_everything(wrong)


def test_the_blocks_beside_a_damaged_one_are_still_served() -> None:
    data = bytearray(stored([run_of(ORDERS, 0, NOISE)], block_bytes=3000))
    index = index_of(bytes(data))
    data[index.blocks[2].position + 5] ^= 1
    for number, block in enumerate(index.blocks):
        if number == 2:
            with pytest.raises(CorruptObject, match=r"checksum.*position"):
                decode_block(block_bytes_of(bytes(data), block), block, key=KEY)
        else:
            decode_block(block_bytes_of(bytes(data), block), block, key=KEY)


def test_a_block_of_another_length_is_refused() -> None:
    data = a_small_file()
    block = index_of(data).blocks[0]
    good = block_bytes_of(data, block)
    for wrong in (good[:-1], good + b"\0", b""):
        with pytest.raises(CorruptObject, match="bytes instead of"):
            decode_block(wrong, block, key=KEY)


def test_a_block_never_grows_beyond_what_its_entry_says() -> None:
    block = index_of(stored([run_of(ORDERS, 0, WORDS)])).blocks[0]
    good = block_bytes_of(stored([run_of(ORDERS, 0, WORDS)]), block)
    for raw_bytes in (0, block.raw_bytes - 1, block.raw_bytes + 1, 2**32 - 1):
        with pytest.raises(CorruptObject):
            decode_block(good, block._replace(raw_bytes=raw_bytes), key=KEY)


def test_an_unknown_codec_is_refused() -> None:
    data = a_small_file()
    block = index_of(data).blocks[0]
    with pytest.raises(CorruptObject, match="codec 9"):
        decode_block(block_bytes_of(data, block), block._replace(codec=9), key=KEY)


def test_damage_is_reported_with_the_object_it_is_in() -> None:
    with pytest.raises(CorruptObject, match=f"key={KEY}"):
        decode_run_index(b"\0" * 100, key=KEY)


# --- the tail ---------------------------------------------------------------------------------------------------


def test_one_suffix_finds_the_directory_or_says_what_it_takes() -> None:
    data = stored([run_of(ORDERS, n * 12, WORDS) for n in range(20)])
    whole = directory_of(data)
    for length in range(0, len(data) + 1, 7):
        response = read_directory(data[len(data) - length :], size_bytes=len(data), key=KEY)
        if isinstance(response, MoreBytesNeeded):
            assert length < response.bytes <= len(data)
            again = read_directory(data[-response.bytes :], size_bytes=len(data), key=KEY)
            assert isinstance(again, Directory) or length < FOOTER_BYTES
        else:
            assert response == whole


def test_a_suffix_of_another_object_is_refused() -> None:
    data = a_small_file()
    for size_bytes in (len(data) - 1, len(data) + 1):
        with pytest.raises(CorruptObject):
            read_directory(data, size_bytes=size_bytes, key=KEY)
