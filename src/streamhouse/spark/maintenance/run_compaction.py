"""Run compaction: a task rewrites the runs of a group without superseded records, as one object.

Data path   object store -> runs, offsets that stay -> **run_compaction** -> object store; results go to the driver
Owns        which runs share an object, memory's bound
Leaves      which records stay to `format.compaction`, I/O to `segment_rewrite`, registering to `compaction_job` on the
            driver
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from streamhouse.clock import Ids, SystemClock
from streamhouse.format.batch import Buffer, read_header
from streamhouse.format.compaction import filter_batch, has_offset
from streamhouse.format.run_rewrite import RewrittenRun, Source
from streamhouse.spark.agents.run_replacements import Replacement
from streamhouse.spark.maintenance.compaction_plan import CompactionPolicyRow, CompactionTask
from streamhouse.spark.maintenance.segment_rewrite import IoStats, RunBytes, fetch, store_replacement
from streamhouse.spark.runtime.object_store import open_store
from streamhouse.stores.objects.base import ObjectMissing, ObjectStore

MAX_RAW_BYTES: Final = 192 * 1024 * 1024
"""Maximum size of one object before compression, which a task has in memory; the rest becomes another object."""


class CompactResult(msgspec.Struct, frozen=True):
    """The result of a task: replacements, oldest first; `is_gone`: runs are others by now. Before anything is replaced
    aborted transactions whose markers are `spent` are removed from the metadata."""

    replacements: list[Replacement]
    records: int
    dropped_records: int
    costs: IoStats
    is_gone: bool = False
    spent: tuple[int, ...] = ()


def compact_task(item: bytes, offsets: bytes) -> bytes:
    """The task that Spark runs."""
    work = msgspec.json.decode(item, type=CompactionTask)
    handle = open_store(work.work.store)
    return msgspec.json.encode(handle.loop.run(run_compaction_task(handle.store, work, offsets)))


async def run_compaction_task(store: ObjectStore, work: CompactionTask, offsets: bytes) -> CompactResult:
    """Store what stays of a group's runs, unless all does. `offsets` are int64 numbers, sorted."""
    try:
        fetched = await fetch(store, work.work.runs)
    except ObjectMissing:
        return CompactResult([], 0, 0, IoStats(), is_gone=True)
    costs = fetched.costs
    replacements: list[Replacement] = []
    records = dropped = 0
    spent: list[int] = []
    for sources in in_memory([fetched.source(row, work.work.id) for row in work.work.runs]):
        span = compact_runs(sources, fetched, offsets, work.terms)
        spent += span.spent
        kept = sum(read_header(batch).record_count for _, batches in span.rewritten for batch in batches)
        records, dropped = records + kept, dropped + sum(source.run.records for source in sources) - kept
        if span.changed:
            replacement, more = await store_replacement(store, work.work, span.changed, clock=SystemClock(), ids=Ids())
            replacements.append(replacement)
            costs += more
    return CompactResult(replacements, records, dropped, costs, spent=tuple(spent))


class CompactedRuns(NamedTuple):
    """What stays of neighbouring runs, and those of them, from the first that differs to the last, that go; offsets of
    markers of aborted transactions that are spent."""

    rewritten: list[RewrittenRun]
    changed: list[RewrittenRun]
    spent: list[int]


def compact_runs(
    sources: Iterable[Source], fetched: RunBytes, offsets: bytes, terms: CompactionPolicyRow
) -> CompactedRuns:
    rewritten: list[RewrittenRun] = []
    differing: list[int] = []
    spent: list[int] = []
    for number, source in enumerate(sources):
        was = fetched.batches(source)
        batches, differs = compact_run(was, offsets, terms)
        spent += obsolete_aborts(was, offsets, terms)
        rewritten.append(RewrittenRun(source, batches))
        if differs:
            differing.append(number)
    return CompactedRuns(rewritten, rewritten[differing[0] : differing[-1] + 1] if differing else [], spent)


def obsolete_aborts(batches: Iterable[Buffer], offsets: bytes, row: CompactionPolicyRow) -> Iterator[int]:
    """The offsets of markers of aborted transactions of which nothing is left."""
    ends = {each.last_offset for each in row.aborted if each.last_offset < row.end}
    if not ends:
        return
    for header in map(read_header, batches):
        is_marker = header.is_control and header.base_offset in ends
        if is_marker and not has_offset(offsets, header.base_offset):
            yield header.base_offset


def in_memory(sources: Iterable[Source]) -> Iterator[list[Source]]:
    """Runs in their order, as many at a time as may be in memory decompressed, one at least."""
    chosen: list[Source] = []
    size = 0
    for source in sources:
        if chosen and size + source.raw_bytes > MAX_RAW_BYTES:
            yield chosen
            chosen, size = [], 0
        chosen.append(source)
        size += source.raw_bytes
    if chosen:
        yield chosen


def compact_run(batches: Iterable[Buffer], offsets: bytes, row: CompactionPolicyRow) -> tuple[list[Buffer], bool]:
    """The batches that stay of a run, and whether they are others than those that were there."""
    terms = row.terms
    stays: list[Buffer] = []
    differs = False
    for batch in batches:
        new = filter_batch(batch, offsets, terms, keep_empty=read_header(batch).end == row.last_end)
        differs = differs or new is not batch
        if new is not None:
            stays.append(new)
    return stays, differs
