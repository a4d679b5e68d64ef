"""Segment merge: segments of a commit that has too many runs become fewer, in which a partition has one run.

Data path   what tasks stored -> **segment merge**, on the driver -> fewer objects -> the commit
Owns        which segments go together; that records keep their order: of tasks, and within them
Leaves      the limit to agents (`placing.max_runs`), objects that nobody commits to the agents' collector

Many tasks that write to many partitions make a run for each pair. All is placed or nothing, so a commit can't be cut:
it is made smaller instead, and refused where that can't be done in memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from streamhouse.clock import Clock, Ids
from streamhouse.errors import CommitRefused
from streamhouse.format.batch import place, read_header
from streamhouse.format.keys import placed_segment_key
from streamhouse.format.rewriting import batches_of
from streamhouse.format.segment import RunInput, decode_block, decode_run_index, encode_segment
from streamhouse.model.names import Epoch, PartitionId, TopicId, TopicPartition
from streamhouse.spark.placing import RunRow, SegmentRow
from streamhouse.spark.write_options import Identity
from streamhouse.spark.writing import segment_row
from streamhouse.stores.objects.base import ObjectStore

MAX_MERGED_BYTES: Final = 256 * 1024 * 1024
"""Of segments that become one: the driver has them in memory."""
_MIN_MERGED_BYTES: Final = 16 * 1024 * 1024

Groups = Sequence[Sequence[SegmentRow]]


def plan_merge(segments: Sequence[SegmentRow], *, max_runs: int) -> Groups:
    """Neighbours that are to be one segment each, no larger than need be. Raises `CommitRefused` where runs stay too
    many."""
    size = _MIN_MERGED_BYTES
    while True:
        groups = list(_groups(segments, size))
        runs = sum(len(_names(group)) for group in groups)
        if runs <= max_runs:
            return groups
        if size >= MAX_MERGED_BYTES:
            raise CommitRefused(
                f"the commit is too large; runs={runs} limit={max_runs} setting=placing.max_runs"
                " do=write less at once (maxOffsetsPerTrigger), from fewer tasks (coalesce), or raise the setting"
            )
        size *= 2


def _groups(segments: Sequence[SegmentRow], size_bytes: int) -> Iterator[list[SegmentRow]]:
    group: list[SegmentRow] = []
    for each in segments:
        if group and sum(one.size_bytes for one in group) + each.size_bytes > size_bytes:
            yield group
            group = []
        group.append(each)
    yield group


def _names(group: Sequence[SegmentRow]) -> set[TopicPartition]:
    return {TopicPartition(run.topic, run.partition) for segment in group for run in segment.runs}


@dataclass(slots=True)
class _MergedRun:
    """A partition's batches of several segments; offsets count from 0."""

    name: TopicPartition
    topic_id: TopicId
    batches: list[bytearray] = field(default_factory=list)
    end: int = 0

    def add(self, body: bytes, run: RunRow, *, key: str) -> None:
        index = decode_run_index(body[run.index_position : run.index_position + run.index_length], key=key)
        for entry in index.blocks:
            block = decode_block(body[entry.position : entry.position + entry.stored_bytes], entry, key=key)
            for batch in batches_of(block):
                moved, header = bytearray(batch), read_header(batch)
                base_offset = self.end + header.base_offset - run.stored_base
                place(moved, base_offset=base_offset, leader_epoch=header.leader_epoch)
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


async def merge_segments(
    store: ObjectStore,
    groups: Groups,
    topic_ids: Mapping[str, TopicId],
    identity: Identity,
    *,
    clock: Clock,
    ids: Ids,
) -> list[SegmentRow]:
    """Store one object for each group, and say what is in it; a segment that is alone stays as it is."""
    merged: list[SegmentRow] = []
    for group in groups:
        if len(group) == 1:
            merged += group
            continue
        runs: dict[TopicPartition, _MergedRun] = {}
        for segment in group:
            body = await store.get_range(segment.key, 0, segment.size_bytes)
            for run in segment.runs:
                name = TopicPartition(run.topic, run.partition)
                runs.setdefault(name, _MergedRun(name, topic_ids[run.topic])).add(body, run, key=segment.key)
        ordered = [runs[name] for name in sorted(runs)]
        encoded = encode_segment([run.input() for run in ordered])
        key = placed_segment_key(identity.query, identity.epoch, ids.token())
        await store.put_new(key, encoded.body)
        merged.append(segment_row(key, encoded, ordered, created_at_ms=clock.now_ms()))
    return merged
