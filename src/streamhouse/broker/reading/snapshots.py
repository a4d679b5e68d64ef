"""Snapshots: what the producers of many partitions had written, read in as few requests as there are objects.

Data path   newest run of each partition -> **snapshots** -> producers' tables of logs that are opened or recovered
Owns        which snapshots are read together
Leaves      the rows to the metadata store, the bytes to `reader`, what is damaged to `rebuilding`, what is missing to
            `earlier_snapshot`
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Final

from streamhouse.broker.producers import ProducerTable
from streamhouse.broker.reading.earlier_snapshot import Known, find_earlier
from streamhouse.broker.reading.reader import SegmentReader, is_missing
from streamhouse.broker.reading.rebuilding import rebuild
from streamhouse.config import ProducerSettings
from streamhouse.errors import CorruptObject, StreamhouseError, Unavailable
from streamhouse.format.producers import decode_producers
from streamhouse.model.names import PartitionId
from streamhouse.model.segment import Run, where_snapshot_is
from streamhouse.stores.metadata.base import MetadataStore

SPAN_BYTES: Final = 4 * 1024 * 1024
GAP_BYTES: Final = 64 * 1024
"""Bytes between two indexes that are read along, because another request costs more."""


async def load_producers(
    flushed_ends: Mapping[PartitionId, int],
    settings: ProducerSettings,
    *,
    metadata: MetadataStore,
    reader: SegmentReader,
    log_starts: Mapping[PartitionId, int] | None = None,
    now_ms: int = 0,
) -> Mapping[PartitionId, ProducerTable | StreamhouseError]:
    """The producers' tables of these partitions, as they stood at their flushed ends; an error in the place of one
    that can't be read.

    Between the newest run, or the log start where there is none, and the flushed end lies what a session with a disk of
    its own was not waited for with: of that nobody knows what producers sent. Those of a damaged snapshot that can be
    known from batches count as heard of at `now_ms`.
    """
    runs = await metadata.last_runs(list(flushed_ends)) if flushed_ends else ()
    read = await asyncio.gather(*(_read(span, reader) for span in spans([where_snapshot_is(run) for run in runs])))
    snapshots = {partition: data for each in read for partition, data in each.items()}
    found: dict[PartitionId, ProducerTable | StreamhouseError] = {}
    newest = {run.partition: run for run in runs}
    doubtful = {run.partition for run in runs if run.carried is not None and run.carried.is_doubtful}
    starts = log_starts or flushed_ends
    known = await _without_missing(
        [newest[at] for at, data in snapshots.items() if isinstance(data, StreamhouseError) and is_missing(data)],
        settings,
        metadata=metadata,
        reader=reader,
        log_starts=starts,
    )
    for partition, flushed_end in flushed_ends.items():
        if (earlier := known.get(partition)) is not None:
            found[partition] = _in_doubt(earlier) if isinstance(earlier, Known) else earlier
            continue
        data = snapshots.get(partition, b"")
        table = data if isinstance(data, StreamhouseError) else _table(data, settings)
        run = newest.get(partition)
        if isinstance(table, CorruptObject) and run is not None:
            table = await rebuild(run, table, partial(_make, settings), reader=reader, now_ms=now_ms)
        end = run.end if run is not None else starts[partition]
        if isinstance(table, ProducerTable) and (end < flushed_end or partition in doubtful):
            table.doubt(end if end < flushed_end else None)
        found[partition] = table
    return found


async def _without_missing(
    runs: Sequence[Run],
    settings: ProducerSettings,
    *,
    metadata: MetadataStore,
    reader: SegmentReader,
    log_starts: Mapping[PartitionId, int],
) -> Mapping[PartitionId, Known | StreamhouseError]:
    """What is known of producers whose newest snapshot is in an object that the store doesn't have."""
    if not runs:
        return {}
    fresh = {run.partition: run for run in await metadata.last_runs([run.partition for run in runs])}
    found: dict[PartitionId, Known | StreamhouseError] = {}
    certain: list[Run] = []
    for run in runs:
        # Asked after the object was not found: a row that still names it can't have been replaced before.
        if fresh.get(run.partition) == run:
            certain.append(run)
        else:
            found[run.partition] = Unavailable(f"runs changed while a log was opened; partition={run.partition}")
    earlier = await asyncio.gather(
        *(
            find_earlier(
                run,
                partial(_make, settings),
                metadata=metadata,
                reader=reader,
                log_start=log_starts[run.partition],
                limit=settings.max_snapshots_tried,
            )
            for run in certain
        )
    )
    return found | {run.partition: each for run, each in zip(certain, earlier, strict=True)}


def _in_doubt(known: Known) -> ProducerTable:
    known.table.lost_from = known.end
    return known.table.doubt(known.end)


async def _read(span: Sequence[Run], reader: SegmentReader) -> Mapping[PartitionId, bytes | StreamhouseError]:
    """Damage to one snapshot is one partition's trouble: what can't be read together is read one by one."""
    try:
        return await reader.snapshots(span)
    except StreamhouseError as error:
        if len(span) == 1 or isinstance(error, Unavailable):
            return {run.partition: error for run in span}
    return {partition: data for run in span for partition, data in (await _read([run], reader)).items()}


def _table(snapshot: bytes, settings: ProducerSettings) -> ProducerTable | StreamhouseError:
    try:
        return _make(settings, snapshot)
    except StreamhouseError as error:
        return error


def _make(settings: ProducerSettings, snapshot: bytes) -> ProducerTable:
    return ProducerTable(
        decode_producers(snapshot),
        limit=settings.max_per_partition,
        expire_ms=round(settings.expire_s * 1000),
        key_limit=settings.max_keys_per_partition,
    )


def spans(runs: Sequence[Run]) -> list[list[Run]]:
    """The runs whose indexes are read with one request each: of one object, side by side, and not too much."""
    found: list[list[Run]] = []
    ordered = sorted(runs, key=lambda run: (run.object_key, run.index_position))
    for _, together in groupby(ordered, key=lambda run: run.object_key):
        span: list[Run] = []
        for run in together:
            if span and not _fits(span, run):
                found.append(span)
                span = []
            span.append(run)
        found.append(span)
    return found


def _fits(span: Sequence[Run], run: Run) -> bool:
    end = span[-1].index_position + span[-1].index_length
    length = run.index_position + run.index_length - span[0].index_position
    return run.index_position - end <= GAP_BYTES and length <= SPAN_BYTES
