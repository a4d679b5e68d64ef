"""Holds: a leader keeps partitions still while a commit places segments behind what they have.

Data path   commits -> **holds** (gate shut, everything flushed) -> metadata transaction -> **holds** (log goes on)
Owns        which partitions are held for which commit, and the end of every hold
Leaves      the transaction to `commits`, waiting appends to `partition.backpressure`, giving up leases to
            `agent_session`

Invariant   a partition that was held goes on under its epoch only when the commit's row says what was placed, or when
            whoever asked says that it never will be. A hold that nobody ends costs the lease: the log is opened again
            under a new epoch, and a transaction that is still on its way fails its guard.
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
    asked: FreezeRequest
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
        self._given_up: dict[str, None] = {}
        """Holds that were ended before they had begun: their answer would come too late."""
        self.begun = 0
        self.expired = 0
        self.held_s = 0.0
        """How long holds that are over kept partitions still, from their beginning to their end."""

    def __repr__(self) -> str:
        return f"<PartitionFreezes holds={len(self._holds)} expired={self.expired}>"

    def __len__(self) -> int:
        return len(self._holds)

    # --- beginning

    async def hold(self, asked: FreezeRequest, *, timeout_s: float) -> Sequence[FrozenPartition]:
        """Keep these partitions still until `end`, for `placing.hold_s` at most; all of them or none.

        Raises what is `Retriable`, with nothing held: another agent leads one, another commit has it, or it can't be
        flushed in time. Raises `CommitRefused` for an id that another hold has: whichever came second would never end.
        """
        if asked.hold_id in self._holds or asked.hold_id in self._beginning:
            raise CommitRefused(f"a hold of this id is there already, take another id; hold={asked.hold_id}")
        self._beginning.add(asked.hold_id)
        try:
            return await self._begin(asked, timeout_s=timeout_s)
        finally:
            self._beginning.discard(asked.hold_id)

    async def _begin(self, asked: FreezeRequest, *, timeout_s: float) -> Sequence[FrozenPartition]:
        agent_session = self._current_session()
        shut: list[PartitionLog] = []
        try:
            async with asyncio.timeout(timeout_s):
                await self._open_ahead([wanted.name for wanted in asked.partitions])
                logs = [await self._open(wanted) for wanted in asked.partitions]
                await self._shut(logs, shut)
                await self._flush(agent_session, asked, logs)
            held = [self._held(agent_session, item) for item in logs]
            self._require_wanted(asked)
        except TimeoutError:
            _unfreeze(shut)
            raise PartitionHeld(f"partitions could not be held in time; query={asked.query}") from None
        except BaseException:
            _unfreeze(shut)
            raise
        now = self._dependencies.clock.monotonic()
        hold = _Freeze(
            asked=asked, agent_session=agent_session, logs=logs, since=now, until=now + self._settings.hold_s
        )
        self._holds[asked.hold_id] = hold
        self.begun += 1
        return held

    def _require_wanted(self, asked: FreezeRequest) -> None:
        if asked.hold_id in self._given_up:
            del self._given_up[asked.hold_id]
            raise PartitionHeld(f"the hold was given up before it began; query={asked.query}")

    async def _open(self, wanted: FreezeTarget) -> PartitionLog:
        opened = await self._open_log(wanted.name)
        if opened.partition != wanted.partition:
            raise LeaseLost([wanted.partition], why="the topic was deleted")
        return opened

    async def _shut(self, logs: Sequence[PartitionLog], shut: list[PartitionLog]) -> None:
        """Gates are shut in one order, so that two commits don't wait for each other here."""
        try:
            async with asyncio.timeout(self._dependencies.ids.jitter(self._settings.contend_s)):
                for item in sorted(logs, key=lambda item: item.partition):
                    await item.gate.shut()
                    shut.append(item)
        except TimeoutError:
            raise PartitionHeld(f"another commit has the partition; partition={item.name}") from None

    async def _flush(self, agent_session: AgentSession, asked: FreezeRequest, logs: Sequence[PartitionLog]) -> None:
        """What was taken before the gate was shut becomes durable and flushed; nothing comes behind it."""
        for item, wanted in zip(logs, asked.partitions, strict=True):
            await item.wait_for(item.next_offset)
            item.request_flush(item.next_offset)
            await agent_session.reserve(item, item.next_offset + wanted.offsets)
        agent_session.flusher.flush_now()
        for item in logs:
            await item.wait_flushed(item.next_offset)

    def _held(self, agent_session: AgentSession, item: PartitionLog) -> FrozenPartition:
        if not agent_session.may_acknowledge(item) or item.closed is not None or item.flushed_end != item.next_offset:
            raise LeaseLost([item.name], why="the lease ended while the partition was to be held")
        return FrozenPartition(
            partition=item.partition, holder=agent_session.session.session_id, epoch=item.epoch, end=item.flushed_end
        )

    # --- ending

    async def end(self, hold_id: str, outcome: Outcome) -> None:
        """The commit happened, or it didn't, or nobody knows; no error for a hold that is over."""
        hold = self._holds.get(hold_id)
        if hold is None:
            if len(self._given_up) >= MAX_CANCELLED:
                del self._given_up[next(iter(self._given_up))]
            self._given_up[hold_id] = None
        elif outcome is Outcome.UNUSED:
            self._release(hold)
        elif outcome is Outcome.COMMITTED:
            await self._settle(hold)
        else:
            hold.until = self._dependencies.clock.monotonic()

    async def look(self, query: QueryId, epoch: int) -> None:
        """A commit is known to have happened: whatever is held for it here goes on behind it now."""
        for hold in tuple(self._holds.values()):
            if (hold.asked.query, hold.asked.epoch) == (query, epoch):
                await self._look_at(hold)

    async def run(self) -> None:
        """End holds that nobody ends, until cancelled: a query or an agent that died leaves them."""
        while True:
            await self._dependencies.clock.sleep(self._settings.look_s)
            for hold in tuple(self._holds.values()):
                await self._look_at(hold)

    async def _look_at(self, hold: _Freeze) -> None:
        try:
            await self._settle(hold)
        except Unavailable as error:
            log.warning("can't tell whether a commit has happened", extra={"why": str(error)})
        except Retriable as error:
            log.warning("a hold ended with its session", extra={"why": str(error)})
        if not hold.is_over and self._dependencies.clock.monotonic() >= hold.until:
            await self._expire(hold)

    async def _settle(self, hold: _Freeze) -> None:
        """Go on behind what was placed, if it was."""
        if hold.is_over:
            return
        if all(item.closed is not None for item in hold.logs):
            return self._release(hold)
        found = await self._dependencies.metadata.find_commit(hold.asked.query, hold.asked.epoch)
        if found is not None and not hold.is_over:
            _continue_after(hold.logs, found)
            self._release(hold)

    def _release(self, hold: _Freeze) -> None:
        """Only when nothing of this try can be placed any more, or the logs know what was."""
        if not hold.is_over:
            self._forget(hold)
            _unfreeze(hold.logs)

    def _forget(self, hold: _Freeze) -> None:
        hold.is_over = True
        self._holds.pop(hold.asked.hold_id, None)
        self.held_s += self._dependencies.clock.monotonic() - hold.since

    async def _expire(self, hold: _Freeze) -> None:
        """A transaction may be on its way. Under a new epoch it fails its guard, or has happened before the log is
        opened again."""
        self._forget(hold)
        self.expired += 1
        logs = [item for item in hold.logs if item.closed is None]
        log.warning(
            "a commit left partitions held; their logs are opened again",
            extra={"query": hold.asked.query, "epoch": hold.asked.epoch, "partitions": len(logs)},
        )
        why = PartitionHeld(f"a commit was left unfinished; query={hold.asked.query} epoch={hold.asked.epoch}")
        try:
            await hold.agent_session.transfer(logs, {item.name: why for item in logs})
        except Retriable as error:  # the session is over, and with it every lease
            log.warning("a hold ended with its session", extra={"why": str(error)})


def _continue_after(logs: Sequence[PartitionLog], found: StoredCommit) -> None:
    """What was placed at a log's end is part of it now. A try whose work another one did finds nothing there."""
    ranges = {each.partition: each for each in found.placed}
    for item in logs:
        placed = ranges.get(item.partition)
        if placed is not None and item.closed is None and placed.base == item.next_offset:
            item.placed(placed.end)


def _unfreeze(logs: Sequence[PartitionLog]) -> None:
    for item in logs:
        if item.gate.is_shut:
            item.gate.open()
