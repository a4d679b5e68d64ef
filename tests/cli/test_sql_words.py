"""sql words: what is offered fits the place, and is written as it has to be."""

import pytest

from streamhouse.cli.sql.completion import CompletionNames, completions
from streamhouse.cli.sql.shell import is_complete

WORDS = CompletionNames(tables={"orders": ("id", "amount"), "big-orders": ("total",)}, functions=("count", "concat"))


def offered(text: str) -> list[str]:
    return [word for word, _ in completions(text, WORDS)]


def test_tables_are_offered_where_tables_stand() -> None:
    assert offered("SELECT * FROM ") == ["orders", "`big-orders`"]
    assert offered("select * from stream(ord") == ["orders"]
    assert offered("\\d b") == ["`big-orders`"]


def test_columns_of_the_tables_that_are_named_come_first() -> None:
    assert offered("SELECT * FROM orders WHERE am") == ["amount"]
    assert offered("SELECT * FROM orders WHERE tot") == []
    assert offered("SELECT _o FROM orders"[:9] + " FROM orders WHERE _o") == ["_offset"]


def test_functions_and_keywords_are_offered_in_the_case_that_is_typed() -> None:
    assert offered("SELECT co") == ["count", "concat"]
    assert offered("sel") == ["select"]
    assert offered("SEL") == ["SELECT"]


def test_commands_are_offered_behind_a_backslash() -> None:
    assert offered("\\t") == ["\\timing"]


@pytest.mark.parametrize(
    "text", ["", "SELECT 1;", "\\d orders", "SELECT 1; -- done", "SELECT 1 \\watch 2", "SELECT ';' ;"]
)
def test_what_is_complete_is_sent(text: str) -> None:
    assert is_complete(text)


@pytest.mark.parametrize("text", ["SELECT 1", "SELECT ';", "SELECT 1; SELECT 2", "/* SELECT 1;"])
def test_what_is_not_complete_goes_on(text: str) -> None:
    assert not is_complete(text)
