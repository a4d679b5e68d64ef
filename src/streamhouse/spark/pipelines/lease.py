"""Lease: for how long a supervisor may still run what it runs, by its own monotonic clock.

Data path   heartbeats that were answered -> **lease** -> go on, stop, kill
Owns        when it is too late; counted from before a heartbeat was sent, so never later than agents count
Leaves      who owns what to the agents
"""

from enum import Enum, auto
from typing import Final

STOP_AT: Final = 0.6
"""Of the lease's time: queries are asked to stop."""
KILL_AT: Final = 0.8
"""Of the lease's time: nobody is asked any more."""

END_AT: Final = 0.9
"""Of the lease's time: runners are killed by a process of their own, whatever their supervisor does."""


class Stage(Enum):
    HELD = auto()
    STOP = auto()
    KILL = auto()


class Lease:
    """All of a supervisor's pipelines are renewed by the same heartbeat."""

    def __init__(self) -> None:
        self._since: float | None = None
        self.ttl_s = 15.0

    def __repr__(self) -> str:
        return f"<Lease since={self._since} ttl_s={self.ttl_s:g}>"

    def renewed(self, sent_at: float, ttl_s: float) -> None:
        self._since, self.ttl_s = sent_at, ttl_s

    @property
    def deadline(self) -> float | None:
        """Until when runners may go on if they hear nothing more; None before the first heartbeat."""
        return None if self._since is None else self._since + END_AT * self.ttl_s

    def stage(self, now: float) -> Stage:
        if self._since is None or now < self._since + STOP_AT * self.ttl_s:
            return Stage.HELD
        return Stage.STOP if now < self._since + KILL_AT * self.ttl_s else Stage.KILL
