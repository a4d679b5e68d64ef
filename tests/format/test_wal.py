"""WAL file: round trips, flipped bits, cut files, forged entries."""

import random
import struct
import uuid
from dataclasses import replace

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.errors import Misconfigured
from streamhouse.format.wal_file import (
    ENTRY_HEADER_BYTES,
    FILE_HEADER_BYTES,
    VERSION,
    CorruptRange,
    FileHeader,
    ScannedEntry,
    WalEntry,
    decode_file_header,
    encode_end,
    encode_entry,
    encode_file_header,
    scan,
    summarize,
)
from streamhouse.model.names import Epoch, PartitionId, SessionId, TopicId

HEADER = FileHeader(session=SessionId("agent-1-abc"), sequence=7, mark=bytes.fromhex("a1b2c3d4e5f60718"))
ORDERS = PartitionId(TopicId(uuid.UUID(int=1)), 0)
CLICKS = PartitionId(TopicId(uuid.UUID(int=2)), 3)
SMALL = [
    WalEntry(ORDERS, Epoch(1), 0, 3, b"first batch"),
    WalEntry(CLICKS, Epoch(2), 10, 11, b""),
    WalEntry(ORDERS, Epoch(1), 3, 4, b"third, somewhat longer batch"),
    WalEntry(CLICKS, Epoch(2), 11, 15, b"last"),
]


def file_of(entries: list[WalEntry], header: FileHeader = HEADER) -> bytes:
    data = bytearray(encode_file_header(header))
    for entry in entries:
        lead, batch = encode_entry(entry, mark=header.mark, position=len(data))
        data += lead
        data += batch
    return bytes(data)


def entries_in(data: bytes) -> list[WalEntry]:
    return [plain(item.entry) for item in scan(memoryview(data)) if isinstance(item, ScannedEntry)]


def damage_in(data: bytes) -> list[CorruptRange]:
    return [item for item in scan(memoryview(data)) if isinstance(item, CorruptRange)]


def plain(entry: WalEntry) -> WalEntry:
    return entry._replace(batch=bytes(entry.batch))


def positions_of(entries: list[WalEntry]) -> list[int]:
    """Where each entry starts, and where the file ends."""
    positions = [FILE_HEADER_BYTES]
    for entry in entries:
        positions.append(positions[-1] + ENTRY_HEADER_BYTES + len(entry.batch))
    return positions


EDGES = [0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**53 + 1, 2**63 - 1]
offsets = st.one_of(st.sampled_from(EDGES), st.integers(0, 2**63 - 1))
walentries = st.builds(
    WalEntry,
    partition=st.builds(
        PartitionId,
        topic_id=st.uuids().map(TopicId),
        partition=st.one_of(st.just(2**31 - 1), st.integers(0, 2**31 - 1)),
    ),
    epoch=offsets.map(Epoch),
    base=offsets,
    end=offsets,
    batch=st.binary(max_size=200),
)


@given(st.lists(walentries, max_size=8), st.binary(min_size=8, max_size=8), st.integers(0, 2**64 - 1))
def test_reads_back_what_was_written(entries: list[WalEntry], mark: bytes, sequence: int) -> None:
    header = FileHeader(session=SessionId("s"), sequence=sequence, mark=mark)
    data = file_of(entries, header)
    assert decode_file_header(memoryview(data)) == header
    assert entries_in(data) == entries
    assert damage_in(data) == []


def test_a_batch_is_not_copied_when_it_is_encoded() -> None:
    batch = bytearray(b"batch")
    _, same = encode_entry(WalEntry(ORDERS, Epoch(0), 0, 1, batch), mark=HEADER.mark, position=0)
    assert same is batch


def test_memoryviews_and_bytes_are_encoded_alike() -> None:
    plain_entry = SMALL[0]
    as_view = plain_entry._replace(batch=memoryview(plain_entry.batch))
    assert file_of([plain_entry]) == file_of([as_view])


def test_a_flipped_bit_costs_the_entry_that_has_it_and_no_other() -> None:
    data = file_of(SMALL)
    positions = positions_of(SMALL)
    for at in range(FILE_HEADER_BYTES, len(data)):
        hit = max(i for i in range(len(SMALL)) if positions[i] <= at)
        is_tail = hit == len(SMALL) - 1
        for bit in range(8):
            broken = bytearray(data)
            broken[at] ^= 1 << bit
            assert entries_in(bytes(broken)) == SMALL[:hit] + SMALL[hit + 1 :]
            expected = CorruptRange(positions[hit], positions[hit + 1] - positions[hit], tail=is_tail)
            assert damage_in(bytes(broken)) == [expected]


def test_a_flipped_bit_in_the_file_header_costs_nothing() -> None:
    data = file_of(SMALL[:1])
    for at in range(FILE_HEADER_BYTES):
        broken = bytearray(data)
        broken[at] ^= 1 << (at % 8)
        assert entries_in(bytes(broken)) == SMALL[:1]


def test_a_file_cut_anywhere_keeps_all_whole_entries() -> None:
    data = file_of(SMALL)
    positions = positions_of(SMALL)
    for length in range(FILE_HEADER_BYTES, len(data) + 1):
        whole = [entry for entry, end in zip(SMALL, positions[1:], strict=True) if end <= length]
        assert entries_in(data[:length]) == whole
        cut = length - positions[len(whole)]
        assert damage_in(data[:length]) == ([CorruptRange(positions[len(whole)], cut, tail=True)] if cut else [])


def test_a_file_cut_inside_its_header_has_no_entries() -> None:
    data = file_of(SMALL)
    for length in range(FILE_HEADER_BYTES):
        assert entries_in(data[:length]) == []


def test_an_empty_file_is_not_damaged() -> None:
    assert list(scan(memoryview(b""))) == []
    assert list(scan(memoryview(bytes(100_000)))) == []


def test_a_file_whose_header_is_gone_is_damaged_as_a_whole() -> None:
    data = bytearray(file_of(SMALL))
    data[0:FILE_HEADER_BYTES] = bytes(FILE_HEADER_BYTES)
    assert list(scan(memoryview(data))) == [CorruptRange(0, len(data), tail=True)]


@pytest.mark.parametrize("zeros", [1, ENTRY_HEADER_BYTES, 4096, 3 * 1024 * 1024])
def test_zeros_behind_the_last_entry_are_not_damage(zeros: int) -> None:
    data = file_of(SMALL) + bytes(zeros)
    assert entries_in(data) == SMALL
    assert damage_in(data) == []


EARLIER = replace(HEADER, sequence=3, mark=bytes.fromhex("1827364554637281"))


def recycled(entries: list[WalEntry], earlier: list[WalEntry]) -> bytes:
    """A file that contained other entries before."""
    data, old = file_of(entries), file_of(earlier, EARLIER)
    data += encode_end(mark=HEADER.mark, position=len(data))
    return data + old[len(data) :]


@pytest.mark.parametrize("count", range(len(SMALL) + 1))
def test_what_a_recycled_file_contained_before_is_neither_an_entry_nor_damage(count: int) -> None:
    data = recycled(SMALL[:count], SMALL * 3)
    assert entries_in(data) == SMALL[:count]
    assert damage_in(data) == []


def test_a_recycled_file_without_its_end_is_cut() -> None:
    data = bytearray(recycled(SMALL[:2], SMALL * 3))
    position = positions_of(SMALL[:2])[-1]
    data[position + 9] ^= 1
    assert entries_in(bytes(data)) == SMALL[:2]
    assert damage_in(bytes(data)) == [CorruptRange(position, len(data) - position, tail=True)]


def test_an_end_before_an_entry_is_damage() -> None:
    data = bytearray(file_of(SMALL))
    start, end = positions_of(SMALL)[2:4]
    mark_of_end = encode_end(mark=HEADER.mark, position=start)
    data[start : start + len(mark_of_end)] = mark_of_end
    assert damage_in(bytes(data)) == [CorruptRange(start, end - start, tail=False)]
    assert entries_in(bytes(data)) == [*SMALL[:2], SMALL[3]]


def test_zeros_between_entries_are_damage() -> None:
    data = bytearray(file_of(SMALL))
    start, end = positions_of(SMALL)[1:3]
    data[start:end] = bytes(end - start)
    assert damage_in(bytes(data)) == [CorruptRange(start, end - start, tail=False)]
    assert entries_in(bytes(data)) == [SMALL[0], *SMALL[2:]]


@pytest.mark.parametrize("lie", [0, 1, 2**31, 2**32 - 1])
def test_a_lying_length_does_not_swallow_its_neighbours(lie: int) -> None:
    data = bytearray(file_of(SMALL))
    struct.pack_into(">I", data, positions_of(SMALL)[1] + 12, lie or 5)
    assert entries_in(bytes(data)) == [SMALL[0], *SMALL[2:]]


def test_the_next_entry_is_found_across_the_border_of_a_search_window() -> None:
    for shift in range(-10, 10):
        big = WalEntry(ORDERS, Epoch(1), 0, 1, bytes(1024 * 1024 + shift - ENTRY_HEADER_BYTES))
        data = bytearray(file_of([big, *SMALL]))
        data[FILE_HEADER_BYTES] ^= 1
        assert entries_in(bytes(data)) == SMALL


def nested(header: FileHeader) -> tuple[WalEntry, WalEntry]:
    """An entry whose batch is a forged entry for the very place where it will stand, and that forged entry."""
    forged = WalEntry(ORDERS, Epoch(99), 1000, 2000, b"forged")
    lead, batch = encode_entry(forged, mark=header.mark, position=FILE_HEADER_BYTES + ENTRY_HEADER_BYTES)
    return WalEntry(ORDERS, Epoch(1), 0, 1, lead + bytes(batch)), forged


def test_an_entry_inside_a_batch_is_not_an_entry() -> None:
    outer, _ = nested(HEADER)
    assert entries_in(file_of([outer, *SMALL])) == [outer, *SMALL]


def test_an_entry_of_another_file_is_not_resurrected_from_a_damaged_one() -> None:
    outer, _ = nested(replace(HEADER, mark=bytes(range(8))))
    data = bytearray(file_of([outer, *SMALL]))
    data[FILE_HEADER_BYTES + 20] ^= 1
    assert entries_in(bytes(data)) == SMALL


def test_a_copy_of_this_very_file_is_not_resurrected_from_a_damaged_entry() -> None:
    copy = WalEntry(ORDERS, Epoch(1), 0, 1, file_of(SMALL))
    data = bytearray(file_of([copy, *SMALL]))
    data[FILE_HEADER_BYTES + 20] ^= 1
    assert entries_in(bytes(data)) == SMALL


def test_only_who_knows_mark_and_position_could_forge_an_entry() -> None:
    """Shows that the two tests above test something: with both known, a forgery in a damaged entry is believed."""
    outer, forged = nested(HEADER)
    data = bytearray(file_of([outer, *SMALL]))
    data[FILE_HEADER_BYTES + 20] ^= 1
    assert entries_in(bytes(data)) == [forged, *SMALL]


@given(st.binary(max_size=400), st.randoms(use_true_random=False))
def test_garbage_between_entries_is_skipped(garbage: bytes, chance: random.Random) -> None:
    data = bytearray(file_of(SMALL[:2]))
    at = len(data)
    data += garbage
    lead, batch = encode_entry(SMALL[2], mark=HEADER.mark, position=len(data))
    data += lead + bytes(batch)
    assert entries_in(bytes(data)) == SMALL[:3]
    assert damage_in(bytes(data)) == ([CorruptRange(at, len(garbage), tail=False)] if garbage else [])


def test_a_file_of_a_later_format_is_refused_not_called_damaged() -> None:
    data = encode_file_header(replace(HEADER, version=VERSION + 1))
    with pytest.raises(Misconfigured, match="later format"):
        list(scan(memoryview(data)))


def test_a_session_id_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        encode_file_header(replace(HEADER, session=SessionId("x" * 256)))


def test_the_bytes_are_what_the_document_says() -> None:
    data = file_of(SMALL[:1])
    assert data[:4096] == data[4096:8192]
    assert data[0:8] == b"SHOUSWAL"
    assert data[8:10] == b"\0\1"
    assert data[14:22] == HEADER.mark
    assert struct.unpack(">Q", data[22:30]) == (7,)
    assert data[30] == len(HEADER.session)
    assert data[31 : 31 + data[30]] == HEADER.session.encode()
    assert struct.unpack(">I", data[10:14]) == (crc32c(data[:10] + bytes(4) + data[14 : 31 + data[30]]),)
    entry = data[8192:]
    assert entry[0:8] == HEADER.mark
    assert struct.unpack(">I", entry[8:12]) == (crc32c(entry[12:]),)
    assert struct.unpack(">IQ", entry[12:24]) == (11, 8192)
    assert entry[24:40] == uuid.UUID(int=1).bytes
    assert struct.unpack(">IQQQ", entry[40:68]) == (0, 1, 0, 3)
    assert entry[68:] == b"first batch"


def test_a_summary_shows_ranges_and_damage() -> None:
    data = bytearray(file_of(SMALL))
    data[positions_of(SMALL)[1]] ^= 1
    summary = summarize(bytes(data))
    assert summary.header == HEADER
    assert summary.entries == 3
    assert [(damage.position, damage.tail) for damage in summary.damage] == [(positions_of(SMALL)[1], False)]
    orders, clicks = summary.partitions[ORDERS], summary.partitions[CLICKS]
    assert (orders.entries, orders.base, orders.end, orders.epoch) == (2, 0, 4, 1)
    assert (clicks.entries, clicks.base, clicks.end, clicks.batch_bytes) == (1, 11, 15, 4)


def test_a_summary_of_what_is_no_log_says_so() -> None:
    summary = summarize(b"hello")
    assert summary.header is None
    assert summary.damage == (CorruptRange(0, 5, tail=True),)
