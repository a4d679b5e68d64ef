"""Cached files: a block comes back as it was, or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.broker.segments.disk_cache_files import block_file_bytes, decode_block_file, encode_block_file, name_of
from streamhouse.errors import CorruptObject

KEYS = st.tuples(st.text(max_size=40), st.integers(0, 2**60))
KEY = ("segments/one", 7)


@given(KEYS, st.binary(max_size=300))
def test_a_block_comes_back_as_it_was(key: tuple[str, int], stored: bytes) -> None:
    data = b"".join(encode_block_file(key, stored))
    assert bytes(decode_block_file(data, key)) == stored
    assert len(data) == block_file_bytes(key, len(stored))


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    data = b"".join(encode_block_file(KEY, b"some records"))
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            with pytest.raises(CorruptObject):
                decode_block_file(damaged, KEY)
        with pytest.raises(CorruptObject):
            decode_block_file(data[:position], KEY)
    for longer in (data + b"\0", bytes(len(data)), b""):
        with pytest.raises(CorruptObject):
            decode_block_file(longer, KEY)


@given(KEYS, KEYS)
def test_a_file_is_good_for_its_own_block_only(key: tuple[str, int], other: tuple[str, int]) -> None:
    data = b"".join(encode_block_file(key, b"records"))
    if key == other:
        assert name_of(key) == name_of(other)
        return
    assert name_of(key) != name_of(other)
    with pytest.raises(CorruptObject):
        decode_block_file(data, other)
