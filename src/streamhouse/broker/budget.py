"""Budget: the one limit on bytes of records that are in memory and not yet in a segment.

Data path   wire -> **budget** -> log -> WAL ; flush gives the bytes back
Owns        who may come in now, who waits, who is refused
Leaves      making room to `flush`, which looks at `is_short`

Below `throttle_at` everybody comes in at once. Between it and the limit an append is held back for a time that grows
with the pressure (its connection is not read meanwhile, which is what slows the producer down). At the limit it
waits its turn, and after `max_throttle_s` it is refused with `Overloaded`, which clients retry.
"""

import asyncio
from collections import deque
from typing import Final

from streamhouse.clock import Clock
from streamhouse.config import BufferSettings
from streamhouse.errors import Overloaded

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
        """Whether somebody should make room: the budget is near its limit, or an append waits for its turn."""
        return bool(self._waiting) or self.pressure >= self._settings.throttle_at

    def fits_freely(self, size_bytes: int) -> bool:
        return self._used + size_bytes <= self._limit * self._settings.throttle_at and not self._waiting

    def take(self, size_bytes: int) -> None:
        """Account for bytes that came in; `admit` was asked before."""
        self._used += size_bytes

    def give_back(self, size_bytes: int) -> None:
        self._used -= size_bytes
        assert self._used >= 0, "more bytes were given back than were taken"
        self._wake_first()

    async def admit(self, size_bytes: int) -> float:
        """Wait until `size_bytes` may come in; returns the seconds spent waiting, raises `Overloaded` when it takes
        too long.

        Whoever came first goes in first. A single append larger than the whole budget is let in alone, so that the
        limit never locks anybody out for good.
        """
        if self.fits_freely(size_bytes):
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
        """How long to hold back at this pressure: nothing at the threshold, `max_throttle_s / 10` at the limit."""
        span = max(1.0 - self._settings.throttle_at, 1e-9)
        over = min(max(self.pressure - self._settings.throttle_at, 0.0) / span, 1.0)
        return over * self._settings.max_throttle_s / 10

    def _wake_first(self) -> None:
        if self._waiting:
            self._waiting[0].set()


async def _wait(turn: asyncio.Event, seconds: float) -> None:
    """Until somebody says to look again, or the time is over."""
    turn.clear()
    try:
        async with asyncio.timeout(seconds):
            await turn.wait()
    except TimeoutError:
        return
