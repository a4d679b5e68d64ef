"""Rebuilding: what producers had written, where the snapshot at the end of a partition's newest run is damaged.

Data path   snapshots, which can't read one -> **rebuilding** -> producers' table of a log that is opened or recovered
Owns        whether the state can be had without a doubt from the run before and the batches of this one
Leaves      bytes to `reader`, rules of sequences to `producers`

What a snapshot says follows from the one before it and from the batches in between, so it can be made again: from the
run before, or from nothing at the very beginning of a partition, and from each batch of the damaged run. All of them
must be there, without a gap in their offsets: compaction may have removed some, or placed runs may stand in between,
whose producers' state is elsewhere. Then it is not rebuilt, and the partition stays closed; a producer that was
forgotten could store the same batch twice.
"""

import logging
from collections.abc import Callable, Iterable, Iterator

from streamhouse.broker.producers import ProducerTable
from streamhouse.broker.reading.cache import Block
from streamhouse.broker.reading.reader import SegmentReader
from streamhouse.errors import CorruptObject, StreamhouseError, Unavailable
from streamhouse.format.batch import BatchHeader, Buffer, read_header
from streamhouse.model.segment import Run

log = logging.getLogger(__name__)


async def rebuild(
    run: Run, damage: CorruptObject, table_of: Callable[[bytes], ProducerTable], *, reader: SegmentReader, now_ms: int
) -> ProducerTable | StreamhouseError:
    """The producers at the end of a run whose snapshot is damaged; the damage, where they can't be known."""
    fields = {"partition": str(run.partition), "offsets": f"[{run.base},{run.end})", "why": str(damage)}
    try:
        table = table_of(await _snapshot_before(run, reader))
        table.replay(list(_batches(run, await reader.salvage(run))), now_ms=now_ms)
    except Unavailable as error:
        return error
    except StreamhouseError as error:
        log.error("producers of a partition can't be known, it stays closed", extra={**fields, "because": str(error)})
        return damage
    table.aborted.clear()  # their rows were written with the run
    log.error("producers of a partition were known again from its batches, their snapshot is damaged", extra=fields)
    return table


async def _snapshot_before(run: Run, reader: SegmentReader) -> bytes:
    """What producers had written before the run; raises `CorruptObject` when nobody can say."""
    if run.carried is not None or run.base != run.stored_base:
        raise CorruptObject(run.object_key, why="the run was placed")
    if run.base == 0:
        return b""
    before = await reader.runs.find(run.partition, run.base - 1)
    if before is None or before.end != run.base:
        raise CorruptObject(run.object_key, why="no run stands right before it")
    snapshot = (await reader.snapshots([before]))[run.partition]
    if not snapshot:
        raise CorruptObject(before.object_key, why="the run before it was placed")
    return snapshot


def _batches(run: Run, blocks: Iterable[Block]) -> Iterator[tuple[BatchHeader, int, Buffer]]:
    """All batches of the run, each with its offset; raises `CorruptObject` unless they are all there."""
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
