"""Keys go where Java's client and aiokafka send them."""

from collections.abc import Callable

import pytest
from aiokafka import partitioner as theirs
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.format import partitioner
from streamhouse.format.partitioner import murmur2, murmur2_in_python, partition_for

needs_c = pytest.mark.skipif(not partitioner.IS_COMPILED, reason="the C extension was not built here")
HASHES = [pytest.param(murmur2_in_python, id="python"), pytest.param(murmur2, id="c", marks=needs_c)]

# The first six are those of Apache Kafka's own test of the hash.
GOLDEN = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
    (b"", 275646681),
]


@pytest.mark.parametrize("hashed", HASHES)
@pytest.mark.parametrize(("key", "expected"), GOLDEN)
def test_known_keys_have_the_hashes_of_java(hashed: Callable[[bytes], int], key: bytes, expected: int) -> None:
    assert hashed(key) == expected


def test_a_negative_hash_loses_its_sign_bit() -> None:
    assert murmur2(b"21") < 0
    # Without its sign it would be 8.
    assert partition_for(b"21", 12) == (-973932308 & 0x7FFFFFFF) % 12 == 0


@given(st.binary(max_size=70), st.integers(1, 2000))
def test_a_key_goes_where_other_clients_send_it(key: bytes, partitions: int) -> None:
    assert murmur2(key) % 2**32 == murmur2_in_python(key) % 2**32 == theirs.murmur2(key) % 2**32
    everywhere = list(range(partitions))
    assert partition_for(key, partitions) == theirs.DefaultPartitioner()(key, everywhere, everywhere)


@needs_c
@pytest.mark.parametrize("key", [None, "key", 7, [1]])
def test_what_is_not_bytes_is_refused(key: object) -> None:
    with pytest.raises(TypeError):
        murmur2(key)  # type: ignore[arg-type]
