"""One setting says how deep tests look; seeds that were chosen at random can be run again."""

import pytest

from tests.support.depth import FIRST_RANDOM_SEED, examples, random_seeds, scaled


@pytest.mark.parametrize(("depth", "seeds", "most"), [("quick", 20, 100), ("nightly", 300, 1500)])
def test_numbers_follow_the_depth(monkeypatch: pytest.MonkeyPatch, depth: str, seeds: int, most: int) -> None:
    monkeypatch.setenv("TEST_DEPTH", depth)
    assert scaled(quick=20, nightly=300) == seeds
    assert examples(300) == most


def test_a_depth_that_is_misspelt_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_DEPTH", "nighly")
    with pytest.raises(ValueError, match="known=quick, nightly"):
        scaled(quick=1, nightly=2)


def test_random_seeds_are_the_same_all_over_a_run_and_others_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = set()
    for _ in range(3):
        monkeypatch.delenv("TEST_SEED", raising=False)
        first = random_seeds(3)
        assert random_seeds(5)[:3] == first
        assert first[0] >= FIRST_RANDOM_SEED
        runs.add(first[0])
    assert len(runs) == 3


def test_a_seed_that_is_named_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SEED", "17")
    assert list(random_seeds(2)) == [17, 18]
