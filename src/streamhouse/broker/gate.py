"""Gate: appends to a partition wait in line while segments are placed in it.

Data path   appending -> **gate** -> log
Owns        who waits, and in which order they go on
Leaves      when it is shut and opened to `placing.holds`, the end of a log to `log`

Whoever waited goes before whoever comes later: batches of an idempotent producer keep their order. And whoever wants to
shut the gate again lets them all through first, so that commits, however many, can't keep producers out.
"""

import asyncio
from collections import deque

from streamhouse.errors import Retriable


class Gate:
    __slots__ = ("_closing", "_shut", "_waiting", "_wanting")

    def __init__(self) -> None:
        self._shut = False
        self._closing: Retriable | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._wanting: deque[asyncio.Future[None]] = deque()

    def __repr__(self) -> str:
        state = "closed" if self._closing else "shut" if self._shut else "open"
        return f"<Gate {state} waiting={len(self._waiting)} wanting={len(self._wanting)}>"

    @property
    def is_open(self) -> bool:
        """Whether an append may go on at once."""
        return not self._shut and not self._waiting

    @property
    def is_shut(self) -> bool:
        return self._shut

    async def wait(self) -> None:
        """Return when it is this append's turn, which it must take without waiting for anything else."""
        if self._closing is not None or self.is_open:
            return
        await self._queue(self._waiting)
        # The next one runs when this one has made its step.
        self._call_next()

    async def shut(self) -> None:
        """Return when the gate is this caller's, who opens it again; waits for those who came before."""
        if self._closing is None and (self._shut or self._waiting or self._wanting):
            await self._queue(self._wanting)
        if self._closing is not None:
            raise self._closing.with_traceback(None)
        self._shut = True

    def open(self) -> None:
        self._shut = False
        self._call_next()

    def close(self, why: Retriable) -> None:
        """Nobody passes any more."""
        self._closing = why
        for waiting in (*self._waiting, *self._wanting):
            if not waiting.done():
                waiting.set_exception(why)

    async def _queue(self, line: "deque[asyncio.Future[None]]") -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            line.remove(turn)
            self._call_next()  # it may have been this one's turn
            raise
        except BaseException:
            line.remove(turn)
            raise
        line.remove(turn)

    def _call_next(self) -> None:
        if self._shut:
            return
        line = self._waiting or self._wanting
        if line and not line[0].done():
            line[0].set_result(None)
