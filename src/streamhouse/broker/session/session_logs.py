"""SessionLogs: the logs that one session has open, each under a lease.

Data path   agent_session -> **session_logs** (the log, opened under a lease) -> partition.log
Owns        which logs are open; opening, configuring and dropping them
Leaves      acquiring and releasing leases to `leases`; whether leases are valid, and transfers, to `agent_session`
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.partition.backpressure import MemoryBudget
from streamhouse.broker.partition.log import PartitionLog
from streamhouse.broker.partition.sequence_gaps import SequenceGapGuard
from streamhouse.broker.segments.reader import SegmentReader
from streamhouse.broker.session.leases import AcquiredLease, Leases
from streamhouse.broker.session.open_batcher import OpenBatcher
from streamhouse.broker.wal.base import Wal
from streamhouse.errors import InvalidConfig, LeaseLost, Retriable, StreamhouseError
from streamhouse.model.names import PartitionId, SessionId, TopicId, TopicPartition
from streamhouse.model.topic import Topic, TopicConfig
from streamhouse.model.topic_settings import MAX_LONG

log = logging.getLogger(__name__)


class SessionLogs:
    def __init__(
        self,
        dependencies: Dependencies,
        session_id: SessionId,
        wal: Wal,
        *,
        reader: SegmentReader,
        budget: MemoryBudget,
        gap_guard: SequenceGapGuard,
        config_of: Callable[[Topic], TopicConfig],
        on_acquired: Callable[[], None],
    ) -> None:
        self._clock = dependencies.clock
        self._aborted_kept = dependencies.settings.transactions.aborted_kept
        self._session_id = session_id
        self._wal = wal
        self._reader = reader
        self._budget = budget
        self._gap_guard = gap_guard
        self._config_of = config_of
        self._on_acquired = on_acquired
        self.leases = Leases(dependencies, session_id, reader=reader)
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._opening = OpenBatcher(self._open_many)
        self._leasing = asyncio.Lock()
        self._end_reason: StreamhouseError | None = None

    def __repr__(self) -> str:
        return f"<SessionLogs {self._session_id} logs={len(self._logs)}>"

    def __len__(self) -> int:
        return len(self._logs)

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(self._logs.values())

    def __contains__(self, item: PartitionLog) -> bool:
        return self._logs.get(item.name) is item

    def find(self, name: TopicPartition) -> PartitionLog | None:
        return self._logs.get(name)

    def find_open(self, name: TopicPartition, topic: Topic) -> PartitionLog | None:
        """The log if it is open and the name still means the same topic."""
        candidate = self._logs.get(name)
        return candidate if candidate is not None and candidate.partition.topic_id == topic.topic_id else None

    async def open(self, topic: Topic, partition: int) -> PartitionLog:
        """The partition's log, opened under a lease of this session if it isn't open yet."""
        name = TopicPartition(topic.name, partition)
        if (log_open := self.find_open(name, topic)) is not None:
            return log_open
        return await self._opening.open(PartitionId(topic.topic_id, partition), topic)

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
            taken = await self.leases.acquire({at: names[at] for at in missing})
            ours = {at: state for at, state in taken.items() if not isinstance(state, StreamhouseError)}
            # Only after acquiring the lease: a stale request may be for an earlier topic of this name.
            await self._drop_namesakes([names[at] for at in ours])
            self._require_open(list(ours))
            results |= {at: state for at, state in taken.items() if isinstance(state, StreamhouseError)}
            results |= {at: self._made(names[at], state, topics[at]) for at, state in ours.items()}
            if ours:
                self._on_acquired()
            return results

    async def _drop_namesakes(self, names: Sequence[TopicPartition]) -> None:
        stale = [self._logs[name] for name in names if name in self._logs]
        if stale:
            why = LeaseLost([item.name for item in stale], why="another topic has the name now")
            await self.drop(stale, why)

    def _made(self, name: TopicPartition, taken: AcquiredLease, topic: Topic) -> PartitionLog:
        opened = PartitionLog(
            name,
            taken.state,
            self._config_of(topic),
            producers=taken.producers,
            wal=self._wal,
            reserve=self.leases.reservations.of(taken.state.partition),
            aborted=taken.aborted,
            aborted_kept=self._aborted_kept,
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
        for item in self:
            if item.partition.topic_id == topic.topic_id:
                item.config = config

    async def reserve(self, item: PartitionLog, end: int) -> None:
        """Reserve offsets up to `end` for a log of this session, if the WAL needs reservations."""
        await self.leases.reservations.ensure(item.reserve, end)

    def unopened(self) -> Mapping[PartitionId, TopicPartition]:
        """Leases that were, or may have been, acquired for logs that then could not be opened."""
        return {partition: name for partition, name in self.leases.names().items() if name not in self._logs}

    async def release_unopened(self, partition: PartitionId, name: TopicPartition) -> None:
        """Release such a lease, unless its log is open by now: otherwise no other agent could lead during this
        session."""
        async with self._leasing:
            if name not in self._logs:
                await self.leases.release_one(partition)

    def configure_all(self, known: Callable[[TopicId], Topic | None]) -> None:
        """Apply the effective settings to all open logs. Logs that are being opened read them at the end."""
        configs: dict[TopicId, TopicConfig] = {}
        for item in self:
            topic_id = item.partition.topic_id
            if topic_id not in configs and (topic := known(topic_id)) is not None:
                with suppress(InvalidConfig):  # settings of a newer release: keep the current ones
                    configs[topic_id] = self._config_of(topic)
            item.config = configs.get(topic_id, item.config)

    async def drop_topic(self, topic: Topic) -> None:
        """Drop the logs of a deleted topic with their records."""
        gone = [item for item in self if item.partition.topic_id == topic.topic_id]
        names = [item.name for item in gone]
        await self.drop(gone, LeaseLost(names, why="the topic was deleted"))

    async def drop_unknown(self, known: Callable[[TopicId], Topic | None]) -> None:
        """Drop the logs of topics that other agents deleted."""
        gone = [item for item in self if known(item.partition.topic_id) is None]
        if gone:
            await self.drop(gone, LeaseLost([item.name for item in gone], why="the topic was deleted"))

    async def drop_lost(self, lost: PartitionLog, why: LeaseLost) -> None:
        log.warning("lease lost, log dropped", extra={"partition": str(lost.name), "epoch": lost.epoch})
        await self.drop([lost], why)

    async def drop(self, gone: Sequence[PartitionLog], why: Retriable) -> None:
        """Close and remove logs. By identity, not by name: a topic of the same name may have been created and opened
        meanwhile."""
        for item in gone:
            if self._logs.get(item.name) is item:
                del self._logs[item.name]
                self.leases.forget(item.partition)
            item.close(why)
            self.seal(item)
            self._budget.release(item.drop_tail())
            self._reader.runs.forget(item.partition)
        await self._wal.truncate({item.partition: MAX_LONG for item in gone})

    def seal(self, item: PartitionLog) -> None:
        """Seal a closed log. Its batches in flight were not acknowledged, so clients send them again: until then, no
        later batch of the same producer may be stored."""
        item.seal()
        self._gap_guard.rejected(item.name, item.refused, now=self._clock.monotonic())

    # --- the end of the session

    def stop_opening(self, why: StreamhouseError) -> None:
        """Open no more logs: the session is ending."""
        self._end_reason = why

    async def aclose(self) -> None:
        """Reject the logs that are being opened."""
        await self._opening.aclose(LeaseLost([], why=f"the session is ending: {self._end_reason}"))

    async def release(self, logs: Sequence[PartitionLog], why: Retriable) -> int:
        """Release the leases of sealed logs and drop them. Returns their number: without those that the session's end
        left behind."""
        ours = [item for item in logs if item in self]
        await self.leases.release([item.partition for item in ours])
        await self.drop(ours, why)
        return len(ours)

    def forget_all(self) -> None:
        """Drop all leases and logs, so that a transfer in progress does nothing more: WAL and leases belong to the
        recovering agent."""
        gone = list(self)
        self._logs.clear()
        self.leases.forget_all()
        for item in gone:
            self._budget.release(item.drop_tail())
