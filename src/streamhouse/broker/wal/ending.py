"""Ending: how a write-ahead log is over: it failed, or is being closed.

Data path   none: log -> **ending** -> whoever appends late, and whoever must know of a failure
Owns        the first failure, who waits for one, what an append gets that comes too late
Leaves      what fails with it to the log, what follows from it to the session
"""

import asyncio
import logging
from typing import Final

from streamhouse.broker.wal.commits import fail_quietly
from streamhouse.errors import AppendFailed
from streamhouse.model.names import SessionId

log: Final = logging.getLogger(__name__)


class Ending:
    """`is_over`: nothing is taken any more. It is asked with every append, so it is kept, not found out."""

    __slots__ = ("_has_failed", "_session", "error", "is_closing", "is_over")

    def __init__(self, session: SessionId) -> None:
        self._session = session
        self._has_failed = asyncio.Event()
        self.error: Exception | None = None
        self.is_closing = False
        self.is_over = False

    def __repr__(self) -> str:
        return f"<Ending {self.state}>"

    @property
    def state(self) -> str:
        return "failed" if self.error else "closing" if self.is_closing else "open"

    def fail(self, error: Exception) -> bool:
        """The log has failed; whether that is news."""
        if self.error is not None:
            return False
        self.error, self.is_over = error, True
        self._has_failed.set()
        log.error("wal failed", extra={"session": self._session, "why": str(error)})
        return True

    def close(self) -> None:
        self.is_closing = self.is_over = True

    async def wait_failed(self) -> Exception:
        await self._has_failed.wait()
        assert self.error is not None
        return self.error

    def refused(self) -> asyncio.Future[None]:
        """For an append that comes too late."""
        why = "closed" if self.error is None else self.error
        refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        fail_quietly(refused, AppendFailed(f"write-ahead log is over; session={self._session} why={why}"))
        return refused
