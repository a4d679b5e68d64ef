"""Keys of views: found by their texts, sorted by their values."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.format.metadata_values import parse_view_lookup_key, view_lookup_key, view_sort_key

INTEGERS = st.integers(min_value=-(2**63), max_value=2**63 - 1)
NUMBERS = st.one_of(INTEGERS, st.floats(allow_nan=False, allow_infinity=False))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(NUMBERS, min_size=2, max_size=2))
def test_numbers_are_in_the_order_of_their_size(pair: list[int | float]) -> None:
    small, large = sorted(pair)
    assert view_sort_key([small]) <= view_sort_key([large])
    if all(isinstance(each, int) for each in pair) and small != large:
        assert view_sort_key([small]) < view_sort_key([large])


@given(st.lists(st.tuples(TEXTS, INTEGERS), min_size=2, max_size=2, unique=True))
def test_keys_of_several_columns_are_in_the_order_of_the_first_that_differs(pair: list[tuple[str, int]]) -> None:
    first, second = sorted(pair, key=lambda each: (each[0].encode(), each[1]))
    assert view_sort_key(first) < view_sort_key(second)


@given(st.one_of(TEXTS, INTEGERS, st.booleans()))
def test_a_value_is_found_by_what_a_url_says(value: Any) -> None:
    if isinstance(value, str) and value[:1] in ("{", "["):
        return  # read as JSON, below
    text = value if isinstance(value, str) else json.dumps(value)
    assert view_lookup_key([value]) == parse_view_lookup_key([text])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (2.5, "2.5"),
        ({"start": "a", "end": "b"}, '{"end": "b", "start": "a"}'),
        ([1, "x"], '[1,"x"]'),
        ("[no json", "[no json"),
        ("{", "{"),
    ],
)
def test_a_value_may_be_written_in_other_ways(value: Any, text: str) -> None:
    assert view_lookup_key([value]) == parse_view_lookup_key([text])


def test_null_is_no_text() -> None:
    assert view_lookup_key([None]) != parse_view_lookup_key(["null"])
    assert (
        view_sort_key([None])
        < view_sort_key([False])
        < view_sort_key([True])
        < view_sort_key([-1])
        < view_sort_key([""])
    )


def test_numbers_beyond_every_column_are_kept_all_the_same() -> None:
    assert view_sort_key([-(10**40)]) <= view_sort_key([0]) <= view_sort_key([10**40])
    assert view_sort_key([1e300]) >= view_sort_key([1])
