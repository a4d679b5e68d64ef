"""Marking: the ends of transactions are written into the partitions that this agent leads.

Data path   WriteTxnMarkers, ending -> **marking** -> log -> WAL
Owns        that a marker is durable, under a lease that still holds, before anybody is told so
Leaves      which marker is taken and which one came before to `log`, leases to `open_partitions` and `agent_session`

A marker isn't admitted by the memory budget as records are: it ends what holds readers back, and it is small.
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
"""What became of each partition; None: its marker is durable."""


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

        With `only_due`, one whose transaction is over is refused also where the partition can't know that.
        """
        wanted = list(dict.fromkeys(names))
        await self._open_ahead(wanted)
        expected = ids or {}
        row = _ProducerRow(marker, metadata=self._metadata) if only_due else None
        answers = await asyncio.gather(*(self._try(marker, name, expected.get(name), row) for name in wanted))
        return dict(zip(wanted, answers, strict=True))

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
        if not opened.gate.is_open:
            await opened.gate.wait()
        if expected is not None and opened.partition != expected:
            raise UnknownTopic(name)
        await self.write(opened, marker)

    async def write(self, opened: PartitionLog, marker: Marker) -> None:
        """Place a marker in a log whose gate is open, before anything else happens; durable when it returns."""
        self._current_session().require_valid(opened.name)
        placed = self._place(opened, marker)
        await placed.durable()
        if not self._current_session().may_acknowledge(placed.log):
            raise AppendFailed(f"lease ended before the marker was acknowledged; partition={opened.name}")

    def _place(self, opened: PartitionLog, marker: Marker) -> PendingAppend:
        before = opened.tail_bytes
        placed = opened.append_marker(marker, now=self._clock.monotonic(), now_ms=self._clock.now_ms())
        self._budget.take(opened.tail_bytes - before)  # the flusher gives back what leaves the tail
        self.written += placed.commit is not None
        return placed


class _ProducerRow:
    """What the producer's row says of a marker: asked for once, however many partitions want to know.

    A partition forgets producers that are silent for long, or when there are too many others. A marker that was on its
    way all the time would then end whatever its producer has begun since.
    """

    def __init__(self, marker: Marker, *, metadata: MetadataStore) -> None:
        self._marker = marker
        self._metadata = metadata
        self._asking = asyncio.Lock()
        self._is_asked = False
        self._refusal: StreamhouseError | None = None

    async def require_due(self) -> None:
        """Raise `MarkerFenced` if the marker's transaction has been over for long."""
        async with self._asking:
            if not self._is_asked:
                self._refusal = await self._ask()
                self._is_asked = True
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)

    async def _ask(self) -> StreamhouseError | None:
        try:
            row = await self._metadata.transaction_of(self._marker.producer.producer_id)
        except StreamhouseError as error:
            return error
        # Without one, the producer goes on under another id: as this one it begins nothing more.
        if row is None or (row.state.is_prepared and row.number == self._marker.number):
            return None
        return MarkerFenced(f"marker of a transaction that is over; marker={self._marker} number={row.number}")
