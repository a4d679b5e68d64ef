"""The simulator itself is tested: with a guard taken out of the product, some seed must fail soon."""

import logging

import pytest

from tests.simulation.mutations import MUTATIONS
from tests.simulation.scenario import run_seed


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("streamhouse").setLevel(logging.CRITICAL)


@pytest.mark.parametrize("name", list(MUTATIONS))
def test_a_missing_guard_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation = MUTATIONS[name]
    mutation.apply(monkeypatch)
    seeds = range(mutation.start, mutation.start + mutation.seeds)
    assert any(run_seed(seed, profile=mutation.profile).failure for seed in seeds), f"nobody noticed: {name}"
