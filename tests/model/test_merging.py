"""Which small runs become one."""

import random
from collections.abc import Sequence
from dataclasses import replace

from streamhouse.model.log_cleanup import MergeLimits, merge_limits, merges, next_check, runs_to_merge
from streamhouse.model.names import Epoch
from streamhouse.model.segment import Run
from streamhouse.model.topic import parse_topic_config
from tests.model.test_retention import run

LIMITS = MergeLimits(at_least=4, below_bytes=1000, max_bytes=10_000)


def runs(*lengths: int, epoch: int = 1) -> list[Run]:
    return [replace(run(10 * n, 10 * n + 10, length=size), epoch=Epoch(epoch)) for n, size in enumerate(lengths)]


def chosen(given: Sequence[Run], limits: MergeLimits = LIMITS) -> list[int]:
    return [each.base // 10 for each in runs_to_merge(given, limits)]


def test_enough_small_neighbours_become_one() -> None:
    assert chosen(runs(10, 10, 10)) == []
    assert chosen(runs(10, 10, 10, 10)) == [0, 1, 2, 3]
    assert chosen(runs(10, 10, 10, 10, 10)) == [0, 1, 2, 3, 4]


def test_a_large_run_stands_between_its_neighbours() -> None:
    assert chosen(runs(10, 10, 10, 1000, 10, 10, 10)) == []
    assert chosen(runs(10, 1000, 10, 10, 10, 10)) == [2, 3, 4, 5]


def test_runs_of_different_epochs_come_into_one_object() -> None:
    earlier = runs(10, 10, 10)
    later = [replace(each, base=each.base + 30, end=each.end + 30) for each in runs(10, 10, 10, 10, epoch=2)]
    later = [replace(each, object_key=f"segments/{each.base}") for each in later]
    assert chosen(earlier + later[:1]) == [0, 1, 2, 3]
    assert chosen(earlier + later) == [0, 1, 2, 3, 4, 5, 6]


def test_runs_that_share_an_object_because_of_their_epochs_count_as_one() -> None:
    """They can't become fewer: merging them again would be for nothing."""
    shared = [
        replace(each, epoch=Epoch(number), object_key="segments/shared") for number, each in enumerate(runs(*[10] * 9))
    ]
    others = [replace(run(n, n + 10, length=100), epoch=Epoch(9)) for n in (90, 100, 110)]
    assert chosen(shared) == []
    assert chosen(shared + others[:2]) == []
    assert chosen(shared + others) == [*range(9), 9, 10, 11]
    same_epoch = [replace(each, epoch=Epoch(1)) for each in shared]
    assert chosen(same_epoch) == list(range(9))


def test_a_run_joins_only_much_smaller_ones_together() -> None:
    assert chosen(runs(500, 10, 10, 10)) == []
    assert chosen(runs(500, 10, 10, 10, 10)) == [1, 2, 3, 4]
    assert chosen(runs(40, 40, 40, 40)) == [0, 1, 2, 3]


def test_a_merge_has_a_largest_size_and_a_longest_time() -> None:
    assert chosen(runs(*[900] * 20)) == list(range(11))
    spread = [replace(each, max_timestamp_ms=n * 100) for n, each in enumerate(runs(*[10] * 9))]
    assert chosen(spread, replace(LIMITS, max_span_ms=400)) == [0, 1, 2, 3, 4]
    assert chosen(spread, replace(LIMITS, max_span_ms=200)) == []


def test_retention_makes_the_limits_narrower() -> None:
    def limits(**overrides: str) -> MergeLimits:
        config = parse_topic_config({name.replace("_", "."): value for name, value in overrides.items()})
        return merge_limits(config, at_least=4, below_bytes=1000, max_bytes=10_000)

    assert limits(retention_ms="5000", retention_bytes="20000") == replace(LIMITS, max_bytes=2000, max_span_ms=500)
    assert limits(retention_ms="-1") == LIMITS
    assert limits(cleanup_policy="compact", retention_ms="5000") == LIMITS


def test_the_next_look_begins_where_something_may_still_be_merged() -> None:
    assert next_check(runs(2000, 10, 10), LIMITS, is_all=True) == 10
    assert next_check(runs(2000, 10, 2000), LIMITS, is_all=True) == 30
    assert next_check(runs(*[10] * 8), LIMITS, is_all=True) == 0
    assert next_check(runs(*[10] * 8), LIMITS, is_all=False) == 40


def test_a_trickle_ends_in_few_runs_and_each_byte_is_moved_a_few_times() -> None:
    limits = MergeLimits(at_least=16, below_bytes=1 << 20, max_bytes=4 << 20)
    chance = random.Random(7)
    log: list[Run] = []
    moved = written = most = end = 0
    for _ in range(4000):
        size = chance.randrange(100, 2000)
        log.append(run(end, end + 1, length=size))
        written, end = written + size, end + 1
        while window := runs_to_merge(log[-256:], limits):
            at = log.index(window[0])
            total = sum(each.length for each in window)
            log[at : at + len(window)] = [replace(window[0], end=window[-1].end, length=total)]
            moved += total
        most = max(most, len(log))
    assert [each.base for each in log] == [0, *(each.end for each in log[:-1])]
    assert most < 100
    assert moved < 6 * written


def merged(window: Sequence[Run], key: str) -> list[Run]:
    """What becomes of the runs: one of each epoch, in one object."""
    results: list[Run] = []
    for each in window:
        if results and results[-1].epoch == each.epoch:
            results[-1] = replace(results[-1], end=each.end, length=results[-1].length + each.length)
        else:
            results.append(replace(each, object_key=key))
    return results


def test_a_log_whose_leader_changes_all_the_time_has_a_run_for_each_change_and_few_objects() -> None:
    limits = MergeLimits(at_least=16, below_bytes=1 << 20, max_bytes=4 << 20)
    chance = random.Random(7)
    log: list[Run] = []
    moved = written = most = 0
    for number in range(1500):
        size = chance.randrange(100, 2000)
        log.append(replace(run(number, number + 1, length=size), epoch=Epoch(number // 3)))
        written += size
        while window := runs_to_merge(log[-256:], limits):
            at = log.index(window[0])
            log[at : at + len(window)] = merged(window, f"segments/{number}-{at}")
            moved += sum(each.length for each in window)
        most = max(most, len({each.object_key for each in log}))
    assert [each.base for each in log] == [0, *(each.end for each in log[:-1])]
    assert len({each.epoch for each in log}) == 500
    assert most < 100
    assert moved < 6 * written


def groups(given: Sequence[Run], limits: MergeLimits, *, max_runs: int = 1000, apart_at: int = 0) -> list[list[int]]:
    return [
        [each.base // 10 for each in group] for group in merges(given, limits, max_runs=max_runs, apart_at=apart_at)
    ]


def in_objects(given: Sequence[Run]) -> list[Run]:
    """Each in one of its own, as flushes leave them."""
    return [replace(each, object_key=f"o-{number}") for number, each in enumerate(given)]


ALL = MergeLimits(at_least=2, below_bytes=500, max_bytes=1000)


def test_a_job_fills_objects_with_all_small_neighbours_whatever_their_epochs() -> None:
    small = in_objects(runs(*[300] * 7))
    assert groups(small, ALL) == [[0, 1, 2], [3, 4, 5]]
    epochs = [replace(each, epoch=Epoch(number)) for number, each in enumerate(small)]
    assert groups(epochs, ALL) == [[0, 1, 2], [3, 4, 5]]
    assert groups(in_objects(runs(300, 500, 300, 10)), ALL) == [[2, 3]]
    assert groups(in_objects(runs(*[1] * 5)), ALL, max_runs=2) == [[0, 1], [2, 3]]


def test_a_job_leaves_what_it_would_only_move() -> None:
    assert groups(in_objects(runs(300)), ALL) == []
    assert groups([replace(each, object_key="one") for each in runs(10, 10)], ALL) == []
    grown = replace(ALL, at_least=4)
    assert groups(in_objects(runs(10, 10, 10)), grown) == []
    assert groups(in_objects(runs(400, 10, 10, 10, 10)), grown) == [[1, 2, 3, 4]]


def test_a_job_keeps_apart_what_retention_deletes_at_different_times_however_often_it_runs() -> None:
    limits = replace(ALL, max_span_ms=400)
    spread = [replace(each, max_timestamp_ms=n * 100) for n, each in enumerate(in_objects(runs(*[1] * 12)))]
    first = groups(spread, limits)
    assert first == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    merged = [replace(spread[each[-1]], base=10 * each[0], end=10 * each[-1] + 10) for each in first]
    assert groups(merged, limits) == []


def test_a_late_record_stays_with_those_that_it_was_written_with() -> None:
    limits = replace(ALL, max_span_ms=400)
    times = (100, 900, 200, 850, 1100)
    spread = [replace(each, max_timestamp_ms=at) for at, each in zip(times, in_objects(runs(*[1] * 5)), strict=True)]
    assert groups(spread, limits) == [[1, 2, 3, 4]]


def test_a_job_keeps_compacted_and_new_apart() -> None:
    assert groups(in_objects(runs(*[1] * 6)), ALL, apart_at=30) == [[0, 1, 2], [3, 4, 5]]
