"""Inferring: the columns of JSON records."""

import json

from streamhouse.spark.query.schema_inference import infer, is_json, is_text
from tests.spark.query.fakes import columns


def inferred(*values: object) -> dict[str, str]:
    result = infer(json.dumps(value).encode() for value in values)
    return {column.name: column.type for column in result}


def test_columns_come_in_the_order_of_their_first_appearance() -> None:
    assert inferred({"b": 1}, {"c": "x", "b": 2}, {"a": True}) == {"b": "BIGINT", "c": "STRING", "a": "BOOLEAN"}


def test_whole_numbers_widen_to_fractions() -> None:
    assert inferred({"n": 1}, {"n": 1.5}) == {"n": "DOUBLE"}
    assert inferred({"n": 2**63 - 1}) == {"n": "BIGINT"}
    assert inferred({"n": 2**63}) == {"n": "DOUBLE"}


def test_what_has_nothing_in_common_is_text() -> None:
    assert inferred({"v": 1}, {"v": "one"}, {"w": {"a": 1}}, {"w": [1]}) == {"v": "STRING", "w": "STRING"}


def test_nulls_say_nothing_of_a_type() -> None:
    assert inferred({"a": None, "b": None}, {"a": 1}) == {"a": "BIGINT", "b": "STRING"}


def test_times_stay_text() -> None:
    assert inferred({"at": "2026-11-15T08:00:00Z"}) == {"at": "STRING"}


def test_objects_and_lists_are_merged_inside() -> None:
    results = inferred(
        {"buyer": {"id": 1}, "lines": [{"sku": "a"}, {"n": 1}]},
        {"buyer": {"a-b": "x", "id": 0.5}, "lines": []},
    )
    assert results == {
        "buyer": "STRUCT<id: DOUBLE, `a-b`: STRING>",
        "lines": "ARRAY<STRUCT<sku: STRING, n: BIGINT>>",
    }


def test_an_object_or_list_without_anything_in_it_has_a_type() -> None:
    assert inferred({}, {"o": {}, "l": []}) == {"o": "STRING", "l": "ARRAY<STRING>"}
    assert inferred({"o": {}}, {"o": {"a": 1}}) == {"o": "STRUCT<a: BIGINT>"}


def test_of_names_that_differ_in_case_the_first_is_seen() -> None:
    assert inferred({"Id": 1, "id": "x"}) == {"Id": "BIGINT"}


def test_what_is_known_of_every_record_is_no_column_of_its_value() -> None:
    assert inferred({"_key": 1, "a": 1}) == {"a": "BIGINT"}


def test_values_that_are_no_objects_are_passed_over() -> None:
    assert infer([b"nope", b"[1]", b"5", None, b"", b'{"a": 1}', b"\xff"]) == columns(a="BIGINT")


def test_a_topic_is_of_json_when_most_of_its_values_are_objects() -> None:
    assert is_json([b'{"a": 1}', b'{"a": 1}', b"nope", None])
    assert not is_json([b'{"a": 1}', b"nope"])
    assert not is_json([])


def test_text_is_what_can_be_read_as_such() -> None:
    assert is_text([b"abc", None, "grün".encode()])
    assert not is_text([b"\xff\xfe"])
