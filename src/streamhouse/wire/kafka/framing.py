"""Framing: bytes from a socket become frames, each in a buffer of its own.

Data path   socket -> **framing** -> connection -> codec
Owns        the four bytes of length in front of every request; where received bytes go
Leaves      how many bytes may be in flight to `inflight`, what a frame says to `exchange`

Invariant   nothing is allocated for a size before it was compared with the limit and admitted
            a frame's buffer is at most twice as large as what came of it, or `FIRST_BYTES`
            a frame's buffer belongs to that frame alone: batches in it go into the log without a copy

Between two frames bytes go to a scratch buffer that all connections share (they are taken out of it before anybody
else can run), so an idle connection owns none, and many small requests arrive with one system call. Once a size is
known, the rest of a large frame is received straight into its own buffer, which is doubled whenever it is full.
"""

import struct
from collections.abc import Callable
from typing import Final

from streamhouse.errors import Rejected

SIZE_BYTES: Final = 4
SCRATCH_BYTES: Final = 64 * 1024
"""What is copied of a large frame at most, and how many bytes of small ones arrive with one call."""

FIRST_BYTES: Final = 512
"""What a frame's buffer has at least, of which almost nothing came yet."""

_SIZE: Final = struct.Struct(">i")


class BadFrame(Rejected):
    """The first bytes of a frame can't be its size: another protocol, or a request that is too large."""


class FrameReader:
    """The frames of one connection. Without I/O: `space` says where bytes go, `received` that they came."""

    __slots__ = ("_filled", "_frame", "_max_bytes", "_rest", "_scratch", "_view", "frame_bytes")

    def __init__(self, scratch: memoryview, *, max_bytes: int) -> None:
        self._scratch = scratch
        self._max_bytes = max_bytes
        self._rest: memoryview | bytes = b""
        self._frame: bytearray | None = None
        self._view: memoryview | None = None
        self._filled = 0
        self.frame_bytes = 0
        """The size that the frame being received announced, or the last one."""

    def __repr__(self) -> str:
        announced = self.frame_bytes if self._frame is not None else 0
        return f"<FrameReader filled={self._filled} of={announced} rest={len(self._rest)}>"

    @property
    def received_bytes(self) -> int:
        """How much there is of the frame that is not whole yet."""
        return self._filled if self._frame is not None else len(self._rest)

    @property
    def is_between_frames(self) -> bool:
        return self._frame is None and not self._rest

    @property
    def is_inside_frame(self) -> bool:
        """Whether a frame has a buffer and is not whole."""
        return self._frame is not None

    @property
    def partial_bytes(self) -> int:
        """The size of the buffer of the frame that is being received; it was admitted."""
        return len(self._frame) if self._frame is not None else 0

    def space(self) -> memoryview:
        """Where the next bytes go."""
        return self._view[self._filled :] if self._view is not None else self._scratch

    def received(self, count: int) -> None:
        """`count` bytes came to where `space` said."""
        if self._frame is not None:
            self._filled += count
        elif self._rest:
            self._rest = bytes(self._rest) + bytes(self._scratch[:count])
        else:
            self._rest = self._scratch[:count]

    def next_frame(self, admit: Callable[[int], bool]) -> bytearray | None:
        """The next whole frame; None when more bytes are needed, or when `admit` refused what its buffer needs now."""
        if self._frame is not None:
            return self._go_on(self._frame, admit)
        rest = self._rest
        if len(rest) < SIZE_BYTES:
            return None
        (size,) = _SIZE.unpack_from(rest)
        if not 0 < size <= self._max_bytes:
            raise BadFrame(
                f"not a request, or too large; size={size} limit={self._max_bytes} began={bytes(rest[:8])!r}"
            )
        self.frame_bytes = size
        end = SIZE_BYTES + size
        is_whole = end <= len(rest)
        buffer_bytes = size if is_whole else min(size, max(2 * (len(rest) - SIZE_BYTES), FIRST_BYTES))
        if not admit(buffer_bytes):
            return None
        if is_whole:
            self._rest = rest[end:]
            return bytearray(rest[SIZE_BYTES:end])
        self._fill(bytearray(buffer_bytes), rest[SIZE_BYTES:])
        self._rest = b""
        return None

    def settle(self) -> None:
        """Take what is left out of the scratch buffer, before somebody else receives into it."""
        if not isinstance(self._rest, bytes):
            self._rest = bytes(self._rest)

    def drop(self) -> None:
        """Forget everything received so far."""
        self._rest, self._frame, self._view, self._filled = b"", None, None, 0

    def _fill(self, buffer: bytearray, first: memoryview | bytes | bytearray) -> None:
        self._frame = buffer
        self._view = memoryview(buffer)
        self._filled = len(first)
        self._view[: self._filled] = first

    def _go_on(self, frame: bytearray, admit: Callable[[int], bool]) -> bytearray | None:
        if self._filled < len(frame):
            return None
        if len(frame) == self.frame_bytes:
            self._frame = self._view = None
            self._filled = 0
            return frame
        more = min(len(frame), self.frame_bytes - len(frame))
        if admit(more):
            # The transport still holds a view of the buffer, so it can't be made longer in its place.
            self._fill(bytearray(len(frame) + more), frame)
        return None
