"""Producer snapshots: what goes in comes out, and damage is seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.errors import CorruptObject
from streamhouse.format.producer_snapshot import (
    MAX_REMEMBERED_BATCHES,
    ProducerEntry,
    SequenceSpan,
    decode_producers,
    encode_producers,
)

SEQUENCES = st.integers(0, 2**31 - 1)
LONGS = st.one_of(st.integers(-1, 2**63 - 1), st.sampled_from([2**31, 2**32, 2**53, 2**53 + 1]))
SPANS = st.builds(SequenceSpan, SEQUENCES, SEQUENCES, LONGS, LONGS, LONGS)
ENTRIES = st.builds(
    ProducerEntry,
    producer_id=LONGS,
    epoch=st.integers(0, 2**15 - 1),
    batches=st.lists(SPANS, max_size=MAX_REMEMBERED_BATCHES).map(tuple),
    last_timestamp_ms=LONGS,
    transaction_first=st.none() | st.integers(0, 2**63 - 1),
    marker_number=st.integers(-1, 2**31 - 1),
    is_doubtful=st.booleans(),
)
SPAN = SequenceSpan(2**31 - 2, 1, 2**40, 2**40 + 4, 1_700_000_000_000)
ENTRY = ProducerEntry(producer_id=9, epoch=2, batches=(SPAN,), last_timestamp_ms=1_700_000_000_000)


@given(st.lists(ENTRIES, max_size=8))
def test_decoding_undoes_encoding(entries: list[ProducerEntry]) -> None:
    assert decode_producers(encode_producers(entries)) == entries


def test_no_bytes_are_no_producers() -> None:
    assert decode_producers(b"") == []


def test_every_flipped_bit_and_every_cut_is_seen() -> None:
    good = encode_producers([ENTRY, ENTRY])
    damaged = [good[:length] for length in range(1, len(good))]
    for at in range(len(good)):
        for bit in range(8):
            copy = bytearray(good)
            copy[at] ^= 1 << bit
            damaged.append(bytes(copy))
    for data in damaged:
        with pytest.raises(CorruptObject):
            decode_producers(data, key="segments/x")


def test_a_snapshot_that_says_nothing_of_transactions_is_of_the_version_that_all_releases_read() -> None:
    assert encode_producers([ENTRY])[:2] == b"\x00\x01"
    for changed in (ENTRY._replace(transaction_first=0), ENTRY._replace(marker_number=0)):
        assert encode_producers([ENTRY, changed])[:2] == b"\x00\x02"
        assert decode_producers(encode_producers([ENTRY, changed])) == [ENTRY, changed]


def test_refuses_to_remember_more_than_the_window() -> None:
    entry = ProducerEntry(producer_id=9, epoch=2, batches=(SPAN,) * 6, last_timestamp_ms=0)
    with pytest.raises(ValueError, match="too many batches"):
        encode_producers([entry])
