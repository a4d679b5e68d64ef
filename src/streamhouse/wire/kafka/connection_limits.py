"""Limits of Kafka connections: bytes in flight, timeouts, and requests per turn of the event loop.

Data path   framing reserves **in-flight bytes** before it allocates -> connection releases them with the response
Owns        which frame may grow and which waits; statistics of a connection, and when it is closed
Leaves      pausing the socket to `connection`, closing to `server`, bytes of appended batches to the broker's budget

`InflightBytes` counts the size of a frame's buffer, which grows as bytes arrive: bytes that a client announces and does
not send cost nothing, except for up to a mebibyte after a frame of that size, while less than half of the limit is
used. Three rules keep requests moving when the limit is reached:
- a part of the limit is for small requests (heartbeats, metadata, fetches), so large ones cannot block them;
- frames that were started grow before new ones start, in the order of their reservations;
- if nothing fits any more, the first of them grows beyond the limit until it is complete, so that incomplete frames
  cannot wait for each other. There is one such frame at a time, and none while more than the limit is reserved.

`find_close_reason` closes connections that send no first request, are idle, stop in the middle of a request, or do not
read their responses.
"""

from collections import deque
from typing import Final, NamedTuple, Protocol

from streamhouse.config import KafkaSettings

SLACK_BYTES: Final = 4096
"""Bytes of a frame, besides its retained batches, up to which it does not count as pinned."""


class Waiter(Protocol):
    def granted(self, size_bytes: int) -> None:
        """Called when the requested bytes have been reserved for the waiter."""
        ...


class _Total:
    """Used bytes and limit of all requests together."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit = limit_bytes
        self.used = 0


class _SizeClass:
    """One limit within the total. Waiters need no task: `granted` is called when it is their turn."""

    def __init__(self, limit_bytes: int, total: _Total) -> None:
        self._limit = limit_bytes
        self._total = total
        self.used = 0
        self._growing: deque[tuple[Waiter, int]] = deque()
        self._new: deque[tuple[Waiter, int]] = deque()
        self._over_limit: Waiter | None = None

    @property
    def waiting(self) -> int:
        return len(self._growing) + len(self._new)

    def reserve(self, size_bytes: int, waiter: Waiter, *, grows: bool) -> bool:
        is_first = waiter is self._over_limit or not (self._growing if grows else self.waiting)
        if is_first and self._may_reserve(size_bytes, waiter, grows=grows):
            self.add(size_bytes)
            return True
        (self._growing if grows else self._new).append((waiter, size_bytes))
        return False

    def add(self, size_bytes: int) -> None:
        """Add reserved bytes; negative to release them."""
        self.used += size_bytes
        self._total.used += size_bytes
        assert self.used >= 0, "more bytes released than reserved"

    def is_whole(self, waiter: Waiter) -> None:
        if self._over_limit is waiter:
            self._over_limit = None
            self.grant()

    def cancel(self, waiter: Waiter) -> None:
        self._growing = deque(item for item in self._growing if item[0] is not waiter)
        self._new = deque(item for item in self._new if item[0] is not waiter)
        if self._over_limit is waiter:
            self._over_limit = None

    def _may_reserve(self, size_bytes: int, waiter: Waiter, *, grows: bool) -> bool:
        fits = self.used + size_bytes <= self._limit and self._total.used + size_bytes <= self._total.limit
        if fits or self.used == 0 or waiter is self._over_limit:
            return True
        if grows and self._over_limit is None and self.used <= self._limit:
            self._over_limit = waiter
            return True
        return False

    def grant(self) -> None:
        while queue := self._growing or self._new:
            waiter, size_bytes = queue[0]
            if not self._may_reserve(size_bytes, waiter, grows=queue is self._growing):
                return
            queue.popleft()
            self.add(size_bytes)
            waiter.granted(size_bytes)


class InflightBytes:
    """The budget of bytes in flight. Small requests may use all of it, large ones all but `small_limit_bytes`, and at
    least half. `frame_bytes`, the announced size of a request, decides whether it is small."""

    def __init__(self, limit_bytes: int, *, small_bytes: int = 0, small_limit_bytes: int = 0) -> None:
        self._small_bytes = small_bytes
        self._total = _Total(limit_bytes)
        self._small = _SizeClass(limit_bytes, self._total)
        self._large = _SizeClass(
            limit_bytes - (min(small_limit_bytes, limit_bytes // 2) if small_bytes else 0), self._total
        )

    def __repr__(self) -> str:
        limit = self._total.limit
        return f"<InflightBytes used={self.used_bytes >> 10}KiB of {limit >> 10}KiB waiting={self.waiting}>"

    @property
    def used_bytes(self) -> int:
        return self._total.used

    @property
    def waiting(self) -> int:
        return self._small.waiting + self._large.waiting

    @property
    def has_room(self) -> bool:
        """Whether less than half of the limit is used."""
        return 2 * self._total.used < self._total.limit

    def is_pressed(self, frame_bytes: int) -> bool:
        """Whether requests of this size class wait for bytes."""
        return self._size_class(frame_bytes).waiting > 0

    def reserve(self, size_bytes: int, waiter: Waiter, *, frame_bytes: int | None = None, grows: bool = False) -> bool:
        """Reserve bytes for a new frame, or one that `grows`; if False, the waiter is called when they are granted."""
        size_class = self._size_class(size_bytes if frame_bytes is None else frame_bytes)
        return size_class.reserve(size_bytes, waiter, grows=grows)

    def is_whole(self, waiter: Waiter, *, frame_bytes: int) -> None:
        """The waiter's frame is complete and needs no more bytes."""
        self._size_class(frame_bytes).is_whole(waiter)

    def release(self, size_bytes: int, *, frame_bytes: int | None = None) -> None:
        """Release the bytes of a frame after its response, or of an incomplete frame."""
        self._size_class(size_bytes if frame_bytes is None else frame_bytes).add(-size_bytes)
        self._grant()

    def pin(self, size_bytes: int) -> None:
        """Keep a frame's bytes reserved after its response; they count as a large request's, whatever its size."""
        self._size_class(size_bytes).add(-size_bytes)
        self._large.add(size_bytes)
        self._grant()

    def unpin(self, size_bytes: int) -> None:
        self._large.add(-size_bytes)
        self._grant()

    def cancel(self, waiter: Waiter) -> None:
        """Remove a waiter; the next ones in the queue may proceed."""
        self._small.cancel(waiter)
        self._large.cancel(waiter)
        self._grant()

    def _grant(self) -> None:
        self._small.grant()
        self._large.grant()

    def _size_class(self, frame_bytes: int) -> _SizeClass:
        return self._small if frame_bytes <= self._small_bytes else self._large


class PinnedFrames:
    """Frames of which only a small part is retained. The log holds a view into them, so all of their memory stays
    allocated, while the log's budget counts only the part. They count as in flight until the view is released.
    """

    def __init__(self, inflight: InflightBytes) -> None:
        self._inflight = inflight
        self._frames: list[tuple[bytearray, int]] = []

    def __len__(self) -> int:
        return len(self._frames)

    def pin(self, frame: bytearray, *, retained_bytes: int) -> bool:
        """Pin the frame if most of it is not retained; returns whether it was pinned."""
        size_bytes = len(frame)
        if retained_bytes == 0 or size_bytes - retained_bytes <= max(retained_bytes, SLACK_BYTES):
            return False
        self._frames.append((frame, size_bytes))
        self._inflight.pin(size_bytes)
        return True

    def release(self) -> None:
        """Release the bytes of frames without views."""
        self._frames = [item for item in self._frames if not self._is_free(*item)]

    def _is_free(self, frame: bytearray, size_bytes: int) -> bool:
        try:
            frame.clear()
        except BufferError:  # a view of the frame still exists
            return False
        self._inflight.unpin(size_bytes)
        return True


CHECK_RATE_AFTER_S: Final = 10.0
"""Grace period of a request before its rate is checked: networks may stall for a moment."""


class CloseReason(NamedTuple):
    """Why a connection is closed: a label for the metric, a text for the log."""

    why: str
    text: str


class ConnectionStats:
    """Times of one connection, by the monotonic clock."""

    __slots__ = (
        "_marked_bytes",
        "_taken_bytes",
        "active_at",
        "has_sent_request",
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
        self.has_sent_request = False
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
        """Note how many response bytes the client has read so far, whether more are pending, the received bytes of an
        incomplete request, and whether other requests wait for its memory."""
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
        """Note the last time at which an incomplete request arrived at the minimum rate."""
        if self.partial_since is None:
            self.kept_pace_at = None
            return
        arrived = self.partial_bytes - self._marked_bytes
        if self.kept_pace_at is None or not 0 <= arrived < max(least_bytes_per_s * (now - self.kept_pace_at), 1):
            self.kept_pace_at, self._marked_bytes = now, self.partial_bytes


def find_close_reason(stats: ConnectionStats, settings: KafkaSettings, *, now: float) -> CloseReason | None:
    """The reason to close the connection; None if it stays open. A pure function."""
    if stats.stuck_since is not None:
        if now - stats.stuck_since >= settings.slow_reader_timeout_s:
            return CloseReason(
                "slow_reader", f"client reads no responses; timeout_s={settings.slow_reader_timeout_s:g}"
            )
        return None
    if stats.partial_since is not None:
        return _slow_sender(stats, settings, took_s=now - stats.partial_since, now=now)
    if not (stats.is_busy or stats.has_sent_request) and now - stats.active_at >= settings.first_request_timeout_s:
        return CloseReason("silent", f"client sent no request; timeout_s={settings.first_request_timeout_s:g}")
    if not stats.is_busy and now - stats.active_at >= settings.idle_timeout_s:
        return CloseReason("idle", f"connection is idle; timeout_s={settings.idle_timeout_s:g}")
    return None


def _slow_sender(stats: ConnectionStats, settings: KafkaSettings, *, took_s: float, now: float) -> CloseReason | None:
    stalled_s = settings.stalled_request_timeout_s
    if stats.is_pressed and stats.kept_pace_at is not None and now - stats.kept_pace_at >= stalled_s:
        return CloseReason("slow_sender", f"request stalls while others wait for memory; timeout_s={stalled_s:g}")
    if took_s >= settings.partial_request_timeout_s:
        return CloseReason("slow_sender", f"request is incomplete; timeout_s={settings.partial_request_timeout_s:g}")
    pace = settings.min_request_bytes_per_s
    if took_s >= CHECK_RATE_AFTER_S and stats.partial_bytes < took_s * pace:
        return CloseReason(
            "slow_sender", f"request arrives too slowly; bytes={stats.partial_bytes} least_bytes_per_s={pace}"
        )
    return None


def check_interval_s(settings: KafkaSettings) -> float:
    """Such that no connection exceeds a timeout by more than a quarter."""
    shortest = min(
        settings.idle_timeout_s,
        settings.first_request_timeout_s,
        settings.partial_request_timeout_s,
        settings.slow_reader_timeout_s,
    )
    return min(max(shortest / 4, 0.05), 5.0)


REQUESTS_PER_TURN: Final = 8
"""Requests of one connection that are started before other connections get a turn; most take less than 0.1 ms."""
