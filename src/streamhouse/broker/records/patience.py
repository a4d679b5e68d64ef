"""Patience: a deadline, and the waits between tries.

Data path   whoever must reach a leader asks **patience** after each try that failed for now
Owns        how long the next wait is: it doubles, with jitter, so that callers don't come back all at once
Leaves      what is tried to the caller
"""

from streamhouse.broker.doors import Doors
from streamhouse.errors import Retriable


class Patience:
    def __init__(self, doors: Doors, timeout_s: float) -> None:
        self._clock = doors.clock
        self._ids = doors.ids
        self._max_wait_s = doors.settings.peers.retry_max_s
        self._wait_s = doors.settings.peers.retry_s
        self._deadline = doors.clock.monotonic() + timeout_s

    def __repr__(self) -> str:
        return f"<Patience left={self.left_s:.3f}s next_wait={self._wait_s:g}s>"

    @property
    def left_s(self) -> float:
        return max(0.0, self._deadline - self._clock.monotonic())

    async def pause(self, why: Retriable) -> None:
        """Wait before the next try; raise `why` when no time is left for one."""
        if self.left_s <= 0:
            raise why.with_traceback(None)
        await self._clock.sleep(self.next_wait_s())

    def next_wait_s(self) -> float:
        """How long to wait before the next try, for whoever has something else to do meanwhile."""
        wait_s = min(self._ids.jitter(self._wait_s), self.left_s)
        self._wait_s = min(self._wait_s * 2, self._max_wait_s)
        return wait_s
