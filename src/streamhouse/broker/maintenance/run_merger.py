"""RunMerger: merges adjacent small runs of a partition into one object, those of an epoch into one run.

Data path   none: works on flushed records
Owns        the scan position of each partition, moving batches into one object
Leaves      which runs to merge to `model.log_cleanup`, I/O to `run_rewriter`

Batches are copied unchanged.
"""

import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.maintenance.run_rewriter import RunRewriter
from streamhouse.format.batch import Buffer
from streamhouse.format.run_rewrite import RewrittenRun, batches_of
from streamhouse.model.cluster import PartitionState
from streamhouse.model.log_cleanup import merge_limits, next_check, parts_of, runs_to_merge
from streamhouse.model.names import PartitionId
from streamhouse.model.segment import Run
from streamhouse.model.topic import TopicConfig

log = logging.getLogger(__name__)

PAGE: Final = 256
PARTITIONS: Final = 100
"""Partitions whose pages are read with one query."""


class _LastScan(NamedTuple):
    """The last scan of a partition: there is nothing to merge before `from_offset`, and nothing new while the flushed
    end is the same."""

    from_offset: int
    flushed_end: int


class RunMerger:
    def __init__(self, dependencies: Dependencies, *, rewriter: RunRewriter) -> None:
        self._dependencies = dependencies
        self._settings = dependencies.settings.compaction
        self._rewriter = rewriter
        self._scanned: dict[PartitionId, _LastScan] = {}
        self.merges = 0
        self.merged_runs = 0

    def __repr__(self) -> str:
        return f"<RunMerger merges={self.merges} runs={self.merged_runs} partitions={len(self._scanned)}>"

    def forget_others(self, partitions: Iterable[PartitionId]) -> None:
        """Drop the scan positions of all other partitions: other agents work on them now, or they were deleted."""
        self._scanned = {each: self._scanned[each] for each in partitions if each in self._scanned}

    async def pages(self, states: Iterable[PartitionState]) -> AsyncIterator[tuple[PartitionState, Sequence[Run]]]:
        """The next page of runs of each partition with new ones, many partitions per query."""
        due = [
            state
            for state in states
            if self._settings.merge_runs and self._last_scan_of(state).flushed_end != state.flushed_end
        ]
        for start in range(0, len(due), PARTITIONS):
            some = due[start : start + PARTITIONS]
            offsets = {state.partition: max(self._last_scan_of(state).from_offset, state.log_start) for state in some}
            runs = await self._dependencies.metadata.runs_of(offsets, limit=PAGE)
            by_partition = {at: list(each) for at, each in groupby(runs, key=lambda run: run.partition)}
            for state in some:
                yield state, by_partition.get(state.partition, [])

    def _last_scan_of(self, state: PartitionState) -> _LastScan:
        return self._scanned.get(state.partition, _LastScan(0, 0))

    async def merge(self, state: PartitionState, page: Sequence[Run], config: TopicConfig) -> bool:
        """Merge once if there is something to merge; returns whether there was."""
        last_scan = self._last_scan_of(state)
        limits = merge_limits(
            config,
            at_least=self._settings.merge_runs,
            below_bytes=self._settings.merge_below_bytes,
            max_bytes=self._settings.segment_bytes,
        )
        runs = [run for run in page if run.end <= state.flushed_end]
        for part in self._readable(runs):
            if chosen := runs_to_merge(part, limits):
                return await self._merge(chosen)
        if runs:
            is_all = len(page) < PAGE
            seen = state.flushed_end if is_all else last_scan.flushed_end
            self._scanned[state.partition] = _LastScan(next_check(runs, limits, is_all=is_all), seen)
        return False

    def _readable(self, runs: Sequence[Run]) -> Iterator[Sequence[Run]]:
        """Split the runs at those that are known to be missing or damaged; the parts between them can be merged."""
        damaged = self._rewriter.damaged_keys()
        for is_damaged, part in groupby(runs, key=lambda run: run.object_key in damaged):
            if not is_damaged:
                yield list(part)

    async def _merge(self, runs: Sequence[Run]) -> bool:
        merged: list[RewrittenRun] = []
        size = 0
        for number, part in enumerate(parts_of(runs)):
            sources = [await self._rewriter.open(run) for run in part]
            size += sum(source.raw_bytes for source in sources)
            if number > 1 and size > self._settings.segment_bytes:
                break  # their decompressed size exceeds the estimate; fewer than two parts would become no fewer
            for source in sources:
                batches: list[Buffer] = []
                async for piece in self._rewriter.pieces(source):
                    batches.extend(batches_of(piece))
                merged.append(RewrittenRun(source, batches))
        if not await self._rewriter.replace(merged):
            return False
        self.merges += 1
        self.merged_runs += len(merged)
        log.info("runs merged", extra={"partition": str(runs[0].partition), "runs": len(merged)})
        return True
