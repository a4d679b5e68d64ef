"""Numbers of variable length go both ways, within their bounds."""

import pytest
from aiokafka.record import util
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.format.record_scanner import VARINT, VARLONG, BadVarint, append_varint, read_varint


def written(value: int) -> bytes:
    out = bytearray()
    append_varint(out, value)
    return bytes(out)


@given(st.integers(-(2**31), 2**31 - 1))
def test_reading_undoes_writing_32_bits(value: int) -> None:
    data = written(value) + b"rest"
    assert read_varint(data, 0, len(data), VARINT) == (value, len(data) - 4)


@given(st.integers(-(2**63), 2**63 - 1))
def test_reading_undoes_writing_64_bits(value: int) -> None:
    data = b"head" + written(value)
    assert read_varint(data, 4, len(data), VARLONG) == (value, len(data))
    with pytest.raises(BadVarint):
        read_varint(data, 4, len(data) - 1, VARLONG)


@given(st.integers(-(2**63), 2**63 - 1))
def test_another_implementation_writes_the_same(value: int) -> None:
    theirs = bytearray()
    util.encode_varint_py(value, theirs.append)
    assert written(value) == bytes(theirs)


@given(st.one_of(st.integers(2**31, 2**63 - 1), st.integers(-(2**63), -(2**31) - 1)))
def test_a_number_of_more_than_32_bits_is_not_a_short_one(value: int) -> None:
    data = written(value)
    with pytest.raises(BadVarint):
        read_varint(data, 0, len(data), VARINT)
