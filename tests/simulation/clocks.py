"""Clocks of the simulated world: all run on virtual time, wall clocks also jump."""

import asyncio

from .loop import SimLoop

EPOCH_MS = 1_700_000_000_000


class SimClock:
    """A `streamhouse.clock.Clock`. The monotonic clock is the loop's; the wall clock jumps when told to."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._jumped_ms = 0
        self._furthest_ms = 0
        self._swung_ms = 0

    def monotonic(self) -> float:
        return self._loop.time()

    def now_ms(self) -> int:
        return EPOCH_MS + self._jumped_ms + int(self._loop.time() * 1000)

    def latest_ms(self) -> int:
        """The latest time that it has shown."""
        return EPOCH_MS + self._furthest_ms + int(self._loop.time() * 1000)

    def span_ms(self) -> int:
        """Grows by no less than what any two looks at the wall clock may lie apart, whichever way it jumped."""
        return int(self._loop.time() * 1000) + self._swung_ms

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    @property
    def jumped_ms(self) -> int:
        return self._jumped_ms

    def jump(self, by_ms: int) -> None:
        self._jumped_ms += by_ms
        self._swung_ms += abs(by_ms)
        self._furthest_ms = max(self._furthest_ms, self._jumped_ms)


def settle(*clocks: SimClock) -> None:
    """Clocks agree again, and no time that any of them ever showed lies ahead: else what was stamped then would stay
    young for as long as they lie apart."""
    furthest_ms = max(clock._furthest_ms for clock in clocks)
    for clock in clocks:
        clock.jump(furthest_ms - clock._jumped_ms)
