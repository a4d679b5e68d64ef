"""Runs: which segment holds which offsets of a partition, kept in memory in windows.

Data path   reader asks **runs** for the run that holds an offset -> metadata store on a miss
Owns        one window of consecutive runs per partition, and how many partitions have one
Leaves      the truth to the metadata store

A window covers the offsets [start, end) without holes, so that looking up an offset in it is one bisect, also in a
log of a million runs.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from streamhouse.model.names import PartitionId
from streamhouse.model.segment import Run
from streamhouse.stores.metadata.base import MetadataStore

PAGE: Final = 1000
MAX_WINDOW: Final = 10_000


class _Window:
    __slots__ = ("end", "ends", "runs", "start")

    def __init__(self, start: int, runs: Sequence[Run]) -> None:
        self.start = start
        self.runs = list(runs)
        self.ends = [run.end for run in runs]
        self.end = self.ends[-1] if runs else start

    def find(self, offset: int) -> Run | None:
        if not self.start <= offset < self.end:
            return None
        return self.runs[bisect_right(self.ends, offset)]

    def extend(self, run: Run) -> None:
        self.runs.append(run)
        self.ends.append(run.end)
        self.end = run.end


class RunIndex:
    def __init__(self, metadata: MetadataStore, *, partitions: int) -> None:
        self._metadata = metadata
        self._limit = partitions
        self._windows: OrderedDict[PartitionId, _Window] = OrderedDict()

    def __repr__(self) -> str:
        return f"<RunIndex windows={len(self._windows)}>"

    async def find(self, partition: PartitionId, offset: int) -> Run | None:
        """The run that holds `offset`, or the first one after a gap; None when no run ends above it."""
        window = self._windows.get(partition)
        if window is not None and (run := window.find(offset)) is not None:
            self._windows.move_to_end(partition)
            return run
        runs = await self._metadata.runs(partition, from_offset=offset, limit=PAGE)
        if not runs:
            return None
        self._windows[partition] = _Window(min(offset, runs[0].base), runs)
        self._windows.move_to_end(partition)
        if len(self._windows) > self._limit:
            self._windows.popitem(last=False)
        return runs[0]

    def published(self, runs: Sequence[Run]) -> None:
        """New runs were registered by this agent: windows that end where they begin grow, others stay as they are."""
        for run in runs:
            window = self._windows.get(run.partition)
            if window is None or window.end != run.base:
                continue
            if len(window.runs) >= MAX_WINDOW:
                del self._windows[run.partition]
            else:
                window.extend(run)

    def forget(self, partition: PartitionId) -> None:
        self._windows.pop(partition, None)
