"""Splits: even, exact, and none without records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.model.names import TopicPartition
from streamhouse.spark.agents.client import OffsetRange, PartitionPlan, ReadPlan, RunLocation, merge_pages
from streamhouse.spark.datasource.split_planner import (
    MIB,
    MIN_SPLIT_BYTES,
    SegmentRange,
    count_splits,
    segment_ranges,
    splits_of,
)

ORDERS = TopicPartition("orders", 0)


def run(base: int, end: int, *, length: int = 1000, max_timestamp_ms: int = 0) -> RunLocation:
    return RunLocation(
        key=f"segments/{base}",
        base=base,
        end=end,
        stored_base=0,
        position=8,
        length=length,
        index_position=8 + length,
        index_length=100,
        records=end - base,
        max_timestamp_ms=max_timestamp_ms,
    )


def plan(
    *runs: RunLocation, log_start: int = 0, flushed_end: int = 0, end: int = 0, partition: int = 0
) -> PartitionPlan:
    return PartitionPlan("orders", partition, log_start, end, flushed_end, list(runs))


def ranges(pieces: list[SegmentRange]) -> list[tuple[int, int, bool]]:
    return [(piece.start, piece.end, piece.run is None) for piece in pieces]


def test_a_span_is_the_runs_that_hold_it_and_the_tail() -> None:
    result = plan(run(0, 10), run(12, 20), flushed_end=20, end=25)
    assert ranges(list(segment_ranges(result, OffsetRange(ORDERS, 5)))) == [
        (5, 10, False),
        (12, 20, False),
        (20, 25, True),
    ]
    assert ranges(list(segment_ranges(result, OffsetRange(ORDERS, 5, 13)))) == [(5, 10, False), (12, 13, False)]
    assert ranges(list(segment_ranges(result, OffsetRange(ORDERS, 22, 99)))) == [(22, 25, True)]


def test_what_lies_below_the_log_start_is_not_read() -> None:
    result = plan(run(0, 10), log_start=4, flushed_end=10, end=10)
    assert ranges(list(segment_ranges(result, OffsetRange(ORDERS, 0)))) == [(4, 10, False)]


def test_runs_that_are_too_old_are_left_out_but_the_tail_is_not() -> None:
    result = plan(run(0, 10, max_timestamp_ms=99), run(10, 20, max_timestamp_ms=100), flushed_end=20, end=21)
    assert ranges(list(segment_ranges(result, OffsetRange(ORDERS, 0), from_ms=100))) == [
        (10, 20, False),
        (20, 21, True),
    ]


@pytest.mark.parametrize(
    ("total_bytes", "min_partitions", "count"),
    [
        (1, 1, 1),
        (MIN_SPLIT_BYTES, 1, 1),
        (64 * MIB, 1, 4),
        (200 * MIB, 1, 8),
        (400 * MIB, 1, 12),
        (3200 * MIB, 1, 100),
        (1, 5, 5),
        (100 * MIB, 40, 40),
    ],
)
def test_as_many_splits_as_the_bytes_are_worth(total_bytes: float, min_partitions: int, count: int) -> None:
    assert count_splits(total_bytes, split_bytes=32 * MIB, min_partitions=min_partitions) == count


def test_one_huge_partition_is_cut_evenly() -> None:
    result = plan(run(0, 1_000_000, length=640 * MIB), flushed_end=1_000_000, end=1_000_000)
    splits = splits_of(list(segment_ranges(result, OffsetRange(ORDERS, 0))), store="memory:", split_bytes=32 * MIB)
    assert len(splits) == 20
    assert {piece.end - piece.start for split in splits for piece in split.pieces} == {50_000}


def test_a_task_has_no_more_records_than_someone_allows_and_they_share_evenly() -> None:
    result = plan(run(0, 60), run(60, 90), flushed_end=90, end=100)
    pieces = list(segment_ranges(result, OffsetRange(ORDERS, 0)))
    splits = splits_of(pieces, store="memory:", split_bytes=32 * MIB, max_records=30)
    assert [sum(piece.end - piece.start for piece in split.pieces) for split in splits] == [25, 25, 25, 25]
    offsets = [offset for split in splits for piece in split.pieces for offset in range(piece.start, piece.end)]
    assert offsets == list(range(100))


def test_small_runs_of_many_partitions_share_a_task() -> None:
    pieces = [
        piece
        for number in range(50)
        for piece in segment_ranges(plan(run(0, 9), flushed_end=9, end=9, partition=number), OffsetRange(ORDERS, 0))
    ]
    (split,) = splits_of(pieces, store="memory:", split_bytes=32 * MIB)
    assert len(split.pieces) == 50


@given(
    lengths=st.lists(st.tuples(st.integers(1, 200), st.integers(1, 10**9)), min_size=1, max_size=20),
    min_partitions=st.integers(1, 30),
)
def test_splits_hold_every_offset_once_and_in_order(lengths: list[tuple[int, int]], min_partitions: int) -> None:
    runs, end = list[RunLocation](), 0
    for offsets, length in lengths:
        runs.append(run(end, end + offsets, length=length))
        end += offsets
    pieces = list(segment_ranges(plan(*runs, flushed_end=end, end=end + 7), OffsetRange(ORDERS, 0)))
    splits = splits_of(pieces, store="memory:", split_bytes=32 * MIB, min_partitions=min_partitions)
    results = [offset for split in splits for piece in split.pieces for offset in range(piece.start, piece.end)]
    assert results == list(range(end + 7))
    assert all(split.pieces for split in splits)
    total = sum(piece.weight for piece in pieces)
    assert len(splits) <= count_splits(total, split_bytes=32 * MIB, min_partitions=min_partitions)


def test_a_partition_on_two_pages_is_one_plan() -> None:
    first = ReadPlan("memory:", 900, [plan(run(0, 5), flushed_end=10, end=12)], "orders:0:5")
    second = ReadPlan("memory:", 900, [plan(run(5, 10), flushed_end=10, end=13)])
    (one,) = merge_pages([first, second])
    assert ([each.base for each in one.runs], one.end) == ([0, 5], 13)
