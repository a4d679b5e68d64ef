"""A clock that a test moves by hand, and chance that a seed replays."""

import random

from streamhouse.clock import Ids


class ManualClock:
    """Time stands still until the test moves it; sleeping moves it too, at once."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self._monotonic

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, *, ms: int) -> None:
        self._now_ms += ms
        self._monotonic += ms / 1000

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(ms=round(seconds * 1000))


def seeded_ids(seed: int = 1) -> Ids:
    return Ids(random.Random(seed))
