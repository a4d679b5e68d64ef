"""Lag of groups: the history thins out with age, and the health says what a person would."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.format.metadata_values import decode_lag, encode_lag
from streamhouse.model.group import CommittedOffset
from streamhouse.model.group_lag import (
    COARSE_MS,
    FINE_MS,
    KEPT_MS,
    GroupHealth,
    GroupLag,
    LagHistory,
    LagSample,
    PartitionLag,
    WaitingPartition,
    group_health,
    records_per_s,
    since_ms,
    thinned,
    with_sample,
)
from streamhouse.model.names import TopicPartition

ORDERS = TopicPartition("orders", 0)
DAY_MS = 24 * 3_600_000
NOW_MS = 1_800_000_000_000


def histories_of(samples: list[LagSample]) -> tuple[LagSample, ...]:
    kept: tuple[LagSample, ...] = ()
    for each in samples:
        kept = with_sample(kept, each)
    return kept


def every(step_ms: int, count: int, lag: int = 5) -> list[LagSample]:
    return [LagSample(NOW_MS - (count - 1 - number) * step_ms, lag, 1) for number in range(count)]


def test_three_days_of_samples_every_half_minute_take_bounded_space_and_reach_back_a_day() -> None:
    kept = histories_of(every(30_000, 3 * DAY_MS // 30_000))
    assert kept[-1].at_ms == NOW_MS
    assert NOW_MS - kept[0].at_ms >= KEPT_MS - COARSE_MS
    assert len(kept) <= FINE_MS // 30_000 + KEPT_MS // COARSE_MS + 2
    assert len(encode_lag(LagHistory("g", kept))) < 8_000


def test_a_peak_stays_visible_when_samples_thin_out() -> None:
    samples = every(30_000, 4 * 3_600_000 // 30_000)
    peak = samples[17]._replace(records=9_999)
    samples[17] = peak
    assert peak in histories_of(samples)


def test_a_clock_that_went_back_leaves_no_samples_of_the_future() -> None:
    ahead = LagSample(NOW_MS + 1, 1, 1)
    assert with_sample([ahead], LagSample(NOW_MS, 2, 2)) == (LagSample(NOW_MS, 2, 2),)


@given(
    samples=st.lists(
        st.tuples(st.integers(0, 2**50), st.integers(0, 2**62), st.none() | st.integers(0, 2**50)), max_size=20
    ),
    waiting=st.lists(
        st.tuples(st.text(max_size=5), st.integers(0, 2**31 - 1), st.integers(-1, 2**62), st.integers(0, 2**50)),
        max_size=5,
    ),
)
def test_a_history_is_read_as_it_was_written(
    samples: list[tuple[int, int, int | None]], waiting: list[tuple[str, int, int, int]]
) -> None:
    history = LagHistory(
        "g",
        tuple(LagSample(*each) for each in samples),
        tuple(WaitingPartition(TopicPartition(topic, number), *rest) for topic, number, *rest in waiting),
    )
    assert decode_lag("g", encode_lag(history)) == history


@given(st.binary(max_size=200))
def test_damaged_bytes_are_an_empty_history_or_one_of_samples(data: bytes) -> None:
    assert isinstance(decode_lag("g", data), LagHistory)


def test_bytes_of_a_later_version_are_an_empty_history() -> None:
    assert decode_lag("g", b"\x93\x02\x90\x90") == LagHistory("g")
    assert decode_lag("g", b"\x93\x01\x91\x93\x01\x02\xc0\x90").samples == (LagSample(1, 2, None),)


def group_of(
    lags: list[int | None],
    *,
    has_members: bool = True,
    since: int | None = NOW_MS,
    before: Sequence[LagSample] = (),
) -> GroupLag:
    partitions = [
        PartitionLag(name=ORDERS._replace(partition=number), committed=None, lag=lag, since_ms=since if lag else None)
        for number, lag in enumerate(lags)
    ]
    return GroupLag(group_id="g", at_ms=NOW_MS, has_members=has_members, partitions=partitions, samples=before)


def test_the_health_of_a_group() -> None:
    minute_ago = LagSample(NOW_MS - 60_000, 100, 1)
    stands = NOW_MS - 60_000
    assert group_of([0, 0]).health is GroupHealth.CAUGHT_UP
    assert group_of([0, None]).health is GroupHealth.UNKNOWN
    assert group_of([100], before=[minute_ago]).health is GroupHealth.STEADY
    assert group_of([120], before=[minute_ago]).health is GroupHealth.GROWING
    assert group_of([80], before=[minute_ago]).health is GroupHealth.SHRINKING
    assert group_of([80, 0], before=[minute_ago], since=stands).health is GroupHealth.STUCK
    assert group_of([80], before=[minute_ago], since=stands, has_members=False).health is GroupHealth.STOPPED
    assert group_of([80], before=[minute_ago], has_members=False).health is GroupHealth.SHRINKING


@pytest.mark.parametrize(("lag_ms", "health"), [(5_000, "steady"), (30_000, "growing"), (None, "growing")])
def test_a_lag_that_rises_and_falls_with_commits_does_not_grow(lag_ms: int | None, health: str) -> None:
    samples = [LagSample(NOW_MS - 60_000, 100, 1_000), LagSample(NOW_MS, 300, lag_ms)]
    assert group_health(samples, has_members=True, is_stuck=False) == health


def test_what_is_kept_says_the_same_as_what_was_measured() -> None:
    stuck = group_of([80, 0], since=NOW_MS - 60_000)
    assert stuck.history.health(has_members=True) is stuck.health is GroupHealth.STUCK
    assert LagHistory("g").health(has_members=True) is GroupHealth.UNKNOWN


def test_a_partition_stands_still_since_its_offset_is_the_same_whatever_is_committed_again() -> None:
    again = CommittedOffset(offset=7, committed_at_ms=NOW_MS)
    waiting = WaitingPartition(ORDERS, 7, NOW_MS - 5)
    assert since_ms(3, again, waiting, now_ms=NOW_MS) == NOW_MS - 5
    assert since_ms(3, again, waiting._replace(committed=6), now_ms=NOW_MS + 9) == NOW_MS
    assert since_ms(0, again, waiting, now_ms=NOW_MS) is None
    assert since_ms(3, None, None, now_ms=NOW_MS) == NOW_MS


def test_the_rate_looks_back_ten_minutes() -> None:
    samples = [LagSample(NOW_MS - 700_000, 5_000, 1), LagSample(NOW_MS - 500_000, 600, 1), LagSample(NOW_MS, 100, 1)]
    assert records_per_s(samples) == -1.0
    assert records_per_s(samples[-1:]) is None


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(0, 70))
def test_a_thinned_history_keeps_the_peak_and_the_end(lags: list[int], most: int) -> None:
    samples = [LagSample(at_ms, records, None) for at_ms, records in enumerate(lags)]
    kept = thinned(samples, most)
    assert len(kept) <= most
    assert list(kept) == sorted(set(kept))
    assert set(kept) <= set(samples)
    if most and samples:
        assert kept[-1] == samples[-1]
    if most > 1 and samples:
        assert max(each.records for each in kept) == max(lags)
    if most >= len(samples):
        assert list(kept) == samples
