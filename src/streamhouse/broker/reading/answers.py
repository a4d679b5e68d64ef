"""Answers: the one limit on records that were read for clients and are not yet out of memory, over all of them.

Data path   fetch gathers under **answers** -> wire hands over -> what a slow client has not taken counts on
Owns        how large an answer may become while others are being gathered or wait for their clients
Leaves      gathering to `fetch`, knowing which clients are slow to the wires, the size of one answer alone to settings
Invariant   nobody waits here: an answer is cut, never held back, so that no slow client can stop a quick one
"""

from typing import Final

SHARE: Final = 4
"""One answer takes at most this part of what the others have left: many get a little, a few get much."""


class AnswerBytes:
    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._held = 0

    def __repr__(self) -> str:
        return f"<AnswerBytes held={self._held >> 10}KiB of {self._limit >> 10}KiB>"

    @property
    def held_bytes(self) -> int:
        return self._held

    def room_bytes(self, *, own_bytes: int = 0) -> int:
        """How much more an answer may take that holds `own_bytes` already; without any it is one batch, if it must."""
        return max((self._limit - self._held + own_bytes) // SHARE - own_bytes, 0)

    def resize(self, before_bytes: int, after_bytes: int) -> int:
        """An answer holds another number of bytes than before; returns the new one."""
        self._held += after_bytes - before_bytes
        assert self._held >= 0, "more bytes were given back than were held"
        return after_bytes
