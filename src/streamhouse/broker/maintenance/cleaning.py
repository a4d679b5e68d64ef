"""Cleaning: one pass of key compaction over one partition.

Data path   none: works behind the data path's back, on what is flushed
Owns        the two readings of a pass (which keys are new; what stays), the order in which runs are replaced
Leaves      when a partition is due to `model.compaction`, which records stay to `format.compaction`, I/O to `rewriting`

Invariant   runs are replaced oldest first: when a tombstone gets the horizon after which it goes, nothing older of its
            key is left

A pass reads the new part first, until the key map is full, then everything up to there. What it decides is right
whoever appends, deletes or compacts meanwhile: a record goes only because of a later one, which nobody takes away
except for a later one still.
"""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial

from streamhouse.broker.doors import Doors
from streamhouse.format.batch import Buffer, read_header
from streamhouse.format.compaction import KeyMap, Rules, compacted
from streamhouse.format.rewriting import Rewritten, Source, batches_of
from streamhouse.model.compaction import compact_up_to
from streamhouse.model.lease import PartitionState
from streamhouse.model.merging import Extent, merge_limits
from streamhouse.model.names import PartitionId
from streamhouse.model.segment import Run
from streamhouse.model.topic import TopicConfig

from .rewriting import Rewriter

log = logging.getLogger(__name__)

PAGE = 1000


class Cleaner:
    def __init__(self, doors: Doors, *, rewriter: Rewriter) -> None:
        self._doors = doors
        self._settings = doors.settings.compaction
        self._limit_bytes = doors.settings.producers.max_decompressed_bytes
        self._rewriter = rewriter
        self.passes = 0
        self.dropped_records = 0

    def __repr__(self) -> str:
        return f"<Cleaner passes={self.passes} dropped={self.dropped_records}>"

    async def clean(self, state: PartitionState, config: TopicConfig, *, cleaned_to: int) -> bool:
        """Compact the partition if it is due; whether a pass was made to its end."""
        runs = [run for run in await self._runs(state.partition, state.log_start) if run.end <= state.flushed_end]
        now_ms = self._doors.clock.now_ms()
        up_to = compact_up_to(runs, config, cleaned_to=cleaned_to, now_ms=now_ms)
        if up_to is None:
            return False
        keys, reached = await self._map_keys(runs, max(cleaned_to, state.log_start), up_to)
        rules = Rules(
            latest=keys.latest,
            end=reached,
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            limit_bytes=self._limit_bytes,
        )
        async with aclosing(self._groups([run for run in runs if run.base < reached], config)) as groups:
            async for group in groups:
                if not await self._rewrite(group, rules, last_end=runs[-1].end):
                    return False
        await self._doors.metadata.mark_cleaned(state.partition, reached)
        self.passes += 1
        log.info(
            "partition compacted",
            extra={"partition": str(state.partition), "keys": len(keys.latest), "from": cleaned_to, "to": reached},
        )
        return True

    async def _runs(self, partition: PartitionId, log_start: int) -> list[Run]:
        runs: list[Run] = []
        offset = log_start
        while page := await self._doors.metadata.runs(partition, from_offset=offset, limit=PAGE):
            runs.extend(page)
            offset = page[-1].end
            if len(page) < PAGE:
                break
        return runs

    async def _map_keys(self, runs: Sequence[Run], start: int, up_to: int) -> tuple[KeyMap, int]:
        """The latest offset of each key at and above `start`, and how far it was possible to look."""
        keys = KeyMap(max_keys=self._settings.max_keys, limit_bytes=self._limit_bytes)
        for run in runs:
            if run.end <= start or run.base >= up_to:
                continue
            source = await self._rewriter.open(run)
            async with aclosing(self._rewriter.pieces(source)) as pieces:
                async for piece in pieces:
                    if not await self._rewriter.in_thread(partial(_add_keys, keys, piece, start)):
                        return keys, keys.end
        return keys, up_to

    async def _groups(self, runs: Sequence[Run], config: TopicConfig) -> AsyncGenerator[list[Source], None]:
        """Runs that are rewritten together: as many as memory may hold, and retention may delete, as one."""
        limits = merge_limits(config, at_least=1, below_bytes=0, max_bytes=self._settings.segment_bytes)
        group: list[Source] = []
        extent, raw_bytes = Extent(), 0
        for run in runs:
            source = await self._rewriter.open(run)
            extent, raw_bytes = extent.plus(run), raw_bytes + source.raw_bytes
            if group and (raw_bytes > self._settings.segment_bytes or not extent.may_be_one(limits)):
                yield group
                group, extent, raw_bytes = [], Extent().plus(run), source.raw_bytes
            group.append(source)
        if group:
            yield group

    async def _rewrite(self, group: Sequence[Source], rules: Rules, *, last_end: int) -> bool:
        """Replace what changes; False when somebody else changed it first."""
        rewritten: list[Rewritten] = []
        changed: list[int] = []
        for number, source in enumerate(group):
            batches: list[Buffer] = []
            has_changed = False
            async for piece in self._rewriter.pieces(source):
                stays, differs = await self._rewriter.in_thread(partial(_what_stays, piece, rules, last_end))
                batches.extend(stays)
                has_changed = has_changed or differs
            rewritten.append(Rewritten(source, batches))
            if has_changed:
                changed.append(number)
        if not changed:
            return True
        span = rewritten[changed[0] : changed[-1] + 1]
        replaced = await self._rewriter.replace(span)
        if replaced:
            self.dropped_records += sum(_dropped(item) for item in span)
        return replaced


def _add_keys(keys: KeyMap, piece: Buffer, start: int) -> bool:
    return all(keys.add(batch) for batch in batches_of(piece) if read_header(batch).end > start)


def _what_stays(piece: Buffer, rules: Rules, last_end: int) -> tuple[list[Buffer], bool]:
    """The batches that stay of a piece, and whether they are others than those that were there."""
    stays: list[Buffer] = []
    differs = False
    for batch in batches_of(piece):
        new = compacted(batch, rules, keep_empty=read_header(batch).end == last_end)
        differs = differs or new is not batch
        if new is not None:
            stays.append(new)
    return stays, differs


def _dropped(item: Rewritten) -> int:
    return item.source.run.records - sum(read_header(batch).record_count for batch in item.batches)
