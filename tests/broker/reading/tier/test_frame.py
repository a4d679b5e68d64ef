"""Cached files: a block comes back as it was, or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.broker.segments.disk_cache_files import decode_frame, encode_frame, frame_bytes, name_of
from streamhouse.errors import CorruptObject

KEYS = st.tuples(st.text(max_size=40), st.integers(0, 2**60))
KEY = ("segments/one", 7)


@given(KEYS, st.binary(max_size=300))
def test_a_block_comes_back_as_it_was(key: tuple[str, int], stored: bytes) -> None:
    data = b"".join(encode_frame(key, stored))
    assert bytes(decode_frame(data, key)) == stored
    assert len(data) == frame_bytes(key, len(stored))


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    data = b"".join(encode_frame(KEY, b"some records"))
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            with pytest.raises(CorruptObject):
                decode_frame(damaged, KEY)
        with pytest.raises(CorruptObject):
            decode_frame(data[:position], KEY)
    for longer in (data + b"\0", bytes(len(data)), b""):
        with pytest.raises(CorruptObject):
            decode_frame(longer, KEY)


@given(KEYS, KEYS)
def test_a_file_is_good_for_its_own_block_only(key: tuple[str, int], other: tuple[str, int]) -> None:
    data = b"".join(encode_frame(key, b"records"))
    if key == other:
        assert name_of(key) == name_of(other)
        return
    assert name_of(key) != name_of(other)
    with pytest.raises(CorruptObject):
        decode_frame(data, other)
