"""Closing: the end of a session whose logs take nothing more.

Data path   tenure, when it ends -> **closing** -> flush of all that is left, metadata store, then the WAL goes
Owns        how long a stop waits for that, and what then becomes of the write-ahead log
Leaves      refusing and sealing to `tenure`, which ends without this when its session is lost; uploads to `flush`
"""

import asyncio
import logging

from streamhouse.errors import AppendFailed, SessionLost, Unavailable
from streamhouse.model.names import SessionId

from .doors import Doors
from .flush import Flusher
from .wal.base import Wal

log = logging.getLogger(__name__)


class Closing:
    def __init__(self, doors: Doors, session_id: SessionId, *, wal: Wal, flusher: Flusher) -> None:
        self._doors = doors
        self._session_id = session_id
        self._wal = wal
        self._flusher = flusher

    def __repr__(self) -> str:
        return f"<Closing {self._session_id}>"

    async def hand_over(self, flushing: "asyncio.Task[None]", *, stop_asked: asyncio.Event) -> bool:
        """Flush everything, end the session, remove the WAL; False when a stop was asked for and time ran out."""
        work = asyncio.ensure_future(self._flush_and_end(flushing))
        patience = asyncio.ensure_future(self._patience(stop_asked))
        try:
            await asyncio.wait({work, patience}, return_when=asyncio.FIRST_COMPLETED)
            return work.done() and not work.cancelled() and work.result()
        finally:
            for task in (work, patience):
                task.cancel()
            await asyncio.gather(work, patience, return_exceptions=True)

    async def leave_wal(self) -> None:
        """For whoever recovers the session."""
        log.warning("session ends with its log in place", extra={"session": self._session_id})
        await self._close_wal(remove=False)

    async def _patience(self, stop_asked: asyncio.Event) -> None:
        await stop_asked.wait()
        await self._doors.clock.sleep(self._doors.settings.agent.stop_timeout_s)

    async def _flush_and_end(self, flushing: "asyncio.Task[None]") -> bool:
        await asyncio.wait({flushing})
        lost = False
        try:
            await self._flusher.flush_all()
        except* SessionLost:
            lost = True
        return not lost and await self._end_session()

    async def _end_session(self) -> bool:
        wait = self._doors.settings.flush.retry_s
        while True:
            try:
                await self._doors.metadata.end_session(self._session_id)
            except Unavailable:
                await self._doors.clock.sleep(wait)
                wait = min(wait * 2, self._doors.settings.flush.retry_max_s)
            except SessionLost:
                return False
            else:
                await self._close_wal(remove=True)
                return True

    async def _close_wal(self, *, remove: bool) -> None:
        """A log that doesn't close, or go, is found by the next recovery: it is read, or removed, then."""
        try:
            await self._wal.aclose(remove=remove)
        except AppendFailed as error:
            log.warning("write-ahead log did not close", extra={"why": str(error), "remove": remove})
