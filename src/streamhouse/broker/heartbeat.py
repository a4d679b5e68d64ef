"""Heartbeats of a session: renew its expiry in the metadata store, and the lease deadline of this agent.

Data path   none; the session checks the deadline before every append and every acknowledgement
Owns        when a heartbeat is due, its timeout, the effect of its outcome; the thread that sends it
Leaves      ending a lost session to `agent_session`, the transaction to the metadata store

An agent sends heartbeats from a separate thread over a separate connection, so that neither a busy event loop nor many
metadata calls end the session. A simulation runs the same code on its event loop.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final, Protocol

from streamhouse.clock import Clock, limited
from streamhouse.config import LeaseSettings
from streamhouse.errors import SessionLost, Unavailable
from streamhouse.model.cluster import PutReport
from streamhouse.model.names import SessionId

log = logging.getLogger(__name__)


class SessionStore(Protocol):
    """The part of the metadata store that heartbeats use."""

    async def renew_session(
        self,
        session_id: SessionId,
        ttl_ms: int,
        *,
        wal_start: int = 0,
        wal_durable: int = 0,
        puts: PutReport | None = None,
    ) -> None: ...


class SessionDeadline:
    """The time until which leases are valid, by the agent's monotonic clock. Any thread may read or set it: each access
    is one attribute, and a session has only one heartbeat in flight."""

    __slots__ = ("_is_lost", "at")

    def __init__(self, at: float) -> None:
        self.at = at
        self._is_lost = False

    def __repr__(self) -> str:
        return f"<SessionDeadline at={self.at:.3f} lost={self._is_lost}>"

    @property
    def is_lost(self) -> bool:
        return self._is_lost

    def lose(self) -> None:
        """End the validity for good: other agents own the leases now."""
        self._is_lost = True

    def is_valid(self, now: float) -> bool:
        return not self._is_lost and now < self.at


class LoopState:
    """The event loop's reports for the heartbeat: that it runs, which part of the write-ahead log is needed and
    durable, and whether writes reach the object store."""

    __slots__ = ("alive_at", "put_at", "put_failing", "wal_durable", "wal_start")

    def __init__(self, now: float) -> None:
        self.alive_at = now
        self.wal_start = 0
        self.wal_durable = 0
        self.put_at: float | None = None
        self.put_failing = False

    def put_report(self, now: float) -> PutReport:
        age_ms = None if self.put_at is None else max(0, round((now - self.put_at) * 1000))
        return PutReport(age_ms=age_ms, failing=self.put_failing)


class Heartbeat:
    """The heartbeats of one session. `renewed` is called after each success with the reported start of the log, `lost`
    when the session is lost; both in the thread of the heartbeats."""

    def __init__(
        self,
        session_id: SessionId,
        settings: LeaseSettings,
        *,
        clock: Clock,
        deadline: SessionDeadline,
        state: LoopState,
        renewed: Callable[[int], object],
        lost: Callable[[SessionLost], object],
    ) -> None:
        self._session_id = session_id
        self._settings = settings
        self._clock = clock
        self._deadline = deadline
        self._state = state
        self._renewed = renewed
        self._lost = lost
        self._is_stalled = False

    def __repr__(self) -> str:
        return f"<Heartbeat {self._session_id} {self._deadline!r}>"

    async def run(self, store: SessionStore) -> None:
        """Until the session is lost."""
        wait_s = self._settings.renew_s
        while not self._deadline.is_lost:
            await self._clock.sleep(wait_s)
            wait_s = await self._beat(store)

    async def _beat(self, store: SessionStore) -> float:
        """Send a heartbeat unless the event loop is blocked; returns the time until the next one."""
        if not self._loop_runs():
            return self._settings.heartbeat_retry_s
        try:
            await self.renew(store)
        except (Unavailable, TimeoutError) as error:
            log.warning("heartbeat failed", extra={"session": self._session_id, "why": str(error)})
            return self._settings.heartbeat_retry_s
        except SessionLost as error:
            self._deadline.lose()
            self._lost(error)
        return self._settings.renew_s

    def _loop_runs(self) -> bool:
        """Whether the event loop runs: an agent with a blocked event loop must not keep its leases forever."""
        still_s = self._clock.monotonic() - self._state.alive_at
        is_stalled = still_s >= self._settings.stall_s
        if is_stalled and not self._is_stalled:
            log.error("no heartbeats: the event loop is blocked", extra={"seconds": round(still_s, 1)})
        self._is_stalled = is_stalled
        return not is_stalled

    async def renew(self, store: SessionStore) -> None:
        """Send a heartbeat; the lease time counts from before the call, so it always ends before the store's."""
        requested_at, wal_start = self._clock.monotonic(), self._state.wal_start
        renewal = store.renew_session(
            self._session_id,
            self._settings.life_ms,
            wal_start=wal_start,
            wal_durable=self._state.wal_durable,
            puts=self._state.put_report(requested_at),
        )
        await limited(renewal, seconds=self._settings.heartbeat_timeout_s, clock=self._clock)
        self._deadline.at = requested_at + self._settings.usable_s
        self._renewed(wal_start)


class HeartbeatRunner(Protocol):
    """Runs heartbeats outside of the event loop."""

    async def run(self, heartbeat: Heartbeat) -> None:
        """Run until the session is lost, or the caller is cancelled."""
        ...


async def report_alive(state: LoopState, tell: Callable[[LoopState], None], *, clock: Clock, every_s: float) -> None:
    """Report periodically that this event loop runs, calling `tell`, until cancelled."""
    with suppress(asyncio.CancelledError):
        while True:
            state.alive_at = clock.monotonic()
            tell(state)
            await clock.sleep(every_s)


JOIN_S: Final = 5.0
"""Timeout of joining the thread; it is a daemon, so the process can exit without it."""

OpenStore = Callable[[], AbstractAsyncContextManager[SessionStore]]


class HeartbeatThread:
    """A `HeartbeatRunner` with a thread. Created by `open_heartbeats`."""

    def __init__(self, open_store: OpenStore) -> None:
        self._open_store = open_store
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owner = asyncio.get_running_loop()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._store: SessionStore | None = None
        self._thread = threading.Thread(target=self._main, name="heartbeat", daemon=True)

    def __repr__(self) -> str:
        return f"<HeartbeatThread {'open' if self._store is not None else 'closed'}>"

    async def start(self) -> None:
        """Return when its store is open; raises the error of opening it."""
        self._thread.start()
        await self._opened

    async def run(self, heartbeat: Heartbeat) -> None:
        assert self._store is not None, "the thread has no store"
        running = asyncio.run_coroutine_threadsafe(heartbeat.run(self._store), self._loop)
        await asyncio.wrap_future(running)  # cancelling it cancels the heartbeats

    async def aclose(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        try:
            async with asyncio.timeout(JOIN_S):
                await self._ended
        except TimeoutError:
            log.warning("the heartbeat thread did not end in time", extra={"seconds": JOIN_S})

    # --- in the thread

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:  # noqa: BLE001 - raised again by the waiting coroutine
            self._tell(self._opened, error)
        finally:
            self._loop.close()
            self._tell(self._ended, None)

    async def _serve(self) -> None:
        async with self._open_store() as store:
            self._store = store
            self._tell(self._opened, None)
            await self._stop.wait()
            self._store = None

    def _tell(self, future: "asyncio.Future[None]", error: BaseException | None) -> None:
        try:
            self._owner.call_soon_threadsafe(_settle, future, error)
        except RuntimeError:  # the owner's event loop is closed: there is no waiter
            log.debug("no waiter for the heartbeat thread")


def _settle(future: "asyncio.Future[None]", error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


async def open_heartbeats(open_store: OpenStore) -> HeartbeatThread:
    """Start a heartbeat thread; `open_store` is entered and exited in the thread."""
    thread = HeartbeatThread(open_store)
    await thread.start()
    return thread
