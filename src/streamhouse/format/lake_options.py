"""Words of lake tables: sizes, durations and partitions, as options and flags have them.

Owns        `128MiB`, `7d`, `day(ts), country`: what they mean and what else they may be
Leaves      which options there are to `format.statement_options`, partitions of rows to `spark.lake.transforms`

A value that is not allowed is a ValueError whose text says what is.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

IDENTITY: Final = "identity"
TIMES: Final = ("year", "month", "day", "hour")
WITH_NUMBER: Final = ("bucket", "truncate")
MAX_PARTITIONS: Final = 8
MIN_FILE_BYTES: Final = 64 * 1024

_PLAIN: Final = re.compile(r"`?([^`(),]+?)`?")
_CALL: Final = re.compile(r"(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?`?([^`(),]+?)`?\s*(?:,\s*(\d+)\s*)?\)")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """`day(ts)`: transform and column; `width` is the number of `bucket(16, id)` and `truncate(4, name)`."""

    column: str
    transform: str = IDENTITY
    width: int = 0

    @property
    def name(self) -> str:
        """The partition's own name, which is the column where nothing is done to it."""
        return self.column if self.transform == IDENTITY else f"{self.column}_{self.transform}"

    def __str__(self) -> str:
        if self.transform == IDENTITY:
            return self.column
        return f"{self.transform}({f'{self.width}, ' if self.width else ''}{self.column})"


def some_partitions(text: str) -> tuple[Partition, ...]:
    """`day(ts), bucket(16, id), country`."""
    parts = re.findall(r"(?:[^,(]|\([^)]*\))+", text)
    found = tuple(_partition(each.strip()) for each in parts if each.strip())
    names = {each.name for each in found}
    if not found or len(found) > MAX_PARTITIONS or len(names) < len(found) or text.count("(") != text.count(")"):
        raise ValueError("columns or transforms of them, like 'day(ts), country'")
    return found


def _partition(text: str) -> Partition:
    if plain := _PLAIN.fullmatch(text):
        return Partition(column=plain[1])
    call = _CALL.fullmatch(text)
    transform, number = (call[1].lower().removesuffix("s"), call[2] or call[4]) if call else ("", None)
    if call and transform in (*TIMES, IDENTITY) and number is None:
        return Partition(column=call[3], transform=transform)
    if call and transform in WITH_NUMBER and number is not None and int(number) > 0:
        return Partition(column=call[3], transform=transform, width=int(number))
    raise ValueError(
        "columns or transforms of them: year(ts), month(ts), day(ts), hour(ts), bucket(16, id), truncate(4, name)"
    )


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
