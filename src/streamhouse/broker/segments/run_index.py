"""RunIndex: which segment contains which offsets of a partition, cached in windows.

Data path   reader -> **run_index** (the run with an offset) -> metadata store on a miss
Owns        windows of consecutive runs, and the total number of cached runs
Leaves      rows to the metadata store

A window covers the offsets [start, end) without holes, so that looking up an offset in it is one bisect, also in a
log of a million runs. A partition has as many windows as it has readers far apart.
"""

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from streamhouse.model.names import PartitionId
from streamhouse.model.segment import Run
from streamhouse.stores.metadata.base import MetadataStore

PAGE: Final = 1000
MAX_WINDOW: Final = 10_000


class _WindowKey(NamedTuple):
    partition: PartitionId
    start: int


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
    def __init__(self, metadata: MetadataStore, *, limit: int) -> None:
        self._metadata = metadata
        self._limit = limit
        self._kept = 0
        self._windows: OrderedDict[_WindowKey, _Window] = OrderedDict()
        self._starts: dict[PartitionId, list[int]] = {}
        self.hits = 0
        self.misses = 0
        self.evictions = 0

    def __repr__(self) -> str:
        return f"<RunIndex runs={self._kept} windows={len(self._windows)}>"

    def __len__(self) -> int:
        return self._kept

    async def find(self, partition: PartitionId, offset: int) -> Run | None:
        """The run that contains `offset`, or the first one after a gap; None if no run ends above it."""
        window = self._window_at(partition, offset)
        if window is not None and (run := window.find(offset)) is not None:
            self.hits += 1
            return run
        self.misses += 1
        runs = await self._metadata.runs(partition, from_offset=offset, limit=PAGE)
        if not runs:
            return None
        self._keep(_WindowKey(partition, min(offset, runs[0].base)), runs)
        return runs[0]

    def _window_at(self, partition: PartitionId, offset: int) -> _Window | None:
        """The last window that begins at or below `offset`; marks it as used."""
        starts = self._starts.get(partition, [])
        number = bisect_right(starts, offset) - 1
        if number < 0:
            return None
        key = _WindowKey(partition, starts[number])
        self._windows.move_to_end(key)
        return self._windows[key]

    def _keep(self, key: _WindowKey, runs: Sequence[Run]) -> None:
        self._drop(key)
        self._windows[key] = _Window(key.start, runs)
        insort(self._starts.setdefault(key.partition, []), key.start)
        self._kept += len(runs)
        self._shrink()

    def _shrink(self) -> None:
        while self._kept > self._limit and len(self._windows) > 1:
            key = next(iter(self._windows))
            self.evictions += len(self._windows[key].runs)
            self._drop(key)

    def _drop(self, key: _WindowKey) -> None:
        window = self._windows.pop(key, None)
        if window is None:
            return
        self._kept -= len(window.runs)
        starts = self._starts[key.partition]
        starts.remove(key.start)
        if not starts:
            del self._starts[key.partition]

    def published(self, runs: Sequence[Run]) -> None:
        """This agent has registered new runs: extend windows that end where they begin."""
        for run in runs:
            starts = self._starts.get(run.partition)
            if not starts:
                continue
            key = _WindowKey(run.partition, starts[-1])
            window = self._windows[key]
            if window.end != run.base:
                continue
            if len(window.runs) >= MAX_WINDOW:
                self._drop(key)
            else:
                window.extend(run)
                self._kept += 1
        self._shrink()

    def forget(self, partition: PartitionId) -> None:
        for start in tuple(self._starts.get(partition, ())):
            self._drop(_WindowKey(partition, start))
