"""Words of lake tables: sizes and durations, as options and flags have them.

Owns        `128MiB`, `7d`: what they mean and what else they may be
Leaves      partitions to `model.lake_partition`, which options there are to `format.statement_options`

A value that is not allowed is a ValueError whose text says what is.
"""

import re
from collections.abc import Mapping
from typing import Final

from streamhouse.model.lake_partition import IDENTITY, WITH_NUMBER, Partition, some_partitions

__all__ = ["IDENTITY", "WITH_NUMBER", "Partition", "a_duration_ms", "a_file_size", "some_partitions"]

MIN_FILE_BYTES: Final = 64 * 1024

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]i?b|b)?", re.IGNORECASE)
_SIZES: Final[Mapping[str, int]] = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}
_DURATION: Final = re.compile(
    r"(\d+)\s*(ms|milliseconds?|s|seconds?|m|minutes?|h|hours?|d|days?|w|weeks?)", re.IGNORECASE
)
_UNITS_MS: Final[Mapping[str, int]] = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def a_file_size(text: str) -> int:
    """In bytes."""
    found = _SIZE.fullmatch(text.strip())
    size = round(float(found[1]) * _SIZES[(found[2] or "b").lower()]) if found else 0
    if size < MIN_FILE_BYTES:
        raise ValueError("a size from 64KiB on, like '128MiB'")
    return size


def a_duration_ms(text: str) -> int:
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError("a duration like '30s', '1m', '12h' or '7d'")
    unit = found[2].lower()
    return int(found[1]) * (1 if unit.startswith(("ms", "milli")) else _UNITS_MS[unit[0]])
