"""Leases: the partitions that one session may lead, and the state that a new leader needs.

Data path   session, when a log is opened -> **leases** -> metadata store (lease, rows), segments (producers)
Owns        which leases were, or may have been, acquired; releasing them; offset reservations
Leaves      the session's validity and the logs to `agent_session`; snapshots to `segments.producer_snapshots`
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.partition.offset_reservation import OffsetReservations
from streamhouse.broker.partition.producer_state import ProducerTable
from streamhouse.broker.partition.stable_offset import AbortedIndex
from streamhouse.broker.segments.producer_snapshots import load_producers
from streamhouse.broker.segments.reader import SegmentReader
from streamhouse.broker.segments.transaction_isolation import load_aborted
from streamhouse.errors import LeaseHeld, StreamhouseError, Unavailable
from streamhouse.model.cluster import PartitionState
from streamhouse.model.names import PartitionId, SessionId, TopicPartition
from streamhouse.retry import retry

log = logging.getLogger(__name__)


class AcquiredLease(NamedTuple):
    """The state of a partition whose lease was acquired."""

    state: PartitionState
    producers: ProducerTable
    aborted: AbortedIndex


class Leases:
    def __init__(self, dependencies: Dependencies, session_id: SessionId, *, reader: SegmentReader) -> None:
        self._dependencies = dependencies
        self._session_id = session_id
        self._reader = reader
        self._names: dict[PartitionId, TopicPartition] = {}
        self.reservations = OffsetReservations(dependencies, session_id)

    def __repr__(self) -> str:
        return f"<Leases {self._session_id} taken={len(self._names)}>"

    def names(self) -> Mapping[PartitionId, TopicPartition]:
        """The leases that were, or may have been, acquired."""
        return self._names

    async def acquire(
        self, names: Mapping[PartitionId, TopicPartition]
    ) -> Mapping[PartitionId, AcquiredLease | StreamhouseError]:
        """Acquire leases, with the state of producers and transactions that a new leader needs."""
        self._names.update(names)  # also if the response is lost
        acquired = await self._dependencies.metadata.acquire(self._session_id, list(names))
        states = {state.partition: state for state in acquired}
        leases: dict[PartitionId, AcquiredLease | StreamhouseError] = {}
        for at, name in names.items():
            if at not in states:
                self.forget(at)
                leases[at] = LeaseHeld([name], why="another session holds it")
        await self.reservations.begin(states.values())
        return leases | await self._known(states)

    async def _known(
        self, states: Mapping[PartitionId, PartitionState]
    ) -> dict[PartitionId, AcquiredLease | StreamhouseError]:
        metadata, settings = self._dependencies.metadata, self._dependencies.settings
        tables = await load_producers(
            {at: state.flushed_end for at, state in states.items()},
            settings.producers,
            metadata=metadata,
            reader=self._reader,
            log_starts={at: state.log_start for at, state in states.items()},
            now_ms=self._dependencies.agreed_time().later_ms,
        )
        aborted = await load_aborted(states, metadata=metadata, kept=settings.transactions.aborted_kept)
        states = await self._with_log_starts(states)
        return {
            at: table if isinstance(table, StreamhouseError) else AcquiredLease(states[at], table, aborted[at])
            for at, table in tables.items()
        }

    async def _with_log_starts(self, states: Mapping[PartitionId, PartitionState]) -> dict[PartitionId, PartitionState]:
        """The states with the log starts as they are now. The leader before this one may still apply retention: rows of
        aborted transactions go with what is below the log start, so it is read after them."""
        topics = list(dict.fromkeys(at.topic_id for at in states))
        rows = await self._dependencies.metadata.partitions(topics) if topics else ()
        starts = {row.partition: row.log_start for row in rows if row.partition in states}
        return {at: replace(state, log_start=max(state.log_start, starts.get(at, 0))) for at, state in states.items()}

    async def release(self, partitions: Sequence[PartitionId]) -> None:
        """Release these leases; retries until the metadata store answers. Call `forget` afterwards."""
        flush = self._dependencies.settings.flush

        def not_yet(error: Unavailable) -> None:
            log.warning("leases not released yet", extra={"partitions": len(partitions), "why": str(error)})

        if partitions:
            backoff = self._dependencies.backoff(first_s=flush.retry_s, max_s=flush.retry_max_s)
            call = partial(self._dependencies.metadata.release, self._session_id, partitions)
            await retry(call, on=Unavailable, backoff=backoff, before_retry=not_yet)

    async def release_one(self, partition: PartitionId) -> None:
        """Release a lease now, or raise and keep it; does nothing for an unknown one."""
        if partition in self._names:
            await self._dependencies.metadata.release(self._session_id, [partition])
            del self._names[partition]

    def forget(self, partition: PartitionId) -> None:
        self._names.pop(partition, None)

    def forget_all(self) -> None:
        self._names.clear()
