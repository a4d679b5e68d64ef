"""Segment merge: segments of a commit that has too many runs become fewer, in which a partition has one run.

Data path   what tasks stored -> **segment merge**, on the driver -> fewer objects -> the commit
Owns        which segments go together; that records keep their order: of tasks, and within them
Leaves      the limit to agents (`placing.max_runs`), orphaned objects to the agents' collector

Many tasks that write to many partitions make a run for each pair. A commit is all or nothing, so a commit can't be cut:
it is made smaller instead. Neighbours are merged whole where that is enough, else all runs of a partition become one,
or several where they don't fit into memory at once. A commit is refused where it has more partitions than runs are
allowed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from streamhouse.clock import Clock, Ids
from streamhouse.errors import CommitRefused
from streamhouse.format.batch import assign_offset, read_header
from streamhouse.format.block import decode_block
from streamhouse.format.object_keys import external_segment_key
from streamhouse.format.run_index import decode_run_index
from streamhouse.format.run_rewrite import batches_of
from streamhouse.format.segment import RunInput, encode_segment
from streamhouse.model.names import Epoch, PartitionId, TopicId, TopicPartition
from streamhouse.spark.agents.commits import RunRow, SegmentRow
from streamhouse.spark.datasource.segment_writer import segment_row
from streamhouse.spark.datasource.write_options import CommitId
from streamhouse.stores.objects.base import ObjectStore

MAX_MERGED_BYTES: Final = 256 * 1024 * 1024
"""Maximum size of segments that are merged: the driver has them in memory."""
_MIN_MERGED_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """Runs of a segment that go into a merged one; those of neighbouring partitions where these are not all of them."""

    segment: SegmentRow
    runs: Sequence[RunRow]

    @property
    def is_whole(self) -> bool:
        return len(self.runs) == len(self.segment.runs)


Groups = Sequence[Sequence[SegmentPart]]


def plan_merge(segments: Sequence[SegmentRow], *, max_runs: int, max_bytes: int = MAX_MERGED_BYTES) -> Groups:
    """Groups of segments to merge into one each, as small as possible. Raises `CommitRefused` where runs stay too
    many."""
    size = min(_MIN_MERGED_BYTES, max_bytes)
    while size <= max_bytes:
        groups: Groups = list(_neighbours(segments, size))
        if _runs(groups) <= max_runs:
            return groups
        size *= 2
    groups = list(_by_partition(segments, max_bytes))
    if (runs := _runs(groups)) > max_runs:
        raise CommitRefused(
            f"the commit is too large; runs={runs} limit={max_runs} setting=placing.max_runs"
            " do=write less at once (maxOffsetsPerTrigger), to fewer partitions, or raise the setting"
        )
    return groups


def _neighbours(segments: Sequence[SegmentRow], size_bytes: int) -> Iterator[list[SegmentPart]]:
    group: list[SegmentPart] = []
    for each in segments:
        if group and sum(one.segment.size_bytes for one in group) + each.size_bytes > size_bytes:
            yield group
            group = []
        group.append(SegmentPart(each, each.runs))
    yield group


def _by_partition(segments: Sequence[SegmentRow], size_bytes: int) -> Iterator[list[SegmentPart]]:
    """A partition is cut only where it is larger than a group may be."""
    partitions: dict[TopicPartition, list[tuple[SegmentRow, RunRow]]] = {}
    for segment in segments:
        for run in segment.runs:
            partitions.setdefault(TopicPartition(run.topic, run.partition), []).append((segment, run))
    group: dict[str, tuple[SegmentRow, list[RunRow]]] = {}
    size = 0
    for _, stored in sorted(partitions.items(), key=lambda item: item[0]):
        is_fitting = size + sum(run.length for _, run in stored) <= size_bytes
        for number, (segment, run) in enumerate(stored):
            if group and not is_fitting and (number == 0 or size + run.length > size_bytes):
                yield [SegmentPart(*each) for each in group.values()]
                group, size = {}, 0
            group.setdefault(segment.key, (segment, []))[1].append(run)
            size += run.length
    yield [SegmentPart(*each) for each in group.values()]


def _runs(groups: Groups) -> int:
    """A partition has one run in each group."""
    return sum(len({(run.topic, run.partition) for part in group for run in part.runs}) for group in groups)


@dataclass(slots=True)
class _MergedRun:
    """A partition's batches of several segments; offsets count from 0."""

    name: TopicPartition
    topic_id: TopicId
    batches: list[bytearray] = field(default_factory=list)
    end: int = 0

    def add(self, stored: "_StoredBytes", run: RunRow, *, key: str) -> None:
        index = decode_run_index(stored.read(run.index_position, run.index_length), key=key)
        for entry in index.blocks:
            block = decode_block(stored.read(entry.position, entry.stored_bytes), entry, key=key)
            for batch in batches_of(block):
                moved, header = bytearray(batch), read_header(batch)
                base_offset = self.end + header.base_offset - run.stored_base
                assign_offset(moved, base_offset=base_offset, leader_epoch=header.leader_epoch)
                self.batches.append(moved)
        self.end += run.stored_end - run.stored_base

    def input(self) -> RunInput:
        return RunInput(
            partition=PartitionId(self.topic_id, self.name.partition),
            epoch=Epoch(0),
            base=0,
            end=self.end,
            batches=self.batches,
            producers=b"",
        )


@dataclass(frozen=True, slots=True)
class _StoredBytes:
    """Parts of an object, each with its position and its bytes; every read is within one of them."""

    parts: Sequence[tuple[int, bytes]]

    def read(self, position: int, length: int) -> bytes:
        start, body = max(part for part in self.parts if part[0] <= position)
        return body[position - start : position - start + length]


async def _read(store: ObjectStore, part: SegmentPart) -> _StoredBytes:
    key = part.segment.key
    if part.is_whole:
        return _StoredBytes([(0, await store.get_range(key, 0, part.segment.size_bytes))])
    blocks = [(run.position, run.position + run.length) for run in part.runs]
    indexes = [(run.index_position, run.index_position + run.index_length) for run in part.runs]
    ranges = []
    for spans in (blocks, indexes):
        start, end = min(span[0] for span in spans), max(span[1] for span in spans)
        ranges.append((start, await store.get_range(key, start, end)))
    return _StoredBytes(ranges)


async def merge_segments(
    store: ObjectStore,
    groups: Groups,
    topic_ids: Mapping[str, TopicId],
    identity: CommitId,
    *,
    clock: Clock,
    ids: Ids,
) -> list[SegmentRow]:
    """Store one object for each group, and say what is in it; a segment that is alone stays as it is."""
    merged: list[SegmentRow] = []
    for group in groups:
        if len(group) == 1 and group[0].is_whole:
            merged.append(group[0].segment)
            continue
        runs: dict[TopicPartition, _MergedRun] = {}
        for part in group:
            stored = await _read(store, part)
            for run in part.runs:
                name = TopicPartition(run.topic, run.partition)
                runs.setdefault(name, _MergedRun(name, topic_ids[run.topic])).add(stored, run, key=part.segment.key)
        ordered = [runs[name] for name in sorted(runs)]
        encoded = encode_segment([run.input() for run in ordered])
        key = external_segment_key(identity.query, identity.epoch, ids.token())
        await store.put_new(key, encoded.body)
        merged.append(segment_row(key, encoded, ordered, created_at_ms=clock.now_ms()))
    return merged
