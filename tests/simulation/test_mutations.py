"""The simulator itself is tested: with a guard taken out of the product, some seed must violate the rule that the guard
keeps, and pass with the guard in place."""

import pytest

from tests.simulation.mutants import PAGE, Row, line, rows_in, with_rows
from tests.simulation.noticing import ALL, NOTICED, search, with_seed
from tests.support.depth import base_seed, is_nightly

SHARE = 4
"""One in so many mutations is tried with every change, others each time; all of them with nightly depth."""
BUDGET_S = 300.0
"""With nightly depth, other seeds are tried for so long where none of a mutation's own notices any more."""
TRIED = [
    name
    for number, name in enumerate(ALL, base_seed())
    if is_nightly() or (number % SHARE == 0 and not ALL[name].is_rare)
]


@pytest.mark.parametrize("name", TRIED)
def test_a_missing_guard_is_found(name: str) -> None:
    found = search(name, budget_s=BUDGET_S if is_nightly() else None)
    assert not found.fails_always, f"fails with the guard as well: {name} {found.fails_always[0].failure}"
    assert found.noticed is not None, (
        f"none of {found.tried} seeds violates any of {ALL[name].breaks}: {name}; "
        f"either nothing notices any more that the guard is gone, or `make mutants ARGS='\"{name}\"'` finds a seed"
    )


def test_every_guard_is_where_its_mutation_takes_it_out() -> None:
    for name, mutation in ALL.items():
        with pytest.MonkeyPatch.context() as patch:
            try:
                mutation.apply(patch)
            except AttributeError as error:
                pytest.fail(f"{name}: {error}")


def test_the_page_lists_every_mutation_with_the_seed_that_is_tried_first_and_the_rule_that_it_violates() -> None:
    listed = rows_in(PAGE.read_text())
    assert set(listed) == set(NOTICED) == set(ALL), "run `make mutants`"
    for name, row in listed.items():
        assert (row.profile, row.seed) == (ALL[name].profile, NOTICED[name][0]), f"run `make mutants`; {name}"
        assert set(row.rules) <= set(ALL[name].breaks), f"run `make mutants`; {name}"


def test_the_table_takes_new_rows_keeps_the_others_and_drops_mutations_that_are_no_more() -> None:
    kept, moved = sorted(ALL)[:2]
    page = with_rows(PAGE.read_text(), [Row(kept, 7, 1, ("a rule",), ())])
    page = page.replace(
        line(Row(kept, 7, 1, ("a rule",), ())), "| gone | calm | 1 | a rule |\n| " + kept + " | calm | 8 | x |\n"
    )
    page = with_rows(page, [Row(moved, 12345, 9, ("another rule", "a rule"), ())])
    rows = rows_in(page)
    assert (rows[moved].seed, rows[moved].rules) == (12345, ("another rule", "a rule"))
    assert (rows[kept].rules, "| gone |" in page) == (("x",), False)
    assert set(rows) == set(ALL)


def test_the_last_seed_that_noticed_is_tried_first_and_a_few_before_it_are_kept() -> None:
    assert with_seed([1, 2, 3, 4], 9) == [9, 1, 2, 3]
    assert with_seed([1, 2, 3, 4], 3) == [3, 1, 2, 4]
    assert with_seed([], 5) == [5]
