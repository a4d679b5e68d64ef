"""Restarts: when an agent that ended is started again. Decides; keeps no time of its own.

The wait doubles from `FIRST_WAIT_S` with every end within `WINDOW_S`; after `MAX_ENDS` of them the agent stays away, as
what ends it so often is not cured by a start.
"""

from collections import deque
from typing import Final

FIRST_WAIT_S: Final = 1.0
MAX_ENDS: Final = 6
WINDOW_S: Final = 600.0


class Restarts:
    """The ends of one agent."""

    def __init__(self) -> None:
        self._ended_at: deque[float] = deque(maxlen=MAX_ENDS)
        self.count = 0
        """How often it was started again."""

    def __repr__(self) -> str:
        return f"<Restarts count={self.count} recent={len(self._ended_at)}>"

    def wait_after_end(self, now: float) -> float | None:
        """The agent has ended: how long to wait before its start, or None if it is not started again."""
        self._ended_at.append(now)
        recent = sum(1 for each in self._ended_at if each > now - WINDOW_S)
        return None if recent == MAX_ENDS else FIRST_WAIT_S * 2.0 ** (recent - 1)
