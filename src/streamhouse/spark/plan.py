"""Plan: what to read becomes splits of even size, one for each task.

Data path   agents' plans -> **pieces** -> **splits** -> executors
Owns        which runs hold what of a span, where runs are cut, what shares a task
Leaves      asking to `agents`; reading to `reading` and `tail`

A piece is a range of offsets, so a cut is exact whatever lies around it: a block at a cut is read by both neighbours,
each of which keeps its own records. And a piece stays readable after its run was merged into another one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from streamhouse.model.names import TopicPartition
from streamhouse.model.transaction import AbortedTransaction
from streamhouse.spark.agents import PartitionPlan, RunRow, Span

MIB: Final = 1024 * 1024
LEAST_SPLIT_BYTES: Final = 16 * MIB
"""Less than this is not worth a task of its own: Spark spends as much CPU on a task of nothing as on reading 2 to 6."""
WANTED_SPLITS: Final = 8
"""Of reads in between: enough for the cores of a small machine to end at the same time."""
TAIL_RECORD_BYTES: Final = 256
"""What a record of the tail is taken to weigh, where no run tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Offsets [start, end) of a partition, in a run, or with the leader where `run` is None.

    In a run there may be records of `aborted` transactions; a leader leaves them out itself.
    """

    place: TopicPartition
    start: int
    end: int
    weight: float
    run: RunRow | None = None
    aborted: tuple[AbortedTransaction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """What one task reads, in this order."""

    store: str
    pieces: tuple[Piece, ...]


Pieces: TypeAlias = Sequence[Piece]


def pieces_of(plan: PartitionPlan, span: Span, *, from_ms: int | None = None) -> Iterator[Piece]:
    """The runs and the tail that hold a span, oldest first; of runs only those that have records since `from_ms`."""
    start = max(span.start, plan.log_start)
    end = plan.end if span.end is None else min(span.end, plan.end)
    void = plan.void
    for run in plan.runs:
        first, last = max(start, run.base), min(end, run.end, plan.segments_end)
        if first < last and (from_ms is None or run.max_timestamp_ms >= from_ms):
            weight = max(1.0, run.length * (last - first) / (run.end - run.base))
            aborted = void.within(first, last)
            yield Piece(place=plan.place, start=first, end=last, weight=weight, run=run, aborted=aborted)
    first = max(start, plan.segments_end)
    if first < end:
        weight = (end - first) * _record_bytes(plan.runs)
        yield Piece(place=plan.place, start=first, end=end, weight=max(1.0, weight))


def _record_bytes(runs: Sequence[RunRow]) -> float:
    offsets = sum(run.end - run.base for run in runs)
    return sum(run.length for run in runs) / offsets if offsets else TAIL_RECORD_BYTES


def count_splits(total_bytes: float, *, split_bytes: int, min_partitions: int) -> int:
    """How many tasks are right for so many bytes."""
    least = min(LEAST_SPLIT_BYTES, split_bytes)
    by_size = total_bytes / split_bytes
    by_cores = min(WANTED_SPLITS, total_bytes / least)
    return max(1, min_partitions, round(max(by_size, by_cores)))


def splits_of(
    pieces: Pieces, *, store: str, split_bytes: int, min_partitions: int = 1, max_records: int | None = None
) -> list[Split]:
    """Cut a row of pieces into splits of the same weight, none with more offsets than `max_records`; none is empty."""
    if not pieces:
        return []
    total = sum(piece.weight for piece in pieces)
    count = count_splits(total, split_bytes=split_bytes, min_partitions=min_partitions)
    shares: Iterable[Pieces] = _dealt(pieces, total, count)
    if max_records is not None:
        shares = [part for share in shares for part in _small(share, max_records)]
    return [Split(store=store, pieces=tuple(share)) for share in shares if share]


def _dealt(pieces: Iterable[Piece], total: float, count: int) -> Iterator[list[Piece]]:
    """A share ends where its part of the whole ends, so that roundings don't add up; the last one takes the rest."""
    share: list[Piece] = []
    number, used = 1, 0.0
    for piece in pieces:
        rest: Piece | None = piece
        while rest is not None:
            room = total * number / count - used if number < count else rest.weight
            if room <= 0:
                yield share
                share, number = [], number + 1
                continue
            taken, rest = cut(rest, room)
            share.append(taken)
            used += taken.weight
    yield share


def _small(share: Pieces, most: int) -> Iterator[list[Piece]]:
    """As few even parts as have no more than so many offsets each."""
    offsets = sum(piece.end - piece.start for piece in share)
    parts = -(-offsets // most)
    return _dealt([replace(piece, weight=piece.end - piece.start) for piece in share], offsets, max(1, parts))


def cut(piece: Piece, room: float) -> tuple[Piece, Piece | None]:
    """As much of a piece as there is room for, an offset at least, and the rest."""
    offsets = piece.end - piece.start
    fitting = max(1, round(offsets * room / piece.weight))
    if fitting >= offsets:
        return piece, None
    middle, share = piece.start + fitting, fitting / offsets
    taken = replace(piece, end=middle, weight=piece.weight * share)
    return taken, replace(piece, start=middle, weight=piece.weight * (1 - share))
