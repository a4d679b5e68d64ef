"""SessionShutdown: the orderly end of a session whose logs accept no more appends.

Data path   agent session, when it ends -> **session_lifecycle** -> last flush, metadata store, then the WAL is
            removed
Owns        how long a stop waits, what happens to the write-ahead log, and what is logged about it
Leaves      closing logs to `agent_session`; uploads to `flush`

Every step has a limit: `agent.stop_timeout_s` for making appends durable, flushing and ending the session together,
and `agent.close_timeout_s` for closing the log, and once more for transferring leadership.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.partition.log import PartitionLog
from streamhouse.broker.session.flush import Flusher
from streamhouse.broker.wal.base import Wal
from streamhouse.clock import limited, wait_first
from streamhouse.errors import AppendFailed, SessionLost, StreamhouseError, Unavailable
from streamhouse.model.names import SessionId

log = logging.getLogger(__name__)

T = TypeVar("T")

BeforeRemoval = Callable[[SessionId], Awaitable[None]]
"""Called before anything of a log is removed whose content is registered; the log stays where it raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedShutdown:
    """What a session had not finished at its end. Acknowledged records are in its log, where recovery finds them."""

    session: SessionId
    wal: str
    partitions: int
    unflushed_bytes: int
    """Bytes of acknowledged records in no segment; they are in the log."""
    pending_bytes: int
    """Bytes of appends that were not durable; they failed, and clients send them again."""


class SessionShutdown:
    def __init__(
        self,
        dependencies: Dependencies,
        session_id: SessionId,
        *,
        wal: Wal,
        flusher: Flusher,
        before_removal: BeforeRemoval,
    ) -> None:
        self._dependencies = dependencies
        self._before_removal = before_removal
        self._session_id = session_id
        self._wal = wal
        self._flusher = flusher
        self._has_ended = False

    def __repr__(self) -> str:
        return f"<SessionShutdown {self._session_id} ended={self._has_ended}>"

    async def wait_limit(self, stop_requested: asyncio.Event, given_up: asyncio.Event) -> None:
        """Return when the time of a requested stop is over, or the session is given up because the agent is cut off."""

        async def time_is_over() -> None:
            await stop_requested.wait()
            await self._dependencies.clock.sleep(self._dependencies.settings.agent.stop_timeout_s)

        await wait_first(time_is_over(), given_up.wait())

    async def run_within(self, work: Coroutine[Any, Any, T], *, limit: "asyncio.Task[None]") -> T | None:
        """Run `work` until the limit; returns its result, or None if it was cancelled at the limit."""
        working = asyncio.get_running_loop().create_task(work)
        try:
            await asyncio.wait({working, limit}, return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() and not working.cancelled() else None
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    async def transfer(self, flushing: "asyncio.Task[None]", *, limit: "asyncio.Task[None]") -> bool:
        """Flush everything, end the session, remove the WAL; False if the limit was reached first."""
        return await self.run_within(self._flush_and_end(flushing), limit=limit) or False

    async def leave_wal(self, logs: Sequence[PartitionLog], *, is_lost: bool) -> UnfinishedShutdown | None:
        """Close the log and leave it for recovery, which may start at once; returns its content. None if the session
        has ended and only its log could not be removed."""
        left = UnfinishedShutdown(
            session=self._session_id,
            wal=self._dependencies.wal_factory.kind,
            partitions=sum(item.unflushed_bytes > 0 or len(item.refused) > 0 for item in logs),
            unflushed_bytes=sum(item.unflushed_bytes for item in logs),
            pending_bytes=self._wal.pending_bytes,
        )
        await self._close_wal(remove=False)
        if self._has_ended:
            log.warning("session ended, its log could not be removed", extra={"session": self._session_id})
            return None
        log.warning("session ends with its log in place, which recovery reads", extra=asdict(left))
        if not (is_lost or self._dependencies.single_agent):
            await self._expire()
        return left

    async def _expire(self) -> None:
        """Expire the session now, so that other agents take over before the lease time is over."""
        renewal = self._dependencies.metadata.renew_session(self._session_id, 0)
        try:
            await limited(
                renewal, seconds=self._dependencies.settings.agent.close_timeout_s, clock=self._dependencies.clock
            )
        except (StreamhouseError, TimeoutError) as error:
            log.info("other agents take over when the session expires", extra={"why": str(error)})

    async def _flush_and_end(self, flushing: "asyncio.Task[None]") -> bool:
        await asyncio.wait({flushing})
        lost = False
        try:
            await self._flusher.flush_all()
        except* SessionLost:
            lost = True
        return not lost and await self._end_session()

    async def _end_session(self) -> bool:
        wait = self._dependencies.settings.flush.retry_s
        while True:
            try:
                await self._dependencies.metadata.end_session(self._session_id)
            except Unavailable:
                await self._dependencies.clock.sleep(wait)
                wait = min(wait * 2, self._dependencies.settings.flush.retry_max_s)
            except SessionLost:
                return False
            else:
                self._has_ended = True
                await self._close_wal(remove=await self._may_remove())
                return True

    async def _may_remove(self) -> bool:
        """A log that stays is removed by the next start, or with the other leftovers of ended sessions."""
        covering = self._before_removal(self._session_id)
        limit_s = self._dependencies.settings.agent.close_timeout_s
        try:
            await limited(covering, seconds=limit_s, clock=self._dependencies.clock)
        except (StreamhouseError, TimeoutError) as error:
            log.warning("session ended, its log stays", extra={"session": self._session_id, "why": str(error)})
            return False
        return True

    async def _close_wal(self, *, remove: bool) -> None:
        """Close the WAL, or remove it; if that fails, the next recovery reads or removes it."""
        closing = self._wal.aclose(remove=remove)
        try:
            await limited(
                closing, seconds=self._dependencies.settings.agent.close_timeout_s, clock=self._dependencies.clock
            )
        except (AppendFailed, TimeoutError) as error:
            log.warning("write-ahead log did not close", extra={"why": str(error), "remove": remove})
