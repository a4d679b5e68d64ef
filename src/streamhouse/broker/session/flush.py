"""Flush: durable batches become segments in the object store.

Data path   log -> **flush** -> object store, then metadata store, then the WAL is truncated
Owns        when a partition is due, which partitions share an object, retries
Leaves      segment bytes to `format.segment`, offsets to `log`, deleting to `retention`

Invariants  a segment is registered only after its PUT returned, and in offset order: a partition is in one flush at
            a time
            bytes leave the tail, the budget and the WAL only after their registration returned
            every attempt of a PUT has its own key, so that a late one never replaces another
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.partition.backpressure import MemoryBudget
from streamhouse.broker.partition.log import PartitionLog, TailBatch
from streamhouse.broker.partition.producer_state import ProducerTable
from streamhouse.broker.segments.reader import KeptRun, SegmentReader
from streamhouse.broker.wal.base import Wal
from streamhouse.clock import AgreedTime, wait_first
from streamhouse.config import FlushSettings, Settings
from streamhouse.errors import Internal, LeaseLost, SessionLost, Stopping, Unavailable
from streamhouse.format.object_keys import segment_key
from streamhouse.format.producer_snapshot import encode_producers
from streamhouse.format.segment import EncodedSegment, RunInput, encode_segment
from streamhouse.model.names import PartitionId, SessionId
from streamhouse.model.segment import SegmentCommit, SegmentObject
from streamhouse.retry import retry
from streamhouse.stores.objects.base import ObjectExists

log = logging.getLogger(__name__)

T = TypeVar("T")

MIN_WAL_OBJECTS: Final = 32
"""Minimum number of WAL objects between flushes, however short the takeover time."""
RECOVERY_SHARE: Final = 2 / 3
"""Share of the takeover time for reading the WAL; the rest is for clients to find the new leader."""


class FlushCandidate(NamedTuple):
    """The state of a partition on which flush decisions depend."""

    partition: PartitionId
    size_bytes: int
    oldest_at: float
    has_flush_waiters: bool = False


def plan_flushes(
    buffers: Iterable[FlushCandidate], settings: FlushSettings, *, now: float, pressed: bool
) -> list[list[PartitionId]]:
    """Choose the partitions to flush now; each list becomes one object. A pure function.

    A large partition gets its own object. All small ones share an object as soon as one of them is due by age or has
    waiters, all together are large enough, or memory is short. Largest first, so that memory is freed quickly."""
    ordered = sorted(buffers, key=lambda b: b.size_bytes, reverse=True)
    packs = [[b.partition] for b in ordered if b.size_bytes >= settings.segment_bytes]
    small = [b for b in ordered if 0 < b.size_bytes < settings.segment_bytes]
    due = (
        pressed
        or sum(b.size_bytes for b in small) >= settings.segment_bytes
        or any(b.has_flush_waiters or now - b.oldest_at >= settings.age_s for b in small)
    )
    if due:
        packs.extend(_fill(small, settings.segment_bytes))
    return packs


class CreateTask(Protocol):
    def __call__(self, work: Coroutine[Any, Any, None], /, *, name: str) -> asyncio.Task[None]: ...


def wal_objects_allowed(settings: Settings) -> int:
    """Maximum WAL objects that wait for a flush, so that a recovery can read them in time."""
    return max(MIN_WAL_OBJECTS, round(settings.lease.takeover_s * RECOVERY_SHARE * settings.wal.recovery_per_s))


def _fill(small: Sequence[FlushCandidate], limit_bytes: int) -> list[list[PartitionId]]:
    packs: list[list[PartitionId]] = []
    size = limit_bytes
    for buffered in small:
        if size + buffered.size_bytes > limit_bytes:
            packs.append([])
            size = 0
        packs[-1].append(buffered.partition)
        size += buffered.size_bytes
    return packs


class KeyFilterBudget:
    """Bytes that flushes may decompress for key filters: a token bucket of `bytes_per_s`, which holds those of
    `BURST_S`. A flush is charged afterwards, so concurrent flushes may take more than there is; the next ones make up
    for it."""

    BURST_S: Final = 10.0

    def __init__(self, bytes_per_s: int, *, now: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._left = self._most = bytes_per_s * self.BURST_S
        self._at = now

    def __repr__(self) -> str:
        return f"<KeyFilterBudget left={self._left:.0f} of={self._most:.0f}>"

    def available(self, now: float) -> int:
        self._left = min(self._most, self._left + (now - self._at) * self._bytes_per_s)
        self._at = now
        return max(0, int(self._left))

    def charge(self, size_bytes: int) -> None:
        self._left -= size_bytes


_Share: TypeAlias = tuple[PartitionLog, Sequence[TailBatch]]


class _FlushShare(NamedTuple):
    """A partition's batches in a flush, and its producer state at their end."""

    log: PartitionLog
    batches: Sequence[TailBatch]
    producers: ProducerTable

    @property
    def end(self) -> int:
        return self.batches[-1].end

    def run_input(self, *, now_ms: int, keep_blocks: bool) -> RunInput:
        return RunInput(
            partition=self.log.partition,
            epoch=self.log.epoch,
            base=self.log.flushed_end,
            end=self.end,
            batches=[item.data for item in self.batches],
            producers=encode_producers(self.producers.entries(now_ms=now_ms)),
            keep_blocks=keep_blocks,
        )


class Flusher:
    def __init__(
        self,
        dependencies: Dependencies,
        session_id: SessionId,
        *,
        logs: Iterable[PartitionLog],
        dropped: Callable[[PartitionLog, LeaseLost], Awaitable[None]],
        reader: SegmentReader,
        budget: MemoryBudget,
        wal: Wal,
    ) -> None:
        self._dependencies = dependencies
        self._settings = dependencies.settings.flush
        self._wal_objects = wal_objects_allowed(dependencies.settings)
        self._session_id = session_id
        self._logs = logs
        self._dropped = dropped
        self._reader = reader
        self._budget = budget
        self._wal = wal
        self._key_filters = KeyFilterBudget(self._settings.key_filter_bytes_per_s, now=dependencies.clock.monotonic())
        self._sequence = 0
        self._stopping = False
        self._hurried = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()
        self.flushed_segments = 0
        self.failures = 0

    def __repr__(self) -> str:
        return f"<Flusher running={len(self._running)} segments={self.flushed_segments} failures={self.failures}>"

    async def run(self) -> None:
        """Flush what is due until `stop`; errors other than the stores' end the session."""
        async with asyncio.TaskGroup() as packs:
            while not self._stopping:
                self._hurried.clear()
                self._start(packs.create_task, pressed=self._budget.is_short or self._is_wal_long())
                await wait_first(self._hurried.wait(), self._dependencies.clock.sleep(self._settings.check_s))

    def _is_wal_long(self) -> bool:
        """Whether recovery would take too long; false while a flush in progress may shorten it."""
        return not self._running and self._wal.needed_objects >= self._wal_objects

    def flush_now(self) -> None:
        """Check now for partitions that are due, because a request waits for a flush."""
        self._hurried.set()

    def stop(self) -> None:
        """Start no further flush; `run` returns when those in progress are done."""
        self._stopping = True

    async def aclose(self) -> None:
        """Cancel flushes in progress; their records are in the WAL."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)

    def _start(
        self, create_task: CreateTask, *, pressed: bool, among: Collection[PartitionLog] | None = None
    ) -> list[asyncio.Task[None]]:
        begun: list[asyncio.Task[None]] = []
        for pack in self._due(pressed=pressed, among=among):
            if len(self._running) >= self._settings.parallel:
                break
            for item in pack:
                item.flushing = True
            task = create_task(self._flush(pack), name="flush")
            begun.append(task)
            self._running.add(task)
            task.add_done_callback(self._over)
        return begun

    def _over(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:  # also if there is no waiter
            log.info("flush ended", extra={"why": str(error)})

    def _due(self, *, pressed: bool, among: Collection[PartitionLog] | None) -> list[list[PartitionLog]]:
        candidates = self._logs if among is None else among
        logs = {item.partition: item for item in candidates if not item.flushing}
        buffers = [
            FlushCandidate(partition, item.unflushed_bytes, item.oldest_at, item.has_flush_waiters)
            for partition, item in logs.items()
            if item.oldest_at is not None and item.unflushed_bytes
        ]
        due = plan_flushes(buffers, self._settings, now=self._dependencies.clock.monotonic(), pressed=pressed)
        return [[logs[partition] for partition in pack] for pack in due]

    async def flush_all(self, among: Collection[PartitionLog] | None = None) -> None:
        """Flush until every durable batch, of all logs or of `among`, is in a registered segment."""
        while any(item.unflushed_bytes for item in (self._logs if among is None else among)):
            await self.flush_once(among)

    async def flush_once(self, among: Collection[PartitionLog] | None = None) -> None:
        """Flush durable batches within the limit of concurrent flushes; returns when those in progress are done. Raises
        the first error, because a transfer must notice a lost session. If the caller is cancelled, the flushes
        continue, because their registrations must be noted: a second registration would be rejected, and the log be
        treated as lost."""
        begun = self._start(asyncio.get_running_loop().create_task, pressed=True, among=among)
        if among is None and not self._running:
            raise Internal(f"nothing is due although batches are buffered; flusher={self!r}")
        if self._running:
            await asyncio.wait(self._running)
        for task in begun:
            if task.cancelled():
                raise Stopping("the session is over; unflushed records are in its write-ahead log")
            task.result()

    async def _flush(self, logs: list[PartitionLog]) -> None:
        try:
            shares = [(item, item.unflushed(limit_bytes=self._settings.segment_bytes)) for item in logs]
            await self._store([(item, durable) for item, durable in shares if durable])
        finally:
            for item in logs:
                item.flushing = False

    async def _store(self, shares: Sequence[_Share]) -> None:
        if not shares:
            return
        traces = self._dependencies.traces
        began_ns = 0 if traces is None else traces.tracer.now_ns()
        now = self._dependencies.agreed_time()
        moment = self._dependencies.clock.monotonic()
        since = moment - self._dependencies.settings.fetch.keep_flushed_s
        read = {item.partition for item, _ in shares if item.fetched_at > since}
        decompress_bytes = 0 if self._budget.is_short else self._key_filters.available(moment)
        encode = partial(
            _encode, shares, now=now, settings=self._settings, read=read, decompress_bytes=decompress_bytes
        )
        taken, encoded, kept = await asyncio.get_running_loop().run_in_executor(None, encode)
        self._key_filters.charge(encoded.decompressed_bytes)
        key = await self._retry(lambda: self._put(encoded))
        commit = SegmentCommit(
            segment=SegmentObject(key=key, size_bytes=encoded.size_bytes, created_at_ms=now.later_ms),
            runs=tuple(layout.run(key) for layout in encoded.layouts),
            aborted={share.log.partition: tuple(share.producers.aborted) for share in taken if share.producers.aborted},
        )
        published = await self._register(commit, taken)
        if published:
            self._reader.keep(key, kept)
            if traces is not None:
                for share in published:
                    flushed = share.log
                    traces.flushed(flushed.name, flushed.partition, flushed.flushed_end, share.end, start_ns=began_ns)
            await self._settle(commit, published)

    async def _put(self, encoded: EncodedSegment) -> str:
        self._sequence += 1
        key = segment_key(self._session_id, self._sequence)
        try:
            await self._dependencies.objects.put_new(key, encoded.body)
        except ObjectExists as error:
            # Possibly our own earlier write; the next attempt has another key.
            raise Unavailable(f"object key is taken; key={key}") from error
        return key

    async def _register(self, commit: SegmentCommit, taken: list[_FlushShare]) -> list[_FlushShare]:
        """Register the runs; runs of lost leases are removed from the commit, and their logs dropped."""
        while commit.runs:
            offer = partial(self._dependencies.metadata.commit_segments, self._session_id, [commit])
            try:
                await self._retry(offer)
                break
            except LeaseLost as error:
                lost = set(error.partitions)
                remaining = tuple(run for run in commit.runs if run.partition not in lost)
                if len(remaining) == len(commit.runs):
                    raise
                await self._retry(self._require_session)
                await self._retry(partial(self._require_given_up, [t for t in taken if t.log.partition in lost]))
                for share in taken:
                    if share.log.partition in lost:
                        await self._dropped(share.log, error)
                commit = commit.only(remaining)
        published = {run.partition for run in commit.runs}
        return [share for share in taken if share.log.partition in published]

    async def _require_session(self) -> None:
        """Raise `SessionLost` if all leases are lost: then the recovering agent reads the buffered records from the
        WAL, and nothing may be dropped."""
        await self._dependencies.metadata.renew_session(self._session_id, self._dependencies.settings.lease.life_ms)

    async def _require_given_up(self, refused: Sequence[_FlushShare]) -> None:
        """Raise `SessionLost` if a run was rejected although its lease is held: then the rows were changed by something
        else, and the WAL may be the only copy of acknowledged records."""
        held = {state.partition: state for state in await self._dependencies.metadata.held_by(self._session_id)}
        for share in refused:
            state = held.get(share.log.partition)
            if state is not None and state.epoch == share.log.epoch:
                why = (
                    f"a segment was refused though the lease is ours; partition={share.log.name} epoch={state.epoch} "
                    f"flushed_end={state.flushed_end} expected={share.log.flushed_end}"
                )
                log.error("the session ends and leaves its log: rows and log differ", extra={"why": why})
                raise SessionLost(self._session_id, why=why)

    async def _settle(self, commit: SegmentCommit, published: list[_FlushShare]) -> None:
        """The segment is registered: free the tail, the memory budget and the WAL."""
        for share in published:
            self._budget.release(share.log.flushed(share.end, share.producers))
        done = {share.log.partition: share.end for share in published}
        self._reader.runs.published([run for run in commit.runs if run.partition in done])
        self.flushed_segments += 1
        log.info(
            "segment published",
            extra={"key": commit.segment.key, "bytes": commit.segment.size_bytes, "partitions": len(done)},
        )
        await self._wal.truncate(done)

    async def _retry(self, act: Callable[[], Awaitable[T]]) -> T:
        """Retry until it succeeds: the records stay in memory and in the WAL, and the budget throttles producers."""
        backoff = self._dependencies.backoff(first_s=self._settings.retry_s, max_s=self._settings.retry_max_s)

        def failed(error: Unavailable) -> None:
            self.failures += 1
            log.warning("flush failed, will retry", extra={"why": str(error), "after_s": backoff.upcoming_s})

        return await retry(act, on=Unavailable, backoff=backoff, before_retry=failed)


def _encode(
    shares: Sequence[_Share],
    *,
    now: AgreedTime,
    settings: FlushSettings,
    read: Collection[PartitionId],
    decompress_bytes: int,
) -> tuple[list[_FlushShare], EncodedSegment, list[KeptRun]]:
    """Encode a segment, and what to keep of the partitions in `read`; runs in a thread, because a large tail of small
    batches takes long. Its input doesn't change while the partitions are being flushed."""
    taken = [_FlushShare(item, batches, item.producers_after(batches, now_ms=now.later_ms)) for item, batches in shares]
    runs = [share.run_input(now_ms=now.earlier_ms, keep_blocks=share.log.partition in read) for share in taken]
    encoded = encode_segment(
        runs,
        block_bytes=settings.block_bytes,
        key_filters=settings.key_filters,
        decompress_bytes=decompress_bytes,
    )
    return taken, encoded, list(map(KeptRun.of, encoded.kept))
