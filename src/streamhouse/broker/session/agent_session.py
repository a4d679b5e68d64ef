"""AgentSession: one session of this agent, with its leases, its write-ahead log and its open logs.

Data path   broker -> **agent_session** (may this agent append?) -> partition.log
Owns        the heartbeat; until when leases are valid; which logs are open; why and when the session ends
Leaves      acquiring and releasing leases to `leases`; the last flush to `session_lifecycle`; the WALs of dead
            sessions to `recovery`; opening the next session to `session_manager`

`OpenBatcher` opens logs that are requested at the same time in one step.

Crash-only: when the WAL fails or the session is lost, nothing is repaired in place. The session closes its logs,
flushes acknowledged records from memory (unless the session is lost: then other agents own them), and ends. The next
session starts from what is durable.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.heartbeat import Heartbeat, LoopState, SessionDeadline, report_alive
from streamhouse.broker.partition.backpressure import MemoryBudget
from streamhouse.broker.partition.log import PartitionLog
from streamhouse.broker.partition.sequence_gaps import SequenceGapGuard
from streamhouse.broker.segments.reader import SegmentReader
from streamhouse.broker.session.flush import Flusher
from streamhouse.broker.session.leases import AcquiredLease, Leases
from streamhouse.broker.session.session_lifecycle import BeforeRemoval, SessionShutdown, UnfinishedShutdown
from streamhouse.broker.wal.base import Wal
from streamhouse.clock import limited
from streamhouse.errors import (
    AppendFailed,
    Internal,
    InvalidConfig,
    LeaseLost,
    Retriable,
    SessionLost,
    SessionSealed,
    Stopping,
    StreamhouseError,
    Unavailable,
)
from streamhouse.model.cluster import Session
from streamhouse.model.names import PartitionId, SessionId, TopicId, TopicPartition
from streamhouse.model.topic import Topic, TopicConfig
from streamhouse.model.topic_settings import MAX_LONG
from streamhouse.stores.metadata.base import NewSession

log = logging.getLogger(__name__)

MAX_TOGETHER: Final = 1000

K = TypeVar("K", bound=Hashable)
A = TypeVar("A")
V = TypeVar("V")


class _OpenRequest(NamedTuple, Generic[A, V]):
    about: A
    done: "asyncio.Future[V]"


class OpenBatcher(Generic[K, A, V]):
    """Opens logs in batches: requests that arrive while a batch is being opened are opened together in the next one."""

    def __init__(self, open_many: Callable[[Mapping[K, A]], Awaitable[Mapping[K, V | StreamhouseError]]]) -> None:
        self._open_many = open_many
        self._waiting: dict[K, _OpenRequest[A, V]] = {}
        self._under_way: dict[K, _OpenRequest[A, V]] = {}
        self._worker: asyncio.Task[None] | None = None
        self._closed: StreamhouseError | None = None

    def __repr__(self) -> str:
        return f"<OpenBatcher waiting={len(self._waiting)} under_way={len(self._under_way)}>"

    def pending(self) -> list[tuple[K, "asyncio.Future[V]"]]:
        """Logs that are being opened or queued."""
        return [(key, request.done) for key, request in (*self._under_way.items(), *self._waiting.items())]

    async def open(self, key: K, about: A) -> V:
        """Open one log; cancelling a waiter doesn't affect the others."""
        if self._closed is not None:
            raise self._closed.with_traceback(None)
        request = self._under_way.get(key) or self._waiting.get(key)
        if request is None:
            request = self._waiting[key] = _OpenRequest(about, asyncio.get_running_loop().create_future())
            if self._worker is None:
                self._worker = asyncio.get_running_loop().create_task(self._work(), name="opening")
        return await asyncio.shield(request.done)

    async def aclose(self, why: StreamhouseError) -> None:
        """Stop opening logs: all waiters get `why`, and no task is left."""
        self._closed = why  # a late request would start a new task
        self._refuse_pending(why)
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)

    async def _work(self) -> None:
        # Starts in the next turn of the event loop, so that requests of this turn join.
        try:
            while self._waiting:
                keys = list(self._waiting)[:MAX_TOGETHER]
                self._under_way = {key: self._waiting.pop(key) for key in keys}
                await self._open_batch(self._under_way)
                self._under_way = {}
        finally:
            self._worker = None
            # Never a cancellation: waiters would treat it as their own, and their clients would get no response.
            self._refuse_pending(Unavailable("logs are not opened any more"))

    def _refuse_pending(self, why: StreamhouseError) -> None:
        for _, done in self.pending():
            if not done.done():
                done.set_exception(why)
                done.exception()  # there may be no waiter left

    async def _open_batch(self, together: Mapping[K, _OpenRequest[A, V]]) -> None:
        results: Mapping[K, V | StreamhouseError]
        try:
            opened = await self._open_many({key: request.about for key, request in together.items()})
            results = {key: opened[key] for key in together}
        except StreamhouseError as error:
            results = dict.fromkeys(together, error)
        except Exception as error:
            log.exception("opening logs failed", extra={"logs": len(together)})
            results = dict.fromkeys(together, Internal(f"opening a log failed; why={type(error).__name__}: {error}"))
        for key, (_, done) in together.items():
            answer = results[key]
            if done.done():
                continue
            if isinstance(answer, StreamhouseError):
                done.set_exception(answer)
                done.exception()  # there may be no waiter left
            else:
                done.set_result(answer)


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
        self._reader = reader
        self._budget = budget
        self._gap_guard = gap_guard
        self._config_of = config_of
        self._deadline = SessionDeadline(valid_until)
        self._loop_state = LoopState(dependencies.clock.monotonic())
        self.stored_wal_start = 0
        self.new_leases = asyncio.Event()
        self._forgetting: set[asyncio.Task[None]] = set()
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._leases = Leases(dependencies, session.session_id, reader=reader)
        self._opening = OpenBatcher(self._open_many)
        self._leasing = asyncio.Lock()
        self._handing_over = asyncio.Lock()
        self._end_reason: StreamhouseError | None = None
        self._ending = asyncio.Event()
        self._stop_asked = asyncio.Event()
        self._given_up = asyncio.Event()
        self.left_behind: UnfinishedShutdown | None = None
        self.flusher = Flusher(
            dependencies,
            session.session_id,
            logs=self.logs,
            dropped=self._drop_lost,
            reader=reader,
            budget=budget,
            wal=wal,
        )
        self._closing = SessionShutdown(
            dependencies, session.session_id, wal=wal, flusher=self.flusher, before_removal=before_removal
        )

    def __repr__(self) -> str:
        state = "open" if self._end_reason is None else f"ending why={self._end_reason}"
        return f"<AgentSession {self.session.session_id} node={self.session.node_id} logs={len(self._logs)} {state}>"

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
        asked_at = dependencies.clock.monotonic()
        session = await dependencies.metadata.open_session(
            NewSession(
                session_id=SessionId(f"s-{dependencies.ids.token()}"),
                kafka=dependencies.kafka,
                http=dependencies.http,
                listeners=dependencies.listeners,
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
        valid_until = asked_at + lease.usable_s
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

    def logs(self) -> Iterable[PartitionLog]:
        return self._logs.values()

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
        return self.is_valid and self._logs.get(item.name) is item

    # --- opening and closing logs

    def find_log(self, name: TopicPartition) -> PartitionLog | None:
        return self._logs.get(name)

    async def open_log(self, topic: Topic, partition: int) -> PartitionLog:
        """The partition's log, opened under a lease of this session if it isn't open yet."""
        name = TopicPartition(topic.name, partition)
        if (log_open := self.find_open(name, topic)) is not None:
            return log_open
        return await self._opening.open(PartitionId(topic.topic_id, partition), topic)

    def find_open(self, name: TopicPartition, topic: Topic) -> PartitionLog | None:
        """The log if it is open and the name still means the same topic."""
        candidate = self._logs.get(name)
        return candidate if candidate is not None and candidate.partition.topic_id == topic.topic_id else None

    async def _open_many(
        self, topics: Mapping[PartitionId, Topic]
    ) -> Mapping[PartitionId, PartitionLog | StreamhouseError]:
        async with self._leasing:
            names = {at: TopicPartition(topic.name, at.partition) for at, topic in topics.items()}
            results: dict[PartitionId, PartitionLog | StreamhouseError] = {
                at: opened for at, topic in topics.items() if (opened := self.find_open(names[at], topic)) is not None
            }
            missing = [at for at in topics if at not in results]
            self._require_open(missing)
            taken = await self._leases.acquire({at: names[at] for at in missing})
            ours = {at: state for at, state in taken.items() if not isinstance(state, StreamhouseError)}
            # Only after acquiring the lease: a stale request may be for an earlier topic of this name.
            await self._drop_namesakes([names[at] for at in ours])
            self._require_open(list(ours))
            results |= {at: state for at, state in taken.items() if isinstance(state, StreamhouseError)}
            results |= {at: self._made(names[at], state, topics[at]) for at, state in ours.items()}
            if ours:
                self.new_leases.set()
            return results

    async def _drop_namesakes(self, names: Sequence[TopicPartition]) -> None:
        stale = [self._logs[name] for name in names if name in self._logs]
        if stale:
            why = LeaseLost([item.name for item in stale], why="another topic has the name now")
            await self._drop(stale, why)

    def _made(self, name: TopicPartition, taken: AcquiredLease, topic: Topic) -> PartitionLog:
        opened = PartitionLog(
            name,
            taken.state,
            self._config_of(topic),
            producers=taken.producers,
            wal=self.wal,
            reserve=self._leases.reservations.of(taken.state.partition),
            aborted=taken.aborted,
            aborted_kept=self._dependencies.settings.transactions.aborted_kept,
        )
        self._logs[name] = opened
        return opened

    def _require_open(self, partitions: Sequence[PartitionId]) -> None:
        if self._end_reason is not None:
            raise LeaseLost(partitions, why=f"the session is ending: {self._end_reason}")

    async def configure(self, name: str, find: Callable[[str], Awaitable[Topic]]) -> None:
        """Apply the settings of `find` to the open logs of a topic, including logs that are being opened."""
        topic = await find(name)
        if opening := [done for at, done in self._opening.pending() if at.topic_id == topic.topic_id]:
            await asyncio.wait(opening)
            topic = await find(name)
        config = self._config_of(topic)
        for item in self.logs():
            if item.partition.topic_id == topic.topic_id:
                item.config = config

    async def transfer(self, logs: Sequence[PartitionLog], new_leaders: Mapping[TopicPartition, Retriable]) -> int:
        """Transfer leases to `new_leaders`: flush while appends continue, then reject appends with the new leader,
        flush the rest and release the leases. Returns their number: without those that a session's end left behind."""
        async with (
            self._handing_over
        ):  # a lease that was released and acquired again must not be released by the first transfer
            await self.flusher.flush_once(logs)
            for item in logs:
                item.close(new_leaders[item.name])
            await self._quiesce()
            for item in logs:
                self._seal(item)
            await self.flusher.flush_all(logs)
            ours = [item for item in logs if self._logs.get(item.name) is item]
            await self._leases.release([item.partition for item in ours])
            await self._drop(ours, LeaseLost([item.name for item in ours], why="another agent leads it now"))
            return len(ours)

    async def reserve(self, item: PartitionLog, end: int) -> None:
        """Reserve offsets up to `end` for a log of this session, if the WAL needs reservations."""
        await self._leases.reservations.ensure(item.reserve, end)

    def unopened(self) -> Mapping[PartitionId, TopicPartition]:
        """Leases that were, or may have been, acquired for logs that then could not be opened."""
        return {partition: name for partition, name in self._leases.names().items() if name not in self._logs}

    async def release_unopened(self, partition: PartitionId, name: TopicPartition) -> None:
        """Release such a lease, unless its log is open by now: otherwise no other agent could lead during this
        session."""
        async with self._leasing:
            if name not in self._logs:
                await self._leases.release_one(partition)

    def configure_all(self, known: Callable[[TopicId], Topic | None]) -> None:
        """Apply the effective settings to all open logs. Logs that are being opened read them at the end."""
        configs: dict[TopicId, TopicConfig] = {}
        for item in self.logs():
            topic_id = item.partition.topic_id
            if topic_id not in configs and (topic := known(topic_id)) is not None:
                with suppress(InvalidConfig):  # settings of a newer release: keep the current ones
                    configs[topic_id] = self._config_of(topic)
            item.config = configs.get(topic_id, item.config)

    async def drop_topic(self, topic: Topic) -> None:
        """Drop the logs of a deleted topic with their records."""
        gone = [item for item in self.logs() if item.partition.topic_id == topic.topic_id]
        names = [item.name for item in gone]
        await self._drop(gone, LeaseLost(names, why="the topic was deleted"))

    async def drop_unknown(self, known: Callable[[TopicId], Topic | None]) -> None:
        """Drop the logs of topics that other agents deleted."""
        gone = [item for item in self.logs() if known(item.partition.topic_id) is None]
        if gone:
            await self._drop(gone, LeaseLost([item.name for item in gone], why="the topic was deleted"))

    async def _drop_lost(self, lost: PartitionLog, why: LeaseLost) -> None:
        log.warning("lease lost, log dropped", extra={"partition": str(lost.name), "epoch": lost.epoch})
        await self._drop([lost], why)

    async def _drop(self, gone: Sequence[PartitionLog], why: Retriable) -> None:
        """Close and remove logs. By identity, not by name: a topic of the same name may have been created and opened
        meanwhile."""
        for item in gone:
            if self._logs.get(item.name) is item:
                del self._logs[item.name]
                self._leases.forget(item.partition)
            item.close(why)
            self._seal(item)
            self._budget.release(item.drop_tail())
            self._reader.runs.forget(item.partition)
        await self.wal.truncate({item.partition: MAX_LONG for item in gone})

    def _seal(self, item: PartitionLog) -> None:
        """Seal a closed log. Its batches in flight were not acknowledged, so clients send them again: until then, no
        later batch of the same producer may be stored."""
        item.seal()
        self._gap_guard.rejected(item.name, item.refused, now=self._dependencies.clock.monotonic())

    # --- lifecycle

    async def run(self) -> None:
        """Keep the session alive until it ends, then close its logs. Returns when the session is over."""
        try:
            async with asyncio.TaskGroup() as loops:
                heartbeat = loops.create_task(self._heartbeat(), name="heartbeat")
                watch = loops.create_task(self._watch_wal(), name="wal-watch")
                flush = loops.create_task(self._flush(), name="flush")
                reserve = loops.create_task(self._leases.reservations.run(), name="reserve")
                expiry = loops.create_task(self._watch_expiry(), name="expiry")
                await self._ending.wait()
                await self._close(flush, heartbeat)
                await self._opening.aclose(LeaseLost([], why=f"the session is ending: {self._end_reason}"))
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
        self._stop_asked.set()
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
            self._ending.set()

    async def _heartbeat(self) -> None:
        """Send heartbeats until the session is lost."""
        lease, runner = self._dependencies.settings.lease, self._dependencies.heartbeats
        life = report_alive(
            self._loop_state, self._tell_heartbeat, clock=self._dependencies.clock, every_s=lease.renew_s / 4
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

    def _tell_heartbeat(self, state: LoopState) -> None:
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
        self._tell_heartbeat(self._loop_state)
        await self._make_heartbeat(_call).renew(self._dependencies.metadata)

    def _wal_start_stored(self, wal_start: int) -> None:
        """Recovery begins at the mark that a heartbeat has stored."""
        self.stored_wal_start = max(self.stored_wal_start, wal_start)

    def delete_wal_below(self, sequence: int) -> None:
        """Delete WAL objects below `sequence`: recovery begins above it, with every database that is not rejected."""
        forgetting = asyncio.get_running_loop().create_task(self.wal.delete_below(sequence), name="forget")
        self._forgetting.add(forgetting)
        forgetting.add_done_callback(self._forgetting.discard)

    async def _watch_wal(self) -> None:
        failure = await self.wal.wait_failed()
        log.error("write-ahead log failed", extra={"session": self.session.session_id, "why": str(failure)})
        if isinstance(failure, SessionSealed):  # other agents recover the session
            self._end(SessionLost(self.session.session_id, why=str(failure)))
        else:
            self._end(AppendFailed(f"write-ahead log failed; why={failure}"))

    async def _watch_expiry(self) -> None:
        """Wake long polls when the leases expire: their clients must look for another leader."""
        while True:
            left_s = self._deadline.at - self._dependencies.clock.monotonic()
            if left_s <= 0:
                log.warning("the heartbeat is late, leases are not acted on", extra={"logs": len(self._logs)})
                for item in self.logs():
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
        for item in self.logs():
            item.close(refusal)
        limit_waiter = self._closing.wait_limit(self._stop_asked, self._given_up)
        limit = asyncio.get_running_loop().create_task(limit_waiter, name="stop-limit")
        try:
            # A lost session acknowledges nothing, and an unavailable store must not delay its end.
            gives_up = isinstance(why, SessionLost) or self._given_up.is_set()
            if not gives_up:
                await self._closing.run_within(self._quiesce(), limit=limit)
            for item in self.logs():
                self._seal(item)
            self.flusher.stop()
            if gives_up or not await self._closing.transfer(flush, limit=limit):
                heartbeat.cancel()  # other agents may take over from now on
                self.left_behind = await self._closing.leave_wal(list(self.logs()), is_lost=self._deadline.is_lost)
        finally:
            limit.cancel()
        self._forget_all()

    def _forget_all(self) -> None:
        """Drop all leases and logs, so that a transfer in progress does nothing more: WAL and leases belong to the
        recovering agent."""
        gone = list(self.logs())
        self._logs.clear()
        self._leases.forget_all()
        for item in gone:
            self._budget.release(item.drop_tail())

    async def _quiesce(self) -> None:
        """Wait until the WAL is idle: an empty append completes after all earlier ones."""
        try:
            await asyncio.shield(self.wal.append(()))
        except AppendFailed:
            return


def _call(act: Callable[..., object], *args: object) -> None:
    act(*args)
