"""Merging of small runs: a partition that is written in many small pieces is read in few large ones.

Data path   none: works behind the data path's back, on what is flushed
Owns        remembering how far a partition was looked at, moving batches into one run
Leaves      which runs are worth it to `model.log_cleanup`, I/O to `run_rewriter`

Batches are moved as they are: not a byte of them changes.
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
from streamhouse.model.log_cleanup import merge_limits, next_check, runs_to_merge
from streamhouse.model.names import PartitionId
from streamhouse.model.segment import Run
from streamhouse.model.topic import TopicConfig

log = logging.getLogger(__name__)

PAGE: Final = 256
PARTITIONS: Final = 100
"""Of so many partitions a page each is asked for at once."""


class _LastScan(NamedTuple):
    """What was seen last: nothing needs a look before `from_offset`, nor at all while the flushed end is this."""

    from_offset: int
    flushed_end: int


class RunMerger:
    def __init__(self, dependencies: Dependencies, *, rewriter: RunRewriter) -> None:
        self._dependencies = dependencies
        self._settings = dependencies.settings.compaction
        self._rewriter = rewriter
        self._looked: dict[PartitionId, _LastScan] = {}
        self.merges = 0
        self.merged_runs = 0

    def __repr__(self) -> str:
        return f"<RunMerger merges={self.merges} runs={self.merged_runs} partitions={len(self._looked)}>"

    def forget_others(self, partitions: Iterable[PartitionId]) -> None:
        """Remember only what is known of these: the others are somebody else's now, or gone."""
        self._looked = {each: self._looked[each] for each in partitions if each in self._looked}

    async def pages(self, states: Iterable[PartitionState]) -> AsyncIterator[tuple[PartitionState, Sequence[Run]]]:
        """The next runs of those partitions that have new ones, many partitions at a time."""
        due = [
            state
            for state in states
            if self._settings.merge_runs and self._last_look(state).flushed_end != state.flushed_end
        ]
        for start in range(0, len(due), PARTITIONS):
            some = due[start : start + PARTITIONS]
            wanted = {state.partition: max(self._last_look(state).from_offset, state.log_start) for state in some}
            runs = await self._dependencies.metadata.runs_of(wanted, limit=PAGE)
            found = {at: list(each) for at, each in groupby(runs, key=lambda run: run.partition)}
            for state in some:
                yield state, found.get(state.partition, [])

    def _last_look(self, state: PartitionState) -> _LastScan:
        return self._looked.get(state.partition, _LastScan(0, 0))

    async def merge(self, state: PartitionState, page: Sequence[Run], config: TopicConfig) -> bool:
        """Merge once if something in the partition is worth it; whether it was."""
        looked = self._last_look(state)
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
            seen = state.flushed_end if is_all else looked.flushed_end
            self._looked[state.partition] = _LastScan(next_check(runs, limits, is_all=is_all), seen)
        return False

    def _readable(self, runs: Sequence[Run]) -> Iterator[Sequence[Run]]:
        """Runs that follow each other without one among them that is known to be missing or damaged: what stands
        around those is merged all the same."""
        damaged = self._rewriter.damaged_keys()
        for is_damaged, part in groupby(runs, key=lambda run: run.object_key in damaged):
            if not is_damaged:
                yield list(part)

    async def _merge(self, runs: Sequence[Run]) -> bool:
        moved: list[RewrittenRun] = []
        size = 0
        for run in runs:
            source = await self._rewriter.open(run)
            size += source.raw_bytes
            if len(moved) > 1 and size > self._settings.segment_bytes:
                break  # decompressed they are more than they seemed
            batches: list[Buffer] = []
            async for piece in self._rewriter.pieces(source):
                batches.extend(batches_of(piece))
            moved.append(RewrittenRun(source, batches))
        if not await self._rewriter.replace(moved):
            return False
        self.merges += 1
        self.merged_runs += len(moved)
        log.info("runs merged", extra={"partition": str(runs[0].partition), "runs": len(moved)})
        return True
