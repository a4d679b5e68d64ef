"""Earlier snapshot: what is known of a partition's producers when the object with their newest snapshot is missing.

Data path   snapshots, which can't read the newest -> **earlier_snapshot** -> producers' table of a log that is opened
Owns        which earlier snapshot counts, and when a partition stays closed instead
Leaves      rows to the metadata store, bytes to `reader`, what follows from not knowing all to `producers` (`doubt`)

The newest snapshot that is left is taken, and what producers sent after it is in doubt, as behind a disk that nobody
reaches. A batch of the missing range that is sent again is stored again: nobody can read the first one. Transactions
that were open at that snapshot stay open. Where none is left, and no older run is there to be read, nothing is known.
Where older runs were not looked at (`producers.max_snapshots_tried`), the partition stays closed: a transaction may be
open in them, whose records readers of committed records must not see.
"""

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from streamhouse.broker.producers import ProducerTable
from streamhouse.broker.reading.reader import SegmentReader, is_missing, place_of
from streamhouse.errors import CorruptObject, MissingRecords, StreamhouseError, Unavailable
from streamhouse.model.segment import Run, where_snapshot_is
from streamhouse.stores.metadata.base import MetadataStore

log = logging.getLogger(__name__)


class Known(NamedTuple):
    """Producers as they stood at `end`; what they sent after that is not known."""

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
) -> Known | StreamhouseError:
    """The newest state of the producers that can be read; an error where the partition must stay closed."""
    if newest.carried is None:  # otherwise it is an older run's object, which its own readers will find missing
        reader.damage.found_missing(place_of(newest))
    runs = await metadata.runs_before(newest.partition, before=newest.base + 1, limit=limit)
    try:
        found = await _first_readable(runs, table_of, reader)
    except Unavailable as error:
        return error
    if found is None:
        if await metadata.runs_before(newest.partition, before=newest.base + 1, limit=limit) != runs:
            return Unavailable(f"runs changed while a log was opened; partition={newest.partition}")
        if len(runs) == limit and runs[-1].base > log_start:
            return _closed(newest, reader)
        found = Known(table_of(b""), log_start)
    log.error(
        "newest object of a partition is missing, it goes on and what its producers sent there is not known",
        extra={
            "partition": str(reader.damage.name_of(newest.partition)),
            "unknown": f"[{found.end},{newest.end})",
            "producers": len(found.table),
        },
    )
    return found


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
) -> Known | None:
    """Raises `Unavailable` when the store doesn't say whether an object is there."""
    gone: set[str] = set()
    for run in runs:
        at = where_snapshot_is(run)
        if at.object_key in gone:
            continue
        try:
            snapshot = (await reader.snapshots([at]))[run.partition]
            if snapshot:  # a run that was placed has none
                return Known(table_of(snapshot), run.end)
        except CorruptObject:
            continue
        except Unavailable as error:
            if not is_missing(error):
                raise
            gone.add(at.object_key)
    return None
