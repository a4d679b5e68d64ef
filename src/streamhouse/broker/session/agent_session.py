"""AgentSession: one session of this agent, with its leases, its write-ahead log and its open logs.

Data path   broker -> **agent_session** (may this agent append?) -> session_logs -> partition.log
Owns        the heartbeat; until when leases are valid; transfers to other agents; why and when the session ends
Leaves      the open logs to `session_logs`, the last flush to `session_lifecycle`; the WALs of dead sessions to
            `recovery`; opening the next session to `session_manager`

Crash-only: when the WAL fails or the session is lost, nothing is repaired in place. The session closes its logs,
flushes acknowledged records from memory (unless the session is lost: then other agents own them), and ends. The next
session starts from what is durable.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.heartbeat import Heartbeat, LoopState, SessionDeadline, report_alive
from streamhouse.broker.partition.backpressure import MemoryBudget
from streamhouse.broker.partition.log import PartitionLog
from streamhouse.broker.partition.sequence_gaps import SequenceGapGuard
from streamhouse.broker.segments.reader import SegmentReader
from streamhouse.broker.session.flush import Flusher
from streamhouse.broker.session.session_lifecycle import BeforeRemoval, SessionShutdown, UnfinishedShutdown
from streamhouse.broker.session.session_logs import SessionLogs
from streamhouse.broker.wal.base import Wal
from streamhouse.clock import limited
from streamhouse.errors import (
    AppendFailed,
    LeaseLost,
    Retriable,
    SessionLost,
    SessionSealed,
    Stopping,
    StreamhouseError,
)
from streamhouse.model.cluster import Session
from streamhouse.model.names import SessionId, TopicPartition
from streamhouse.model.topic import Topic, TopicConfig
from streamhouse.stores.metadata.base import NewSession

log = logging.getLogger(__name__)


class AgentSession:
    def __init__(
        self,
        dependencies: Dependencies,
        session: Session,
        wal: Wal,
        *,
        valid_until: float,
        reader: SegmentReader,
        budget: MemoryBudget,
        gap_guard: SequenceGapGuard,
        config_of: Callable[[Topic], TopicConfig],
        before_removal: BeforeRemoval,
    ) -> None:
        self._dependencies = dependencies
        self.session = session
        self.wal = wal
        self._deadline = SessionDeadline(valid_until)
        self._loop_state = LoopState(dependencies.clock.monotonic())
        self.stored_wal_start = 0
        self.new_leases = asyncio.Event()
        self._deletions: set[asyncio.Task[None]] = set()
        self.logs = SessionLogs(
            dependencies,
            session.session_id,
            wal,
            reader=reader,
            budget=budget,
            gap_guard=gap_guard,
            config_of=config_of,
            on_acquired=self.new_leases.set,
        )
        self._handing_over = asyncio.Lock()
        self._end_reason: StreamhouseError | None = None
        self._ending = asyncio.Event()
        self._stop_requested = asyncio.Event()
        self._given_up = asyncio.Event()
        self.left_behind: UnfinishedShutdown | None = None
        self.flusher = Flusher(
            dependencies,
            session.session_id,
            logs=self.logs,
            dropped=self.logs.drop_lost,
            reader=reader,
            budget=budget,
            wal=wal,
        )
        self._closing = SessionShutdown(
            dependencies, session.session_id, wal=wal, flusher=self.flusher, before_removal=before_removal
        )

    def __repr__(self) -> str:
        state = "open" if self._end_reason is None else f"ending why={self._end_reason}"
        return f"<AgentSession {self.session.session_id} node={self.session.node_id} logs={len(self.logs)} {state}>"

    @classmethod
    async def open_session(
        cls,
        dependencies: Dependencies,
        *,
        reader: SegmentReader,
        budget: MemoryBudget,
        gap_guard: SequenceGapGuard,
        config_of: Callable[[Topic], TopicConfig],
        before_removal: BeforeRemoval,
    ) -> "AgentSession":
        """Open a session and its WAL; `config_of` returns the effective settings of a topic, and `before_removal` is
        called before anything of the log is deleted. The lease time counts from before the call, so it always ends
        before the store's."""
        lease = dependencies.settings.lease
        await dependencies.agreed_now_ms()  # so that ages also use the store's clock
        requested_at = dependencies.clock.monotonic()
        session = await dependencies.metadata.open_session(
            NewSession(
                session_id=SessionId(f"s-{dependencies.ids.token()}"),
                kafka=dependencies.kafka,
                http=dependencies.http,
                listeners=dependencies.listeners,
                zone=dependencies.settings.agent.zone,
                ttl_ms=lease.life_ms,
                wal=dependencies.wal_factory.kind,
            )
        )
        try:
            wal = await dependencies.wal_factory.open(
                session.session_id, before_removal=partial(before_removal, session.session_id)
            )
        except BaseException:
            with suppress(StreamhouseError, TimeoutError):
                ending = dependencies.metadata.end_session(session.session_id)
                await limited(ending, seconds=dependencies.settings.agent.close_timeout_s, clock=dependencies.clock)
            raise
        valid_until = requested_at + lease.usable_s
        return cls(
            dependencies,
            session,
            wal,
            valid_until=valid_until,
            reader=reader,
            budget=budget,
            gap_guard=gap_guard,
            config_of=config_of,
            before_removal=before_removal,
        )

    # --- validity

    @property
    def is_valid(self) -> bool:
        """Whether the leases are valid by the agent's monotonic clock; never again after the session is lost."""
        return self._deadline.is_valid(self._dependencies.clock.monotonic())

    @property
    def may_lead(self) -> bool:
        """Whether this agent may be advertised as a leader."""
        return self.is_valid and self._end_reason is None

    @property
    def end_reason(self) -> StreamhouseError | None:
        return self._end_reason

    def require_valid(self, name: TopicPartition) -> None:
        """Raise unless an append to `name` may be accepted or acknowledged now."""
        if not self.is_valid:
            raise LeaseLost([name], why="the heartbeat is late")

    def may_acknowledge(self, item: PartitionLog) -> bool:
        """Whether a durable append of this log may be acknowledged: the log is open and its lease valid."""
        return self.is_valid and item in self.logs

    async def transfer(self, logs: Sequence[PartitionLog], new_leaders: Mapping[TopicPartition, Retriable]) -> int:
        """Transfer leases to `new_leaders`: flush while appends continue, then reject appends with the new leader,
        flush the rest and release the leases. Returns their number: without those that a session's end left behind."""
        # A lease that was released and acquired again must not be released by the first transfer.
        async with self._handing_over:
            await self.flusher.flush_once(logs)
            for item in logs:
                item.close(new_leaders[item.name])
            await self._quiesce()
            for item in logs:
                self.logs.seal(item)
            await self.flusher.flush_all(logs)
            return await self.logs.release(
                logs, LeaseLost([item.name for item in logs], why="another agent leads it now")
            )

    # --- lifecycle

    async def run(self) -> None:
        """Keep the session alive until it ends, then close its logs. Returns when the session is over."""
        try:
            async with asyncio.TaskGroup() as loops:
                heartbeat = loops.create_task(self._heartbeat(), name="heartbeat")
                watch = loops.create_task(self._watch_wal(), name="wal-watch")
                flush = loops.create_task(self._flush(), name="flush")
                reserve = loops.create_task(self.logs.leases.reservations.run(), name="reserve")
                expiry = loops.create_task(self._watch_expiry(), name="expiry")
                await self._ending.wait()
                await self._close(flush, heartbeat)
                await self.logs.aclose()
                for task in (heartbeat, watch, flush, reserve, expiry):
                    task.cancel()
        finally:
            await self.flusher.aclose()

    @asynccontextmanager
    async def heartbeating(self) -> AsyncIterator[None]:
        """Send heartbeats before `run`: recovering dead sessions may take longer than a session's lease time."""
        heartbeat = asyncio.get_running_loop().create_task(self._heartbeat(), name="heartbeat")
        try:
            yield
        finally:
            heartbeat.cancel()
            await asyncio.gather(heartbeat, return_exceptions=True)

    async def discard(self) -> None:
        """End a session that never ran; its log is empty. Recovery handles what can't be ended now."""
        clock, limit_s = self._dependencies.clock, self._dependencies.settings.agent.close_timeout_s
        with suppress(StreamhouseError, TimeoutError):
            await limited(self.wal.aclose(remove=True), seconds=limit_s, clock=clock)
        with suppress(StreamhouseError, TimeoutError):
            ending = self._dependencies.metadata.end_session(self.session.session_id)
            await limited(ending, seconds=limit_s, clock=clock)

    def stop(self) -> None:
        """End gracefully: transfer everything, or leave it in the WAL if that takes too long."""
        self._stop_requested.set()
        self._end(Stopping("the agent is stopping"))

    def lose(self, why: SessionLost) -> None:
        """End at once: write nothing more to the stores, and leave the WAL in place."""
        self._end(why)

    def cut_off(self) -> None:
        """End because this agent can't reach the object store while others can: they take over its leases if they can
        read its WAL. With a disk WAL the session continues."""
        if self._dependencies.wal_factory.kind == "object":
            self._given_up.set()
            self._end(LeaseLost([], why="this agent is cut off from the object store"))

    def _end(self, why: StreamhouseError) -> None:
        if isinstance(why, SessionLost):
            self._deadline.lose()
        if self._end_reason is None:
            self._end_reason = why
            self.logs.stop_opening(why)
            self._ending.set()

    async def _heartbeat(self) -> None:
        """Send heartbeats until the session is lost."""
        lease, runner = self._dependencies.settings.lease, self._dependencies.heartbeats
        life = report_alive(
            self._loop_state, self._report_loop_state, clock=self._dependencies.clock, every_s=lease.renew_s / 4
        )
        showing = asyncio.get_running_loop().create_task(life, name="show-life")
        try:
            if runner is not None:
                await runner.run(self._make_heartbeat(asyncio.get_running_loop().call_soon_threadsafe))
            else:
                await self._make_heartbeat(_call).run(self._dependencies.metadata)
        finally:
            showing.cancel()
            await asyncio.gather(showing, return_exceptions=True)

    def _report_loop_state(self, state: LoopState) -> None:
        puts = self._dependencies.puts
        since, soon_s = puts.failing_since, self._dependencies.settings.cluster.refresh_s
        state.wal_start, state.wal_durable = self.wal.first_retained, self.wal.durable_below
        state.put_at = puts.last_at
        state.put_failing = since is not None and self._dependencies.clock.monotonic() - since >= soon_s

    def _make_heartbeat(self, on_loop: Callable[..., object]) -> Heartbeat:
        """Create the heartbeats; `on_loop` calls a function on this event loop from the thread of the heartbeats."""
        return Heartbeat(
            self.session.session_id,
            self._dependencies.settings.lease,
            clock=self._dependencies.clock,
            deadline=self._deadline,
            state=self._loop_state,
            renewed=lambda wal_start: on_loop(self._wal_start_stored, wal_start),
            lost=lambda error: on_loop(self._end, error),
        )

    async def renew(self) -> None:
        """Send one heartbeat now."""
        self._report_loop_state(self._loop_state)
        await self._make_heartbeat(_call).renew(self._dependencies.metadata)

    def _wal_start_stored(self, wal_start: int) -> None:
        """Recovery begins at the mark that a heartbeat has stored."""
        self.stored_wal_start = max(self.stored_wal_start, wal_start)

    def delete_wal_below(self, sequence: int) -> None:
        """Delete WAL objects below `sequence`: recovery begins above it, with every database that is not rejected."""
        deletion = asyncio.get_running_loop().create_task(self.wal.delete_below(sequence), name="forget")
        self._deletions.add(deletion)
        deletion.add_done_callback(self._deletions.discard)

    async def _watch_wal(self) -> None:
        failure = await self.wal.wait_failed()
        if isinstance(failure, SessionSealed):  # other agents recover the session
            self._end(SessionLost(self.session.session_id, why=str(failure)))
        else:
            self._end(AppendFailed(f"write-ahead log failed; why={failure}"))

    async def _watch_expiry(self) -> None:
        """Wake long polls when the leases expire: their clients must look for another leader."""
        was_late = False
        while True:
            left_s = self._deadline.at - self._dependencies.clock.monotonic()
            is_late = left_s <= 0
            if is_late and not was_late:
                log.warning("the heartbeat is late, leases are not acted on", extra={"logs": len(self.logs)})
            was_late = is_late
            if is_late:
                for item in self.logs:
                    item.wake_watchers()
                left_s = self._dependencies.settings.lease.renew_s
            await self._dependencies.clock.sleep(left_s)

    async def _flush(self) -> None:
        try:
            await self.flusher.run()
        except* SessionLost as lost:
            self._end(SessionLost(self.session.session_id, why=str(lost.exceptions[0])))

    async def _close(self, flush: "asyncio.Task[None]", heartbeat: "asyncio.Task[None]") -> None:
        why = self._end_reason
        assert why is not None
        refusal = why if isinstance(why, Retriable) else AppendFailed(str(why))
        for item in self.logs:
            item.close(refusal)
        limit_waiter = self._closing.wait_limit(self._stop_requested, self._given_up)
        limit = asyncio.get_running_loop().create_task(limit_waiter, name="stop-limit")
        try:
            # A lost session acknowledges nothing, and an unavailable store must not delay its end.
            gives_up = isinstance(why, SessionLost) or self._given_up.is_set()
            if not gives_up:
                await self._closing.run_within(self._quiesce(), limit=limit)
            for item in self.logs:
                self.logs.seal(item)
            self.flusher.stop()
            if gives_up or not await self._closing.transfer(flush, limit=limit):
                heartbeat.cancel()  # other agents may take over from now on
                self.left_behind = await self._closing.leave_wal(list(self.logs), is_lost=self._deadline.is_lost)
        finally:
            limit.cancel()
        self.logs.forget_all()

    async def _quiesce(self) -> None:
        """Wait until the WAL is idle: an empty append completes after all earlier ones."""
        try:
            await asyncio.shield(self.wal.append(()))
        except AppendFailed:
            return


def _call(act: Callable[..., object], *args: object) -> None:
    act(*args)
