"""Pipelines in Python files are found without running them."""

import pytest

from streamhouse.errors import StatementError
from streamhouse.sql.definitions import find_pipelines

FILE = """
from streamhouse.spark import pipeline
raise SystemExit("this file must not run")

@pipeline(into="big-orders", trigger="1 second", key="id", max_records_per_trigger=10)
def big_orders(tables):
    return tables.stream("orders").where("amount > 100")

@spark.pipeline(into="small-orders", name="small-ones")
def small(tables):
    return tables.stream("orders")

def helper(x):
    return x
"""


def test_decorated_functions_are_pipelines() -> None:
    big, small = find_pipelines(FILE)
    assert (big.name, big.into) == ("big_orders", "big-orders")
    assert big.options == {"trigger": "1 second", "key": "id", "max_records_per_trigger": "10"}
    assert (small.name, small.into, small.options) == ("small-ones", "small-orders", {})


@pytest.mark.parametrize(
    ("decorator", "line", "message"),
    [
        ("@pipeline(into=NAME)", 1, "written out"),
        ("@pipeline('a')", 1, "names only"),
        ("@pipeline(trigger='1 second')", 1, "name a target"),
        ("@pipeline(into='a', triger='1 second')", 1, "no option triger"),
        ("@pipeline(into='a',\n  trigger='soon')", 2, "trigger can't be 'soon'"),
    ],
)
def test_a_decorator_that_cannot_be_read_is_named_with_its_place(decorator: str, line: int, message: str) -> None:
    with pytest.raises(StatementError, match=message) as raised:
        find_pipelines(f"{decorator}\ndef f(tables):\n    return 1\n")
    assert raised.value.line == line


def test_a_file_that_is_no_python_is_named_with_its_place() -> None:
    with pytest.raises(StatementError, match="no Python") as raised:
        find_pipelines("x = 1\ndef f(:\n")
    assert raised.value.line == 2


def test_two_pipelines_of_one_name_are_refused() -> None:
    twice = "@pipeline(into='a')\ndef f(tables):\n    return 1\n"
    with pytest.raises(StatementError, match="two pipelines"):
        find_pipelines(twice + twice)
