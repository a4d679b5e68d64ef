"""Fates: which batches of transactions on a disk that comes back count, and which were aborted.

Data path   returns, before it appends a batch of a transaction again -> **fates** -> markers in the same log, or rows
            of the metadata store
Owns        what became of a batch's transaction
Leaves      reading the log to `wal.recovery`, appending to `returns`

The marker behind a batch says it, where it is in the same log. Otherwise whoever led next wrote it, and an abort left a
row that reaches back to where the lost records begin. That row comes with the segment in which the marker stands. So
nothing is said before everything is flushed that was there when the transaction was known to have ended.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from streamhouse.broker.doors import Doors
from streamhouse.broker.reading.offsets import FoundOffset
from streamhouse.broker.wal.base import WalEntry
from streamhouse.errors import ConcurrentTransactions, Unavailable
from streamhouse.format.batch import BatchHeader
from streamhouse.format.markers import read_marker
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.transaction import AbortedTransaction, TransactionState


class _End(NamedTuple):
    offset: int
    is_commit: bool


class Fates:
    """Of one log; it is told of all its markers first."""

    def __init__(self, doors: Doors, *, latest: Callable[[TopicPartition], Awaitable[FoundOffset]]) -> None:
        self._metadata = doors.metadata
        self._page = doors.settings.transactions.aborted_kept
        self._latest = latest
        self._ends: dict[tuple[PartitionId, int], list[_End]] = {}
        self._flushed_at: dict[PartitionId, int] = {}
        self.is_told = False

    def __repr__(self) -> str:
        return f"<Fates producers={len(self._ends)}>"

    def tell(self, entries: Iterable[WalEntry]) -> None:
        """The markers of the log, in its order."""
        self.is_told = True
        for entry in entries:
            marker = read_marker(entry.batch)
            at = (entry.partition, marker.producer.producer_id)
            self._ends.setdefault(at, []).append(_End(entry.base, marker.is_commit))

    async def is_void(self, name: TopicPartition, entry: WalEntry, header: BatchHeader) -> bool:
        """Whether the batch's transaction was aborted. Raises `Retriable` while nobody knows."""
        for end in self._ends.get((entry.partition, header.producer_id), ()):
            if end.offset > entry.base:
                return not end.is_commit
        await self._require_ended(entry.partition, header)
        await self._require_flushed(name, entry.partition)
        rows = await self._rows(entry.partition, entry.base)
        return any(each.producer_id == header.producer_id and each.first_offset <= entry.base for each in rows)

    async def _require_ended(self, partition: PartitionId, header: BatchHeader) -> None:
        row = await self._metadata.transaction_of(header.producer_id)
        if row is None or partition not in row.partitions:
            return
        if row.state is TransactionState.ONGOING or row.state.is_prepared:
            raise ConcurrentTransactions(row.transactional_id)

    async def _require_flushed(self, name: TopicPartition, partition: PartitionId) -> None:
        """Raise until that is flushed which was there when this was asked for first."""
        if partition not in self._flushed_at:
            self._flushed_at[partition] = (await self._latest(name)).offset
        states = await self._metadata.partitions([partition.topic_id])
        flushed_end = max((state.flushed_end for state in states if state.partition == partition), default=0)
        if flushed_end < self._flushed_at[partition]:
            raise Unavailable(f"the end of a transaction may not be flushed yet; partition={name}")

    async def _rows(self, partition: PartitionId, offset: int) -> Sequence[AbortedTransaction]:
        """Aborted transactions whose markers stand at `offset` or above."""
        found: list[AbortedTransaction] = []
        while True:
            page = (await self._metadata.aborted({partition: offset}, limit=self._page)).get(partition, ())
            found += page
            if len(page) < self._page:
                return found
            offset = page[-1].last_offset + 1
