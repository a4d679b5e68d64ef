"""The benchmarks' histogram says what the sorted waits say."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.histogram import Histogram, bucket_of, longest_s
from benchmarks.measure import Curve, Reading
from benchmarks.pace import quantile

WAITS = st.floats(min_value=1e-6, max_value=100.0)


@given(st.lists(WAITS, min_size=1, max_size=300), st.floats(min_value=0.0, max_value=1.0))
def test_a_quantile_is_that_of_the_sorted_waits_to_a_thousandth(waits_s: list[float], share: float) -> None:
    exact = quantile(sorted(waits_s), share)
    assert Histogram(waits_s).quantile_s(share) == pytest.approx(exact, rel=1.2e-3, abs=2e-9)


@given(WAITS, WAITS)
def test_a_longer_wait_never_has_a_lower_bucket(one: float, other: float) -> None:
    assert (bucket_of(one) <= bucket_of(other)) or one > other
    assert longest_s(bucket_of(one)) >= one * (1 - 1e-9)


def test_two_histograms_together_are_one_of_all_waits() -> None:
    chance = random.Random(1)
    waits_s = [chance.expovariate(1000) for _ in range(2000)]
    together = Histogram(waits_s[:700])
    together.merge(Histogram(waits_s[700:]))
    whole = Histogram(waits_s)
    assert together.count == whole.count
    assert [together.quantile_s(share / 100) for share in range(101)] == [
        whole.quantile_s(share / 100) for share in range(101)
    ]


def test_responses_are_percentiles_in_milliseconds_and_a_curve_that_rises() -> None:
    responses = list(Histogram(number / 1e3 for number in range(1000, 0, -1)).responses("ack"))
    result = {response.metric: response.value for response in responses if isinstance(response, Reading)}
    assert result == pytest.approx({"p50": 501.0, "p99": 991.0, "p99.9": 1000.0}, rel=1e-3)
    (curve,) = (response for response in responses if isinstance(response, Curve))
    assert curve.quantiles_ms == sorted(curve.quantiles_ms)
    assert len(curve.quantiles_ms) == 1000


def test_a_measure_without_answers_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing was answered"):
        list(Histogram().responses("ack"))
