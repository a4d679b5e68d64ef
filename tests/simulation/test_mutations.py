"""The simulator itself is tested: with a guard taken out of the product, some seed must violate the rule that the guard
keeps, and pass with the guard in place."""

import pytest

from tests.simulation.mutants import PAGE, Row, line, names_in, with_rows
from tests.simulation.noticing import ALL, NOTICED, search
from tests.support.depth import base_seed, is_nightly

SHARE = 4
"""One in so many mutations is tried with every change, others each time; all of them with nightly depth."""
CONTROLLED = 2
"""One in so many of these has its control run; all of them with nightly depth."""
MOVED = 6
"""So many seeds are tried where the one that noticed no longer does: `make mutants` looks for another one."""
BUDGET_S = 300.0
"""With nightly depth, other seeds are tried for so long where none of a mutation's own notices any more."""
TURN = {name: number + base_seed() for number, name in enumerate(ALL)}
TRIED = [
    name for name, turn in TURN.items() if is_nightly() or (turn % SHARE == 0 and not ALL[name].is_rare)
]  # fmt: skip


@pytest.mark.parametrize("name", TRIED)
def test_a_missing_guard_is_found(name: str) -> None:
    is_controlled = is_nightly() or TURN[name] // SHARE % CONTROLLED == 0
    may_have_moved = name in NOTICED and not is_nightly()
    found = search(
        name,
        budget_s=BUDGET_S if is_nightly() else None,
        seeds=MOVED if may_have_moved else None,
        is_controlled=is_controlled,
    )
    assert not found.fails_always, f"fails with the guard as well: {name} {found.fails_always[0].failure}"
    if found.noticed is None and may_have_moved:
        pytest.skip(f"none of {found.tried} seeds notices any more: `make mutants` looks for another one")
    assert found.noticed is not None, f"none of {found.tried} seeds violates any of {ALL[name].breaks}: {name}"


def test_every_guard_is_where_its_mutation_takes_it_out() -> None:
    for name, mutation in ALL.items():
        with pytest.MonkeyPatch.context() as patch:
            try:
                mutation.apply(patch)
            except AttributeError as error:
                pytest.fail(f"{name}: {error}")


def test_what_was_noticed_is_still_looked_for() -> None:
    assert set(NOTICED) <= set(ALL)


def test_the_page_lists_every_mutation_and_the_rule_that_it_violates() -> None:
    listed = names_in(PAGE.read_text())
    assert set(listed) == set(ALL), "run `make mutants`"
    for name, rules in listed.items():
        assert set(rules.split("; ")) <= set(ALL[name].breaks), f"run `make mutants`; {name}"


def test_the_table_takes_new_rows_keeps_the_others_and_drops_mutations_that_are_no_more() -> None:
    kept, moved = sorted(ALL)[:2]
    page = with_rows(PAGE.read_text(), [Row(kept, 7, 1, ("a rule",), ())])
    page = page.replace(line(Row(kept, 7, 1, ("a rule",), ())), "| gone | calm | 1 | a rule |\n| " + kept + " | x |\n")
    page = with_rows(page, [Row(moved, 12345, 9, ("another rule", "a rule"), ())])
    assert names_in(page)[moved] == "another rule; a rule"
    assert (f"| {kept} | x |\n" in page, "| gone |" in page, "| 12345 |" in page) == (True, False, True)
    assert set(names_in(page)) == set(ALL)
