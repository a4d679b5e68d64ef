"""Time, ids and chance: the one door through which they come in, so that a seed replays a run.

Owns        the monotonic clock, the wall clock, sleeping, random ids
Leaves      who decides by which clock to the caller: leases expire by `monotonic`, records are stamped by `now_ms`
"""

import asyncio
import random
import time
import uuid
from collections.abc import Awaitable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean something."""
        ...

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC; may jump."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def limited(work: Awaitable[T], *, seconds: float, clock: Clock) -> T:
    """The result of `work`; raises `TimeoutError` when it takes longer than `seconds` by this clock, after it was
    cancelled and has ended."""
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


class Ids:
    """Identities that never come back, and chance; seeded in simulations, from the operating system otherwise."""

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
