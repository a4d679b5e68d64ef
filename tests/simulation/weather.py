"""Weather: how the stores behave at the moment, as one agent sees them. The nemesis changes it.

Owns        the rates of faults, and until when a store is away
Leaves      what a fault means to the dependencies (`objects`, `metadata`), when the weather turns to `nemesis`
"""

import random
from dataclasses import dataclass

from .loop import SimLoop


@dataclass(slots=True, kw_only=True)
class StoreWeather:
    """Rates are shares of calls. `lost`: it happened, and the answer says that it did not. `late`: the answer is a
    time-out, and it happens after that, perhaps when the caller is dead."""

    refused: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    slow: float = 0.0
    rot: float = 0.0
    """Share of reads in which a bit is wrong, or the end is missing."""
    list_late_s: float = 0.0
    """How old an object is before lists have it."""
    away_until: float = 0.0
    deaf: float = 0.0
    """Share of the news that nobody hears."""
    knows_deaf: bool = False
    """Whether whoever is deaf knows it."""

    def clear(self) -> None:
        self.refused = self.lost = self.late = self.slow = self.rot = self.deaf = 0.0
        self.away_until = self.list_late_s = 0.0
        self.knows_deaf = False


class Weather:
    def __init__(self, loop: SimLoop, chance: random.Random) -> None:
        self._loop = loop
        self.chance = chance
        self.objects = StoreWeather()
        self.metadata = StoreWeather()
        self.disk_is_full = False

    def clear(self) -> None:
        self.objects.clear()
        self.metadata.clear()
        self.disk_is_full = False

    def is_away(self, store: StoreWeather) -> bool:
        return self._loop.time() < store.away_until

    def delay(self, store: StoreWeather, mean_s: float) -> float:
        slow = self.chance.uniform(20, 200) if self.chance.random() < store.slow else 1.0
        return self.chance.expovariate(1 / mean_s) * slow

    def outcome(self, store: StoreWeather) -> str:
        """What becomes of a call: `fine`, `refused`, `lost` or `late`."""
        if self.is_away(store):
            return "refused"
        dice = self.chance.random()
        for name, rate in (("refused", store.refused), ("lost", store.lost), ("late", store.late)):
            if dice < rate:
                return name
            dice -= rate
        return "fine"
