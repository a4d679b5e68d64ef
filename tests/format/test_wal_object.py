"""WAL object and seal: round trips, flipped bits, cut objects, wrong names, one never taken for the other."""

import asyncio
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.broker.wal.object_upload import COPIED_BELOW_BYTES, WalObjectBuffer
from streamhouse.errors import Misconfigured
from streamhouse.format import wal_object
from streamhouse.format.wal_file import ENTRY_HEADER_BYTES, WalEntry, encode_entry
from streamhouse.format.wal_object import (
    COPY_BYTES,
    MAX_SESSION_BYTES,
    SEAL_BYTES,
    ObjectHeader,
    Seal,
    decode_header,
    decode_seal,
    encode_header,
    encode_seal,
    read_object,
)
from streamhouse.model.names import SessionId
from tests.format.test_wal import SMALL, plain, walentries

SESSION = SessionId("s-0123456789abcdef0123456789abcdef")
MARK = bytes.fromhex("a1b2c3d4e5f60718")
SEAL = Seal(session=SESSION, sequence=7, by="s-ffffffffffffffffffffffffffffffff", at_ms=1_700_000_000_000)


def object_of(
    entries: list[WalEntry], *, session: SessionId = SESSION, sequence: int = 7, durable_below: int | None = None
) -> bytes:
    body = bytearray()
    for entry in entries:
        header, batch = encode_entry(entry, mark=MARK, position=COPY_BYTES + len(body))
        body += header + batch
    size = len(body) + 2 * COPY_BYTES
    copy = encode_header(
        ObjectHeader(
            session=session,
            sequence=sequence,
            mark=MARK,
            entries=len(entries),
            size_bytes=size,
            durable_below=durable_below,
        )
    )
    return copy + body + copy


def found_in(data: bytes, *, sequence: int = 7) -> tuple[list[WalEntry], int]:
    """Good entries, and how many places are damaged."""
    result = read_object(memoryview(data), session=SESSION, sequence=sequence)
    return [plain(entry) for entry in result.entries], len(result.damage)


@given(st.lists(walentries, min_size=1, max_size=8), st.integers(0, 2**64 - 1))
def test_reads_back_what_was_written(entries: list[WalEntry], sequence: int) -> None:
    assert found_in(object_of(entries, sequence=sequence), sequence=sequence) == (entries, 0)


def test_a_window_is_such_an_object_whatever_the_sizes_of_its_batches() -> None:
    loop = asyncio.new_event_loop()
    chance = random.Random(1)
    sizes = [0, 1, COPIED_BELOW_BYTES - 1, COPIED_BELOW_BYTES, 2 * COPIED_BELOW_BYTES]
    for _ in range(20):
        entries = [SMALL[0]._replace(batch=bytes(chance.choice(sizes))) for _ in range(chance.randrange(1, 9))]
        window = WalObjectBuffer(SESSION, 7, mark=MARK, loop=loop)
        for entry in entries:
            window.add([entry])
        assert b"".join(window.body(durable_below=3)) == object_of(entries, durable_below=3)
        assert window.size_bytes == len(object_of(entries))
    loop.close()


@pytest.mark.parametrize("durable_below", [None, 0, 1, 7, 2**64 - 2])
def test_an_object_says_below_which_number_all_were_durable(durable_below: int | None) -> None:
    data = memoryview(object_of(SMALL[:1], durable_below=durable_below))
    assert read_object(data, session=SESSION, sequence=7).durable_below == durable_below


def test_an_object_of_an_earlier_release_is_read_and_does_not_say_so() -> None:
    """Its header ends with zeros where later ones have the number."""
    data = object_of(SMALL[:1])
    assert data[COPY_BYTES - 8 : COPY_BYTES] == bytes(8)
    result = read_object(memoryview(data), session=SESSION, sequence=7)
    assert (len(result.entries), result.durable_below) == (1, None)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.text(max_size=200))
def test_a_seal_is_read_back(sequence: int, at_ms: int, by: str) -> None:
    seal = Seal(session=SESSION, sequence=sequence, by=by, at_ms=at_ms)
    data = encode_seal(seal)
    assert len(data) == SEAL_BYTES
    result = decode_seal(memoryview(data), session=SESSION, sequence=sequence)
    assert result is not None
    assert replace(result, by="") == replace(seal, by="")
    assert by.encode().startswith(result.by.encode()) or len(by.encode()) > 90


def test_the_longest_session_id_fits_into_both() -> None:
    session = SessionId("s" * MAX_SESSION_BYTES)
    data = memoryview(encode_seal(replace(SEAL, session=session, by="x" * 200)))
    assert decode_seal(data, session=session, sequence=7) is not None
    data = memoryview(object_of(SMALL, session=session))
    assert len(read_object(data, session=session, sequence=7).entries) == len(SMALL)
    with pytest.raises(ValueError, match="does not fit"):
        encode_seal(replace(SEAL, session=SessionId(session + "s")))
    with pytest.raises(ValueError, match="does not fit"):
        object_of(SMALL, session=SessionId(session + "s"))


def test_data_is_never_a_seal_and_a_seal_is_never_data() -> None:
    assert decode_seal(memoryview(object_of(SMALL)), session=SESSION, sequence=7) is None
    assert found_in(encode_seal(SEAL)) == ([], 1)
    smallest = object_of([SMALL[0]._replace(batch=b"")])
    assert len(smallest) > SEAL_BYTES


def test_under_another_name_neither_is_believed() -> None:
    for session, sequence in ((SESSION, 8), (SessionId(SESSION[:-1]), 7)):
        result = read_object(memoryview(object_of(SMALL)), session=session, sequence=sequence)
        assert not result.entries
        assert [(damage.position, damage.length) for damage in result.damage] == [(0, len(object_of(SMALL)))]
        assert decode_seal(memoryview(encode_seal(SEAL)), session=session, sequence=sequence) is None


def test_a_flipped_bit_costs_at_most_the_entry_that_has_it() -> None:
    data = object_of(SMALL)
    starts = [COPY_BYTES]
    for entry in SMALL:
        starts.append(starts[-1] + ENTRY_HEADER_BYTES + len(entry.batch))
    for at in range(len(data)):
        broken = bytearray(data)
        broken[at] ^= 1 << at % 8
        hit = [number for number in range(len(SMALL)) if starts[number] <= at < starts[number + 1]]
        expected = [entry for number, entry in enumerate(SMALL) if number not in hit]
        assert found_in(bytes(broken)) == (expected, len(hit))


def test_a_flipped_bit_takes_a_seal() -> None:
    data = encode_seal(SEAL)
    for bit in range(len(data) * 8):
        broken = bytearray(data)
        broken[bit // 8] ^= 1 << bit % 8
        assert decode_seal(memoryview(broken), session=SESSION, sequence=7) is None


def test_a_cut_object_keeps_its_whole_entries_and_shows_that_something_is_missing() -> None:
    data = object_of(SMALL)
    end = COPY_BYTES
    ends = [end := end + ENTRY_HEADER_BYTES + len(entry.batch) for entry in SMALL]
    for length in range(COPY_BYTES, len(data)):
        whole = sum(end <= length for end in ends)
        assert found_in(data[:length]) == (SMALL[:whole], int(whole < len(SMALL)))


@pytest.mark.parametrize("data", [b"", b"SHOUSWOB", bytes(484), bytes(10_000)])
def test_what_is_no_object_is_damage_as_a_whole(data: bytes) -> None:
    result = read_object(memoryview(data), session=SESSION, sequence=7)
    assert not result.entries
    assert [(damage.position, damage.length) for damage in result.damage] == [(0, len(data))]


def test_zeros_in_place_of_the_last_entries_are_damage() -> None:
    data = object_of(SMALL)
    end = len(data) - COPY_BYTES
    start = end - ENTRY_HEADER_BYTES - len(SMALL[-1].batch)
    assert found_in(data[:start] + bytes(end - start) + data[end:]) == (SMALL[:-1], 1)


def test_a_later_version_is_refused_and_not_taken_for_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal_object, "VERSION", 2)
    data, seal = object_of(SMALL), encode_seal(SEAL)
    monkeypatch.undo()
    with pytest.raises(Misconfigured, match="version=2 known=1"):
        found_in(data)
    with pytest.raises(Misconfigured, match="version=2 known=1"):
        decode_seal(memoryview(seal), session=SESSION, sequence=7)


def test_a_header_says_what_it_holds() -> None:
    data = memoryview(object_of(SMALL))
    header = decode_header(data[:COPY_BYTES])
    assert header == ObjectHeader(session=SESSION, sequence=7, mark=MARK, entries=4, size_bytes=len(data))
    assert decode_header(data[-COPY_BYTES:]) == header


def test_the_bytes_are_those_of_the_page() -> None:
    """Written down once: what is at rest must be readable by the next version."""
    assert (
        object_of([SMALL[0]])[:77].hex()
        == ("53484f5553574f420001CRCa1b2c3d4e5f60718000000000000000700000001000000000000014f22").replace(
            "CRC", object_of([SMALL[0]])[10:14].hex()
        )
        + SESSION.encode().hex()
    )
    assert encode_seal(SEAL)[:32].hex() == ("53484f555345414c0001CRC00000000000000070000018bcfe568002222").replace(
        "CRC", encode_seal(SEAL)[10:14].hex()
    )
