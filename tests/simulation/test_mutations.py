"""The simulator itself is tested: with a guard taken out of the product, some seed must violate the rule that the guard
keeps, and pass with the guard in place."""

import pytest

from tests.simulation.mutants import PAGE, names_in
from tests.simulation.noticing import ALL, NOTICED, notice, run
from tests.support.depth import base_seed, is_nightly

CONTROLLED = 6
"""One in so many control runs is made with every change, others each time; all of them with nightly depth."""


@pytest.mark.parametrize("name", list(ALL))
def test_a_missing_guard_is_found(name: str) -> None:
    if ALL[name].is_rare and not is_nightly():
        pytest.skip("it shows in few seeds: with nightly depth")
    with pytest.MonkeyPatch.context() as patch:
        noticed = notice(name, patch)
    assert noticed is not None, f"no seed violates any of {ALL[name].breaks}: {name}"
    if is_nightly() or (list(ALL).index(name) + base_seed()) % CONTROLLED == 0:
        control = run(name, noticed.seed)
        assert control.failure is None, f"seed {noticed.seed} fails with the guard as well: {name}"


def test_what_was_noticed_is_still_looked_for() -> None:
    assert set(NOTICED) <= set(ALL)


def test_the_page_lists_every_mutation_and_the_rule_that_it_violates() -> None:
    listed = names_in(PAGE.read_text())
    assert set(listed) == set(ALL), "run `make mutants`"
    for name, rules in listed.items():
        assert set(rules.split("; ")) <= set(ALL[name].breaks), f"run `make mutants`; {name}"
