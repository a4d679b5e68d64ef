"""PartitionFreezes: a leader takes no appends while an external commit assigns offsets at the end of its partitions.

Data path   coordinator -> **partition_freezes** (appends wait, tail flushed) -> metadata transaction -> unfreeze
Owns        which partitions are frozen for which commit, and the end of every freeze
Leaves      the transaction to `coordinator`; waiting appends to `partition.backpressure`; releasing leases to
            `agent_session`

Invariant   a frozen partition takes appends again under the same epoch only when the commit's row shows its offsets, or
            when the coordinator reports that the commit can never happen. A freeze that is not ended in time costs the
            lease: the log is opened again under a new epoch, so a transaction still in flight fails its guard.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from streamhouse.broker.context import BrokerContext
from streamhouse.broker.partition.log import PartitionLog
from streamhouse.broker.session.agent_session import AgentSession
from streamhouse.errors import CommitRefused, LeaseLost, PartitionHeld, Retriable, Unavailable
from streamhouse.model.external_commit import (
    FreezeRequest,
    FreezeTarget,
    FrozenPartition,
    Outcome,
    QueryId,
    StoredCommit,
)

log = logging.getLogger(__name__)

MAX_CANCELLED: Final = 1000


@dataclass(slots=True, kw_only=True)
class _Freeze:
    request: FreezeRequest
    agent_session: AgentSession
    logs: list[PartitionLog]
    since: float
    until: float
    is_over: bool = False


class PartitionFreezes:
    def __init__(self, context: BrokerContext) -> None:
        self._dependencies = context.dependencies
        self._settings = context.dependencies.settings.placing
        self._open_ahead = context.open_partitions.open_many
        self._open_log = context.open_partitions.open_log
        self._current_session = context.session_manager.current
        self._holds: dict[str, _Freeze] = {}
        self._beginning: set[str] = set()
        self._cancelled: dict[str, None] = {}
        """Freezes that were ended before they began."""
        self.begun = 0
        self.expired = 0
        self.held_s = 0.0
        """Total duration of the freezes that have ended."""

    def __repr__(self) -> str:
        return f"<PartitionFreezes holds={len(self._holds)} expired={self.expired}>"

    def __len__(self) -> int:
        return len(self._holds)

    # --- beginning

    async def hold(self, request: FreezeRequest, *, timeout_s: float) -> Sequence[FrozenPartition]:
        """Freeze these partitions until `end`, for `placing.hold_s` at most; all of them or none.

        Raises `Retriable` errors, with nothing frozen: another agent leads one, another commit has frozen it, or it
        can't be flushed in time. Raises `CommitRefused` if the id is in use.
        """
        if request.hold_id in self._holds or request.hold_id in self._beginning:
            raise CommitRefused(f"the hold id is in use, choose another one; hold={request.hold_id}")
        self._beginning.add(request.hold_id)
        try:
            return await self._begin(request, timeout_s=timeout_s)
        finally:
            self._beginning.discard(request.hold_id)

    async def _begin(self, request: FreezeRequest, *, timeout_s: float) -> Sequence[FrozenPartition]:
        agent_session = self._current_session()
        shut: list[PartitionLog] = []
        try:
            async with asyncio.timeout(timeout_s):
                await self._open_ahead([target.name for target in request.partitions])
                logs = [await self._open(target) for target in request.partitions]
                await self._shut(logs, shut)
                await self._flush(agent_session, request, logs)
            held = [self._held(agent_session, item) for item in logs]
            self._require_not_cancelled(request)
        except TimeoutError:
            _unfreeze(shut)
            raise PartitionHeld(f"partitions could not be frozen in time; query={request.query}") from None
        except BaseException:
            _unfreeze(shut)
            raise
        now = self._dependencies.clock.monotonic()
        hold = _Freeze(
            request=request, agent_session=agent_session, logs=logs, since=now, until=now + self._settings.hold_s
        )
        self._holds[request.hold_id] = hold
        self.begun += 1
        return held

    def _require_not_cancelled(self, request: FreezeRequest) -> None:
        if request.hold_id in self._cancelled:
            del self._cancelled[request.hold_id]
            raise PartitionHeld(f"the freeze was cancelled before it began; query={request.query}")

    async def _open(self, target: FreezeTarget) -> PartitionLog:
        opened = await self._open_log(target.name)
        if opened.partition != target.partition:
            raise LeaseLost([target.partition], why="the topic was deleted")
        return opened

    async def _shut(self, logs: Sequence[PartitionLog], shut: list[PartitionLog]) -> None:
        """Block appends in the order of partitions, so that two commits don't deadlock."""
        try:
            async with asyncio.timeout(self._dependencies.ids.jitter(self._settings.contend_s)):
                for item in sorted(logs, key=lambda item: item.partition):
                    await item.barrier.shut()
                    shut.append(item)
        except TimeoutError:
            raise PartitionHeld(f"another commit has frozen the partition; partition={item.name}") from None

    async def _flush(self, agent_session: AgentSession, request: FreezeRequest, logs: Sequence[PartitionLog]) -> None:
        """Flush what was appended before the freeze."""
        for item, target in zip(logs, request.partitions, strict=True):
            await item.wait_high_watermark(item.next_offset)
            item.request_flush(item.next_offset)
            await agent_session.logs.reserve(item, item.next_offset + target.offsets)
        agent_session.flusher.flush_now()
        for item in logs:
            await item.wait_flushed(item.next_offset)

    def _held(self, agent_session: AgentSession, item: PartitionLog) -> FrozenPartition:
        if not agent_session.may_acknowledge(item) or item.closed is not None or item.flushed_end != item.next_offset:
            raise LeaseLost([item.name], why="the lease ended while the partition was being frozen")
        return FrozenPartition(
            partition=item.partition, holder=agent_session.session.session_id, epoch=item.epoch, end=item.flushed_end
        )

    # --- ending

    async def end(self, hold_id: str, outcome: Outcome) -> None:
        """End a freeze by the outcome of its commit; no error for a freeze that has ended."""
        hold = self._holds.get(hold_id)
        if hold is None:
            if len(self._cancelled) >= MAX_CANCELLED:
                del self._cancelled[next(iter(self._cancelled))]
            self._cancelled[hold_id] = None
        elif outcome is Outcome.UNUSED:
            self._release(hold)
        elif outcome is Outcome.COMMITTED:
            await self._settle(hold)
        else:
            hold.until = self._dependencies.clock.monotonic()

    async def check(self, query: QueryId, epoch: int) -> None:
        """Unfreeze the partitions of a commit that is known to have happened."""
        for hold in tuple(self._holds.values()):
            if (hold.request.query, hold.request.epoch) == (query, epoch):
                await self._look_at(hold)

    async def run(self) -> None:
        """End freezes whose coordinator died, until cancelled."""
        while True:
            await self._dependencies.clock.sleep(self._settings.look_s)
            for hold in tuple(self._holds.values()):
                await self._look_at(hold)

    async def _look_at(self, hold: _Freeze) -> None:
        try:
            await self._settle(hold)
        except Unavailable as error:
            log.warning("outcome of an external commit is unknown", extra={"why": str(error)})
        except Retriable as error:
            log.warning("a partition freeze ended with its session", extra={"why": str(error)})
        if not hold.is_over and self._dependencies.clock.monotonic() >= hold.until:
            await self._expire(hold)

    async def _settle(self, hold: _Freeze) -> None:
        """Unfreeze after the committed offsets, if the commit has happened."""
        if hold.is_over:
            return
        if all(item.closed is not None for item in hold.logs):
            return self._release(hold)
        stored = await self._dependencies.metadata.find_commit(hold.request.query, hold.request.epoch)
        if stored is not None and not hold.is_over:
            _continue_after(hold.logs, stored)
            self._release(hold)

    def _release(self, hold: _Freeze) -> None:
        """Unfreeze; only when this attempt can no longer commit, or the logs know its offsets."""
        if not hold.is_over:
            self._forget(hold)
            _unfreeze(hold.logs)

    def _forget(self, hold: _Freeze) -> None:
        hold.is_over = True
        self._holds.pop(hold.request.hold_id, None)
        self.held_s += self._dependencies.clock.monotonic() - hold.since

    async def _expire(self, hold: _Freeze) -> None:
        """Open the logs again under a new epoch: a transaction still in flight then fails its guard, or has happened
        before."""
        self._forget(hold)
        self.expired += 1
        logs = [item for item in hold.logs if item.closed is None]
        log.warning(
            "external commit left partitions frozen; opening their logs again",
            extra={"query": hold.request.query, "epoch": hold.request.epoch, "partitions": len(logs)},
        )
        why = PartitionHeld(f"a commit was left unfinished; query={hold.request.query} epoch={hold.request.epoch}")
        try:
            await hold.agent_session.transfer(logs, {item.name: why for item in logs})
        except Retriable as error:  # the session is over, and with it every lease
            log.warning("a partition freeze ended with its session", extra={"why": str(error)})


def _continue_after(logs: Sequence[PartitionLog], stored: StoredCommit) -> None:
    """Move the logs' ends past the committed offsets. If another attempt committed, no range starts at a log's end."""
    ranges = {each.partition: each for each in stored.placed}
    for item in logs:
        offsets = ranges.get(item.partition)
        if offsets is not None and item.closed is None and offsets.base == item.next_offset:
            item.external_commit_applied(offsets.end)


def _unfreeze(logs: Sequence[PartitionLog]) -> None:
    for item in logs:
        if item.barrier.is_shut:
            item.barrier.open()
