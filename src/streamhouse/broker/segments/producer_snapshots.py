"""Producer state of partitions that are opened or recovered, from the snapshots at the end of their newest runs.

Data path   newest run of each partition -> **producer snapshots** -> producer tables
Owns        which snapshots are read together; what replaces one that is damaged or missing
Leaves      rows to the metadata store, bytes to `reader`, the rules of sequences to `partition.producer_state`

A damaged snapshot is rebuilt from the snapshot of the run before, or from nothing at the beginning of a partition, and
from each batch of the damaged run. All batches must be there, without a gap in their offsets: compaction may have
removed some, and runs of external commits have their producer state elsewhere. Otherwise the partition stays closed: a
producer that was forgotten could store the same batch twice.

If the object with the newest snapshot is missing, the newest one that is left is used, and what producers sent after it
is in doubt. A batch of the missing range that is sent again is stored again, because the first one can't be read.
Transactions that were open at that snapshot stay open. If `producers.max_snapshots_tried` ended the search, the
partition stays closed: an older run may hold an open transaction that read_committed consumers must not see.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple

from streamhouse.broker.partition.producer_state import ProducerTable
from streamhouse.broker.segments.block_cache import Block
from streamhouse.broker.segments.reader import SegmentReader, is_missing, location_of
from streamhouse.config import ProducerSettings
from streamhouse.errors import CorruptObject, MissingRecords, StreamhouseError, Unavailable
from streamhouse.format.batch import BatchHeader, Buffer, read_header
from streamhouse.format.producer_snapshot import decode_producers
from streamhouse.model.names import PartitionId
from streamhouse.model.segment import Run, where_snapshot_is
from streamhouse.stores.metadata.base import MetadataStore

log = logging.getLogger(__name__)


async def rebuild(
    run: Run, damage: CorruptObject, table_of: Callable[[bytes], ProducerTable], *, reader: SegmentReader, now_ms: int
) -> ProducerTable | StreamhouseError:
    """Rebuild the producers at the end of a run with a damaged snapshot; returns the error if that is impossible."""
    fields = {"partition": str(run.partition), "offsets": f"[{run.base},{run.end})", "why": str(damage)}
    try:
        table = table_of(await _snapshot_before(run, reader))
        table.replay(list(_batches(run, await reader.salvage(run))), now_ms=now_ms)
    except Unavailable as error:
        return error
    except StreamhouseError as error:
        log.error(
            "producer state of a partition can't be rebuilt, the partition stays closed",
            extra={**fields, "because": str(error)},
        )
        return damage
    table.aborted.clear()  # their rows were written with the run
    log.error("producer snapshot is damaged, the state was rebuilt from batches", extra=fields)
    return table


async def _snapshot_before(run: Run, reader: SegmentReader) -> bytes:
    """The producer state before the run; raises `CorruptObject` if it is unknown."""
    if run.carried is not None or run.base != run.stored_base:
        raise CorruptObject(run.object_key, why="the run is of an external commit")
    if run.base == 0:
        return b""
    before = await reader.runs.find(run.partition, run.base - 1)
    if before is None or before.end != run.base:
        raise CorruptObject(run.object_key, why="there is no run directly before it")
    snapshot = (await reader.snapshots([before]))[run.partition]
    if not snapshot:
        raise CorruptObject(before.object_key, why="the run before it is of an external commit")
    return snapshot


def _batches(run: Run, blocks: Iterable[Block]) -> Iterator[tuple[BatchHeader, int, Buffer]]:
    """All batches of the run with their offsets; raises `CorruptObject` if any is missing."""
    expected = run.base
    for block in blocks:
        for span in block.spans:
            if span.base != expected:
                raise CorruptObject(run.object_key, why=f"offset {expected} is not in the run any more")
            expected = span.end
            data = block.data[span.position : span.position + span.size_bytes]
            yield read_header(data), span.base, data
    if expected != run.end:
        raise CorruptObject(run.object_key, why=f"offset {expected} is not in the run any more")


class KnownProducers(NamedTuple):
    """The producer state at `end`; later batches are unknown."""

    table: ProducerTable
    end: int


async def find_earlier(
    newest: Run,
    table_of: Callable[[bytes], ProducerTable],
    *,
    metadata: MetadataStore,
    reader: SegmentReader,
    log_start: int,
    limit: int,
) -> KnownProducers | StreamhouseError:
    """The newest readable producer state; an error if the partition must stay closed."""
    if newest.carried is None:  # otherwise it is an older run's object, which its own readers will find missing
        reader.damage.report_missing(location_of(newest))
    runs = await metadata.runs_before(newest.partition, before=newest.base + 1, limit=limit)
    try:
        earlier = await _first_readable(runs, table_of, reader)
    except Unavailable as error:
        return error
    if earlier is None:
        if await metadata.runs_before(newest.partition, before=newest.base + 1, limit=limit) != runs:
            return Unavailable(f"runs changed while a log was opened; partition={newest.partition}")
        if len(runs) == limit and runs[-1].base > log_start:
            return _closed(newest, reader)
        earlier = KnownProducers(table_of(b""), log_start)
    log.error(
        "newest object of a partition is missing, its producers' batches there are unknown",
        extra={
            "partition": str(reader.damage.name_of(newest.partition)),
            "unknown": f"[{earlier.end},{newest.end})",
            "producers": len(earlier.table),
        },
    )
    return earlier


def _closed(newest: Run, reader: SegmentReader) -> MissingRecords:
    return MissingRecords(
        reader.damage.name_of(newest.partition),
        base=newest.base,
        end=newest.end,
        key=where_snapshot_is(newest).object_key,
        why="the objects before it are missing too, so its producers can't be known; producers.max_snapshots_tried",
    )


async def _first_readable(
    runs: Sequence[Run], table_of: Callable[[bytes], ProducerTable], reader: SegmentReader
) -> KnownProducers | None:
    """The first readable snapshot; raises `Unavailable` if the store doesn't respond."""
    gone: set[str] = set()
    for run in runs:
        at = where_snapshot_is(run)
        if at.object_key in gone:
            continue
        try:
            snapshot = (await reader.snapshots([at]))[run.partition]
            if snapshot:  # runs of external commits have none
                return KnownProducers(table_of(snapshot), run.end)
        except CorruptObject:
            continue
        except Unavailable as error:
            if not is_missing(error):
                raise
            gone.add(at.object_key)
    return None


SPAN_BYTES: Final = 4 * 1024 * 1024
GAP_BYTES: Final = 64 * 1024
"""Gap between two indexes up to which they are read together, because another request costs more."""


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
    its own was not waited for with: what producers sent in that range is unknown. Those of a damaged snapshot that can
    be known from batches count as active at `now_ms`."""
    runs = await metadata.last_runs(list(flushed_ends)) if flushed_ends else ()
    read = await asyncio.gather(*(_read(span, reader) for span in spans([where_snapshot_is(run) for run in runs])))
    snapshots = {partition: data for each in read for partition, data in each.items()}
    tables: dict[PartitionId, ProducerTable | StreamhouseError] = {}
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
            tables[partition] = _in_doubt(earlier) if isinstance(earlier, KnownProducers) else earlier
            continue
        data = snapshots.get(partition, b"")
        table = data if isinstance(data, StreamhouseError) else _table(data, settings)
        run = newest.get(partition)
        if isinstance(table, CorruptObject) and run is not None:
            table = await rebuild(run, table, partial(_make, settings), reader=reader, now_ms=now_ms)
        end = run.end if run is not None else starts[partition]
        if isinstance(table, ProducerTable) and (end < flushed_end or partition in doubtful):
            table.mark_uncertain(end if end < flushed_end else None)
        tables[partition] = table
    return tables


async def _without_missing(
    runs: Sequence[Run],
    settings: ProducerSettings,
    *,
    metadata: MetadataStore,
    reader: SegmentReader,
    log_starts: Mapping[PartitionId, int],
) -> Mapping[PartitionId, KnownProducers | StreamhouseError]:
    """The producer state of partitions whose newest snapshot is in a missing object."""
    if not runs:
        return {}
    fresh = {run.partition: run for run in await metadata.last_runs([run.partition for run in runs])}
    known: dict[PartitionId, KnownProducers | StreamhouseError] = {}
    certain: list[Run] = []
    for run in runs:
        # Read after the object was missing: a run that is still referenced can't have been replaced before.
        if fresh.get(run.partition) == run:
            certain.append(run)
        else:
            known[run.partition] = Unavailable(f"runs changed while a log was opened; partition={run.partition}")
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
    return known | {run.partition: each for run, each in zip(certain, earlier, strict=True)}


def _in_doubt(known: KnownProducers) -> ProducerTable:
    known.table.lost_from = known.end
    return known.table.mark_uncertain(known.end)


async def _read(span: Sequence[Run], reader: SegmentReader) -> Mapping[PartitionId, bytes | StreamhouseError]:
    """Read snapshots together; after an error one by one, so that a damaged one affects only its partition."""
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
    """Group runs whose indexes are read with one request: adjacent ones of the same object, up to a size limit."""
    groups: list[list[Run]] = []
    ordered = sorted(runs, key=lambda run: (run.object_key, run.index_position))
    for _, together in groupby(ordered, key=lambda run: run.object_key):
        span: list[Run] = []
        for run in together:
            if span and not _fits(span, run):
                groups.append(span)
                span = []
            span.append(run)
        groups.append(span)
    return groups


def _fits(span: Sequence[Run], run: Run) -> bool:
    end = span[-1].index_position + span[-1].index_length
    length = run.index_position + run.index_length - span[0].index_position
    return run.index_position - end <= GAP_BYTES and length <= SPAN_BYTES
