"""Scan of transaction markers: which of them still have records of their transaction before them, split by split.

Data path   headers of batches -> **MarkerScan**, one for each split -> edges -> **markers_to_keep** on the driver
Owns        putting together what splits saw of a producer's transactions, each a stretch of offsets of its own
Leaves      what becomes of a marker that has nothing left to `format.compaction`, reading to `retained_offsets`

A marker has something left where the batch of its producer that comes before it, if there is one, isn't a marker too. A
split that has both knows; for the first marker of a producer in a split it is the last that others saw of the producer
before it that decides. A block at a cut is read by both neighbours: a batch is in the split that has its last offset.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from streamhouse.format.batch import BatchHeader


class ProducerEdge(NamedTuple):
    """At one end of a split: the last that was seen of a producer, or with `is_first` a marker that was the first."""

    partition: int
    producer_id: int
    offset: int
    is_marker: bool
    is_first: bool


Edges: TypeAlias = list[ProducerEdge]


class MarkerScan:
    """The transactions in one split; receives the position and the batches in order."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, int], tuple[int, bool]] = {}
        self._first: Edges = []
        self.partition = self.shift = self._start = self._end = 0

    def __repr__(self) -> str:
        return f"<MarkerScan producers={len(self._last)} unsure={len(self._first)}>"

    def at(self, partition: int, start: int, end: int, *, shift: int) -> None:
        """What comes next is in [start, end) of a partition, but for what a block has around it; offsets in batches are
        lower by `shift`."""
        self.partition, self.shift, self._start, self._end = partition, shift, start, end

    def is_busy(self, header: BatchHeader) -> bool:
        """Note the next batch; whether it is a marker with something of its transaction before it."""
        if not header.is_control and not header.is_transactional:
            return False
        if not self._start < header.end + self.shift <= self._end:
            return False
        producer, offset = (self.partition, header.producer_id), header.base_offset + self.shift
        before = self._last.get(producer)
        if before is None and header.is_control:
            self._first.append(ProducerEdge(*producer, offset, is_marker=True, is_first=True))
        self._last[producer] = offset, header.is_control
        return header.is_control and before is not None and not before[1]

    def edges(self) -> Edges:
        last = [
            ProducerEdge(*key, offset, is_marker, is_first=False) for key, (offset, is_marker) in self._last.items()
        ]
        return self._first + last


def markers_to_keep(edges: Iterable[ProducerEdge]) -> dict[int, list[int]]:
    """By partition, the offsets of those markers with something before them that no single split could see,
    ascending."""
    seen: dict[tuple[int, int], Edges] = {}
    for edge in edges:
        seen.setdefault((edge.partition, edge.producer_id), []).append(edge)
    busy: dict[int, set[int]] = {}
    for (partition, _), some in seen.items():
        lasts = sorted((edge.offset, edge.is_marker) for edge in some if not edge.is_first)
        for first in (edge for edge in some if edge.is_first):
            at = bisect_left(lasts, (first.offset, False))
            if at and not lasts[at - 1][1]:
                busy.setdefault(partition, set()).add(first.offset)
    return {partition: sorted(offsets) for partition, offsets in busy.items()}
