"""Acknowledgements: acks=buffered in the background, and waiting for the flush for acks=stored.

`BufferedAcks` sends what its publisher no longer waits for, limits it, and counts failures. `FlushWaiter` waits until
a registered segment holds a record: by the log where this agent leads, otherwise by one read of the metadata store
per interval for all waiters.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.forwarding.leader_lookup import LocalBroker
from streamhouse.broker.partition.log import PendingAppend
from streamhouse.errors import AppendFailed, Retriable, StreamhouseError, Unavailable, UnknownTopic
from streamhouse.limits import FifoLimiter
from streamhouse.model.cluster import PartitionState
from streamhouse.model.names import PartitionId, TopicPartition

log = logging.getLogger(__name__)

CLOSE_S: Final = 1.0


class BufferedAcks:
    def __init__(self, dependencies: Dependencies) -> None:
        settings = dependencies.settings.peers
        self._limiter = FifoLimiter(
            "records with acks=buffered for other agents",
            max_items=settings.max_waiting,
            max_bytes=settings.max_buffered_bytes,
            max_waiting=settings.max_waiting,
        )
        self._work: set[asyncio.Task[None]] = set()
        self.lost_records = 0
        """Records that were accepted with acks=buffered and failed, or may have failed, after that."""

    def __repr__(self) -> str:
        return f"<BufferedAcks under_way={len(self._work)} lost={self.lost_records}>"

    def watch(self, pending: PendingAppend, records: int) -> None:
        """Count the records as lost if their append to this agent's log fails."""
        if pending.commit is not None:
            pending.commit.add_done_callback(lambda done: self._committed(done, records))

    def _committed(self, done: "asyncio.Future[None]", records: int) -> None:
        if done.cancelled() or done.exception() is not None:
            self.lost_records += records

    async def send(self, size_bytes: int, records: int, delivery: Coroutine[object, object, object]) -> None:
        """Start the delivery; waits only while too many bytes are in flight."""
        try:
            await self._limiter.enter(size_bytes)
        except BaseException:
            delivery.close()
            raise
        task = asyncio.get_running_loop().create_task(self._deliver(size_bytes, records, delivery), name="buffered")
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _deliver(self, size_bytes: int, records: int, delivery: Coroutine[object, object, object]) -> None:
        delivered = False
        try:
            await delivery
            delivered = True
        except StreamhouseError as error:
            log.warning("records with acks=buffered were not delivered", extra={"records": records, "why": str(error)})
        finally:
            self._limiter.leave(size_bytes)
            if not delivered:
                self.lost_records += records

    async def aclose(self) -> None:
        """Wait a moment for deliveries in flight; cancel the rest and count their records as lost."""
        if self._work:
            await asyncio.wait(self._work, timeout=CLOSE_S)
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)


RUNS: Final = 100


class _Waiting(NamedTuple):
    name: TopicPartition
    partition: PartitionId
    end: int
    epoch: int
    reached: "asyncio.Future[None]"


class FlushWaiter:
    def __init__(self, dependencies: Dependencies, here: LocalBroker) -> None:
        self._dependencies = dependencies
        self._here = here
        self._waiting: set[_Waiting] = set()
        self._checking: asyncio.Task[None] | None = None
        self.looks = 0

    def __repr__(self) -> str:
        return f"<FlushWaiter waiting={len(self._waiting)} looks={self.looks}>"

    async def wait(self, name: TopicPartition, partition: PartitionId, end: int, *, epoch: int) -> None:
        """Return once segments hold everything below `end`, acknowledged under `epoch` (-1: unknown)."""
        agent_session = self._here.agent_session
        opened = agent_session.logs.find(name) if agent_session is not None else None
        if opened is not None and opened.partition == partition and opened.epoch == epoch:
            try:
                return await opened.wait_flushed(end)
            except Retriable:
                pass  # this agent leads no more: the next leader flushes the rest
        await self._watch(name, partition, end, epoch)

    async def _watch(self, name: TopicPartition, partition: PartitionId, end: int, epoch: int) -> None:
        waiting = _Waiting(name, partition, end, epoch, asyncio.get_running_loop().create_future())
        self._waiting.add(waiting)
        if self._checking is None:
            self._checking = asyncio.get_running_loop().create_task(self._check(), name="stored")
        try:
            await waiting.reached
        finally:
            self._waiting.discard(waiting)

    async def _check(self) -> None:
        """Read the metadata store once per interval, until no call waits."""
        try:
            while self._waiting:
                with suppress(Unavailable):  # waiting calls have their own deadlines
                    await self._check_once()
                await self._dependencies.clock.sleep(self._dependencies.settings.records.stored_look_s)
        finally:
            self._checking = None

    async def _check_once(self) -> None:
        waiting = list(self._waiting)
        self.looks += 1
        topics = list(dict.fromkeys(each.partition.topic_id for each in waiting))
        states = {state.partition: state for state in await self._dependencies.metadata.partitions(topics)}
        doubtful: dict[PartitionId, list[_Waiting]] = {}
        for each in waiting:
            state = states.get(each.partition)
            if state is None:
                _resolve_one(each, UnknownTopic(each.name))
            elif state.flushed_end >= each.end:
                if state.epoch == each.epoch:
                    _resolve_one(each, None)
                else:
                    doubtful.setdefault(each.partition, []).append(each)
        for partition, those in doubtful.items():
            await self._resolve(states[partition], those)

    async def _resolve(self, state: PartitionState, waiting: Sequence[_Waiting]) -> None:
        """Resolve waits of a partition that has another leader now. If the old leader's disk is lost, so are its last
        records, and the log continues behind their offsets: then no run holds them. One read serves all waits; those
        beyond its last run are left for the next one."""
        first = min(each.end for each in waiting) - 1
        runs = await self._dependencies.metadata.runs(state.partition, from_offset=first, limit=RUNS)
        known = runs[-1].end if len(runs) == RUNS else state.flushed_end
        for each in waiting:
            last = each.end - 1
            if last < state.log_start or any(run.base <= last < run.end for run in runs):
                _resolve_one(each, None)
            elif last < known:
                text = f"the record was lost with its leader's disk; partition={each.name} offset={last}"
                _resolve_one(each, AppendFailed(text))

    async def aclose(self) -> None:
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)
        for each in self._waiting:
            _resolve_one(each, Unavailable("the agent is stopping"))


def _resolve_one(waiting: _Waiting, error: StreamhouseError | None) -> None:
    if waiting.reached.done():
        return
    if error is None:
        waiting.reached.set_result(None)
    else:
        waiting.reached.set_exception(error)
