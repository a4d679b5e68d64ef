"""Voids: which aborted transactions have something in what was read.

Data path   fetch, once it has records -> **voids** -> log, or the metadata store for what is too old to be kept there
Owns        which of them a reader is told of, and which a log keeps that is opened
Leaves      what is aborted to `log` and the rows, leaving records out to whoever reads
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from streamhouse.broker.log import PartitionLog
from streamhouse.broker.stability import KnownAborted, known_aborted
from streamhouse.broker.wal.base import Buffer
from streamhouse.errors import OffsetOutOfRange
from streamhouse.format.batch import read_header, spans
from streamhouse.model.lease import PartitionState
from streamhouse.model.names import PartitionId
from streamhouse.model.transaction import AbortedTransaction
from streamhouse.stores.metadata.base import MetadataStore


class _Written(NamedTuple):
    producer_id: int
    base: int


class Voids:
    def __init__(self, metadata: MetadataStore, *, page: int) -> None:
        self._metadata = metadata
        self._page = page

    def __repr__(self) -> str:
        return f"<Voids page={self._page}>"

    async def of(self, log: PartitionLog, offset: int, records: Sequence[Buffer]) -> Sequence[AbortedTransaction]:
        """The aborted transactions of which there is a batch in these records, which begin at `offset` or before and
        end below the last stable offset."""
        _require_kept(log, offset)
        if not log.has_aborted and offset >= log.aborted_known_from:
            return ()
        end = spans(records[-1])[-1].end
        start = min(offset, read_header(records[0]).base_offset)
        found = list(log.aborted_between(start, end))
        if start < log.aborted_known_from:
            found = [*await self._stored(log, start, end), *found]
            _require_kept(log, offset)
        return with_batches(found, records)

    async def _stored(self, log: PartitionLog, start: int, end: int) -> Sequence[AbortedTransaction]:
        """Those that the log doesn't keep. An old transaction may be long, so all the rows behind are looked at."""
        known_from = log.aborted_known_from
        found: list[AbortedTransaction] = []
        at: int | None = start
        while at is not None:
            rows = (await self._metadata.aborted({log.partition: at}, limit=self._page)).get(log.partition, ())
            found += [row for row in rows if row.last_offset < known_from and row.first_offset < end]
            is_last = len(rows) < self._page or rows[-1].last_offset + 1 >= known_from
            at = None if is_last else rows[-1].last_offset + 1
        await self.learn_start(log)
        return found

    async def learn_start(self, log: PartitionLog) -> None:
        """Others may have moved the log's start, and taken rows along."""
        states = await self._metadata.partitions([log.partition.topic_id])
        log.start_at(next((state.log_start for state in states if state.partition == log.partition), 0))


def _require_kept(log: PartitionLog, offset: int) -> None:
    """Raise where the log start has passed by meanwhile: what was aborted there may be forgotten."""
    if log.log_start > offset:
        raise OffsetOutOfRange(log.name, offset=offset, start=log.log_start, end=log.high_watermark)


async def load_aborted(
    states: Mapping[PartitionId, PartitionState], *, metadata: MetadataStore, kept: int
) -> Mapping[PartitionId, KnownAborted]:
    """What logs that are opened keep of their aborted transactions; one question for all of them."""
    wanted = {at: state.log_start for at, state in states.items()}
    rows = await metadata.aborted(wanted, limit=kept) if wanted else {}
    return {
        at: known_aborted(rows.get(at, ()), flushed_end=state.flushed_end, kept=kept) for at, state in states.items()
    }


def with_batches(aborted: Sequence[AbortedTransaction], records: Sequence[Buffer]) -> Sequence[AbortedTransaction]:
    """Those that have a batch among these.

    A reader that is told of one leaves out whatever its producer sent, until it comes to the marker. Compaction may
    have taken both, batches and marker: then it would leave out what was committed later.
    """
    if not aborted:
        return ()
    written: dict[int, list[int]] = {}
    for producer_id, base in _written(records):
        written.setdefault(producer_id, []).append(base)
    return [each for each in aborted if _has_any(each, written.get(each.producer_id, ()))]


def _has_any(aborted: AbortedTransaction, bases: Sequence[int]) -> bool:
    at = bisect_left(bases, aborted.first_offset)
    return at < len(bases) and bases[at] <= aborted.last_offset


def _written(records: Sequence[Buffer]) -> Sequence[_Written]:
    """The batches of transactions, without their markers."""
    headers = (read_header(piece, span.position) for piece in records for span in spans(piece))
    return [
        _Written(header.producer_id, header.base_offset)
        for header in headers
        if header.is_transactional and not header.is_control
    ]
