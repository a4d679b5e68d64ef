"""LogCleaner: one pass of key compaction over one partition.

Data path   none: works on flushed records
Owns        the two phases of a pass (build the key map; rewrite runs), the order in which runs are replaced
Leaves      when a partition is due to `model.log_cleanup`, which records are retained to `format.compaction`, I/O to
            `run_rewriter`

Invariants  runs are replaced oldest first: when a tombstone gets its delete horizon, no older record of its key is left
            records of transactions that may be open are not read
            when the marker of an aborted transaction gets its delete horizon, the transaction is not returned to
            consumers any more

A pass reads the uncleaned part until the key map is full, then rewrites everything up to there, page by page, so that
few of a million runs are in memory. Its decisions are valid under concurrent appends, deletions and compactions: a
record is removed only because of a later one, which is itself removed only because of one that is later still.
"""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.maintenance.run_rewriter import AbortedCleanup, RunRewriter
from streamhouse.broker.segments.transaction_isolation import StableFlushedOffset, aborted_within
from streamhouse.errors import Unavailable
from streamhouse.format.batch import Buffer, read_header
from streamhouse.format.compaction import FilterRules, KeyMap, SeenTransactions, compact_batch
from streamhouse.format.run_rewrite import RewrittenRun, Source, batches_of
from streamhouse.format.transactions import AbortedTransactions
from streamhouse.model.cluster import PartitionState
from streamhouse.model.log_cleanup import DirtyRange, Extent, merge_limits
from streamhouse.model.segment import Run
from streamhouse.model.topic import TopicConfig

log = logging.getLogger(__name__)

PAGE: Final = 1000
"""Maximum runs in memory; a partition may have a million."""


class LogCleaner:
    def __init__(
        self,
        dependencies: Dependencies,
        *,
        rewriter: RunRewriter,
        stable_flushed: StableFlushedOffset,
        aborted_cleanup: AbortedCleanup,
    ) -> None:
        self._dependencies = dependencies
        self._settings = dependencies.settings.compaction
        self._limit_bytes = dependencies.settings.producers.max_decompressed_bytes
        self._rewriter = rewriter
        self._stable_flushed = stable_flushed
        self._aborted_cleanup = aborted_cleanup
        self.passes = 0
        self.dropped_records = 0

    def __repr__(self) -> str:
        return f"<LogCleaner passes={self.passes} dropped={self.dropped_records}>"

    async def clean(self, state: PartitionState, config: TopicConfig, *, cleaned_to: int) -> bool:
        """Compact the partition if it is due; returns whether a pass was completed."""
        now_ms = await self._dependencies.agreed_now_ms()
        stable_end = await self._stable_flushed.end(state)
        dirty_range = DirtyRange(config, cleaned_to=cleaned_to, now_ms=now_ms, stable_end=stable_end)
        dirt, last_end = await self._look(state, dirty_range)
        if dirt.due_up_to is None:
            return False
        aborted = await self._aborted(state, dirt.due_up_to)
        keys, reached = await self._map_keys(state, max(cleaned_to, state.log_start), dirt.due_up_to, aborted)
        rules = FilterRules(
            latest=keys.latest,
            end=reached,
            now_ms=now_ms,
            later_now_ms=self._dependencies.agreed_time().later_ms,
            delete_retention_ms=config.delete_retention_ms,
            limit_bytes=self._limit_bytes,
            aborted=aborted,
        )
        seen = SeenTransactions()
        async with aclosing(self._groups(state, reached, config)) as groups:
            async for group in groups:
                if not await self._rewrite(group, rules, seen, last_end=last_end):
                    return False
        await self._dependencies.metadata.mark_cleaned(state.partition, reached)
        self.passes += 1
        log.info(
            "partition compacted",
            extra={"partition": str(state.partition), "keys": len(keys.latest), "from": cleaned_to, "to": reached},
        )
        return True

    async def _runs(self, state: PartitionState, start: int, up_to: int | None = None) -> AsyncGenerator[Run, None]:
        """The flushed runs that overlap [start, up_to), oldest first, with one page in memory. Raises `Unavailable` if
        a run was merged with an earlier one between pages."""
        offset = start
        while page := await self._dependencies.metadata.runs(state.partition, from_offset=offset, limit=PAGE):
            if offset > start and page[0].base < offset:
                raise Unavailable(f"runs changed while they were read; partition={state.partition} offset={offset}")
            for run in page:
                if run.end > state.flushed_end or (up_to is not None and run.base >= up_to):
                    return
                yield run
            if len(page) < PAGE:
                return
            offset = page[-1].end

    async def _look(self, state: PartitionState, dirt: DirtyRange) -> tuple[DirtyRange, int]:
        """Measure how dirty the partition is, and return the end of its last run."""
        last_end = state.log_start
        async with aclosing(self._runs(state, state.log_start)) as runs:
            async for run in runs:
                dirt.add(run)
                last_end = run.end
        return dirt, last_end

    async def _aborted(self, state: PartitionState, up_to: int) -> AbortedTransactions:
        ranges = {state.partition: range(state.log_start, up_to)}
        return AbortedTransactions((await aborted_within(self._dependencies.metadata, ranges)).get(state.partition, ()))

    async def _map_keys(
        self, state: PartitionState, start: int, up_to: int, aborted: AbortedTransactions
    ) -> tuple[KeyMap, int]:
        """The latest offset of each key from `start` on, and the offset that the key map reaches."""
        keys = KeyMap(max_keys=self._settings.max_keys, limit_bytes=self._limit_bytes, aborted=aborted)
        async with aclosing(self._runs(state, start, up_to)) as runs:
            async for run in runs:
                source = await self._rewriter.open(run)
                async with aclosing(self._rewriter.pieces(source)) as pieces:
                    async for piece in pieces:
                        if not await self._rewriter.in_thread(partial(_add_keys, keys, piece, start)):
                            return keys, keys.end
        return keys, up_to

    async def _groups(
        self, state: PartitionState, up_to: int, config: TopicConfig
    ) -> AsyncGenerator[list[Source], None]:
        """Group runs to rewrite together, limited by memory and by what retention may delete at once."""
        limits = merge_limits(config, at_least=1, below_bytes=0, max_bytes=self._settings.segment_bytes)
        group: list[Source] = []
        extent, raw_bytes = Extent(), 0
        async with aclosing(self._runs(state, state.log_start, up_to)) as runs:
            async for run in runs:
                source = await self._rewriter.open(run)
                extent, raw_bytes = extent.plus(run), raw_bytes + source.raw_bytes
                is_full = raw_bytes > self._settings.segment_bytes or len(group) >= self._settings.max_runs
                if group and (is_full or not extent.may_be_one(limits)):
                    yield group
                    group, extent, raw_bytes = [], Extent().plus(run), source.raw_bytes
                group.append(source)
        if group:
            yield group

    async def _rewrite(
        self, group: Sequence[Source], rules: FilterRules, seen: SeenTransactions, *, last_end: int
    ) -> bool:
        """Replace the runs that change; False if another agent or job changed them first."""
        rewritten: list[RewrittenRun] = []
        changed: list[int] = []
        spent_before = len(seen.spent)
        for number, source in enumerate(group):
            batches: list[Buffer] = []
            has_changed = False
            async for piece in self._rewriter.pieces(source):
                work = partial(_retained_records, piece, rules, seen, last_end)
                stays, differs = await self._rewriter.in_thread(work)
                batches.extend(stays)
                has_changed = has_changed or differs
            rewritten.append(RewrittenRun(source, batches))
            if has_changed:
                changed.append(number)
        await self._aborted_cleanup.forget(group[0].run.partition, rules.aborted, seen.spent[spent_before:])
        if not changed:
            return True
        span = rewritten[changed[0] : changed[-1] + 1]
        replaced = await self._rewriter.replace(span)
        if replaced:
            self.dropped_records += sum(_dropped(item) for item in span)
        return replaced


def _add_keys(keys: KeyMap, piece: Buffer, start: int) -> bool:
    return all(keys.add(batch) for batch in batches_of(piece) if read_header(batch).end > start)


def _retained_records(
    piece: Buffer, rules: FilterRules, seen: SeenTransactions, last_end: int
) -> tuple[list[Buffer], bool]:
    """The retained batches of a part, and whether they differ from the original ones."""
    stays: list[Buffer] = []
    differs = False
    for batch in batches_of(piece):
        new = compact_batch(batch, rules, keep_empty=read_header(batch).end == last_end, seen=seen)
        differs = differs or new is not batch
        if new is not None:
            stays.append(new)
    return stays, differs


def _dropped(item: RewrittenRun) -> int:
    return item.source.run.records - sum(read_header(batch).record_count for batch in item.batches)
