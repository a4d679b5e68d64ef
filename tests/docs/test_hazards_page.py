"""The page of hazards is made of the data, and what it names is there."""

from tools.hazards import PAGE, defined_tests, hazards, page


def test_the_page_is_what_the_data_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "stale: run `make docs`"


def test_every_hazard_has_a_test_that_exists_or_says_why_not() -> None:
    tests = defined_tests()
    assert [each.id for each in hazards() if not each.tests and not each.why] == []
    assert [(each.id, name) for each in hazards() for name in each.tests if name not in tests] == []


def test_every_hazard_is_listed_once() -> None:
    ids = [each.id for each in hazards()]
    assert len(ids) == len(set(ids))
