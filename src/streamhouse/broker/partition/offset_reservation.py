"""Offset reservations: a leader with a disk WAL assigns only offsets that the metadata store has reserved for it.

Data path   log -> **offset_reservation** in the step that assigns offsets; reservations are extended in the background
Owns        the reserved end of each lease, when it is extended, and batching of extensions
Leaves      the row and its guard to the metadata store, continuing above a dead leader's reservation to `recovery`

Other agents can't read this agent's disk. If it dies, they continue above its reservation, so no acknowledged offset is
assigned twice. Object WALs and single agents need no reservations.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from uuid import UUID

from streamhouse.broker.dependencies import Dependencies
from streamhouse.errors import LeaseLost, NotReserved, SessionLost, Unavailable
from streamhouse.model.cluster import PartitionState
from streamhouse.model.names import PartitionId, SessionId, TopicId
from streamhouse.model.topic_settings import MAX_LONG

log = logging.getLogger(__name__)


class OffsetReservation:
    """The reserved end of one lease: `require` is called for an append that ends above `extend_at`."""

    __slots__ = ("_ask", "extend_at", "partition", "requested_until", "until")

    def __init__(self, partition: PartitionId, ask: "Callable[[OffsetReservation], None]") -> None:
        self.partition = partition
        self.until = MAX_LONG
        self.extend_at = MAX_LONG
        self.requested_until = 0
        self._ask = ask

    def __repr__(self) -> str:
        limits = f"until={self.until} extend_at={self.extend_at} requested_until={self.requested_until}"
        return f"<OffsetReservation {self.partition} {limits}>"

    def extend(self, until: int, *, ahead: int) -> None:
        """Everything below `until` is reserved; the next extension is requested when half of `ahead` is used."""
        self.until = until
        self.extend_at = until - ahead // 2

    def require(self, end: int) -> None:
        """Request an extension; raises `NotReserved` if an append up to `end` must wait for it."""
        self.requested_until = max(self.requested_until, end)
        self._ask(self)
        if end > self.until:
            raise NotReserved(self.partition, end=end, until=self.until)

    @property
    def is_short(self) -> bool:
        return self.requested_until > self.extend_at


UNLIMITED: Final = OffsetReservation(PartitionId(TopicId(UUID(int=0)), -1), lambda _: None)


class OffsetReservations:
    """The reservations of one session."""

    def __init__(self, dependencies: Dependencies, session_id: SessionId) -> None:
        self._dependencies = dependencies
        self._session_id = session_id
        self._ahead = dependencies.settings.cluster.reserve_offsets
        self._is_needed = dependencies.wal_factory.kind == "disk" and not dependencies.single_agent
        self._begun: dict[PartitionId, OffsetReservation] = {}
        self._requested: dict[PartitionId, OffsetReservation] = {}
        self._wake = asyncio.Event()

    def __repr__(self) -> str:
        return f"<OffsetReservations requested={len(self._requested)} {'needed' if self._is_needed else 'not needed'}>"

    async def begin(self, states: Iterable[PartitionState]) -> None:
        """Reserve offsets for new leases before their first append, in one call. The unused rest of an earlier holder's
        reservation is used: only the row counts."""
        if not self._is_needed:
            return
        reserves: list[OffsetReservation] = []
        for state in states:
            reserve = OffsetReservation(state.partition, self._ask)
            reserve.extend(max(state.reserved_until, state.flushed_end), ahead=self._ahead)
            reserve.requested_until = state.flushed_end + 1
            reserves.append(reserve)
        await self._extend([reserve for reserve in reserves if reserve.is_short])
        self._begun.update((reserve.partition, reserve) for reserve in reserves)

    def of(self, partition: PartitionId) -> OffsetReservation:
        """The reservation of a lease after `begin`."""
        return self._begun.pop(partition) if self._is_needed else UNLIMITED

    async def ensure(self, reserve: OffsetReservation, end: int) -> None:
        """Reserve offsets up to `end`; returns when they are reserved."""
        if end > reserve.until:
            reserve.requested_until = max(reserve.requested_until, end)
            await self._extend([reserve])

    def _ask(self, reserve: OffsetReservation) -> None:
        self._requested[reserve.partition] = reserve
        self._wake.set()

    async def run(self) -> None:
        """Extend reservations that are half used, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not await self._extend_requested():
                # At the interval of failed heartbeats: producers may be waiting for it.
                await self._dependencies.clock.sleep(
                    self._dependencies.ids.jitter(min(1.0, self._dependencies.settings.lease.renew_s))
                )
                self._wake.set()

    async def _extend_requested(self) -> bool:
        """Extend the requested reservations; False if it should be retried. A session that seems lost may only be late:
        its heartbeat decides."""
        requested = [reserve for reserve in self._requested.values() if reserve.is_short]
        self._requested.clear()
        try:
            await self._extend(requested)
        except LeaseLost as error:
            gone = set(error.partitions)
            self._requested |= {each.partition: each for each in requested if each.partition not in gone}
            self._wake.set()
        except (SessionLost, Unavailable) as error:
            log.warning("no offsets reserved yet", extra={"partitions": len(requested), "why": str(error)})
            self._requested |= {each.partition: each for each in requested}
            return False
        return True

    async def _extend(self, reserves: Sequence[OffsetReservation]) -> None:
        if not reserves:
            return
        until = {reserve.partition: reserve.requested_until + self._ahead for reserve in reserves}
        await self._dependencies.metadata.reserve_offsets(self._session_id, until)
        for reserve in reserves:
            reserve.extend(until[reserve.partition], ahead=self._ahead)
