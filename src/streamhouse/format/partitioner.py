"""Partitioner: the partition of a key, as in Kafka's Java client.

Data path   HTTP, gRPC, client -> **partition_for** -> broker.records
Owns        Kafka's murmur2; implemented in `_record_scanner.c` and, as fallback, here
Leaves      partitions of records without a key to the caller

All clients of a topic must use the same partitioner, or a key's records lose their order.
"""

from typing import Final

try:
    from streamhouse.format import _records

    IS_COMPILED = hasattr(_records, "murmur2")
except ImportError:  # built without a compiler
    IS_COMPILED = False

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_WORD: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF


def murmur2(key: bytes) -> int:
    """The hash of a key, a signed 32-bit number as in Java."""
    return _records.murmur2(key) if IS_COMPILED else murmur2_in_python(key)


def murmur2_in_python(key: bytes) -> int:
    """The same in plain Python: the fallback, and the oracle for the one in C."""
    hashed = _SEED ^ len(key)
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _MULTIPLIER & _WORD
        word = (word ^ word >> 24) * _MULTIPLIER & _WORD
        hashed = hashed * _MULTIPLIER & _WORD ^ word
    if whole < len(key):
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * _MULTIPLIER & _WORD
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _WORD
    hashed ^= hashed >> 15
    return hashed - (1 << 32) if hashed > _POSITIVE else hashed


def partition_for(key: bytes, partitions: int) -> int:
    """The partition of a key among `partitions`, which are 1 or more."""
    # The sign bit is masked, as in Java's `toPositive`; the number is not negated.
    return (murmur2(key) & _POSITIVE) % partitions
