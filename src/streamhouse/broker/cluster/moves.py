"""Moves: what another agent should lead is handed over to it.

Data path   none; it gives away the right to append
Owns        when a partition or a shard of groups leaves this agent, and how many leave at once
Leaves      who should lead to `cluster`, closing and flushing to `tenure`, groups to `groups`

No data moves: the log is flushed, its lease released, and the next leader reads what is in the store.
"""

import asyncio
import logging
from collections.abc import Awaitable, Iterator, Sequence
from itertools import islice

from streamhouse.broker.cluster.cluster import Cluster, Leader
from streamhouse.broker.doors import Doors
from streamhouse.broker.groups import Groups
from streamhouse.broker.log import PartitionLog
from streamhouse.broker.tenure import Tenure
from streamhouse.clock import Clock, limited
from streamhouse.errors import SessionLost, Stopping, StreamhouseError, Unavailable
from streamhouse.model.lease import Session

log = logging.getLogger(__name__)


class Moves:
    def __init__(self, doors: Doors, *, cluster: Cluster, groups: Groups) -> None:
        self._doors = doors
        self._settings = doors.settings.cluster
        self._cluster = cluster
        self._groups = groups
        self._moving = asyncio.Lock()
        self.handed_over = 0

    def __repr__(self) -> str:
        return f"<Moves handed_over={self.handed_over} {'moving' if self._moving.locked() else 'at rest'}>"

    async def run(self, tenure: Tenure) -> None:
        """Keep what this agent leads in line with what it should lead, until cancelled."""
        if self._doors.alone:
            return
        while True:
            try:
                await self.balance(tenure)
            except (Unavailable, SessionLost, Stopping) as error:
                if tenure.end_reason is not None:  # all of it leaves with the session, one way or the other
                    return
                log.warning("partitions stay where they are for now", extra={"why": str(error)})
            await self._cluster.wait_news(self._settings.refresh_s)

    async def leave(self, tenure: Tenure) -> None:
        """Give everything away before the session ends: clients find the next leaders while this agent still answers.

        Returns when nothing is left; raises when the stores don't let it. Cancelled by whoever loses patience.
        """
        await self._doors.metadata.drain_session(tenure.session.session_id)
        await self._cluster.refresh()
        while tenure.end_reason is None and self._cluster.has_heirs:
            await self.balance(tenure)
            if not any(True for _ in tenure.logs()):
                return
            await self._cluster.wait_news(self._settings.refresh_s)

    async def balance(self, tenure: Tenure) -> None:
        """Hand over what others should lead, and take the groups that this agent should coordinate."""
        async with self._moving:
            await self._groups.balance()
            await self._release_unopened(tenure)
            leaving = await self._leaving(tenure)
            for some in _chunks(leaving, self._settings.moves_at_once):
                await self._hand_over(tenure, some)

    async def _release_unopened(self, tenure: Tenure) -> None:
        unopened = tenure.unopened()
        owners = await self._cluster.owners(list(unopened))
        for partition, name in unopened.items():
            owner = owners[partition]
            if owner is not None and owner.session_id != tenure.session.session_id:
                await tenure.release_unopened(partition, name)

    async def _leaving(self, tenure: Tenure) -> list[tuple[PartitionLog, Session]]:
        logs = list(tenure.logs())
        owners = await self._cluster.owners([item.partition for item in logs])
        return [
            (item, owner)
            for item in logs
            if (owner := owners[item.partition]) is not None and owner.session_id != tenure.session.session_id
        ]

    async def _hand_over(self, tenure: Tenure, leaving: Sequence[tuple[PartitionLog, Session]]) -> None:
        heirs = {item.name: self._cluster.not_leader(item.name, Leader(owner, -1)) for item, owner in leaving}
        logs = [item for item, _ in leaving]
        try:
            await tenure.hand_over(logs, heirs)
        finally:
            for topic_id in {item.partition.topic_id for item in logs}:
                self._cluster.forget_leases(topic_id)
        self.handed_over += len(logs)
        log.info("partitions handed over", extra={"partitions": len(logs)})


def _chunks(
    items: Sequence[tuple[PartitionLog, Session]], size: int
) -> Iterator[Sequence[tuple[PartitionLog, Session]]]:
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


async def within(seconds: float, work: Awaitable[None], *, clock: Clock, what: str) -> None:
    """Do what is good to do before the end, for so long at most; what goes wrong is logged and left."""
    try:
        await limited(work, seconds=seconds, clock=clock)
    except TimeoutError:
        log.warning("not finished in time", extra={"what": what, "seconds": seconds})
    except StreamhouseError as error:
        log.warning("not finished", extra={"what": what, "why": str(error)})
