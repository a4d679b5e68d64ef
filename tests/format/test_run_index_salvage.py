"""What of a damaged index can still be trusted: whatever bit is flipped, what is salvaged is what was written."""

import pytest

from streamhouse.errors import CorruptObject
from streamhouse.format.block import BlockEntry
from streamhouse.format.producer_snapshot import ProducerEntry, SequenceSpan, encode_producers
from streamhouse.format.run_index import (
    RunIndex,
    decode_run_index,
    encode_run_index,
    salvage_blocks,
    salvage_producers,
)
from streamhouse.model.names import Epoch
from tests.format.segments import ORDERS

POSITION = 16
BLOCKS = tuple(
    BlockEntry(first=n * 10, end=n * 10 + 10, max_timestamp_ms=5, position=POSITION + n * 100, stored_bytes=100,
               raw_bytes=200, codec=1, crc=n)
    for n in range(3)
)  # fmt: skip
LENGTH = 300
SNAPSHOT = encode_producers(
    [ProducerEntry(7, 0, (SequenceSpan(0, 4, 100, 105, 1_000),), 1_000), ProducerEntry(8, 3, (), 2_000, 17, 4)]
)
INDEX = encode_run_index(
    RunIndex(partition=ORDERS, epoch=Epoch(3), stored_base=100, stored_end=130, blocks=BLOCKS, producers=SNAPSHOT)
)
SNAPSHOT_AT = len(INDEX) - 4 - len(SNAPSHOT)


def flipped(bit: int) -> bytes:
    data = bytearray(INDEX)
    data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


def test_a_flip_anywhere_but_in_the_snapshot_leaves_the_snapshot() -> None:
    for bit in range(len(INDEX) * 8):
        data = flipped(bit)
        with pytest.raises(CorruptObject):
            decode_run_index(data)
        if SNAPSHOT_AT <= bit // 8 < SNAPSHOT_AT + len(SNAPSHOT):
            with pytest.raises(CorruptObject):
                salvage_producers(data)
        else:
            assert salvage_producers(data) == SNAPSHOT


def test_entries_that_are_salvaged_find_every_block_where_it_is() -> None:
    places = [(entry.position, entry.stored_bytes) for entry in BLOCKS]
    salvaged = 0
    for bit in range(len(INDEX) * 8):
        try:
            result = salvage_blocks(flipped(bit), position=POSITION, length=LENGTH)
        except CorruptObject:
            assert 64 <= bit // 8 < SNAPSHOT_AT
            continue
        assert [(entry.position, entry.stored_bytes) for entry in result] == places
        salvaged += 1
    assert salvaged > len(SNAPSHOT) * 8


@pytest.mark.parametrize("data", [b"", b"x" * 10, bytes(68), INDEX[:40], b"\xff" * 300])
def test_nothing_is_salvaged_of_what_is_no_index(data: bytes) -> None:
    with pytest.raises(CorruptObject):
        salvage_producers(data)
    with pytest.raises(CorruptObject):
        salvage_blocks(data, position=POSITION, length=LENGTH)


def test_a_snapshot_of_no_bytes_is_not_believed_in_a_damaged_index() -> None:
    bare = RunIndex(partition=ORDERS, epoch=Epoch(3), stored_base=0, stored_end=30, blocks=BLOCKS, producers=b"")
    data = bytearray(encode_run_index(bare))
    data[10] ^= 1
    with pytest.raises(CorruptObject):
        salvage_producers(bytes(data))
