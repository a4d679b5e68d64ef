"""Gate: so much at once and no more; who comes too early waits in line.

Data path   whoever sends something to another agent goes through a **gate** first
Owns        the count and the bytes inside, the line outside
Leaves      what the limits are, and how long somebody waits, to the caller
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from streamhouse.errors import Overloaded

RETRY_AFTER_S = 1.0


class _Waiting(NamedTuple):
    size_bytes: int
    admitted: "asyncio.Future[None]"


class Gate:
    def __init__(self, what: str, *, max_items: int, max_bytes: int, max_waiting: int) -> None:
        self._what = what
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._max_waiting = max_waiting
        self._line: deque[_Waiting] = deque()
        self.items = 0
        self.size_bytes = 0

    def __repr__(self) -> str:
        return f"<Gate {self._what} items={self.items} bytes={self.size_bytes} waiting={len(self._line)}>"

    @asynccontextmanager
    async def inside(self, size_bytes: int) -> AsyncIterator[None]:
        await self.enter(size_bytes)
        try:
            yield
        finally:
            self.leave(size_bytes)

    async def enter(self, size_bytes: int) -> None:
        """Wait for a place; raise `Overloaded` when the line is too long already."""
        if not self._line and self._has_room(size_bytes):
            self._take(size_bytes)
            return
        if len(self._line) >= self._max_waiting:
            raise Overloaded(self._what, limit_bytes=self._max_bytes, retry_after_s=RETRY_AFTER_S)
        waiting = _Waiting(size_bytes, asyncio.get_running_loop().create_future())
        self._line.append(waiting)
        try:
            await waiting.admitted
        except asyncio.CancelledError:
            if waiting.admitted.done() and not waiting.admitted.cancelled():
                self.leave(size_bytes)  # it was let in at the moment in which it gave up
            elif waiting in self._line:
                self._line.remove(waiting)
                self._admit()
            raise

    def leave(self, size_bytes: int) -> None:
        self.items -= 1
        self.size_bytes -= size_bytes
        self._admit()

    def _admit(self) -> None:
        while self._line and self._has_room(self._line[0].size_bytes):
            waiting = self._line.popleft()
            if not waiting.admitted.done():
                self._take(waiting.size_bytes)
                waiting.admitted.set_result(None)

    def _has_room(self, size_bytes: int) -> bool:
        """What is larger than the limit goes alone."""
        fits = self.size_bytes + size_bytes <= self._max_bytes or self.items == 0
        return fits and self.items < self._max_items

    def _take(self, size_bytes: int) -> None:
        self.items += 1
        self.size_bytes += size_bytes
