"""MarkerWriter: writes the markers of transactions into the partitions that this agent leads.

Data path   WriteTxnMarkers, completion -> **markers** -> log -> WAL
Owns        that a marker is durable, under a valid lease, before it is acknowledged
Leaves      whether a marker is accepted or a duplicate to `log`; leases to `open_partitions` and `agent_session`

A marker does not wait for the memory budget as records do: it is small, and it lets the last stable offset advance.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.partition.backpressure import MemoryBudget
from streamhouse.broker.partition.log import PartitionLog, PendingAppend
from streamhouse.broker.session.agent_session import AgentSession
from streamhouse.errors import AppendFailed, MarkerFenced, StreamhouseError, UnknownTopic
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.transaction import Marker
from streamhouse.stores.metadata.base import MetadataStore

Outcomes = Mapping[TopicPartition, StreamhouseError | None]
"""The outcome per partition; None: its marker is durable."""


class MarkerWriter:
    def __init__(
        self,
        dependencies: Dependencies,
        *,
        open_log: Callable[[TopicPartition], Awaitable[PartitionLog]],
        open_many: Callable[[Sequence[TopicPartition]], Awaitable[None]],
        current_session: Callable[[], AgentSession],
        budget: MemoryBudget,
    ) -> None:
        self._clock = dependencies.clock
        self._metadata = dependencies.metadata
        self._open_log = open_log
        self._open_ahead = open_many
        self._current_session = current_session
        self._budget = budget
        self.written = 0

    def __repr__(self) -> str:
        return f"<MarkerWriter written={self.written}>"

    async def mark(
        self,
        marker: Marker,
        names: Sequence[TopicPartition],
        *,
        ids: Mapping[TopicPartition, PartitionId] | None = None,
        only_due: bool = False,
    ) -> Outcomes:
        """Write a marker into each of these partitions; with `ids`, only where the name still means that partition.

        With `only_due`, a marker of a completed transaction is rejected even if the partition has forgotten its
        producer."""
        distinct = list(dict.fromkeys(names))
        await self._open_ahead(distinct)
        expected = ids or {}
        row = _ProducerRow(marker, metadata=self._metadata) if only_due else None
        results = await asyncio.gather(*(self._try(marker, name, expected.get(name), row) for name in distinct))
        return dict(zip(distinct, results, strict=True))

    async def _try(
        self, marker: Marker, name: TopicPartition, expected: PartitionId | None, row: "_ProducerRow | None"
    ) -> StreamhouseError | None:
        try:
            await self._mark(marker, name, expected, row)
        except StreamhouseError as error:
            return error
        return None

    async def _mark(
        self, marker: Marker, name: TopicPartition, expected: PartitionId | None, row: "_ProducerRow | None"
    ) -> None:
        opened = await self._open_log(name)
        if row is not None and opened.may_be_stale(marker):
            await row.require_due()
            opened = await self._open_log(name)
        if not opened.barrier.is_open:
            await opened.barrier.wait()
        if expected is not None and opened.partition != expected:
            raise UnknownTopic(name)
        await self.write(opened, marker)

    async def write(self, opened: PartitionLog, marker: Marker) -> None:
        """Append a marker to a log that takes appends, without a suspension before; durable when it returns."""
        self._current_session().require_valid(opened.name)
        pending = self._append(opened, marker)
        await pending.wait_durable()
        if not (pending.is_flushed or self._current_session().may_acknowledge(pending.log)):
            raise AppendFailed(f"lease ended before the marker was acknowledged; partition={opened.name}")

    def _append(self, opened: PartitionLog, marker: Marker) -> PendingAppend:
        before = opened.tail_bytes
        pending = opened.append_marker(marker, now=self._clock.monotonic(), now_ms=self._clock.now_ms())
        self._budget.take(opened.tail_bytes - before)  # the flusher gives back what leaves the tail
        self.written += pending.commit is not None
        return pending


class _ProducerRow:
    """Whether the producer's row still expects the marker; read once for all partitions.

    A partition forgets producers that are idle for long, or when there are too many. A marker that was in flight all
    the time would then end the producer's next transaction.
    """

    def __init__(self, marker: Marker, *, metadata: MetadataStore) -> None:
        self._marker = marker
        self._metadata = metadata
        self._lock = asyncio.Lock()
        self._is_read = False
        self._error: StreamhouseError | None = None

    async def require_due(self) -> None:
        """Raise `MarkerFenced` if the marker's transaction is complete."""
        async with self._lock:
            if not self._is_read:
                self._error = await self._read()
                self._is_read = True
        if self._error is not None:
            raise self._error.with_traceback(None)

    async def _read(self) -> StreamhouseError | None:
        try:
            row = await self._metadata.transaction_of(self._marker.producer.producer_id)
        except StreamhouseError as error:
            return error
        # Without a row, the producer has another id now: it starts no transaction under this one.
        if row is None or (row.state.is_prepared and row.number == self._marker.number):
            return None
        return MarkerFenced(f"marker of a transaction that is over; marker={self._marker} number={row.number}")
