"""Patience: how long a connection may be idle, half-way through a request, or unwilling to read.

Data path   beside it; `server` looks at all connections now and then
Owns        what is measured of a connection, and what is too long
Leaves      closing it to `server`
"""

from typing import NamedTuple

from streamhouse.config import KafkaSettings


class Overdue(NamedTuple):
    """Why a connection has to go: a word for the metric, a text for the log."""

    why: str
    text: str


class Vitals:
    """Times of one connection, by the monotonic clock."""

    __slots__ = ("_taken_bytes", "active_at", "is_busy", "partial_since", "stuck_since")

    def __init__(self, *, active_at: float) -> None:
        self.active_at = active_at
        self.partial_since: float | None = None
        self.stuck_since: float | None = None
        self.is_busy = False
        self._taken_bytes = 0

    def note(self, *, taken_bytes: int, is_blocked: bool, is_busy: bool, now: float) -> None:
        """Note how many bytes of answers the client has taken so far, and whether there are more for it."""
        self.is_busy = is_busy
        if not is_blocked:
            self.stuck_since = None
        elif self.stuck_since is None or taken_bytes != self._taken_bytes:
            self.stuck_since = now
        self._taken_bytes = taken_bytes


def overdue(vitals: Vitals, settings: KafkaSettings, *, now: float) -> Overdue | None:
    """Why the connection has to go; None when it may stay. Decides; touches nothing."""
    if vitals.stuck_since is not None:
        if now - vitals.stuck_since >= settings.slow_reader_timeout_s:
            return Overdue("slow_reader", f"client takes no answers; timeout_s={settings.slow_reader_timeout_s:g}")
        return None
    if vitals.partial_since is not None:
        if now - vitals.partial_since >= settings.partial_request_timeout_s:
            return Overdue("slow_sender", f"request never ends; timeout_s={settings.partial_request_timeout_s:g}")
        return None
    if not vitals.is_busy and now - vitals.active_at >= settings.idle_timeout_s:
        return Overdue("idle", f"connection is idle; timeout_s={settings.idle_timeout_s:g}")
    return None


def check_interval_s(settings: KafkaSettings) -> float:
    """Often enough that nobody overstays by more than a quarter of its time."""
    shortest = min(settings.idle_timeout_s, settings.partial_request_timeout_s, settings.slow_reader_timeout_s)
    return min(max(shortest / 4, 0.05), 5.0)
