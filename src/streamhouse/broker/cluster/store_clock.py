"""Store time: the metadata store's clock as this agent last read it, and the time that both clocks agree on.

Data path   off; flush, compaction, retention and groups ask **store time** what is old, and since when something ages
Owns        the last reading of the store's clock, counted on by the agent's monotonic clock
Leaves      reading it again to `Doors.agreed_now_ms`, which retention calls every few minutes

What expires is decided by several agents, one after the other. An agent whose wall clock runs ahead must not delete
early, and an agent whose wall clock is behind must not write times that make others delete early. So ages end by the
earlier of two clocks and begin by the later.
"""

from typing import NamedTuple


class AgreedTime(NamedTuple):
    """The agent's wall clock and the metadata store's, ordered."""

    earlier_ms: int
    """For deciding what is old."""
    later_ms: int
    """For writing down since when something ages."""


class StoreClock:
    def __init__(self) -> None:
        self._read: tuple[int, float] | None = None

    def __repr__(self) -> str:
        return f"<StoreClock read={self._read}>"

    def note(self, store_ms: int, *, now: float) -> None:
        """The store's clock said `store_ms` when the agent's monotonic clock said `now`."""
        self._read = (store_ms, now)

    def agreed(self, own_ms: int, *, now: float) -> AgreedTime:
        """The agent's wall clock `own_ms` beside the store's as last read; alone before the first reading."""
        if self._read is None:
            return AgreedTime(own_ms, own_ms)
        read_ms, at = self._read
        store_ms = read_ms + round((now - at) * 1000)
        return AgreedTime(min(own_ms, store_ms), max(own_ms, store_ms))
