"""The limit of memory holds, and is gone afterwards."""

import sys

import pytest

from tests.support.memory import limited_memory

MIB = 1 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="there is no such limit")
def test_what_takes_more_than_its_limit_gets_an_error() -> None:
    with limited_memory(256 * MIB):
        assert len(bytearray(64 * MIB)) == 64 * MIB
        with pytest.raises(MemoryError):
            bytearray(1024 * MIB)
    assert len(bytearray(300 * MIB)) == 300 * MIB
