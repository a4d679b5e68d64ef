"""Transaction isolation of flushed records: stable offsets and aborted transactions.

`StableFlushedOffset` finds up to which offset every transaction has ended within the flushed records. Below it each
transaction has its marker in a segment, and aborted ones have rows that were written with that segment. Readers and
rewriters of segments therefore need no leader; the leader serves the records above it.

`AbortedLookup` finds the aborted transactions that a fetch response must name, from the log or, for old ones,
from the metadata store.
"""

import logging
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.partition.log import PartitionLog
from streamhouse.broker.partition.stable_offset import AbortedIndex, index_aborted
from streamhouse.broker.segments.producer_snapshots import load_producers
from streamhouse.broker.segments.reader import SegmentReader
from streamhouse.errors import OffsetOutOfRange, Retriable, StreamhouseError
from streamhouse.format.batch import Buffer, iter_batches, read_header
from streamhouse.model.cluster import PartitionState
from streamhouse.model.names import PartitionId
from streamhouse.model.transaction import AbortedTransaction
from streamhouse.stores.metadata.base import MetadataStore

log = logging.getLogger(__name__)

PAGE: Final = 1000
"""Aborted transactions of a partition read with one query."""


class StableFlushedOffset:
    def __init__(self, dependencies: Dependencies, *, reader: SegmentReader) -> None:
        self._metadata = dependencies.metadata
        self._producers = dependencies.settings.producers
        self._limit = dependencies.settings.plans.settled_kept
        self._reader = reader
        self._known: OrderedDict[PartitionId, tuple[int, int]] = OrderedDict()
        """Flushed end and last stable flushed offset of recently used partitions."""

    def __repr__(self) -> str:
        return f"<StableFlushedOffset partitions={len(self._known)}>"

    async def end(self, state: PartitionState) -> int:
        """The last stable flushed offset of one partition; raises if its snapshot can't be read."""
        end_offset = (await self._find([state]))[state.partition]
        if isinstance(end_offset, StreamhouseError):
            raise end_offset
        return end_offset

    async def ends(self, states: Iterable[PartitionState]) -> dict[PartitionId, int]:
        """The last stable flushed offsets by partition. With a damaged snapshot it is the log start: the leader serves
        all records. Raises `Retriable`."""
        ends: dict[PartitionId, int] = {}
        for partition, end_offset in (await self._find(states)).items():
            if isinstance(end_offset, Retriable):
                raise end_offset
            if isinstance(end_offset, StreamhouseError):
                log.warning(
                    "producer snapshot can't be read", extra={"partition": str(partition), "why": str(end_offset)}
                )
            ends[partition] = 0 if isinstance(end_offset, StreamhouseError) else end_offset
        return ends

    async def _find(self, states: Iterable[PartitionState]) -> dict[PartitionId, int | StreamhouseError]:
        ends: dict[PartitionId, int | StreamhouseError] = {}
        unknown: dict[PartitionId, PartitionState] = {}
        for state in states:
            stable_flushed = self._known_end(state)
            if stable_flushed is None:
                unknown[state.partition] = state
            else:
                ends[state.partition] = stable_flushed
        return ends | await self._look(unknown) if unknown else ends

    def _known_end(self, state: PartitionState) -> int | None:
        if state.log_start >= state.flushed_end:
            return state.flushed_end  # no records of transactions are left
        flushed_end, stable_flushed = self._known.get(state.partition, (-1, 0))
        return stable_flushed if flushed_end == state.flushed_end else None

    async def _look(self, states: Mapping[PartitionId, PartitionState]) -> dict[PartitionId, int | StreamhouseError]:
        flushed_ends = {partition: state.flushed_end for partition, state in states.items()}
        tables = await load_producers(
            flushed_ends,
            self._producers,
            metadata=self._metadata,
            reader=self._reader,
            log_starts={partition: state.log_start for partition, state in states.items()},
        )
        ends: dict[PartitionId, int | StreamhouseError] = {}
        for partition, flushed_end in flushed_ends.items():
            table = tables[partition]
            if isinstance(table, StreamhouseError):
                ends[partition] = table
                continue
            # The snapshot may be newer than this end: transactions that started since then are above it.
            stable_flushed = min(table.open_transactions().values(), default=flushed_end)
            ends[partition] = stable_flushed = min(stable_flushed, flushed_end)
            if table.lost_from is None:
                self._remember(partition, flushed_end, stable_flushed)
            else:  # an object is missing and may be restored
                ends[partition] = min(stable_flushed, table.lost_from)
        return ends

    def _remember(self, partition: PartitionId, flushed_end: int, stable_flushed: int) -> None:
        self._known[partition] = flushed_end, stable_flushed
        self._known.move_to_end(partition)
        if len(self._known) > self._limit:
            self._known.popitem(last=False)


async def aborted_within(
    metadata: MetadataStore, ranges: Mapping[PartitionId, range], *, page: int = PAGE
) -> dict[PartitionId, Sequence[AbortedTransaction]]:
    """The aborted transactions that overlap these offsets, ordered by marker; partitions without any are left out."""
    aborted: dict[PartitionId, list[AbortedTransaction]] = {}
    offsets = {partition: each.start for partition, each in ranges.items() if each}
    while offsets:
        rows = await metadata.aborted(offsets, limit=page)
        offsets = {partition: some[-1].last_offset + 1 for partition, some in rows.items() if len(some) >= page}
        for partition, some in rows.items():
            within = [each for each in some if each.first_offset < ranges[partition].stop]
            if within:
                aborted.setdefault(partition, []).extend(within)
    return dict(aborted)


class _BatchPositions(NamedTuple):
    producer_id: int
    base: int


class AbortedLookup:
    def __init__(self, metadata: MetadataStore, *, page: int) -> None:
        self._metadata = metadata
        self._page = page

    def __repr__(self) -> str:
        return f"<AbortedLookup page={self._page}>"

    async def of(self, log: PartitionLog, offset: int, records: Sequence[Buffer]) -> Sequence[AbortedTransaction]:
        """The aborted transactions with a batch in these records, which begin at or before `offset` and end below the
        last stable offset."""
        _require_retained(log, offset)
        if not log.has_aborted and offset >= log.aborted_complete_from:
            return ()
        end = iter_batches(records[-1])[-1].end
        start = min(offset, read_header(records[0]).base_offset)
        transactions = list(log.aborted_between(start, end))
        if start < log.aborted_complete_from:
            transactions = [*await self._stored(log, start, end), *transactions]
            _require_retained(log, offset)
        return with_batches(transactions, records)

    async def _stored(self, log: PartitionLog, start: int, end: int) -> Sequence[AbortedTransaction]:
        """Aborted transactions that are not in memory. An old transaction may be long, so all later rows are read."""
        complete_from = log.aborted_complete_from
        stored: list[AbortedTransaction] = []
        at: int | None = start
        while at is not None:
            rows = (await self._metadata.aborted({log.partition: at}, limit=self._page)).get(log.partition, ())
            stored += [row for row in rows if row.last_offset < complete_from and row.first_offset < end]
            is_last = len(rows) < self._page or rows[-1].last_offset + 1 >= complete_from
            at = None if is_last else rows[-1].last_offset + 1
        await self.learn_start(log)
        return stored

    async def learn_start(self, log: PartitionLog) -> None:
        """Read the log start, which another agent may have moved, deleting rows below."""
        states = await self._metadata.partitions([log.partition.topic_id])
        log.advance_log_start(next((state.log_start for state in states if state.partition == log.partition), 0))


def _require_retained(log: PartitionLog, offset: int) -> None:
    """Raise if the log start has moved past the offset: rows of aborted transactions there may be deleted."""
    if log.log_start > offset:
        raise OffsetOutOfRange(log.name, offset=offset, start=log.log_start, end=log.high_watermark)


async def load_aborted(
    states: Mapping[PartitionId, PartitionState], *, metadata: MetadataStore, kept: int
) -> Mapping[PartitionId, AbortedIndex]:
    """The indexes of aborted transactions for logs that are being opened, with one query."""
    offsets = {at: state.log_start for at, state in states.items()}
    rows = await metadata.aborted(offsets, limit=kept) if offsets else {}
    return {
        at: index_aborted(rows.get(at, ()), flushed_end=state.flushed_end, kept=kept) for at, state in states.items()
    }


def with_batches(aborted: Sequence[AbortedTransaction], records: Sequence[Buffer]) -> Sequence[AbortedTransaction]:
    """The transactions with a batch among these records. A consumer skips all records of an aborted transaction's
    producer up to the marker. If compaction has removed both batches and marker, it would skip records that were
    committed later."""
    if not aborted:
        return ()
    written: dict[int, list[int]] = {}
    for producer_id, base in _written(records):
        written.setdefault(producer_id, []).append(base)
    return [each for each in aborted if _has_any(each, written.get(each.producer_id, ()))]


def _has_any(aborted: AbortedTransaction, bases: Sequence[int]) -> bool:
    at = bisect_left(bases, aborted.first_offset)
    return at < len(bases) and bases[at] <= aborted.last_offset


def _written(records: Sequence[Buffer]) -> Sequence[_BatchPositions]:
    """Transactional batches, without markers."""
    headers = (read_header(piece, span.position) for piece in records for span in iter_batches(piece))
    return [
        _BatchPositions(header.producer_id, header.base_offset)
        for header in headers
        if header.is_transactional and not header.is_control
    ]
