"""Segment: one immutable object that holds the batches of one or many partitions.

Data path   buffer -> flush -> **encode_segment** -> PUT -> metadata rows -> range GET -> **decode_block** -> fetch
Owns        the order of the parts: header, blocks, run indexes, directory, footer
Leaves      each part's bytes to `format.block`, `format.run_index` and `format.directory`; I/O to the stores
Invariant   every byte is covered by a checksum that a reader of that range checks

The bytes are described in `docs/formats/segment.md`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from streamhouse.errors import Internal
from streamhouse.format.batch import Buffer
from streamhouse.format.block import BatchFacts, BlockEntry, batch_facts, decode_block, encode_block, grouped
from streamhouse.format.directory import (
    Directory,
    DirectoryEntry,
    NeedMore,
    check_header,
    encode_header,
    encode_tail,
    read_directory,
)
from streamhouse.format.run_index import (
    RunIndex,
    decode_run_index,
    encode_run_index,
    salvage_blocks,
    salvage_producers,
)
from streamhouse.model.names import Epoch, PartitionId
from streamhouse.model.segment import Run

__all__ = [
    "BlockEntry",
    "Directory",
    "DirectoryEntry",
    "EncodedSegment",
    "NeedMore",
    "RunIndex",
    "RunInput",
    "RunLayout",
    "check_header",
    "decode_block",
    "decode_run_index",
    "encode_segment",
    "read_directory",
    "salvage_blocks",
    "salvage_producers",
]

NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInput:
    """What goes into a segment for a partition: placed batches, one per buffer, within offsets [base, end)."""

    partition: PartitionId
    epoch: Epoch
    base: int
    end: int
    batches: Sequence[Buffer]
    producers: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLayout:
    """Where a run came to stand; becomes a metadata row once the object has a key."""

    entry: DirectoryEntry

    def run(self, object_key: str) -> Run:
        entry = self.entry
        return Run(
            partition=entry.partition,
            base=entry.base,
            end=entry.end,
            stored_base=entry.base,
            epoch=entry.epoch,
            object_key=object_key,
            position=entry.position,
            length=entry.length,
            index_position=entry.index_position,
            index_length=entry.index_length,
            records=entry.records,
            max_timestamp_ms=entry.max_timestamp_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedSegment:
    """A segment ready for its PUT. `body` may share memory with the batches: leave those alone until it is stored."""

    body: list[Buffer]
    size_bytes: int
    layouts: tuple[RunLayout, ...]


def encode_segment(runs: Sequence[RunInput], *, block_bytes: int = 1 << 20) -> EncodedSegment:
    """Lay runs out as one object. Most of the work runs outside the GIL: call it in a thread."""
    body: list[Buffer] = [encode_header()]
    position = len(body[0])
    drafts: list[_Draft] = []
    for run in runs:
        draft = _encode_blocks(run, body, position=position, block_bytes=block_bytes)
        position += draft.length
        drafts.append(draft)
    entries: list[DirectoryEntry] = []
    for draft in drafts:
        index = encode_run_index(draft.index)
        body.append(index)
        entries.append(draft.entry(index_position=position, index_length=len(index)))
        position += len(index)
    tail = encode_tail(entries, position=position)
    body.append(tail)
    layouts = tuple(RunLayout(entry=entry) for entry in entries)
    return EncodedSegment(body=body, size_bytes=position + len(tail), layouts=layouts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """A run whose blocks stand, and whose index doesn't yet."""

    index: RunIndex
    position: int
    length: int
    records: int

    def entry(self, *, index_position: int, index_length: int) -> DirectoryEntry:
        return DirectoryEntry(
            partition=self.index.partition,
            epoch=self.index.epoch,
            base=self.index.stored_base,
            end=self.index.stored_end,
            position=self.position,
            length=self.length,
            index_position=index_position,
            index_length=index_length,
            records=self.records,
            max_timestamp_ms=max((block.max_timestamp_ms for block in self.index.blocks), default=NO_TIMESTAMP),
        )


def _encode_blocks(run: RunInput, body: list[Buffer], *, position: int, block_bytes: int) -> _Draft:
    facts = [batch_facts(batch) for batch in run.batches]
    _check_order(run, facts)
    entries: list[BlockEntry] = []
    start = position
    for batches in grouped(facts, block_bytes):
        block = encode_block(batches, stored_base=run.base, position=position)
        body.extend(block.pieces)
        entries.append(block.entry)
        position += block.entry.stored_bytes
    index = RunIndex(
        partition=run.partition,
        epoch=run.epoch,
        stored_base=run.base,
        stored_end=run.end,
        blocks=tuple(entries),
        producers=run.producers,
    )
    return _Draft(index=index, position=start, length=position - start, records=sum(fact.records for fact in facts))


def _check_order(run: RunInput, facts: Sequence[BatchFacts]) -> None:
    """A segment outlives whoever wrote it: offsets that overlap or leave the run are stopped here."""
    expected = run.base
    for fact in facts:
        if fact.base < expected or fact.end <= fact.base:
            raise Internal(f"batch out of order; partition={run.partition} base={fact.base} expected={expected}")
        expected = fact.end
    if expected > run.end:
        raise Internal(f"batch beyond its run; partition={run.partition} end={expected} run_end={run.end}")
