"""ExternalCommitRequest: the segments of an external commit, their checks, and the offsets that their runs get.

Data path   wire -> **commit_request** -> coordinator
Owns        the limits of a commit; whether segments match it; which offsets each run gets
Leaves      names of objects to `format.object_keys`; their bytes to `format.segment`; the commit to `coordinator`
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from streamhouse.broker.dependencies import Dependencies
from streamhouse.config import ExternalCommitSettings
from streamhouse.errors import CommitRefused, CorruptObject
from streamhouse.format.object_keys import is_query_id, parse_external_segment_key
from streamhouse.format.segment import Directory, DirectoryEntry, MoreBytesNeeded, read_directory
from streamhouse.model.external_commit import FrozenPartition, QueryId
from streamhouse.model.names import Epoch, PartitionId, TopicPartition
from streamhouse.model.pipeline import Fence
from streamhouse.model.segment import Run, SegmentCommit, SegmentObject
from streamhouse.model.topic_settings import MAX_LONG
from streamhouse.stores.objects.base import ObjectMissing

DIRECTORY_BYTES: Final = 16 * 1024
"""Size of the first read at a segment's end: the directory of a hundred runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A run as written; its offsets in the object are [stored_base, stored_end)."""

    name: TopicPartition
    records: int
    stored_base: int
    stored_end: int
    position: int
    length: int
    index_position: int
    index_length: int
    max_timestamp_ms: int

    @property
    def offsets(self) -> int:
        return self.stored_end - self.stored_base


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRequest:
    segment: SegmentObject
    runs: tuple[RunRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalCommitRequest:
    """`progress` is JSON text; `covers` is what the commit is made of (`model.replay`).

    `written_by` is the query id in the objects' names if it differs from `query`, as for tenants.
    """

    query: QueryId
    epoch: int
    progress: str | None
    segments: tuple[SegmentRequest, ...]
    fence: Fence | None = None
    covers: str | None = None
    written_by: QueryId | None = None

    @property
    def names(self) -> list[TopicPartition]:
        return sorted({run.name for segment in self.segments for run in segment.runs})


def check_commit(commit: ExternalCommitRequest, settings: ExternalCommitSettings) -> None:
    """Raise `CommitRefused` for an invalid commit, without reading any store."""
    if not is_query_id(commit.query):
        raise CommitRefused(f"a query's id is a UUID in lower case; query={commit.query[:100]!r}")
    if len(commit.segments) > settings.max_segments:
        raise _too_many("segments", len(commit.segments), settings.max_segments)
    runs = sum(len(each.runs) for each in commit.segments)
    if runs > settings.max_runs:
        raise _too_many("runs", runs, settings.max_runs)
    if len((commit.progress or "").encode()) > settings.max_progress_bytes:
        raise _too_many("progress_bytes", len((commit.progress or "").encode()), settings.max_progress_bytes)
    keys = [each.segment.key for each in commit.segments]
    if len(set(keys)) < len(keys):
        raise CommitRefused("duplicate segment")
    for each in commit.segments:
        _check_segment(commit, each)


def _too_many(what: str, count: int, limit: int) -> CommitRefused:
    return CommitRefused(f"the commit is too large; {what}={count} limit={limit} setting=placing.max_{what}")


def _check_segment(commit: ExternalCommitRequest, request: SegmentRequest) -> None:
    name = parse_external_segment_key(request.segment.key)
    if name is None or (name.query, name.epoch) != (commit.written_by or commit.query, commit.epoch):
        raise CommitRefused(
            f"the segment's key doesn't match the commit's query and epoch; key={request.segment.key[:200]!r}"
        )
    if not request.runs:
        raise CommitRefused(f"a segment has no runs; key={request.segment.key}")
    for run in request.runs:
        if run.stored_end <= run.stored_base:
            raise CommitRefused(f"a run has no offsets; key={request.segment.key} partition={run.name}")


async def check_objects(
    dependencies: Dependencies, segments: Sequence[SegmentRequest], partitions: Mapping[TopicPartition, PartitionId]
) -> None:
    """Raise `CommitRefused` unless every segment is in the store and has exactly the runs of the commit."""
    limiter = asyncio.Semaphore(dependencies.settings.placing.reads)

    async def check(request: SegmentRequest) -> None:
        async with limiter:
            directory = await fetch_directory(dependencies, request.segment)
        expected = sorted((_entry(run, partitions[run.name]) for run in request.runs), key=_position)
        if [replace(each, epoch=Epoch(0)) for each in sorted(directory.runs, key=_position)] != expected:
            raise CommitRefused(f"the segment's runs differ from the commit's; key={request.segment.key}")

    try:
        async with asyncio.TaskGroup() as checks:
            for each in segments:
                checks.create_task(check(each))
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


async def fetch_directory(dependencies: Dependencies, segment: SegmentObject) -> Directory:
    """Read a segment's directory; raises `CommitRefused` if the object is missing or no segment."""
    try:
        length = min(DIRECTORY_BYTES, segment.size_bytes)
        while True:
            suffix = await dependencies.objects.get_suffix(segment.key, length)
            directory = read_directory(suffix, size_bytes=segment.size_bytes, key=segment.key)
            if not isinstance(directory, MoreBytesNeeded):
                return directory
            length = directory.bytes
    except ObjectMissing:
        raise CommitRefused(f"the segment is not in the object store; key={segment.key}") from None
    except CorruptObject as error:
        raise CommitRefused(f"the segment can't be read; why={error}") from None


def _position(entry: DirectoryEntry) -> int:
    return entry.index_position


def _entry(run: RunRequest, partition: PartitionId) -> DirectoryEntry:
    return DirectoryEntry(
        partition=partition,
        epoch=Epoch(0),
        base=run.stored_base,
        end=run.stored_end,
        position=run.position,
        length=run.length,
        index_position=run.index_position,
        index_length=run.index_length,
        records=run.records,
        max_timestamp_ms=run.max_timestamp_ms,
    )


def requested_offsets(commit: ExternalCommitRequest) -> dict[TopicPartition, int]:
    """Number of offsets that each partition must assign."""
    counts: dict[TopicPartition, int] = {}
    for run in (run for segment in commit.segments for run in segment.runs):
        counts[run.name] = counts.get(run.name, 0) + run.offsets
    return counts


def assign_offsets(
    commit: ExternalCommitRequest, partitions: Mapping[TopicPartition, PartitionId], held: Iterable[FrozenPartition]
) -> tuple[SegmentCommit, ...]:
    """Assign offsets to the runs: consecutive per partition, in the order of the commit."""
    holds = {each.partition: each for each in held}
    ends = {partition: each.end for partition, each in holds.items()}
    commits: list[SegmentCommit] = []
    for request in commit.segments:
        runs: list[Run] = []
        for run in request.runs:
            partition = partitions[run.name]
            base, ends[partition] = ends[partition], ends[partition] + run.offsets
            if ends[partition] > MAX_LONG:
                raise CommitRefused(f"the partition has no offsets left; partition={run.name}")
            runs.append(_run(run, holds[partition], base=base, key=request.segment.key))
        commits.append(SegmentCommit(segment=request.segment, runs=tuple(runs)))
    return tuple(commits)


def _run(run: RunRequest, held: FrozenPartition, *, base: int, key: str) -> Run:
    return Run(
        partition=held.partition,
        base=base,
        end=base + run.offsets,
        stored_base=run.stored_base,
        epoch=held.epoch,
        object_key=key,
        position=run.position,
        length=run.length,
        index_position=run.index_position,
        index_length=run.index_length,
        records=run.records,
        max_timestamp_ms=run.max_timestamp_ms,
    )
