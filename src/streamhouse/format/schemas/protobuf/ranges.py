"""Ranges: which field numbers a message has given away, for good or to extensions.

Owns        asking whether a number lies in one of many ranges, which are half open
Leaves      whether ranges are well formed to `checking`
"""

from bisect import bisect_right
from collections.abc import Iterable

from google.protobuf.descriptor_pb2 import DescriptorProto


class Ranges:
    """Ranges that don't overlap; made once, asked for every field."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(ranges)
        self._starts = [start for start, _ in ordered]
        self._ends = [end for _, end in ordered]

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._ends[at]


def extension_ranges(message: DescriptorProto) -> list[tuple[int, int]]:
    """The numbers that extensions may have."""
    return [(each.start, each.end) for each in message.extension_range]


def taken_ranges(message: DescriptorProto) -> list[tuple[int, int]]:
    """The numbers that the message's own fields may not have."""
    return [(each.start, each.end) for each in message.reserved_range] + extension_ranges(message)
