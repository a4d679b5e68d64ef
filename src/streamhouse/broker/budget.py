"""Budget: the one limit on bytes of records that are in memory and not yet in a segment.

Data path   wire -> **budget** -> log -> WAL ; flush gives the bytes back
Owns        who may come in now, who waits, who is refused
Leaves      making room to `flush`, which looks at `pressure`

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
STEP_S: Final = 0.05


class MemoryBudget:
    def __init__(self, settings: BufferSettings, *, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._limit = settings.memory_bytes
        self._used = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.refused = 0
        self.pressed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<MemoryBudget used={self._used >> 10}KiB of {self._limit >> 10}KiB waiting={len(self._waiting)}>"

    @property
    def used_bytes(self) -> int:
        return self._used

    @property
    def pressure(self) -> float:
        """0 when empty, 1 at the limit."""
        return self._used / self._limit

    def fits_freely(self, size_bytes: int) -> bool:
        return self._used + size_bytes <= self._limit * self._settings.throttle_at and not self._waiting

    def take(self, size_bytes: int) -> None:
        """Account for bytes that came in; `admit` was asked before."""
        self._used += size_bytes
        if self.pressure >= self._settings.throttle_at:
            self.pressed.set()

    def give_back(self, size_bytes: int) -> None:
        self._used -= size_bytes
        assert self._used >= 0, "more bytes were given back than were taken"
        if self.pressure < self._settings.throttle_at:
            self.pressed.clear()
        self._wake()

    async def admit(self, size_bytes: int) -> float:
        """Wait until `size_bytes` may come in; returns the seconds spent waiting, raises `Overloaded` when it takes
        too long.

        A single append larger than the whole budget is let in alone, so that the limit never locks anybody out for
        good.
        """
        if self.fits_freely(size_bytes):
            return 0.0
        started = self._clock.monotonic()
        self.pressed.set()
        delay = self._delay()
        while True:
            waited = self._clock.monotonic() - started
            if waited >= delay and self._has_room(size_bytes):
                return waited
            if waited >= self._settings.max_throttle_s:
                self.refused += 1
                raise Overloaded("buffer", limit_bytes=self._limit, retry_after_s=RETRY_AFTER_S)
            await self._wait(min(STEP_S, self._settings.max_throttle_s - waited))

    def _has_room(self, size_bytes: int) -> bool:
        return self._used + size_bytes <= self._limit or self._used == 0

    def _delay(self) -> float:
        """How long to hold back at this pressure: nothing at the threshold, `max_throttle_s / 10` at the limit."""
        span = max(1.0 - self._settings.throttle_at, 1e-9)
        over = min(max(self.pressure - self._settings.throttle_at, 0.0) / span, 1.0)
        return over * self._settings.max_throttle_s / 10

    async def _wait(self, seconds: float) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(seconds):
                await turn
        except TimeoutError:
            pass
        finally:
            if turn in self._waiting:
                self._waiting.remove(turn)

    def _wake(self) -> None:
        while self._waiting and self._used < self._limit:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
