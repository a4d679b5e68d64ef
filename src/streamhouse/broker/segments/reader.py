"""SegmentReader: reads flushed records from segments, through the block caches.

Data path   broker.fetch -> **reader** -> run_index (which object) -> index (which block) -> block_cache -> disk_cache
            -> ranged GET -> LZ4 -> batches
Owns        finding and caching blocks and key filters, read-ahead, the limit of concurrent reads
Leaves      the tail to `log`, bytes to `format.segment`
Invariants  bytes that don't match their checksum are never served: that range fails, others don't
            an object counts as missing only if a row that is read after the failed request still references it
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Self

from streamhouse.broker.partition.backpressure import ResponseBudget
from streamhouse.broker.segments.block_cache import Block, SingleFlightCache
from streamhouse.broker.segments.damaged_ranges import DamagedRanges, RunLocation
from streamhouse.broker.segments.disk_cache import DiskBlockCache, open_disk_cache
from streamhouse.broker.segments.run_index import RunIndex
from streamhouse.clock import Clock, SystemClock
from streamhouse.config import FetchSettings
from streamhouse.errors import CorruptObject, DamagedRecords, StreamhouseError, Unavailable
from streamhouse.format import batch as batches
from streamhouse.format import run_index as run_indexes
from streamhouse.format.batch import Buffer
from streamhouse.format.block import BlockEntry, decode_block
from streamhouse.format.key_filter import KeyFilters, decode_key_filters
from streamhouse.format.segment import DecodedRun
from streamhouse.limits import FairLimiter
from streamhouse.model.names import PartitionId
from streamhouse.model.segment import Run
from streamhouse.stores.metadata.base import MetadataStore
from streamhouse.stores.objects.base import ObjectMissing, ObjectStore

log = logging.getLogger(__name__)


class _Index(NamedTuple):
    content: run_indexes.RunIndex
    weight: int = 1


@dataclass(frozen=True, slots=True)
class KeptRun:
    """A run of a segment that is being written, as readers will find it in the caches."""

    index: _Index
    index_position: int
    blocks: Mapping[int, Block]

    @classmethod
    def of(cls, run: DecodedRun) -> Self:
        """Find the batches of the blocks; call it in a thread."""
        blocks = {position: Block(data) for position, data in run.blocks.items()}
        return cls(_Index(replace(run.index, producers=b"")), run.index_position, blocks)


class SegmentReader:
    def __init__(
        self,
        settings: FetchSettings,
        *,
        objects: ObjectStore,
        metadata: MetadataStore,
        disk: DiskBlockCache | None = None,
        encrypts: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._objects = objects
        self._metadata = metadata
        self.damage = DamagedRanges(settings, clock=clock or SystemClock())
        self.response_budget = ResponseBudget(settings.answers_bytes)
        self.runs = RunIndex(metadata, limit=settings.run_cache_entries)
        self.blocks: SingleFlightCache[tuple[str, int], Block] = SingleFlightCache(settings.cache_bytes)
        self.indexes: SingleFlightCache[tuple[str, int], _Index] = SingleFlightCache(settings.index_cache_entries)
        self.key_filter_cache: SingleFlightCache[tuple[str, int], KeyFilters] = SingleFlightCache(
            settings.key_filter_cache_bytes
        )
        self.disk = disk if disk is not None else open_disk_cache(settings, encrypts=encrypts)
        # Separate threads, so that cold readers don't delay producers and flushes.
        self._threads = ThreadPoolExecutor(settings.decode_threads, thread_name_prefix="decode")
        self._cold = FairLimiter(settings.concurrent_reads)
        self._ahead: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<SegmentReader blocks={self.blocks!r} ahead={len(self._ahead)}>"

    @property
    def waiting(self) -> int:
        """The number of queued reads."""
        return self._cold.waiting

    async def open(self) -> None:
        """Open the disk cache if it is enabled; raises `Misconfigured`."""
        if self.disk is not None:
            await self.disk.open()

    async def read(
        self,
        partition: PartitionId,
        offset: int,
        *,
        max_bytes: int,
        at_least_one: bool,
        end: int | None = None,
        until: int | None = None,
    ) -> list[Buffer]:
        """Whole batches from the one that contains `offset` (or the next after a gap), up to `max_bytes`; none that
        extends beyond `until`. `end` is the flushed end if the caller knows it: finding it costs a query to the
        metadata store."""
        if until is not None:
            end = until if end is None else min(end, until)
        batches: list[Buffer] = []
        left = max_bytes
        gone: StreamhouseError | None = None
        while (left > 0 or (at_least_one and not batches)) and (end is None or offset < end):
            try:
                run = await self.runs.find(partition, offset)
                if gone is not None and (run is None or run.base > offset):
                    raise gone  # nothing replaced it: retention deleted it
                if run is None:
                    break
                piece, offset, more = await self._read_run(
                    run, offset, left, at_least_one=at_least_one and not batches, until=until
                )
                gone = None
            except StreamhouseError as error:
                if batches:
                    break  # return the batches before it; a fetch of that range gets the error
                if gone is not None or not is_missing(error):
                    raise
                gone = error  # the run was merged or compacted: look up its replacement
                continue
            if len(piece):
                batches.append(piece)
                left -= len(piece)
            if not more:
                break
        return batches

    async def is_gap(self, partition: PartitionId, offset: int, *, end: int) -> bool:
        """Whether there is certainly no batch in [offset, end)."""
        while offset < end:
            run = await self.runs.find(partition, offset)
            if run is None or run.base >= end:
                return True
            index = await self.index(run)
            if index.block_for(max(offset - run.base, 0)) < len(index.blocks):
                return False
            offset = run.end
        return True

    async def _read_run(
        self, run: Run, offset: int, max_bytes: int, *, at_least_one: bool, until: int | None
    ) -> tuple[Buffer, int, bool]:
        """Batches of one block of `run`, the offset after them, and whether the next block may fit as well."""
        index = await self.index(run)
        number = index.block_for(max(offset - run.base, 0))
        if number == len(index.blocks):
            return b"", run.end, True  # a gap at the end of the run
        block = await self.block(run, index, number)
        self._read_ahead(run, index, number)
        shift = run.base - run.stored_base
        stop = until - shift if until is not None else None
        piece, end = block.slice(offset - shift, max_bytes=max_bytes, at_least_one=at_least_one, until=stop)
        whole = end == block.ends[-1]
        after = run.end if whole and number + 1 == len(index.blocks) else end + shift
        if shift or index.epoch != run.epoch:  # a run of an external commit: its writer didn't know offsets and epoch
            piece = memoryview(batches.shift_offsets(piece, by=shift, leader_epoch=run.epoch))
        return piece, after, whole

    async def index(self, run: Run) -> run_indexes.RunIndex:
        """The run's block index: one ranged GET, then cached. Without the producer snapshot, which may be a thousand
        times larger. Raises `DamagedRecords` or `MissingRecords` with the run's offsets."""

        async def make() -> _Index:
            return _Index(replace(await self._get_index(run), producers=b""))

        with self._counted():
            return (await self.indexes.get((run.object_key, run.index_position), make)).content

    async def key_filters(self, run: Run) -> KeyFilters | None:
        """The key filters of a run: one ranged GET, then cached. None if it has none, or they are damaged."""
        index = await self.index(run)
        if not index.key_filter_bytes:
            return None

        async def make() -> KeyFilters:
            start = run.position + run.length
            async with self._cold.slot(run.partition):
                data = await self._get(run, start, start + index.key_filter_bytes)
            return decode_key_filters(data, key=run.object_key)

        try:
            return await self.key_filter_cache.get((run.object_key, run.index_position), make)
        except CorruptObject as error:
            log.warning("key filters of a run are damaged, searches read all of it", extra={"why": str(error)})
            return None

    async def snapshots(self, runs: Sequence[Run]) -> Mapping[PartitionId, bytes]:
        """The producer snapshots of runs that are adjacent in one object: one ranged GET, not cached. Used when logs
        are opened."""
        start = runs[0].index_position
        async with self._cold.slot(runs[0].partition):
            data = memoryview(await self._get(runs[0], start, runs[-1].index_position + runs[-1].index_length))
        at = {run.partition: run.index_position - start for run in runs}
        return {run.partition: _producers(run, data[at[run.partition] :][: run.index_length]) for run in runs}

    async def salvage(self, run: Run) -> Iterable[Block]:
        """The blocks that can be found in a run with a damaged index, oldest first. They are intact, but may be
        incomplete: the caller must check the offsets."""
        async with self._cold.slot(run.partition):
            data = await self._get(run, run.index_position, run.index_position + run.index_length)
        entries = run_indexes.salvage_blocks(data, position=run.position, length=run.length, key=run.object_key)
        return [await self._find_block(run, entry) for entry in entries]

    async def _get_index(self, run: Run) -> run_indexes.RunIndex:
        self._require_present(run)
        with self.named(run, run.base, run.end):
            try:
                async with self._cold.slot(run.partition):
                    data = await self._get(run, run.index_position, run.index_position + run.index_length)
            except Unavailable as error:
                await self.require_replaced(error, run)
                raise
            return run_indexes.decode_run_index(data, key=run.object_key)

    async def block(self, run: Run, index: run_indexes.RunIndex, number: int) -> Block:
        """A block from memory, disk or the object store; concurrent callers share a read. Raises `DamagedRecords` with
        the block's offsets, or `MissingRecords` with the run's."""
        with self._counted():
            return await self._block(run, index, number)

    async def _block(self, run: Run, index: run_indexes.RunIndex, number: int) -> Block:
        entry = index.blocks[number]
        key = (run.object_key, entry.position)
        return await self.blocks.get(key, partial(self._find_block, run, entry))

    def keep(self, object_key: str, runs: Iterable[KeptRun]) -> None:
        """Keep runs of an object that was just written: its readers need no request."""
        for run in runs:
            self.indexes.keep((object_key, run.index_position), run.index)
            for position, block in run.blocks.items():
                self.blocks.keep((object_key, position), block)

    async def _find_block(self, run: Run, entry: BlockEntry) -> Block:
        key = (run.object_key, entry.position)
        decode = partial(_decode, entry=entry, key=run.object_key)
        # The disk cache has its own threads, so that its reads don't wait for a slow store.
        if self.disk is not None and (cached := await self.disk.get(key, decode, whose=run.partition)) is not None:
            return cached
        self._require_present(run)
        with self.named(run, run.base + entry.first, run.base + entry.end):
            try:
                async with self._cold.slot(run.partition):
                    stored = await self._get(run, entry.position, entry.position + entry.stored_bytes)
                    block = await asyncio.get_running_loop().run_in_executor(self._threads, decode, stored)
            except Unavailable as error:
                await self.require_replaced(error, run)
                raise
        if self.disk is not None:
            self.disk.put(key, stored)
        return block

    async def _get(self, run: Run, start: int, end: int) -> bytes:
        try:
            data = await self._objects.get_range(run.object_key, start, end)
        except ObjectMissing as error:
            self.runs.forget(run.partition)
            raise Unavailable(f"a run's object is gone; run={run}") from error
        if len(data) != end - start:
            raise CorruptObject(run.object_key, why=f"ends at {start + len(data)}, before {end}")
        self.damage.mark_present(location_of(run))
        return data

    def _require_present(self, run: Run) -> None:
        """Raise if the object was missing a moment ago."""
        if (missing := self.damage.recently_missing(location_of(run))) is not None:
            raise missing

    async def require_replaced(self, error: Unavailable, run: Run) -> None:
        """Raise `MissingRecords` if a row still references the missing object. Otherwise the run was replaced or
        expired, or the store did not respond."""
        if not is_missing(error):
            return
        rows = await self._metadata.runs(run.partition, from_offset=run.base, limit=1)
        if rows and (rows[0].base, rows[0].object_key) == (run.base, run.object_key):
            raise self.damage.report_missing(location_of(run)) from error

    @contextmanager
    def named(self, run: Run, base: int, end: int) -> Iterator[None]:
        """Convert damage found while reading these offsets to an error with the offsets."""
        location = RunLocation(run.partition, base, end, run.object_key)
        try:
            yield
        except DamagedRecords:
            raise
        except CorruptObject as error:
            raise self.damage.report_damaged(location, error.why) from error
        else:
            self.damage.mark_readable(location)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        try:
            yield
        except DamagedRecords as error:
            self.damage.refused(error)
            raise

    def _read_ahead(self, run: Run, index: run_indexes.RunIndex, number: int) -> None:
        """Fetch the next blocks of this run for a sequential reader."""
        for next_number in range(number + 1, min(number + 1 + self._settings.readahead_blocks, len(index.blocks))):
            key = (run.object_key, index.blocks[next_number].position)
            if key in self.blocks or len(self._ahead) >= self._settings.concurrent_reads:
                continue
            task = asyncio.get_running_loop().create_task(self._warm(run, index, next_number), name="readahead")
            self._ahead.add(task)
            task.add_done_callback(self._ahead.discard)

    async def _warm(self, run: Run, index: run_indexes.RunIndex, number: int) -> None:
        try:
            await self._block(run, index, number)
        except Exception:  # noqa: BLE001 - a fetch of this block gets and reports the error
            return

    async def aclose(self) -> None:
        for task in tuple(self._ahead):
            task.cancel()
        await asyncio.gather(*self._ahead, return_exceptions=True)
        await self.blocks.aclose()
        await self.indexes.aclose()
        await self.key_filter_cache.aclose()
        if self.disk is not None:
            await self.disk.aclose()
        self._threads.shutdown(wait=False)


def is_missing(error: StreamhouseError) -> bool:
    """Whether the error means that the object does not exist."""
    return isinstance(error.__cause__, ObjectMissing)


def location_of(run: Run) -> RunLocation:
    return RunLocation(run.partition, run.base, run.end, run.object_key)


def _decode(stored: Buffer, entry: BlockEntry, key: str) -> Block:
    return Block(decode_block(stored, entry, key=key))


def _producers(run: Run, index: memoryview) -> bytes:
    """The producer snapshot of a run's index, even if other parts of the index are damaged."""
    try:
        return run_indexes.decode_run_index(index, key=run.object_key).producers
    except CorruptObject as error:
        snapshot = run_indexes.salvage_producers(index, key=run.object_key)
        log.error(
            "index of a run is damaged, reads of that range fail",
            extra={"partition": str(run.partition), "offsets": f"[{run.base},{run.end})", "why": str(error)},
        )
        return snapshot
