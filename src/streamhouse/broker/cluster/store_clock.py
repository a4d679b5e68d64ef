"""Store clock: the metadata store's clock as this agent last read it, and the time agreed by both clocks.

Data path   none; flush, compaction, retention and groups use it to decide what is old, and to store timestamps
Owns        the last reading of the store's clock, advanced by the agent's monotonic clock
Leaves      reading it again to `Dependencies.agreed_now_ms`, which retention calls every few minutes

Several agents in turn decide what expires. An agent whose wall clock is ahead must not delete early, and an agent whose
wall clock is behind must not write timestamps that make others delete early. So ages end by the earlier of two clocks
and begin by the later.
"""

from typing import NamedTuple


class AgreedTime(NamedTuple):
    """The agent's wall clock and the metadata store's, ordered."""

    earlier_ms: int
    """For deciding what has expired."""
    later_ms: int
    """For timestamps from which an age counts."""


class StoreClock:
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
