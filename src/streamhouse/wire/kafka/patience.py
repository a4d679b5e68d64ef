"""Patience: how long a connection may be silent at first, idle, half-way through a request, or unwilling to read.

Data path   beside it; `server` looks at all connections now and then
Owns        what is measured of a connection, and what is too long
Leaves      closing it to `server`
"""

from typing import Final, NamedTuple

from streamhouse.config import KafkaSettings

PACE_AFTER_S: Final = 10.0
"""How long a request may take whatever its pace: a network may be away for a moment."""


class Overdue(NamedTuple):
    """Why a connection has to go: a word for the metric, a text for the log."""

    why: str
    text: str


class Vitals:
    """Times of one connection, by the monotonic clock."""

    __slots__ = (
        "_marked_bytes",
        "_taken_bytes",
        "active_at",
        "has_asked",
        "is_busy",
        "is_pressed",
        "kept_pace_at",
        "partial_bytes",
        "partial_since",
        "stuck_since",
    )

    def __init__(self, *, active_at: float) -> None:
        self.active_at = active_at
        self.partial_since: float | None = None
        self.stuck_since: float | None = None
        self.kept_pace_at: float | None = None
        self.has_asked = False
        self.is_busy = False
        self.is_pressed = False
        self.partial_bytes = 0
        self._marked_bytes = 0
        self._taken_bytes = 0

    def note(
        self,
        *,
        taken_bytes: int,
        is_blocked: bool,
        is_busy: bool,
        now: float,
        partial_bytes: int = 0,
        is_pressed: bool = False,
        least_bytes_per_s: int = 0,
    ) -> None:
        """Note how many bytes of answers the client has taken so far, whether there are more for it, how much has come
        of a request that is not whole, and whether other requests wait for the room that it takes."""
        self.is_busy = is_busy
        self.is_pressed = is_pressed
        self.partial_bytes = partial_bytes
        if not is_blocked:
            self.stuck_since = None
        elif self.stuck_since is None or taken_bytes != self._taken_bytes:
            self.stuck_since = now
        self._taken_bytes = taken_bytes
        self._note_pace(least_bytes_per_s, now)

    def _note_pace(self, least_bytes_per_s: int, now: float) -> None:
        """When the request, of which there is a part, last came as quickly as it must."""
        if self.partial_since is None:
            self.kept_pace_at = None
            return
        came = self.partial_bytes - self._marked_bytes
        if self.kept_pace_at is None or not 0 <= came < max(least_bytes_per_s * (now - self.kept_pace_at), 1):
            self.kept_pace_at, self._marked_bytes = now, self.partial_bytes


def overdue(vitals: Vitals, settings: KafkaSettings, *, now: float) -> Overdue | None:
    """Why the connection has to go; None when it may stay. Decides; touches nothing."""
    if vitals.stuck_since is not None:
        if now - vitals.stuck_since >= settings.slow_reader_timeout_s:
            return Overdue("slow_reader", f"client takes no answers; timeout_s={settings.slow_reader_timeout_s:g}")
        return None
    if vitals.partial_since is not None:
        return _slow_sender(vitals, settings, took_s=now - vitals.partial_since, now=now)
    if not (vitals.is_busy or vitals.has_asked) and now - vitals.active_at >= settings.first_request_timeout_s:
        return Overdue("silent", f"no request came; timeout_s={settings.first_request_timeout_s:g}")
    if not vitals.is_busy and now - vitals.active_at >= settings.idle_timeout_s:
        return Overdue("idle", f"connection is idle; timeout_s={settings.idle_timeout_s:g}")
    return None


def _slow_sender(vitals: Vitals, settings: KafkaSettings, *, took_s: float, now: float) -> Overdue | None:
    stalled_s = settings.stalled_request_timeout_s
    if vitals.is_pressed and vitals.kept_pace_at is not None and now - vitals.kept_pace_at >= stalled_s:
        return Overdue("slow_sender", f"request stalls while others wait for room; timeout_s={stalled_s:g}")
    if took_s >= settings.partial_request_timeout_s:
        return Overdue("slow_sender", f"request never ends; timeout_s={settings.partial_request_timeout_s:g}")
    pace = settings.min_request_bytes_per_s
    if took_s >= PACE_AFTER_S and vitals.partial_bytes < took_s * pace:
        return Overdue(
            "slow_sender", f"request comes too slowly; bytes={vitals.partial_bytes} least_bytes_per_s={pace}"
        )
    return None


def check_interval_s(settings: KafkaSettings) -> float:
    """Often enough that nobody overstays by more than a quarter of its time."""
    shortest = min(
        settings.idle_timeout_s,
        settings.first_request_timeout_s,
        settings.partial_request_timeout_s,
        settings.slow_reader_timeout_s,
    )
    return min(max(shortest / 4, 0.05), 5.0)
