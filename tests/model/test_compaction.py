"""When a partition is due for compaction, and how far."""

from streamhouse.model.log_cleanup import MergeLimits, compact_up_to, compactable_up_to, rewritten_together
from streamhouse.model.segment import Run
from streamhouse.model.topic import parse_topic_config
from tests.model.test_retention import NOW_MS, run


def up_to(runs: list[Run], *, cleaned_to: int = 0, **overrides: str) -> int | None:
    given = {"cleanup_policy": "compact"} | overrides
    config = parse_topic_config({name.replace("_", "."): value for name, value in given.items()})
    return compact_up_to(runs, config, cleaned_to=cleaned_to, now_ms=NOW_MS)


def test_what_was_never_compacted_is_due() -> None:
    assert up_to([run(0, 10), run(10, 20)]) == 20
    assert up_to([run(0, 10), run(10, 20)], cleanup_policy="compact,delete") == 20


def test_nothing_new_is_never_due() -> None:
    assert up_to([]) is None
    assert up_to([run(0, 10)], cleaned_to=10, max_compaction_lag_ms="1") is None


def test_a_topic_that_is_not_compacted_is_never_due() -> None:
    assert up_to([run(0, 10)], cleanup_policy="delete") is None


def test_the_share_of_new_bytes_decides() -> None:
    runs = [run(0, 10, length=100), run(10, 20, length=101)]
    assert up_to(runs, cleaned_to=10) == 20
    assert up_to([run(0, 10, length=100), run(10, 20, length=100)], cleaned_to=10) is None
    assert up_to(runs, cleaned_to=10, min_cleanable_dirty_ratio="0.6") is None
    assert up_to([*runs, run(20, 21, length=1)], cleaned_to=20, min_cleanable_dirty_ratio="0") == 21


def test_a_run_that_is_half_clean_counts_by_halves() -> None:
    assert up_to([run(0, 10, length=100)], cleaned_to=5, min_cleanable_dirty_ratio="0.4") == 10
    assert up_to([run(0, 10, length=100)], cleaned_to=5) is None


def test_young_records_and_all_behind_them_stay_as_they_are() -> None:
    runs = [run(0, 10, newest_ms=NOW_MS - 1000), run(10, 20, newest_ms=NOW_MS - 999), run(20, 30, newest_ms=0)]
    assert up_to(runs, min_compaction_lag_ms="1000") == 10
    assert up_to(runs, min_compaction_lag_ms="1001") is None
    assert up_to(runs, min_compaction_lag_ms="999") == 30
    assert up_to(runs, cleaned_to=10, min_compaction_lag_ms="1000", min_cleanable_dirty_ratio="0") is None


def test_a_record_that_has_waited_for_long_is_due_whatever_its_share() -> None:
    runs = [run(0, 10, length=10**6), run(10, 20, length=1, newest_ms=NOW_MS - 1000)]
    assert up_to(runs, cleaned_to=10, max_compaction_lag_ms="1000") is None
    assert up_to(runs, cleaned_to=10, max_compaction_lag_ms="999") == 20


def test_runs_without_bytes_make_nothing_due() -> None:
    assert up_to([run(0, 10, length=100), run(10, 20, length=0)], cleaned_to=10, min_cleanable_dirty_ratio="0") is None


# --- by hand


def by_hand(runs: list[Run], *, cleaned_to: int = 0, **overrides: str) -> int | None:
    given = {"cleanup_policy": "compact"} | overrides
    config = parse_topic_config({name.replace("_", "."): value for name, value in given.items()})
    return compactable_up_to(runs, config, cleaned_to=cleaned_to, now_ms=NOW_MS)


def test_by_hand_anything_new_is_enough() -> None:
    runs = [run(0, 10, length=100_000), run(10, 11, length=1)]
    assert up_to(runs, cleaned_to=10) is None
    assert by_hand(runs, cleaned_to=10) == 11
    assert by_hand(runs, cleaned_to=11) is None
    assert by_hand(runs, cleanup_policy="delete") is None


def test_by_hand_young_records_stay_all_the_same() -> None:
    runs = [run(0, 10, newest_ms=NOW_MS - 5000), run(10, 11, newest_ms=NOW_MS - 10)]
    assert by_hand(runs, min_compaction_lag_ms="1000") == 10
    assert by_hand(runs, min_compaction_lag_ms="10000") is None


# --- what a task rewrites


def together(runs: list[Run], *, max_runs: int = 100, max_records: int = 10**6, **limits: int) -> list[list[int]]:
    given = MergeLimits(**{"at_least": 1, "below_bytes": 0, "max_bytes": 1000} | limits)
    groups = rewritten_together(runs, given, max_runs=max_runs, max_records=max_records)
    return [[each.base for each in group] for group in groups]


def test_runs_share_a_task_up_to_bytes_records_and_runs() -> None:
    runs = [run(at, at + 10, length=400) for at in range(0, 50, 10)]
    assert together(runs) == [[0, 10], [20, 30], [40]]
    assert together(runs, max_bytes=10) == [[0], [10], [20], [30], [40]], "one is never too large"
    assert together(runs, max_bytes=10**6) == [[0, 10, 20, 30, 40]]
    assert together(runs, max_bytes=10**6, max_runs=3) == [[0, 10, 20], [30, 40]]
    assert together(runs, max_bytes=10**6, max_records=sum(each.records for each in runs[:2])) == [
        [0, 10],
        [20, 30],
        [40],
    ]
    assert together([]) == []


def test_runs_that_retention_deletes_at_other_times_stay_apart() -> None:
    runs = [run(at, at + 10, length=1, newest_ms=100 * at) for at in range(0, 50, 10)]
    assert together(runs, max_span_ms=2000) == [[0, 10], [20, 30], [40]]
    late = [run(0, 10, length=1, newest_ms=5000), run(10, 20, length=1, newest_ms=100)]
    assert together(late, max_span_ms=2000) == [[0, 10]], "they are deleted in the order of their offsets"


def test_runs_with_an_open_transaction_and_all_behind_them_stay_as_they_are() -> None:
    runs = [run(0, 10), run(10, 20), run(20, 30)]
    config = parse_topic_config({"cleanup.policy": "compact"})
    for stable_end, expected in ((30, 30), (29, 20), (10, 10), (9, None)):
        result = compact_up_to(runs, config, cleaned_to=0, now_ms=NOW_MS, stable_end=stable_end)
        assert result == compactable_up_to(runs, config, cleaned_to=0, now_ms=NOW_MS, stable_end=stable_end) == expected
