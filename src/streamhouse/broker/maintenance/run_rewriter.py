"""RunRewriter: reads whole runs past the caches and replaces them by a new object; AbortedCleanup: drops aborted rows.

Data path   none: object store -> **run_rewriter** -> object store, then metadata store
Owns        reading runs in order, the keys of rewritten objects, registering them
Leaves      what is written to `log_cleaner` and `run_merger`; its layout to `format.run_rewrite`; deletion to
            `retention`
Invariant   an object is registered after its PUT returned, in place of exactly the runs that it was made of

`AbortedCleanup` deletes the rows of aborted transactions of which compaction left no record, first in the metadata
store and then in the open logs. A consumer that knows of an aborted transaction skips its producer's records up to
the marker. The marker may therefore be removed only after fetch responses no longer name the transaction, which the
marker's delete horizon allows for.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Final, TypeVar

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.partition.log import PartitionLog
from streamhouse.broker.segments.reader import SegmentReader
from streamhouse.broker.segments.transaction_isolation import aborted_within
from streamhouse.errors import CorruptObject, Unavailable
from streamhouse.format.batch import Buffer
from streamhouse.format.object_keys import REWRITTEN_SEQUENCES, segment_key
from streamhouse.format.run_index import decode_run_index
from streamhouse.format.run_rewrite import RewrittenRun, Source, decode_run_blocks, group_adjacent_blocks, run_inputs
from streamhouse.format.segment import encode_segment
from streamhouse.model.names import PartitionId, SessionId
from streamhouse.model.segment import Run, SegmentCommit, SegmentObject
from streamhouse.model.transaction import AbortedTransaction
from streamhouse.stores.objects.base import ObjectExists, ObjectMissing

MAX_ROWS: Final = 1000
"""Rows that one statement deletes."""


class AbortedCleanup:
    def __init__(self, dependencies: Dependencies, *, logs: Callable[[], Iterable[PartitionLog]]) -> None:
        self._metadata = dependencies.metadata
        self._logs = logs
        self.forgotten = 0

    def __repr__(self) -> str:
        return f"<AbortedCleanup forgotten={self.forgotten}>"

    async def forget(self, partition: PartitionId, aborted: Iterable[AbortedTransaction], spent: Iterable[int]) -> None:
        """Delete the rows of those transactions of which only the markers, at the offsets `spent`, are left."""
        offsets = set(spent)
        await self.forget_ended(partition, [each.last_offset for each in aborted if each.last_offset in offsets])

    async def forget_ended(self, partition: PartitionId, last_offsets: list[int]) -> None:
        """Delete the rows of the aborted transactions whose markers are at these offsets."""
        for start in range(0, len(last_offsets), MAX_ROWS):
            some = last_offsets[start : start + MAX_ROWS]
            await self._metadata.forget_aborted(partition, some)
            self.forgotten += len(some)
        if last_offsets:
            for item in self._logs():
                if item.partition == partition:
                    item.forget_aborted(last_offsets)

    async def catch_up(self) -> None:
        """Remove transactions from this agent's logs of compacted topics whose rows other agents have deleted."""
        known = {item.partition: (item, aborted) for item in self._logs() if (aborted := _flushed_aborted(item))}
        if not known:
            return
        ranges = {at: range(item.log_start, item.flushed_end) for at, (item, _) in known.items()}
        rows = await aborted_within(self._metadata, ranges)
        for at, (item, aborted) in known.items():
            left = {each.last_offset for each in rows.get(at, ())}
            if gone := [each.last_offset for each in aborted if each.last_offset not in left]:
                item.forget_aborted(gone)


def _flushed_aborted(item: PartitionLog) -> list[AbortedTransaction]:
    """The log's aborted transactions that are flushed, so that they have rows."""
    if not item.config.compacts:
        return []
    end = item.flushed_end
    return [each for each in item.aborted_between(item.log_start, end) if each.last_offset < end]


log = logging.getLogger(__name__)

T = TypeVar("T")

TRIES: Final = 3


class RunRewriter:
    def __init__(self, dependencies: Dependencies, *, session: Callable[[], SessionId], reader: SegmentReader) -> None:
        self._dependencies = dependencies
        self._settings = dependencies.settings.compaction
        self._session = session
        self._reader = reader
        self._sequence = count(REWRITTEN_SEQUENCES)
        # A thread of its own, so that no fetch waits for a rewrite.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="compaction")
        self.read_bytes = 0
        self.written_bytes = 0

    def __repr__(self) -> str:
        return f"<RunRewriter read={self.read_bytes} written={self.written_bytes}>"

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def damaged_keys(self) -> frozenset[str]:
        """Objects with missing or damaged ranges that were not readable since."""
        return frozenset(finding.location.key for finding in self._reader.damage.findings())

    async def open(self, run: Run) -> Source:
        with self._reader.named(run, run.base, run.end):
            data = await self._get(run, run.index_position, run.index_position + run.index_length)
            return Source(run, decode_run_index(data, key=run.object_key))

    async def pieces(self, source: Source) -> AsyncGenerator[Buffer, None]:
        """The run's batches in order, as they are served, some blocks at a time."""
        for blocks in group_adjacent_blocks(source.index.blocks, self._settings.read_bytes):
            start, end = blocks[0].position, blocks[-1].position + blocks[-1].stored_bytes
            base = source.run.base
            with self._reader.named(source.run, base + blocks[0].first, base + blocks[-1].end):
                stored = await self._get(source.run, start, end)
                piece = await self.in_thread(partial(decode_run_blocks, stored, blocks, source))
            yield piece

    async def _get(self, run: Run, start: int, end: int) -> bytes:
        try:
            data = await self._dependencies.objects.get_range(run.object_key, start, end)
        except ObjectMissing as error:
            gone = Unavailable(f"a run's object is gone; run={run}")
            gone.__cause__ = error
            await self._reader.require_replaced(gone, run)
            raise gone from error
        if len(data) != end - start:
            raise CorruptObject(run.object_key, why=f"ends at {start + len(data)}, before {end}")
        self.read_bytes += len(data)
        return data

    async def replace(self, rewritten: Sequence[RewrittenRun]) -> bool:
        """Write what remains of consecutive runs and replace them by it; False if the runs have changed."""
        session_id = self._session()
        inputs = list(run_inputs(rewritten))
        block_bytes = self._dependencies.settings.flush.block_bytes
        encoded = await self.in_thread(partial(encode_segment, inputs, block_bytes=block_bytes))
        key = segment_key(session_id, next(self._sequence))
        try:
            await self._dependencies.objects.put_new(key, encoded.body)
        except ObjectExists as error:
            raise Unavailable(f"object key is taken; key={key}") from error
        self.written_bytes += encoded.size_bytes
        segment = SegmentObject(
            key=key, size_bytes=encoded.size_bytes, created_at_ms=self._dependencies.agreed_time().later_ms
        )
        commit = SegmentCommit(segment=segment, runs=tuple(layout.run(key) for layout in encoded.layouts))
        return await self._register(session_id, [item.source.run for item in rewritten], commit)

    async def _register(self, session_id: SessionId, expected: Sequence[Run], commit: SegmentCommit) -> bool:
        offer = partial(self._dependencies.metadata.replace_runs, session_id, expected, commit)
        replaced = await self._retried(offer)
        if replaced:
            self._reader.runs.forget(expected[0].partition)
        else:
            # Changed rows never change back, so this object can't be registered any more.
            log.info("runs changed while they were rewritten", extra={"key": commit.segment.key})
            with suppress(Unavailable):
                await self._dependencies.objects.delete(commit.segment.key)
        return replaced

    async def _retried(self, act: Callable[[], Awaitable[bool]]) -> bool:
        """Retry after a lost response; the repeated call returns the outcome."""
        for _ in range(TRIES - 1):
            try:
                return await act()
            except Unavailable as error:
                log.warning("replacing runs failed, will retry", extra={"why": str(error)})
                await self._dependencies.clock.sleep(
                    self._dependencies.ids.jitter(self._dependencies.settings.flush.retry_s)
                )
        return await act()

    def close(self) -> None:
        self._thread.shutdown(wait=False)
