"""Run rewriting: reading the batches of runs, and the layout of the runs that replace them.

Data path   none: bytes of runs -> **run_rewrite** -> inputs of a new segment, in agents and in Spark jobs
Owns        one run for each epoch; offsets of runs of external commits; the producer snapshot of a new run
Leaves      which batches are retained, and I/O, to the callers, bytes of segments to `format.segment`
Invariant   a run that replaces others has the producer snapshot of the last of them
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from streamhouse.format.batch import Buffer, iter_batches, shift_offsets
from streamhouse.format.block import BlockEntry, decode_block
from streamhouse.format.run_index import RunIndex
from streamhouse.format.segment import RunInput
from streamhouse.model.segment import Run


@dataclass(frozen=True, slots=True)
class Source:
    """A run to rewrite, and its index."""

    run: Run
    index: RunIndex

    @property
    def raw_bytes(self) -> int:
        return sum(block.raw_bytes for block in self.index.blocks)


class RewrittenRun(NamedTuple):
    """The replacement of a source: its batches, one per buffer."""

    source: Source
    batches: Sequence[Buffer]


def batches_of(piece: Buffer) -> Iterator[memoryview]:
    """Consecutive batches, one by one, without a copy."""
    view = memoryview(piece)
    for span in iter_batches(view):
        yield view[span.position : span.position + span.size_bytes]


def group_adjacent_blocks(blocks: Sequence[BlockEntry], read_bytes: int) -> Iterator[list[BlockEntry]]:
    """Group adjacent blocks, each group for one ranged read."""
    group: list[BlockEntry] = []
    for block in blocks:
        if group and (
            block.position != group[-1].position + group[-1].stored_bytes
            or block.position + block.stored_bytes - group[0].position > read_bytes
        ):
            yield group
            group = []
        group.append(block)
    if group:
        yield group


def decode_run_blocks(stored: Buffer, blocks: Sequence[BlockEntry], source: Source) -> Buffer:
    """The batches of adjacent blocks as they are served: with the run's current offsets and epoch."""
    run = source.run
    view, start = memoryview(stored), blocks[0].position
    pieces = [
        decode_block(view[block.position - start :][: block.stored_bytes], block, key=run.object_key)
        for block in blocks
    ]
    raw = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    shift = run.base - run.stored_base
    was_placed = shift or source.index.epoch != run.epoch
    return shift_offsets(raw, by=shift, leader_epoch=run.epoch) if was_placed else raw


def run_inputs(rewritten: Sequence[RewrittenRun]) -> Iterator[RunInput]:
    """The runs of a segment, one for each epoch, because the ends of epochs must be kept."""
    group: list[RewrittenRun] = []
    for item in rewritten:
        if group and item.source.run.epoch != group[0].source.run.epoch:
            yield _input(group)
            group = []
        group.append(item)
    yield _input(group)


def _input(group: Sequence[RewrittenRun]) -> RunInput:
    first, last = group[0].source, group[-1].source
    return RunInput(
        partition=first.run.partition,
        epoch=first.run.epoch,
        base=first.run.base,
        end=last.run.end,
        batches=[batch for item in group for batch in item.batches],
        producers=last.index.producers,
    )
