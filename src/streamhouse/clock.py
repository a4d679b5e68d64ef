"""Time, ids and random numbers: their only source, so that a seed replays a run.

Owns        the monotonic clock, the wall clock, sleeping, random ids; the time agreed with the metadata store's clock
Leaves      the choice of the clock to the caller: leases expire by `monotonic`, records are stamped by `now_ms`

`StoreClock`: several agents in turn decide what expires. An agent whose wall clock is ahead must not delete early, and
an agent whose wall clock is behind must not write timestamps that make others delete early. So ages end by the earlier
of the two clocks and begin by the later.
"""

import asyncio
import random
import time
import uuid
from collections.abc import Awaitable
from typing import NamedTuple, Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds that never decrease; only differences are meaningful."""
        ...

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC; may jump."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    monotonic = staticmethod(time.monotonic)
    """The function itself: it is called many times for each request."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def limited(work: Awaitable[T], *, seconds: float, clock: Clock) -> T:
    """The result of `work`; after `seconds` by this clock cancels it, waits for its end and raises `TimeoutError`."""
    working, sleeping = asyncio.ensure_future(work), asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({working, sleeping}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise TimeoutError(f"not done after {seconds:g} s")
    finally:
        sleeping.cancel()
        if not working.done():
            working.cancel()
        await asyncio.gather(working, sleeping, return_exceptions=True)
    return working.result()


async def wait_first(*waits: Awaitable[object]) -> None:
    """Return when one of these is done. The others are cancelled, except futures: they belong to the caller."""
    own = [asyncio.ensure_future(each) for each in waits if not isinstance(each, asyncio.Future)]
    futures = [each for each in waits if isinstance(each, asyncio.Future)]
    try:
        await asyncio.wait([*futures, *own], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in own:
            each.cancel()
        await asyncio.gather(*own, return_exceptions=True)


class Ids:
    """Unique ids and random numbers; seeded in simulations, otherwise from the operating system."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self._chance = chance or random.SystemRandom()

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self._chance.getrandbits(128), version=4)

    def token(self) -> str:
        """32 hex digits: the tail of a session id or of an object key."""
        return f"{self._chance.getrandbits(128):032x}"

    def jitter(self, seconds: float) -> float:
        """Between half of `seconds` and all of it, so that retries spread out."""
        return seconds * (0.5 + self._chance.random() / 2)


class AgreedTime(NamedTuple):
    """The agent's wall clock and the metadata store's, ordered."""

    earlier_ms: int
    """For deciding what has expired."""
    later_ms: int
    """For timestamps from which an age counts."""


class StoreClock:
    """The metadata store's clock as last read, advanced by the agent's monotonic clock."""

    def __init__(self) -> None:
        self._read: tuple[int, float] | None = None

    def __repr__(self) -> str:
        return f"<StoreClock read={self._read}>"

    def note(self, store_ms: int, *, now: float) -> None:
        """Note a reading `store_ms` of the store's clock at the monotonic time `now`."""
        self._read = (store_ms, now)

    def agreed(self, own_ms: int, *, now: float) -> AgreedTime:
        """The agent's wall clock `own_ms` and the store's as last read; before the first reading only the agent's."""
        if self._read is None:
            return AgreedTime(own_ms, own_ms)
        read_ms, at = self._read
        store_ms = read_ms + round((now - at) * 1000)
        return AgreedTime(min(own_ms, store_ms), max(own_ms, store_ms))
