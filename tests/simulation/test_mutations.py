"""The simulator itself is tested: with a guard taken out of the product, some seed must fail soon."""

import pytest

from tests.simulation.noticing import ALL, NOTICED, notice


@pytest.mark.parametrize("name", list(ALL))
def test_a_missing_guard_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    noticed = notice(name, monkeypatch)
    assert noticed is not None, f"nobody noticed: {name}"
    failure = noticed.failure or ""
    assert not failure.startswith(("TypeError", "AttributeError")), f"the product has moved on: {name}; {failure}"


def test_what_was_noticed_is_still_looked_for() -> None:
    assert set(NOTICED) <= set(ALL)
