"""KeySearch: which offsets of a partition may hold a key, by the filters of its runs.

Data path   search -> **key_search** -> reader (runs, their indexes and key filters) -> object store
Owns        the next blocks that may hold a key; how much was left out
Leaves      reading the records, and the errors of damaged ranges, to the reader
Invariant   offsets are left out only if a filter that was verified says that none of them has the key
"""

import asyncio
from typing import Final, NamedTuple, TypeAlias

from streamhouse.broker.segments.reader import SegmentReader
from streamhouse.errors import StreamhouseError
from streamhouse.format.key_filter import KeyFilters, key_hash
from streamhouse.format.run_index import RunIndex
from streamhouse.model.names import PartitionId
from streamhouse.model.segment import Run

STEP_BYTES: Final = 8 * 1024 * 1024
STEP_BLOCKS: Final = 4096
"""Filters that are looked at in one step."""
STEP_RUNS: Final = 32
"""Runs that are opened in one step: each may take two requests to the object store."""
MOST_AT_ONCE: Final = 16
"""Runs that are opened at the same time; a search begins with one, and doubles."""


_Opened: TypeAlias = tuple[RunIndex, KeyFilters | None] | None
"""Index and filters of a run; None if they can't be read: then reading its records succeeds, or has an error."""


class KeySpan(NamedTuple):
    """Offsets [start, end) that may hold the key; those between the requested one and `start` don't.

    `size_bytes` is what they take as batches, 0 if that isn't known. If start and end are the same, there is nothing up
    to there, and the next step continues.
    """

    start: int
    end: int
    size_bytes: int = 0


class KeySearch:
    """One search for a key in a partition."""

    def __init__(self, reader: SegmentReader, partition: PartitionId, key: bytes) -> None:
        self._reader = reader
        self._partition = partition
        self._hash = key_hash(key)
        self._run: Run | None = None
        self._needed: Run | None = None
        self._opened: dict[Run, _Opened] = {}
        self._at_once = 1
        self.runs = 0
        self.runs_needed = 0
        self.skipped_bytes = 0
        self.filter_bytes = 0

    def __repr__(self) -> str:
        return f"<KeySearch {self._partition} runs={self.runs} needed={self.runs_needed}>"

    async def step(self, offset: int, end: int, *, max_bytes: int) -> KeySpan:
        """The next span at or above `offset`, of about `max_bytes` at most. Raises errors of the metadata store."""
        bytes_before, runs_before, blocks = self.filter_bytes, self.runs, 0
        while offset < end:
            is_enough = blocks >= STEP_BLOCKS or self.runs - runs_before >= STEP_RUNS
            if is_enough or self.filter_bytes - bytes_before >= STEP_BYTES:
                return KeySpan(offset, offset)
            run = await self._reader.runs.find(self._partition, offset)
            if run is None:
                return KeySpan(offset, end)  # not flushed yet
            if run.base >= end:
                break
            offset = max(offset, run.base)
            if (opened := await self._open(run, end=end)) is None:
                self._need(run)
                return KeySpan(offset, min(run.end, end))
            index, filters = opened
            first = index.block_for(offset - run.base)
            if filters is None:
                self._need(run)
                return KeySpan(offset, min(run.end, end), sum(block.raw_bytes for block in index.blocks[first:]))
            blocks += len(index.blocks) - first
            if (span := self._find(run, index, filters, first, max_bytes)) is not None:
                self._need(run)
                return KeySpan(max(offset, span.start), min(span.end, end), span.size_bytes)
            offset = run.end
        return KeySpan(end, end)

    def _find(self, run: Run, index: RunIndex, filters: KeyFilters, first: int, max_bytes: int) -> KeySpan | None:
        """The first blocks since `first` that follow each other and may hold the key."""
        start = size_bytes = 0
        begun = False
        for number in range(first, len(index.blocks)):
            block = index.blocks[number]
            if not filters.may_hold(number, self._hash):
                if begun:
                    return KeySpan(start, run.base + block.first, size_bytes)
                self.skipped_bytes += block.raw_bytes
                continue
            if begun and size_bytes + block.raw_bytes > max_bytes:
                return KeySpan(start, run.base + block.first, size_bytes)
            if not begun:
                begun, start = True, run.base + block.first
            size_bytes += block.raw_bytes
        return KeySpan(start, run.end, size_bytes) if begun else None

    async def _open(self, run: Run, *, end: int) -> _Opened:
        """Open the run, and those behind it below `end`, because each may take two requests."""
        if run not in self._opened:
            runs = [run]
            while len(runs) < self._at_once and runs[-1].end < end:
                behind = await self._reader.runs.find(self._partition, runs[-1].end)
                if behind is None or behind.base >= end:
                    break
                runs.append(behind)
            self._opened = dict(zip(runs, await asyncio.gather(*map(self._read, runs)), strict=True))
            self._at_once = min(2 * self._at_once, MOST_AT_ONCE)
        is_new, self._run = run != self._run, run
        self.runs += is_new
        opened = self._opened[run]
        self.filter_bytes += opened[0].key_filter_bytes if opened is not None and is_new else 0
        return opened

    async def _read(self, run: Run) -> _Opened:
        try:
            return await self._reader.index(run), await self._reader.key_filters(run)
        except StreamhouseError:
            return None

    def _need(self, run: Run) -> None:
        if run != self._needed:
            self._needed = run
            self.runs_needed += 1
