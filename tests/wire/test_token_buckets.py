"""Rates: a second's worth of turns for each client, and no more clients than the limit."""

import pytest

from streamhouse.wire.client_limits import TokenBuckets


def test_a_client_has_a_seconds_worth_and_then_as_many_as_time_brings() -> None:
    rates = TokenBuckets(10.0, clients=5)
    assert [rates.take("a", 0.0) for _ in range(10)] == [0.0] * 10
    assert rates.take("a", 0.0) == pytest.approx(0.1)
    assert rates.take("a", 0.05) == pytest.approx(0.05)
    assert rates.take("a", 0.1) == 0.0
    assert rates.take("a", 0.1) > 0


def test_one_client_takes_nothing_from_another() -> None:
    rates = TokenBuckets(1.0, clients=5)
    assert rates.take("a", 0.0) == 0.0
    assert rates.take("a", 0.0) > 0
    assert rates.take("b", 0.0) == 0.0


def test_nobody_saves_up_more_than_a_second() -> None:
    rates = TokenBuckets(2.0, clients=5)
    rates.take("a", 0.0)
    assert [rates.take("a", 1000.0) == 0.0 for _ in range(4)] == [True, True, False, False]


def test_a_rate_below_one_a_second_still_grants_one() -> None:
    rates = TokenBuckets(0.1, clients=5)
    assert rates.take("a", 0.0) == 0.0
    assert rates.take("a", 1.0) == pytest.approx(9.0)


def test_the_longest_silent_client_is_forgotten() -> None:
    rates = TokenBuckets(1.0, clients=2)
    for client in ("a", "b", "a", "c"):  # b was silent longest
        rates.take(client, 0.0)
    assert len(rates) == 2
    assert rates.take("b", 0.0) == 0.0
    assert rates.take("c", 0.0) > 0
