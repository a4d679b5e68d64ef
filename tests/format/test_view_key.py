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


KINDS = {str: "string", bool: "boolean", int: "bigint", float: "double"}


@given(st.one_of(TEXTS, TEXTS.map("[{}]".format), INTEGERS, st.booleans(), st.floats()))
def test_a_value_is_found_by_what_a_url_says(value: Any) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    assert view_lookup_key([value]) == parse_view_lookup_key([text], [KINDS[type(value)]])


@given(TEXTS)
def test_a_text_is_found_where_the_type_of_its_column_is_not_known(value: str) -> None:
    if value[:1] not in ("{", "["):  # read as JSON, below
        assert view_lookup_key([value]) == parse_view_lookup_key([value], [None])


@pytest.mark.parametrize(
    ("value", "text", "kind"),
    [
        (1.0, "1", None),
        (2.5, "2.5", None),
        (1.0, "1.0", "double"),
        (1.5, "1.50", "decimal(9,2)"),
        ("1.5000", "1.5000", "decimal(20,4)"),
        (1e20, "1E20", "FLOAT"),
        ({"start": "a", "end": "b"}, '{"end": "b", "start": "a"}', None),
        ({"start": "a", "end": "b"}, '{"end": "b", "start": "a"}', "struct<start:string,end:string>"),
        ([1, "x"], '[1,"x"]', None),
        ([1.5], "[ 1.50 ]", "array<double>"),
        ("[no json", "[no json", None),
        ("{", "{", None),
        ('{"id": 1}', '{"id": 1}', "string"),
        ("[ 1 ]", "[ 1 ]", "STRING"),
    ],
)
def test_a_value_may_be_written_in_other_ways(value: Any, text: str, kind: str | None) -> None:
    assert view_lookup_key([value]) == parse_view_lookup_key([text], [kind])


def test_texts_that_are_the_same_json_are_other_keys() -> None:
    first, second = (parse_view_lookup_key([text], ["string"]) for text in ('{"id": 1}', '{"id":1}'))
    assert first != second


def test_null_is_no_text() -> None:
    assert view_lookup_key([None]) != parse_view_lookup_key(["null"], ["string"])
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
