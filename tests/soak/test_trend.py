"""The rule of the soak test names what leaks and nothing else, on series that were made for it."""

import random
from collections.abc import Callable

import pytest

from tests.soak.trend import Allowance, Sample, judge

HOUR_S = 3600
EVERY_S = 5
ALLOWANCE = Allowance(share=0.05, least=8.0)
WARM_UP_S = 600.0


def series(
    value: Callable[[float], float], *, noise: float = 0.0, seed: int = 1, until_s: int = HOUR_S
) -> list[Sample]:
    chance = random.Random(seed)
    return [Sample(at, value(at) + chance.gauss(0, noise)) for at in range(0, until_s, EVERY_S)]


LEAKS: dict[str, Callable[[float], float]] = {
    "a little with every request": lambda at: 200 + at * 0.02,
    "a handle a minute": lambda at: 40 + at // 60,
    "with every cycle of a sawtooth": lambda at: 200 + (at % 120) * 0.2 + (at // 120) * 1.0,
    "slower and slower, and yet": lambda at: 100 + 3 * at**0.5,
    "faster and faster": lambda at: 100 + (at / 300) ** 2,
    "after half an hour of peace": lambda at: 100 + max(0.0, at - 1800) * 0.05,
}
FLAT: dict[str, Callable[[float], float]] = {
    "constant": lambda at: 200,
    "nothing at all": lambda at: 0,
    "a warm-up that ends": lambda at: 200 - 100 * 0.99**at,
    "a sawtooth": lambda at: 200 + (at % 120) * 0.5,
    "one step, as a pool that got its last member": lambda at: 100 + 40 * (at > 2000),
    "one peak": lambda at: 100 + 900 * (1500 < at < 1600),
    "falling": lambda at: 300 - at * 0.02,
    "within what is allowed": lambda at: 1000 + at * 0.005,
}


@pytest.mark.parametrize("kind", LEAKS)
@pytest.mark.parametrize("noise", [0.0, 3.0])
def test_a_series_that_leaks_grows(kind: str, noise: float) -> None:
    verdict = judge(series(LEAKS[kind], noise=noise), since_s=WARM_UP_S, allowance=ALLOWANCE)
    assert verdict.grows, verdict


@pytest.mark.parametrize("kind", FLAT)
@pytest.mark.parametrize("noise", [0.0, 3.0])
@pytest.mark.parametrize("seed", range(5))
def test_a_series_that_does_not_leak_is_flat(kind: str, noise: float, seed: int) -> None:
    verdict = judge(series(FLAT[kind], noise=noise, seed=seed), since_s=WARM_UP_S, allowance=ALLOWANCE)
    assert verdict.is_flat, verdict


def test_what_grew_in_the_warm_up_alone_does_not_count_and_is_seen_without_it() -> None:
    warming = series(lambda at: 100 + min(at, 600) * 0.5)
    assert judge(warming, since_s=WARM_UP_S, allowance=ALLOWANCE).is_flat
    assert judge(warming[:120], since_s=0.0, allowance=ALLOWANCE).grows


def test_the_slope_is_reported_per_hour() -> None:
    verdict = judge(series(lambda at: at / 36), since_s=0.0, allowance=ALLOWANCE)
    assert verdict.per_hour == pytest.approx(100)


def test_too_few_samples_are_neither_flat_nor_growing() -> None:
    verdict = judge(series(lambda at: at, until_s=60), since_s=0.0, allowance=ALLOWANCE)
    assert not verdict.is_flat
    assert not verdict.grows
