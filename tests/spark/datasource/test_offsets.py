"""Offsets: where reads begin and end, what a trigger takes, what a checkpoint remembers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.errors import DataLost, Misconfigured
from streamhouse.model.names import TopicPartition
from streamhouse.spark.agents.client import OffsetRange, PartitionPlan
from streamhouse.spark.datasource.offsets import (
    batch_start,
    checkpoint,
    data_loss_reporter,
    ends_at,
    is_initial,
    rate_limit,
    read_checkpoint,
    read_ids,
    recreated_topics,
    resume_offsets,
    spans_between,
    starts_at,
)
from streamhouse.spark.datasource.read_options import (
    EARLIEST,
    LATEST,
    SpecificOffsets,
    SpecificTimestamps,
    UniformOffset,
)

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
LOG_BOUNDS = {A: PartitionPlan("orders", 0, 5, 20, 15, []), B: PartitionPlan("orders", 1, 0, 8, 8, [])}
FAILS, GOES_ON = data_loss_reporter(fails=True), data_loss_reporter(fails=False)


def test_a_read_starts_at_an_end_at_an_offset_or_at_a_time() -> None:
    def starts(
        edge: UniformOffset | SpecificOffsets | SpecificTimestamps, at: dict[TopicPartition, int | None]
    ) -> dict[str, int]:
        result = starts_at(edge, LOG_BOUNDS, at, late_is_latest=True, report_loss=FAILS)
        return {str(place): offset for place, offset in result.items()}

    assert starts(UniformOffset(EARLIEST), {}) == {"orders-0": 5, "orders-1": 0}
    assert starts(UniformOffset(LATEST), {}) == {"orders-0": 20, "orders-1": 8}
    assert starts(SpecificOffsets({A: 7}), {}) == {"orders-0": 7, "orders-1": 0}
    assert starts(SpecificTimestamps({}, 1000), {A: 11, B: None}) == {"orders-0": 11, "orders-1": 8}
    assert starts(SpecificTimestamps({A: 1000}), {A: 11}) == {"orders-0": 11, "orders-1": 0}


def test_a_time_after_the_last_record_is_an_error_unless_the_options_allow_it() -> None:
    with pytest.raises(Misconfigured, match="startingOffsetsByTimestampStrategy=latest"):
        starts_at(SpecificTimestamps({}, 1000), LOG_BOUNDS, {A: 11, B: None}, late_is_latest=False, report_loss=FAILS)


@pytest.mark.parametrize(("offset", "result", "cure"), [(3, 5, "do=start later"), (99, 20, "do=start earlier")])
def test_offsets_that_are_gone_fail_the_read_or_are_left_out(offset: int, result: int, cure: str) -> None:
    edge = SpecificOffsets({A: offset})
    with pytest.raises(DataLost, match=f"{cure}.*failOnDataLoss=false"):
        starts_at(edge, LOG_BOUNDS, {}, late_is_latest=False, report_loss=FAILS)
    assert starts_at(edge, LOG_BOUNDS, {}, late_is_latest=False, report_loss=GOES_ON)[A] == result


def test_a_stream_that_has_a_checkpoint_is_not_warned_of_options_that_its_checkpoint_goes_before() -> None:
    with pytest.raises(DataLost, match="do=start with a new checkpointLocation, or set failOnDataLoss=false"):
        resume_offsets({A: 3}, LOG_BOUNDS, report_loss=data_loss_reporter(fails=True, has_checkpoint=True))


def test_offsets_of_a_partition_that_is_not_read_are_refused_with_those_that_are() -> None:
    edge = SpecificOffsets({TopicPartition("ordres", 0): 3})
    with pytest.raises(Misconfigured, match="partition=ordres-0 read=orders-0, orders-1 do=leave it out"):
        starts_at(edge, LOG_BOUNDS, {}, late_is_latest=False, report_loss=FAILS)


def test_a_batch_never_ends_behind_what_is_there() -> None:
    assert ends_at(SpecificOffsets({A: 7, B: LATEST}), LOG_BOUNDS, {}, report_loss=FAILS) == {A: 7, B: 8}
    assert ends_at(SpecificTimestamps({}, 1000), LOG_BOUNDS, {A: 11, B: None}, report_loss=FAILS) == {A: 11, B: 8}
    assert ends_at(SpecificOffsets({A: 99}), LOG_BOUNDS, {}, report_loss=GOES_ON) == {A: 20, B: 8}


def test_offsets_of_a_partition_that_is_not_read_are_refused() -> None:
    with pytest.raises(Misconfigured, match="partition=oders-0"):
        ends_at(SpecificOffsets({TopicPartition("oders", 0): 1}), LOG_BOUNDS, {}, report_loss=FAILS)


def test_partitions_without_a_start_are_read_from_their_beginning() -> None:
    assert spans_between({A: 5}, {A: 9, B: 3}) == [OffsetRange(A, 5, 9), OffsetRange(B, 0, 3)]
    assert spans_between({A: 5}, {A: 5}) == []


def test_a_stream_goes_on_where_the_log_begins_after_what_expired() -> None:
    assert resume_offsets({A: 7}, LOG_BOUNDS, report_loss=FAILS) == {A: 7}
    assert resume_offsets({A: 1}, LOG_BOUNDS, report_loss=GOES_ON) == {A: 5}
    with pytest.raises(DataLost, match="requested=1 first=5"):
        resume_offsets({A: 1}, LOG_BOUNDS, report_loss=FAILS)


def test_a_limit_is_shared_by_what_is_waiting() -> None:
    assert rate_limit({A: 0, B: 0}, {A: 75, B: 25}, 20) == {A: 15, B: 5}
    assert rate_limit({A: 10, B: 0}, {A: 20, B: 5}, 100) == {A: 20, B: 5}
    assert rate_limit({A: 10}, {A: 20}, None) == {A: 20}


@given(
    waiting=st.lists(st.tuples(st.integers(0, 100), st.integers(0, 1000)), min_size=1, max_size=8),
    most=st.floats(0.1, 500),
)
def test_a_limit_holds_and_a_stream_gets_on_whatever_waits(waiting: list[tuple[int, int]], most: float) -> None:
    starts = {TopicPartition("t", number): start for number, (start, _) in enumerate(waiting)}
    ends = {TopicPartition("t", number): start + more for number, (start, more) in enumerate(waiting)}
    result = rate_limit(starts, ends, most)
    assert all(starts[place] <= result[place] <= ends[place] for place in ends)
    taken = sum(result[place] - starts[place] for place in ends)
    assert taken <= max(1, most)
    assert taken > 0 or starts == ends


@given(
    backlog=st.integers(1_000_000, 10**12),
    quiet=st.lists(st.integers(1, 50), min_size=1, max_size=7),
    most=st.floats(0.1, 5000),
)
def test_no_partition_waits_forever_beside_a_backlog_that_keeps_growing(
    backlog: int, quiet: list[int], most: float
) -> None:
    ends = {TopicPartition("t", number): count for number, count in enumerate([backlog, *quiet])}
    starts = dict.fromkeys(ends, 0)
    for _ in range(len(ends) * max(quiet)):
        starts = rate_limit(starts, ends, most)
        ends[TopicPartition("t", 0)] += backlog
    for number, count in enumerate(quiet, 1):
        assert starts[TopicPartition("t", number)] == count


def test_a_checkpoint_is_read_as_it_was_written() -> None:
    written = checkpoint({A: 7, B: 9})
    assert written == {"offsets": {"orders": {"0": 7, "1": 9}}}
    assert read_checkpoint(written) == {A: 7, B: 9}


def test_the_first_batch_remembers_its_own_start() -> None:
    """Spark asks a query that failed in its first batch where it begins, and "latest" is elsewhere by then."""
    first, later = checkpoint({A: 7}, since={A: 7}), checkpoint({A: 10}, since={A: 10})
    assert is_initial(first)
    end = checkpoint({A: 9}, since={A: 7})
    assert not is_initial(end)
    assert batch_start(later, end) == {A: 7}
    assert batch_start(checkpoint({A: 9}), checkpoint({A: 12})) == {A: 9}


def test_topics_made_again_are_known_by_their_ids_and_old_checkpoints_have_none() -> None:
    place = TopicPartition("orders", 0)
    before = checkpoint({place: 10}, ids={"orders": "a"})
    after = checkpoint({place: 3}, ids={"orders": "b"})
    assert recreated_topics(read_ids(before), read_ids(after)) == ["orders"]
    assert batch_start(before, after) == {}
    assert batch_start(before, checkpoint({place: 12}, ids={"orders": "a"})) == {place: 10}
    old = checkpoint({place: 10})
    assert read_ids(old) == {}
    assert recreated_topics(read_ids(old), read_ids(after)) == []
    assert batch_start(old, checkpoint({place: 12}, ids={"orders": "a"})) == {place: 10}
