"""A pass of compaction by a job: what stays is what Kafka's rules say, wherever it is stopped and whoever is beside."""

import contextlib
import random
from collections.abc import Iterator

import pytest

from streamhouse.errors import Misconfigured, Unavailable
from streamhouse.spark.maintenance import compaction_job, compaction_plan, merge_job
from streamhouse.spark.maintenance.compaction_job import CompactionResult, compact
from streamhouse.spark.maintenance.job import Progress
from streamhouse.spark.maintenance.retained_offsets import OffsetGroup
from tests.spark.maintenance.compacting import (
    DAY_MS,
    STILL,
    HereExecutors,
    Later,
    NoExecutors,
    Seen,
    agents_ahead,
    cleaned,
    compact_later,
    create,
    final,
    left_by_kafka,
    put,
    read_all,
)
from tests.spark.maintenance.support import HereTasks, ask, run_count
from tests.support.agent import LiveAgent

KEYS = [f"k{number}" for number in range(6)]


class Stopped(Exception):
    """The job dies here."""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    with LiveAgent(tmp_path_factory.mktemp("compaction") / "data", *STILL) as running:
        yield running


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task rewrites three runs at most."""
    monkeypatch.setattr(compaction_plan, "MAX_RUNS", 3)


def compact_here(agent: LiveAgent, topic: str, *, ahead_ms: int = 0) -> CompactionResult:
    return compact_later(agent, topic, ahead_ms)


def values(agent: LiveAgent, topic: str) -> list[tuple[int, bytes, bytes | None]]:
    return [(each.offset, each.key, each.value) for each in read_all(agent, topic)]


def test_the_latest_of_each_key_stays_where_it_was(agent: LiveAgent) -> None:
    create(agent, "latest", cleanup_policy="compact")
    put(agent, "latest", ("a", "1"), ("b", "2"), ("a", "3"))
    put(agent, "latest", ("c", "4"), ("b", "5"))
    done = compact_here(agent, "latest")
    assert values(agent, "latest") == [(2, b"a", b"3"), (3, b"c", b"4"), (4, b"b", b"5")]
    assert (done.records, done.dropped_records, done.objects, done.up_to) == (3, 2, 1, {0: 5})
    assert (done.runs_before, done.runs_after, done.replaced_runs) == (2, 2, 1), "nothing of the second one went"
    assert cleaned(agent, "latest") == {0: 5}


def test_what_is_clean_is_left_alone(agent: LiveAgent) -> None:
    create(agent, "clean", cleanup_policy="compact")
    assert compact("clean", agents=agent.http, executors=NoExecutors()).objects == 0
    put(agent, "clean", ("a", "1"))
    assert compact_here(agent, "clean").objects == 0
    assert cleaned(agent, "clean") == {0: 1}
    assert compact("clean", agents=agent.http, executors=NoExecutors()).up_to == {}


def test_a_topic_that_is_not_compacted_gets_that_error(agent: LiveAgent) -> None:
    create(agent, "kept")
    put(agent, "kept", ("a", "1"), ("a", "2"))
    with pytest.raises(Misconfigured, match=r"not compacted; topic=kept .*cleanup\.policy=compact"):
        compact("kept", agents=agent.http, executors=NoExecutors())


def test_records_of_before_the_topic_was_compacted_go_if_they_have_no_key(agent: LiveAgent) -> None:
    create(agent, "became", retention_ms="-1")
    put(agent, "became", (None, "0"), ("a", "1"), (None, "2"))
    ask(agent, "/v1/topics/became", {"settings": {"cleanup.policy": "compact,delete"}}, method="PATCH")
    compact_here(agent, "became")
    assert values(agent, "became") == [(1, b"a", b"1")]


def test_young_records_stay_as_long_as_the_topic_wants(agent: LiveAgent) -> None:
    create(agent, "young", cleanup_policy="compact", min_compaction_lag_ms=str(DAY_MS))
    put(agent, "young", ("a", "1"), ("a", "2"), timestamp_ms=1)
    put(agent, "young", ("a", "3"))
    compact_here(agent, "young")
    assert values(agent, "young") == [(1, b"a", b"2"), (2, b"a", b"3")]
    assert cleaned(agent, "young") == {0: 2}
    compact_here(agent, "young", ahead_ms=2 * DAY_MS)
    assert values(agent, "young") == [(2, b"a", b"3")]


def test_a_tombstone_stays_until_its_time_is_over(agent: LiveAgent) -> None:
    create(agent, "graves", cleanup_policy="compact", delete_retention_ms=str(DAY_MS))
    put(agent, "graves", ("a", "1"), ("b", "2"))
    put(agent, "graves", ("a", None))
    compact_here(agent, "graves")
    assert values(agent, "graves") == [(1, b"b", b"2"), (2, b"a", None)]
    put(agent, "graves", ("c", "3"))
    compact_here(agent, "graves")
    assert (2, b"a", None) in values(agent, "graves"), "its horizon is a day away"
    put(agent, "graves", ("d", "4"))
    compact_here(agent, "graves", ahead_ms=2 * DAY_MS)
    assert values(agent, "graves") == [(1, b"b", b"2"), (3, b"c", b"3"), (4, b"d", b"4")]


def test_the_end_of_the_log_stays_where_its_last_record_went(agent: LiveAgent) -> None:
    create(agent, "ends", cleanup_policy="compact", delete_retention_ms="0")
    put(agent, "ends", ("a", "1"), ("a", None))
    compact_here(agent, "ends")
    put(agent, "ends", ("b", "2"), ("b", None))
    compact_here(agent, "ends", ahead_ms=DAY_MS)
    assert [each for each in values(agent, "ends") if each[0] < 2] == []
    put(agent, "ends", ("c", "3"))
    assert values(agent, "ends")[-1] == (4, b"c", b"3")


def history(agent: LiveAgent, topic: str, chance: random.Random, *, runs: int) -> None:
    for _ in range(runs):
        put(
            agent,
            topic,
            *((chance.choice(KEYS), chance.choice([None, "x", "y", "z"])) for _ in range(chance.randint(1, 4))),
            partition=chance.randrange(2),
        )


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("seed", range(2))
def test_a_job_that_dies_between_two_replacements_brings_no_key_back(agent: LiveAgent, seed: int) -> None:
    """Tombstones have no time at all here: whatever went too early would be seen."""
    chance = random.Random(seed)
    topic = f"dying-{seed}"
    create(agent, topic, partitions=2, cleanup_policy="compact", delete_retention_ms="0")
    history(agent, topic, chance, runs=14)
    log = read_all(agent, topic, partitions=2)
    for death in range(4):
        left = chance.randint(0, 4)

        def die(at: Progress) -> None:
            nonlocal left
            left -= at.what == "rewriting" and at.done_bytes > 0
            if left < 0:
                raise Stopped

        with contextlib.suppress(Stopped):
            compact_later(agent, topic, death * DAY_MS, on_progress=die)
        before = read_all(agent, topic, partitions=2)
        assert final(before) == final(log)
        history(agent, topic, chance, runs=2)
        ends = {each: max((one.offset for one in before if one.partition == each), default=-1) for each in (0, 1)}
        log += [one for one in read_all(agent, topic, partitions=2) if one.offset > ends[one.partition]]
    compact_here(agent, topic, ahead_ms=30 * DAY_MS)
    seen = read_all(agent, topic, partitions=2)
    assert final(seen) == final(log)
    assert {each for each in seen if each.value is not None} == {
        each for each in left_by_kafka(log) if each.value is not None
    }
    assert set(seen) <= set(left_by_kafka(log))


@pytest.mark.usefixtures("small_groups")
def test_runs_are_replaced_oldest_first(agent: LiveAgent) -> None:
    create(agent, "order", partitions=2, cleanup_policy="compact")
    for number in range(8):
        for partition in range(2):
            put(agent, "order", ("a", str(number)), partition=partition)
    executors = HereExecutors()
    done = compact("order", agents=agent.http, executors=executors)
    assert executors.rewritten == [OffsetGroup(each, *at) for each in (0, 1) for at in ((0, 3), (3, 6), (6, 8))]
    assert [(each.partition, each.offset) for each in sorted(read_all(agent, "order", partitions=2))] == [
        (0, 7),
        (1, 7),
    ]
    assert done.replaced_runs == 14, "nothing of the last ones went"


@pytest.mark.usefixtures("small_groups")
def test_runs_that_someone_merged_meanwhile_are_planned_again(agent: LiveAgent) -> None:
    create(agent, "beside", cleanup_policy="compact")
    history_of = [("a", "1"), ("b", "2"), ("a", None), ("c", "3"), ("b", "4"), ("a", "5"), ("c", "6"), ("d", "7")]
    for pair in history_of:
        put(agent, "beside", pair)
    log = read_all(agent, "beside")
    merged: list[int] = []

    def merge(bounds: OffsetGroup) -> None:
        if bounds.start == 3 and not merged:
            merged.append(merge_job.run("beside", agents=agent.http, tasks=HereTasks()).replaced_runs)

    done = compact("beside", agents=agent.http, executors=HereExecutors(merge))
    assert merged[0] > 1
    assert done.conflicts == 1
    assert done.rounds == 2
    assert sorted(read_all(agent, "beside")) == left_by_kafka(log)
    assert cleaned(agent, "beside") == {0: 8}


def test_records_above_the_pass_stay_though_a_merge_put_them_into_the_same_run(agent: LiveAgent) -> None:
    create(agent, "across", cleanup_policy="compact")
    for number in range(4):
        put(agent, "across", ("a", str(number)))

    def more(bounds: OffsetGroup) -> None:
        if run_count(agent, "across") == 4:
            put(agent, "across", ("a", "4"), ("a", "5"))
            merge_job.run("across", agents=agent.http, tasks=HereTasks())

    done = compact("across", agents=agent.http, executors=HereExecutors(more))
    assert done.up_to == {0: 4}
    assert values(agent, "across") == [(3, b"a", b"3"), (4, b"a", b"4"), (5, b"a", b"5")]


def test_a_topic_that_was_made_again_is_left_alone(agent: LiveAgent) -> None:
    create(agent, "again", cleanup_policy="compact")
    put(agent, "again", ("a", "1"), ("a", "2"))

    def remake(bounds: OffsetGroup) -> None:
        ask(agent, "/v1/topics/again", method="DELETE")
        create(agent, "again", cleanup_policy="compact")
        put(agent, "again", ("b", "1"), ("c", "2"))

    with pytest.raises(Unavailable, match="made again"):
        compact("again", agents=agent.http, executors=HereExecutors(remake))
    assert values(agent, "again") == [(0, b"b", b"1"), (1, b"c", b"2")]


def test_a_job_does_not_go_on_forever_against_others(agent: LiveAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_job, "MAX_ROUNDS", 3)
    create(agent, "contested", cleanup_policy="compact")
    put(agent, "contested", ("a", "1"), ("a", "2"))

    def rewrite(bounds: OffsetGroup) -> None:
        for _ in range(2):
            put(agent, "contested", ("b", "1"))
        merge_job.run("contested", agents=agent.http, tasks=HereTasks())

    with pytest.raises(Unavailable, match="all the time; topic=contested conflicts=3"):
        compact("contested", agents=agent.http, executors=HereExecutors(rewrite))
    compact_here(agent, "contested")
    assert [each.key for each in read_all(agent, "contested")] == [b"a", b"b"]


def test_what_a_group_has_too_much_for_memory_becomes_several_objects(
    agent: LiveAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamhouse.spark.maintenance.run_compaction.MAX_RAW_BYTES", 1)
    create(agent, "large", cleanup_policy="compact")
    for number in range(3):
        put(agent, "large", ("a", str(number)), ("b", str(number)), (f"only-{number}", "x"))
    log: list[Seen] = read_all(agent, "large")
    done = compact_here(agent, "large")
    assert (done.objects, done.rounds) == (2, 1)
    assert sorted(read_all(agent, "large")) == left_by_kafka(log)


@pytest.mark.parametrize("ahead", ["job", "agents"])
def test_a_tombstone_stays_where_only_one_clock_says_that_its_time_is_over(agent: LiveAgent, ahead: str) -> None:
    topic = f"ahead-{ahead}"
    create(agent, topic, cleanup_policy="compact", delete_retention_ms=str(DAY_MS))
    put(agent, topic, ("a", "1"))
    put(agent, topic, ("a", None))
    compact_here(agent, topic)
    put(agent, topic, ("b", "2"))
    if ahead == "job":
        compact(topic, agents=agent.http, executors=HereExecutors(), clock=Later(2 * DAY_MS))
    else:
        with agents_ahead(2 * DAY_MS):
            compact(topic, agents=agent.http, executors=HereExecutors())
    assert values(agent, topic) == [(1, b"a", None), (2, b"b", b"2")]
    put(agent, topic, ("c", "3"))
    compact_here(agent, topic, ahead_ms=2 * DAY_MS)
    assert values(agent, topic) == [(2, b"b", b"2"), (3, b"c", b"3")]
