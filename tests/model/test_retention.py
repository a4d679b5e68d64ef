"""Where retention lets a log start."""

import uuid
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from streamhouse.model.log_cleanup import retention_step
from streamhouse.model.names import Epoch, PartitionId, TopicId
from streamhouse.model.segment import Run
from streamhouse.model.topic import parse_topic_config

PARTITION = PartitionId(TopicId(uuid.UUID(int=1)), 0)
NOW_MS = 1_000_000


def run(base: int, end: int, *, length: int = 100, newest_ms: int = NOW_MS) -> Run:
    return Run(
        partition=PARTITION,
        base=base,
        end=end,
        stored_base=base,
        epoch=Epoch(1),
        object_key=f"segments/{base}",
        position=0,
        length=length,
        index_position=length,
        index_length=10,
        records=end - base,
        max_timestamp_ms=newest_ms,
    )


def retained(runs: list[Run], *, log_start: int = 0, **overrides: str) -> int:
    config = parse_topic_config({name.replace("_", "."): value for name, value in overrides.items()})
    size_bytes = sum(run.length for run in runs if run.end > log_start)
    return retention_step(runs, config, log_start=log_start, now_ms=NOW_MS, size_bytes=size_bytes).start


def test_runs_older_than_the_retention_time_go() -> None:
    runs = [run(0, 10, newest_ms=NOW_MS - 1001), run(10, 20, newest_ms=NOW_MS - 1000), run(20, 30)]
    assert retained(runs, retention_ms="1000") == 10


def test_an_old_run_behind_a_young_one_stays() -> None:
    runs = [run(0, 10), run(10, 20, newest_ms=0), run(20, 30)]
    assert retained(runs, retention_ms="1000") == 0


def test_the_oldest_go_while_what_is_left_still_fills_the_size() -> None:
    runs = [run(0, 10), run(10, 20), run(20, 30)]
    assert retained(runs, retention_ms="-1", retention_bytes="200") == 10
    assert retained(runs, retention_ms="-1", retention_bytes="201") == 0
    assert retained(runs, retention_ms="-1", retention_bytes="0") == 30


def test_minus_one_keeps_everything() -> None:
    assert retained([run(0, 10, newest_ms=0)], retention_ms="-1", retention_bytes="-1") == 0


def test_what_has_no_time_is_not_taken_for_old_and_holds_back_what_follows() -> None:
    runs = [run(0, 10, newest_ms=-1), run(10, 20, newest_ms=0)]
    assert retained(runs, retention_ms="1000") == 0
    assert retained(runs, retention_ms="1000", retention_bytes="100") == 20


def test_what_holds_no_record_needs_no_time_to_go() -> None:
    empty = replace(run(0, 10, newest_ms=-1), records=0)
    assert retained([empty, run(10, 20)], retention_ms="1000") == 10


def test_a_compacted_topic_deletes_nothing_by_age() -> None:
    assert retained([run(0, 10, newest_ms=0)], retention_ms="1", cleanup_policy="compact") == 0


def test_what_lies_below_the_log_start_counts_no_more() -> None:
    runs = [run(0, 10), run(10, 20), run(20, 30)]
    assert retained(runs, log_start=10, retention_ms="-1", retention_bytes="200") == 10


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 1000), st.integers(0, NOW_MS)), max_size=20),
    st.integers(-1, 5000),
    st.integers(-1, NOW_MS),
    st.integers(0, 100),
)
def test_the_log_start_never_goes_back_and_stays_within_the_log(
    shapes: list[tuple[int, int, int]], size: int, age_ms: int, log_start: int
) -> None:
    runs, base = [], 0
    for records, length, newest_ms in shapes:
        runs.append(run(base, base + records, length=length, newest_ms=newest_ms))
        base += records
    start = retained(runs, log_start=log_start, retention_bytes=str(size), retention_ms=str(age_ms))
    assert log_start <= start <= max(base, log_start)
