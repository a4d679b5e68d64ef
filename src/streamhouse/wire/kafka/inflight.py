"""In flight: the one limit on bytes of requests that were begun and not yet answered, over all connections.

Data path   framing asks **inflight** before it allocates -> connection gives the bytes back with the answer
Owns        who may receive a frame now, and who waits; first come, first served
Leaves      pausing the socket to `connection`; bytes of appended batches to the broker's own budget
"""

from collections import deque
from typing import Final, Protocol

SLACK_BYTES: Final = 4096
"""What a frame may hold besides the batches that were kept of it, without being called wasteful."""


class Waiter(Protocol):
    def granted(self, size_bytes: int) -> None:
        """The bytes that were asked for are taken, in the waiter's name."""
        ...


class InflightBytes:
    """Waiting costs nobody a task: whoever is refused is called when its turn has come."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._used = 0
        self._waiting: deque[tuple[Waiter, int]] = deque()

    def __repr__(self) -> str:
        return f"<InflightBytes used={self._used >> 10}KiB of {self._limit >> 10}KiB waiting={len(self._waiting)}>"

    @property
    def used_bytes(self) -> int:
        return self._used

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def take(self, size_bytes: int, waiter: Waiter) -> bool:
        """Take bytes now, or be called later. One frame larger than the limit goes alone, so nobody waits for ever."""
        if not self._waiting and self._fits(size_bytes):
            self._used += size_bytes
            return True
        self._waiting.append((waiter, size_bytes))
        return False

    def give_back(self, size_bytes: int) -> None:
        self._used -= size_bytes
        assert self._used >= 0, "more bytes were given back than were taken"
        self._grant()

    def forget(self, waiter: Waiter) -> None:
        """The waiter is gone; whoever stood behind it may go on."""
        self._waiting = deque(item for item in self._waiting if item[0] is not waiter)
        self._grant()

    def _fits(self, size_bytes: int) -> bool:
        return self._used + size_bytes <= self._limit or self._used == 0

    def _grant(self) -> None:
        while self._waiting and self._fits(self._waiting[0][1]):
            waiter, size_bytes = self._waiting.popleft()
            self._used += size_bytes
            waiter.granted(size_bytes)


class PinnedFrames:
    """Frames of which only a small part was kept. The log holds a view into them, so all of their memory stays, while
    its own budget counts the part: until the view is gone, they go on counting as in flight.
    """

    def __init__(self, inflight: InflightBytes) -> None:
        self._inflight = inflight
        self._frames: list[tuple[bytearray, int]] = []

    def __len__(self) -> int:
        return len(self._frames)

    def keep(self, frame: bytearray, *, kept_bytes: int) -> bool:
        """Whether the frame was taken over, because most of it is waste."""
        size_bytes = len(frame)
        if kept_bytes == 0 or size_bytes - kept_bytes <= max(kept_bytes, SLACK_BYTES):
            return False
        self._frames.append((frame, size_bytes))
        return True

    def release(self) -> None:
        """Give back the bytes of frames that nobody looks into any more."""
        self._frames = [item for item in self._frames if not self._is_free(*item)]

    def _is_free(self, frame: bytearray, size_bytes: int) -> bool:
        try:
            frame.clear()
        except BufferError:  # Python's word for: somebody holds a view
            return False
        self._inflight.give_back(size_bytes)
        return True
