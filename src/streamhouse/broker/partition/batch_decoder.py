"""BatchDecoder: decompresses and decodes record batches, within a memory budget that all requests share.

Data path   append, ListOffsets by time, HTTP and gRPC reads -> **batch decoder** -> a thread -> `format.records`

The decompressed size of a batch isn't known before. Decoding starts with a small limit, which is enough for ordinary
batches; a batch that needs more is decoded again with `GROWTH` times as much, up to the largest size that is allowed.
Ordinary batches have threads of their own, so that no request waits for the large batch of another one. Requests that
wait for a thread share one trip to it.

Large batches reserve memory in the order in which they came. A request waits at most `max_wait_s`, behind at most
`max_waiting` others; otherwise it gets `Overloaded`, which clients retry.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from streamhouse.clock import Clock
from streamhouse.config import DecoderSettings, ProducerSettings
from streamhouse.errors import BatchTooLarge, Overloaded, Stopping, StreamhouseError
from streamhouse.format.batch import Buffer, codec_of
from streamhouse.format.compression import Codec
from streamhouse.format.decompression import peak_bytes

RETRY_AFTER_S: Final = 1.0


class DecoderBudget:
    def __init__(self, settings: DecoderSettings) -> None:
        self._settings = settings
        self._used = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self.refused = 0

    def __repr__(self) -> str:
        limit = self._settings.memory_bytes
        return f"<DecoderBudget used={self._used >> 10}KiB of {limit >> 10}KiB waiting={len(self._waiting)}>"

    @property
    def used_bytes(self) -> int:
        return self._used

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def take(self, size_bytes: int) -> None:
        """Wait until `size_bytes` are available; raises `Overloaded` if that takes too long. A request for more than
        the whole budget is admitted alone, so that the limit never rejects it forever."""
        if not self._waiting and self._fits(size_bytes):
            self._used += size_bytes
            return
        if len(self._waiting) >= self._settings.max_waiting:
            raise self.overloaded()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, size_bytes))
        try:
            async with asyncio.timeout(self._settings.max_wait_s):
                await turn
        except BaseException as error:
            self._leave(turn, size_bytes)
            if isinstance(error, TimeoutError):
                raise self.overloaded() from None
            raise

    def release(self, size_bytes: int) -> None:
        self._used -= size_bytes
        assert self._used >= 0, "more bytes were given back than were taken"
        self._admit()

    def overloaded(self) -> Overloaded:
        """The error for a request that has waited too long; counted."""
        self.refused += 1
        return Overloaded("decompression", limit_bytes=self._settings.memory_bytes, retry_after_s=RETRY_AFTER_S)

    def _fits(self, size_bytes: int) -> bool:
        return self._used + size_bytes <= self._settings.memory_bytes or self._used == 0

    def _admit(self) -> None:
        while self._waiting and self._fits(self._waiting[0][1]):
            turn, size_bytes = self._waiting.popleft()
            if not turn.done():  # otherwise it was cancelled and has not left the queue yet
                self._used += size_bytes
                turn.set_result(None)

    def _leave(self, turn: "asyncio.Future[None]", size_bytes: int) -> None:
        if turn.done() and not turn.cancelled():
            self.release(size_bytes)  # admitted when its owner was cancelled
            return
        self._waiting = deque(item for item in self._waiting if item[0] is not turn)
        self._admit()


T = TypeVar("T")

INLINE_BYTES: Final = 256 * 1024
"""Up to this size, callers that create no objects read uncompressed batches on the event loop."""

LEAST_BYTES: Final = 256 * 1024
EXPANSION: Final = 8
"""The first try may use this multiple of the stored size, and at least `LEAST_BYTES`."""

GROWTH: Final = 8
ORDINARY_BYTES: Final = 8 * 1024 * 1024
"""Tries up to this size use the threads for ordinary batches."""

TRIP_JOBS: Final = 32
"""Ordinary tries that share one trip to a thread, up to the size limit of one."""

Work = Callable[[int], T]
"""Decodes batches, each up to the given decompressed size; raises `BatchTooLarge` beyond. It may be called again and
must then start over."""


class StoredSize(NamedTuple):
    """Properties of batches before decompression: the codec that takes the most memory, and the size of the largest
    compressed batch, or of all if none is compressed."""

    codec: int
    size_bytes: int


class _Job(NamedTuple):
    work: Work[Any]
    limit_bytes: int
    deadline: float
    done: "asyncio.Future[Any]"


class _Outcome(NamedTuple):
    value: Any
    error: Exception | None


class BatchDecoder:
    def __init__(self, settings: DecoderSettings, *, producers: ProducerSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self.limit_bytes = producers.max_decompressed_bytes
        """Maximum decompressed size of a batch."""
        self.max_headers = producers.max_record_headers
        """Maximum headers of a record that is decoded to an object."""
        self._ordinary = ThreadPoolExecutor(settings.threads, thread_name_prefix="records")
        self._large = ThreadPoolExecutor(settings.threads, thread_name_prefix="large-records")
        self._queue: deque[_Job] = deque()
        self._free = settings.threads
        self._is_starting = False
        self.budget = DecoderBudget(settings)

    def __repr__(self) -> str:
        return f"<BatchDecoder waiting={len(self._queue)} {self.budget!r}>"

    async def run(self, stored: StoredSize, work: Work[T], *, inline_bytes: int = INLINE_BYTES) -> T:
        """Run `work`; raises its errors, and `Overloaded` if memory does not become free in time. Runs on the event
        loop only for uncompressed batches up to `inline_bytes`."""
        if stored.codec == Codec.NONE and stored.size_bytes <= inline_bytes:
            return work(self.limit_bytes)
        limit_bytes = first_limit(stored, self.limit_bytes)
        while True:
            try:
                return await self._try(stored, work, limit_bytes)
            except BatchTooLarge:
                if limit_bytes >= self.limit_bytes:
                    raise
            limit_bytes = min(limit_bytes * GROWTH, self.limit_bytes)

    async def _try(self, stored: StoredSize, work: Work[T], limit_bytes: int) -> T:
        if limit_bytes <= ORDINARY_BYTES:
            return await self._enqueue(work, limit_bytes)
        taken_bytes = peak_bytes(stored.codec, limit_bytes)
        await self.budget.take(taken_bytes)
        try:
            running = asyncio.get_running_loop().run_in_executor(self._large, _call, work, limit_bytes)
        except RuntimeError as error:  # closed meanwhile
            self.budget.release(taken_bytes)
            raise Stopping("the agent stops; what=decoder") from error
        running.add_done_callback(lambda _: self.budget.release(taken_bytes))
        # The caller may be cancelled before the thread is done and releases the memory.
        outcome = await asyncio.shield(running)
        return _result(outcome, work)

    def close(self) -> None:
        """Reject new work; running work ends by itself."""
        self._ordinary.shutdown(wait=False)
        self._large.shutdown(wait=False)

    # --- ordinary tries

    async def _enqueue(self, work: Work[T], limit_bytes: int) -> T:
        loop = asyncio.get_running_loop()
        if self._free == self._settings.threads and not self._queue:  # nothing to share the trip with
            try:
                running = loop.run_in_executor(self._ordinary, _call, work, limit_bytes)
            except RuntimeError as error:  # closed meanwhile
                raise Stopping("the agent stops; what=decoder") from error
            self._free -= 1
            running.add_done_callback(self._release)
            return _result(await running, work)
        if len(self._queue) >= self._settings.max_waiting:
            raise self.budget.overloaded()
        deadline = self._clock.monotonic() + self._settings.max_wait_s
        job = _Job(work, limit_bytes, deadline, loop.create_future())
        self._queue.append(job)
        if self._free and not self._is_starting:
            self._is_starting = True
            loop.call_soon(self._start)  # other waiting jobs join
        outcome: _Outcome = await job.done
        return _result(outcome, work)

    def _release(self, _: "asyncio.Future[Any]") -> None:
        self._free += 1
        self._start()

    def _start(self) -> None:
        self._is_starting = False
        loop = asyncio.get_running_loop()
        while self._free and self._queue:
            jobs = self._next_jobs()
            try:
                running = loop.run_in_executor(self._ordinary, _call_all, jobs)
            except RuntimeError:  # closed meanwhile
                _deliver(jobs, [_Outcome(None, Stopping("the agent stops; what=decoder"))] * len(jobs))
                continue
            self._free -= 1
            running.add_done_callback(partial(self._finish, jobs))

    def _next_jobs(self) -> list[_Job]:
        """The oldest jobs that fit in one trip; those that have waited too long are rejected."""
        now = self._clock.monotonic()
        jobs: list[_Job] = []
        size_bytes = 0
        while self._queue and len(jobs) < TRIP_JOBS:
            if jobs and size_bytes + self._queue[0].limit_bytes > ORDINARY_BYTES:
                break
            job = self._queue.popleft()
            if now > job.deadline and not job.done.done():
                job.done.set_result(_Outcome(None, self.budget.overloaded()))
            if not job.done.done():
                jobs.append(job)
                size_bytes += job.limit_bytes
        return jobs

    def _finish(self, jobs: Sequence[_Job], running: "asyncio.Future[list[_Outcome]]") -> None:
        is_done = not running.cancelled() and running.exception() is None
        stopping = _Outcome(None, Stopping("the agent stops; what=decoder"))
        _deliver(jobs, running.result() if is_done else [stopping] * len(jobs))
        self._release(running)


def stored_size(batches: Iterable[Buffer]) -> StoredSize:
    """The properties of batches that are decoded one after the other."""
    codec = compressed = total = 0
    for batch in batches:
        own = codec_of(batch)
        codec = max(codec, own)  # zstd takes the most
        compressed = max(compressed, len(batch) if own else 0)
        total += len(batch)
    return StoredSize(codec, compressed if codec else total)


def sum_stored(all_stored: Iterable[StoredSize]) -> StoredSize:
    """Combine the properties of several groups of batches."""
    parts = list(all_stored)
    codec = max((part.codec for part in parts), default=0)
    if codec == Codec.NONE:
        return StoredSize(codec, sum(part.size_bytes for part in parts))
    return StoredSize(codec, max(part.size_bytes for part in parts if part.codec))


def first_limit(stored: StoredSize, limit_bytes: int) -> int:
    """The size limit of the first try. An uncompressed batch has its stored size."""
    if stored.codec == Codec.NONE:
        return limit_bytes if stored.size_bytes > ORDINARY_BYTES else min(limit_bytes, ORDINARY_BYTES)
    return min(limit_bytes, max(LEAST_BYTES, EXPANSION * stored.size_bytes))


def _call_all(jobs: Sequence[_Job]) -> list[_Outcome]:
    return [_call(job.work, job.limit_bytes) for job in jobs]


def _call(work: Work[Any], limit_bytes: int) -> _Outcome:
    try:
        return _Outcome(work(limit_bytes), None)
    except StreamhouseError as error:
        # Its frames would keep the decompressed bytes as long as the error is referenced.
        error.__traceback__ = error.__context__ = None
        return _Outcome(None, error)
    except Exception as error:  # noqa: BLE001 - passed to the caller
        return _Outcome(None, error)


def _deliver(jobs: Sequence[_Job], outcomes: Sequence[_Outcome]) -> None:
    for job, outcome in zip(jobs, outcomes, strict=True):
        if not job.done.done():
            job.done.set_result(outcome)


def _result(outcome: _Outcome, work: Work[T]) -> T:
    """Return the work's result, or raise its error."""
    if outcome.error is not None:
        raise outcome.error
    value: T = outcome.value
    return value
