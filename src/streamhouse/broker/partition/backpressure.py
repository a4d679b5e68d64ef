"""Backpressure: limits on the memory of appends and of responses, the barrier for appends, and traffic counters.

`MemoryBudget` limits the bytes of records that are in memory and not yet in a segment. Below `throttle_at` an append
is admitted at once. Between it and the limit an append is delayed for a time that grows with the pressure; its
connection is not read meanwhile, which slows the producer down. At the limit it waits, and after `max_throttle_s` it
is rejected with `Overloaded`, which clients retry.

`AppendBarrier` makes appends to a partition wait while external segments are committed to it. Appends continue in
order of arrival, so the batches of an idempotent producer keep their order, and all of them go ahead of the next
freeze, so that commits cannot starve producers.

`ResponseBudget` limits the records that were read for clients and are still in memory. A response is cut, never
delayed, so that a slow client cannot stop a fast one.

`TrafficCounters` counts what passes through the broker, per batch, in all and by topic.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from streamhouse.clock import Clock
from streamhouse.config import BufferSettings
from streamhouse.errors import Overloaded, Retriable

RETRY_AFTER_S: Final = 1.0


class MemoryBudget:
    def __init__(self, settings: BufferSettings, *, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._limit = settings.memory_bytes
        self._used = 0
        self._waiting: deque[asyncio.Event] = deque()
        self.refused = 0

    def __repr__(self) -> str:
        return f"<MemoryBudget used={self._used >> 10}KiB of {self._limit >> 10}KiB waiting={len(self._waiting)}>"

    @property
    def used_bytes(self) -> int:
        return self._used

    @property
    def pressure(self) -> float:
        """0 when empty, 1 at the limit."""
        return self._used / self._limit

    @property
    def is_short(self) -> bool:
        """Whether a flush should free memory: the budget is near its limit, or an append waits."""
        return bool(self._waiting) or self.pressure >= self._settings.throttle_at

    def fits(self, size_bytes: int) -> bool:
        return self._used + size_bytes <= self._limit * self._settings.throttle_at and not self._waiting

    def take(self, size_bytes: int) -> None:
        """Count the bytes of an append that `admit` has let pass."""
        self._used += size_bytes

    def release(self, size_bytes: int) -> None:
        self._used -= size_bytes
        assert self._used >= 0, "more bytes were given back than were taken"
        self._wake_first()

    async def admit(self, size_bytes: int) -> float:
        """Wait until `size_bytes` fit; returns the seconds spent waiting, raises `Overloaded` if it takes too long.

        First come, first served. An append larger than the whole budget is admitted alone, so that the limit never
        blocks it forever."""
        if self.fits(size_bytes):
            return 0.0
        started = self._clock.monotonic()
        not_before, deadline = started + self._delay(), started + self._settings.max_throttle_s
        turn = asyncio.Event()
        self._waiting.append(turn)
        try:
            while True:
                now = self._clock.monotonic()
                if now >= not_before and self._waiting[0] is turn and self._has_room(size_bytes):
                    return now - started
                if now >= deadline:
                    self.refused += 1
                    raise Overloaded("buffer", limit_bytes=self._limit, retry_after_s=RETRY_AFTER_S)
                await _wait(turn, (not_before if now < not_before else deadline) - now)
        finally:
            self._waiting.remove(turn)
            self._wake_first()

    def _has_room(self, size_bytes: int) -> bool:
        return self._used + size_bytes <= self._limit or self._used == 0

    def _delay(self) -> float:
        """The delay at the current pressure: 0 at the threshold, `max_throttle_s / 10` at the limit."""
        span = max(1.0 - self._settings.throttle_at, 1e-9)
        over = min(max(self.pressure - self._settings.throttle_at, 0.0) / span, 1.0)
        return over * self._settings.max_throttle_s / 10

    def _wake_first(self) -> None:
        if self._waiting:
            self._waiting[0].set()


async def _wait(turn: asyncio.Event, seconds: float) -> None:
    """Wait for a wake-up, or the end of the time."""
    turn.clear()
    try:
        async with asyncio.timeout(seconds):
            await turn.wait()
    except TimeoutError:
        return


class AppendBarrier:
    __slots__ = ("_closing", "_shut", "_waiting", "_wanting")

    def __init__(self) -> None:
        self._shut = False
        self._closing: Retriable | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._wanting: deque[asyncio.Future[None]] = deque()

    def __repr__(self) -> str:
        state = "closed" if self._closing else "shut" if self._shut else "open"
        return f"<AppendBarrier {state} waiting={len(self._waiting)} wanting={len(self._wanting)}>"

    @property
    def is_open(self) -> bool:
        """Whether an append may proceed without waiting."""
        return not self._shut and not self._waiting

    @property
    def is_shut(self) -> bool:
        return self._shut

    async def wait(self) -> None:
        """Return when it is this append's turn; it must then append without a suspension."""
        if self._closing is not None or self.is_open:
            return
        await self._queue(self._waiting)
        # The next one runs after this one's append.
        self._call_next()

    async def shut(self) -> None:
        """Block appends; waits for earlier appends and freezes. The caller must unblock them."""
        if self._closing is None and (self._shut or self._waiting or self._wanting):
            await self._queue(self._wanting)
        if self._closing is not None:
            raise self._closing.with_traceback(None)
        self._shut = True

    def open(self) -> None:
        self._shut = False
        self._call_next()

    def close(self, why: Retriable) -> None:
        """Fail all waiting and future appends."""
        self._closing = why
        for waiting in (*self._waiting, *self._wanting):
            if not waiting.done():
                waiting.set_exception(why)

    async def _queue(self, line: "deque[asyncio.Future[None]]") -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            line.remove(turn)
            self._call_next()  # it may have been this one's turn
            raise
        except BaseException:
            line.remove(turn)
            raise
        line.remove(turn)

    def _call_next(self) -> None:
        if self._shut:
            return
        line = self._waiting or self._wanting
        if line and not line[0].done():
            line[0].set_result(None)


SHARE: Final = 4
"""A response gets at most this share of the remaining budget: many get little, few get much."""


class ResponseBudget:
    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._held = 0

    def __repr__(self) -> str:
        return f"<ResponseBudget held={self._held >> 10}KiB of {self._limit >> 10}KiB>"

    @property
    def held_bytes(self) -> int:
        return self._held

    def room_bytes(self, *, own_bytes: int = 0) -> int:
        """How much a response that holds `own_bytes` may grow; an empty one may always have one batch."""
        return max((self._limit - self._held + own_bytes) // SHARE - own_bytes, 0)

    def resize(self, before_bytes: int, after_bytes: int) -> int:
        """Change the counted size of a response; returns the new size."""
        self._held += after_bytes - before_bytes
        assert self._held >= 0, "more bytes were given back than were held"
        return after_bytes


class TopicTraffic:
    """Traffic of one topic through this broker."""

    __slots__ = ("appended_bytes", "appended_records", "fetched_bytes")

    def __init__(self) -> None:
        self.appended_bytes = 0
        self.appended_records = 0
        self.fetched_bytes = 0

    def __repr__(self) -> str:
        return f"<TopicTraffic appended={self.appended_records} records fetched={self.fetched_bytes >> 20}MiB>"


class TrafficCounters:
    """Counters of the agent, and of at most `max_topics` topics; `others` counts the rest."""

    __slots__ = (
        "_max_topics",
        "appended_batches",
        "appended_bytes",
        "appended_records",
        "by_topic",
        "fetched_bytes",
        "others",
    )

    def __init__(self, *, max_topics: int) -> None:
        self.appended_batches = 0
        self.appended_bytes = 0
        self.appended_records = 0
        self.fetched_bytes = 0
        self.by_topic: dict[str, TopicTraffic] = {}
        self.others = TopicTraffic()
        self._max_topics = max_topics

    def __repr__(self) -> str:
        return f"<TrafficCounters appended={self.appended_records} records fetched={self.fetched_bytes >> 20}MiB>"

    def appended(self, topic: str, *, records: int, size_bytes: int) -> None:
        self.appended_batches += 1
        self.appended_bytes += size_bytes
        self.appended_records += records
        counters = self._of(topic)
        counters.appended_bytes += size_bytes
        counters.appended_records += records

    def fetched(self, topic: str, *, size_bytes: int) -> None:
        self.fetched_bytes += size_bytes
        self._of(topic).fetched_bytes += size_bytes

    def keep(self, is_known: Callable[[str], bool]) -> None:
        """Forget topics that were deleted, so that others have counters of their own."""
        for topic in [topic for topic in self.by_topic if not is_known(topic)]:
            del self.by_topic[topic]

    def _of(self, topic: str) -> TopicTraffic:
        counters = self.by_topic.get(topic)
        if counters is None:
            if len(self.by_topic) >= self._max_topics:
                return self.others
            counters = self.by_topic[topic] = TopicTraffic()
        return counters
