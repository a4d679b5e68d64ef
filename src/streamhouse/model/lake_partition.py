"""Partition of a lake table: a column, or what is made of it, by which files lie together.

Owns        the noun; `day(ts), bucket(16, id), country`: what it means and what else it may be
Leaves      partitions of rows to `spark.lake.transforms`

A text that is not allowed is a ValueError that says what is.
"""

import re
from dataclasses import dataclass
from typing import Final

IDENTITY: Final = "identity"
TIMES: Final = ("year", "month", "day", "hour")
WITH_NUMBER: Final = ("bucket", "truncate")
"""Only Iceberg has these."""
MAX_PARTITIONS: Final = 8

_PLAIN: Final = re.compile(r"`?([^`(),]+?)`?")
_CALL: Final = re.compile(r"(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?`?([^`(),]+?)`?\s*(?:,\s*(\d+)\s*)?\)")


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
