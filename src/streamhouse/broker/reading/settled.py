"""Settled: up to where the transactions of flushed records have ended in what is flushed, and which were aborted.

Data path   plans, maintenance -> **settled** -> newest snapshots of producers, rows of the metadata store
Owns        where the first transaction begins that was open at a partition's flushed end; pages of aborted ones
Leaves      the last stable offset, which may lie above, to the partition's leader; snapshots to `snapshots`

A leader knows of markers that are in no segment yet. Nobody else needs to: below a settled end every transaction has
its marker in a segment, and those that were aborted have their rows, written in the commit of that segment. So whoever
reads segments, or rewrites them, asks no leader; what lies between that and the end of the log, the leader serves.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from streamhouse.broker.doors import Doors
from streamhouse.broker.reading.reader import SegmentReader
from streamhouse.broker.reading.snapshots import load_producers
from streamhouse.errors import Retriable, StreamhouseError
from streamhouse.model.lease import PartitionState
from streamhouse.model.names import PartitionId
from streamhouse.model.transaction import AbortedTransaction
from streamhouse.stores.metadata.base import MetadataStore

log = logging.getLogger(__name__)

PAGE: Final = 1000
"""Aborted transactions of a partition that are asked for at once."""


class Settled:
    def __init__(self, doors: Doors, *, reader: SegmentReader) -> None:
        self._metadata = doors.metadata
        self._producers = doors.settings.producers
        self._limit = doors.settings.plans.settled_kept
        self._reader = reader
        self._known: OrderedDict[PartitionId, tuple[int, int]] = OrderedDict()
        """Of the partitions that were asked for last: a flushed end, and what was settled then."""

    def __repr__(self) -> str:
        return f"<Settled partitions={len(self._known)}>"

    async def end(self, state: PartitionState) -> int:
        """Of one partition; raises where its snapshot can't be read."""
        found = (await self._find([state]))[state.partition]
        if isinstance(found, StreamhouseError):
            raise found
        return found

    async def ends(self, states: Iterable[PartitionState]) -> dict[PartitionId, int]:
        """By partition, an offset at or below its flushed end. Where a snapshot is damaged nothing is known to be
        settled: the leader serves it all. Raises `Retriable`."""
        ends: dict[PartitionId, int] = {}
        for partition, found in (await self._find(states)).items():
            if isinstance(found, Retriable):
                raise found
            if isinstance(found, StreamhouseError):
                log.warning("producers can't be read", extra={"partition": str(partition), "why": str(found)})
            ends[partition] = 0 if isinstance(found, StreamhouseError) else found
        return ends

    async def _find(self, states: Iterable[PartitionState]) -> dict[PartitionId, int | StreamhouseError]:
        found: dict[PartitionId, int | StreamhouseError] = {}
        unknown: dict[PartitionId, PartitionState] = {}
        for state in states:
            settled = self._known_end(state)
            if settled is None:
                unknown[state.partition] = state
            else:
                found[state.partition] = settled
        return found | await self._look(unknown) if unknown else found

    def _known_end(self, state: PartitionState) -> int | None:
        if state.log_start >= state.flushed_end:
            return state.flushed_end  # nothing is left that could be of a transaction
        flushed_end, settled = self._known.get(state.partition, (-1, 0))
        return settled if flushed_end == state.flushed_end else None

    async def _look(self, states: Mapping[PartitionId, PartitionState]) -> dict[PartitionId, int | StreamhouseError]:
        flushed_ends = {partition: state.flushed_end for partition, state in states.items()}
        tables = await load_producers(
            flushed_ends,
            self._producers,
            metadata=self._metadata,
            reader=self._reader,
            log_starts={partition: state.log_start for partition, state in states.items()},
        )
        found: dict[PartitionId, int | StreamhouseError] = {}
        for partition, flushed_end in flushed_ends.items():
            table = tables[partition]
            if isinstance(table, StreamhouseError):
                found[partition] = table
                continue
            # A newer snapshot than that of this end may have been found: what began since lies above.
            settled = min(table.open_transactions().values(), default=flushed_end)
            found[partition] = settled = min(settled, flushed_end)
            if table.lost_from is None:
                self._remember(partition, flushed_end, settled)
            else:  # an object is missing, and may be put back
                found[partition] = min(settled, table.lost_from)
        return found

    def _remember(self, partition: PartitionId, flushed_end: int, settled: int) -> None:
        self._known[partition] = flushed_end, settled
        self._known.move_to_end(partition)
        if len(self._known) > self._limit:
            self._known.popitem(last=False)


async def aborted_within(
    metadata: MetadataStore, wanted: Mapping[PartitionId, range], *, page: int = PAGE
) -> dict[PartitionId, Sequence[AbortedTransaction]]:
    """The aborted transactions that reach into these offsets, by their markers; without partitions that have none."""
    found: dict[PartitionId, list[AbortedTransaction]] = {}
    offsets = {partition: each.start for partition, each in wanted.items() if each}
    while offsets:
        rows = await metadata.aborted(offsets, limit=page)
        offsets = {partition: some[-1].last_offset + 1 for partition, some in rows.items() if len(some) >= page}
        for partition, some in rows.items():
            within = [each for each in some if each.first_offset < wanted[partition].stop]
            if within:
                found.setdefault(partition, []).extend(within)
    return dict(found)
