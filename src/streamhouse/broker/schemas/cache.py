"""FreshCache: what was read from the metadata store, for as long as it may be believed.

Data path   library -> **cache** -> metadata store
Owns        how many entries and bytes are kept, and which of them are fresh
Leaves      reading to the caller; hearing of changes to `schemas`

What isn't fresh stays: it is served while the store is away, since what an id stands for only changes by deletion.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from streamhouse.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Asked(NamedTuple):
    """When a value was asked for, by the clock and by the news that had come until then."""

    at: float
    news: int


class _Entry(NamedTuple, Generic[V]):
    value: V
    asked: Asked
    weight: int


class FreshCache(Generic[K, V]):
    """Least recently used out first, by number and by bytes."""

    def __init__(
        self, clock: Clock, *, entries: int, ttl_s: float, max_bytes: int, weigh: Callable[[V], int] = lambda _: 0
    ) -> None:
        self._clock = clock
        self._limit = entries
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._weigh = weigh
        self._entries: OrderedDict[K, _Entry[V]] = OrderedDict()
        self._news = 0
        self.size_bytes = 0
        self.hits = 0
        self.misses = 0
        self.evictions = 0

    def __repr__(self) -> str:
        return (
            f"<FreshCache entries={len(self._entries)} bytes={self.size_bytes} hits={self.hits} misses={self.misses}>"
        )

    def __len__(self) -> int:
        return len(self._entries)

    def fresh(self, key: K) -> V | None:
        """The value, unless it must be looked up first. Counted."""
        entry = self._entries.get(key)
        if entry is None or not self._is_fresh(entry.asked):
            self.misses += 1
            return None
        self.hits += 1
        self._entries.move_to_end(key)
        return entry.value

    def _is_fresh(self, asked: Asked) -> bool:
        return asked.news == self._news and self._clock.monotonic() - asked.at < self._ttl_s

    def old(self, key: K) -> V | None:
        """The value, however old it is."""
        entry = self._entries.get(key)
        return entry.value if entry is not None else None

    def ask(self) -> Asked:
        """To be taken before a value is read, and given with it: by news that come meanwhile it is old at once."""
        return Asked(self._clock.monotonic(), self._news)

    def put(self, key: K, value: V, asked: Asked) -> None:
        self.drop(key)
        weight = self._weigh(value)
        self._entries[key] = _Entry(value, asked, weight)
        self.size_bytes += weight
        while len(self._entries) > self._limit or (self.size_bytes > self._max_bytes and len(self._entries) > 1):
            self.drop(next(iter(self._entries)))
            self.evictions += 1

    def drop(self, key: K) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size_bytes -= entry.weight

    def outdate(self) -> None:
        """Something was deleted, or may have been: everything is looked up before it is believed again."""
        self._news += 1
