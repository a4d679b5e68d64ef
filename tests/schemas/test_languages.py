"""Languages: one door for three kinds of schemas; texts that are no schemas say where and why."""

import subprocess
import sys

import pytest

from streamhouse.errors import InvalidSchema
from streamhouse.schemas import parse_schema
from streamhouse.schemas.base import MAX_TEXT_BYTES

STRINGS = {"AVRO": '"string"', "JSON": '{"type": "string"}'}


@pytest.mark.parametrize("kind", STRINGS)
def test_a_schema_remembers_its_kind_and_its_text(kind: str) -> None:
    schema = parse_schema(kind, STRINGS[kind], {})
    assert schema.type == kind
    assert schema.text == STRINGS[kind]
    assert schema.decode(schema.encode("é")) == "é"


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(InvalidSchema, match="unknown schema type"):
        parse_schema("XML", "<a/>", {})


def test_schemas_of_two_languages_never_follow_each_other() -> None:
    avro, json_schema = (parse_schema(kind, text, {}) for kind, text in STRINGS.items())
    assert [each.kind for each in json_schema.incompatibilities(avro)] == ["SCHEMA_TYPE_MISMATCH"]
    assert [each.kind for each in avro.incompatibilities(json_schema)] == ["SCHEMA_TYPE_MISMATCH"]


def test_importing_the_table_loads_no_language() -> None:
    program = (
        "import sys, streamhouse.schemas;"
        "print([m for m in ('fastavro', 'jsonschema_rs', 'google.protobuf') if m in sys.modules])"
    )
    response = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert response.stdout.strip() == "[]"


@pytest.mark.parametrize("kind", STRINGS)
@pytest.mark.parametrize(
    ("text", "where", "why"),
    [
        ("", "line 1 column 1", "expecting value"),
        ('{"type":\n  oops}', "line 2 column 3", "expecting value"),
        ('{"type": "string", "size": NaN}', "/", "NaN"),
        ('{"type": "string", "size": 1e999}', "/", "too large a number"),
        ('{"type": "string", "doc": "\\ud800"}', "/", "surrogate"),
        ("[" * 100_000, "line 1", "nested too deeply"),
        ('\n\n{"type":' * 100_000, "line 203", "nested too deeply"),
        (" " * (MAX_TEXT_BYTES + 1), "/", "too large"),
        ('"' + "[" * 1_000, "line 1 column 1", "unterminated"),
    ],
    ids=range(9),
)
def test_what_is_no_json_is_refused_with_its_place(kind: str, text: str, where: str, why: str) -> None:
    with pytest.raises(InvalidSchema, match=why) as caught:
        parse_schema(kind, text, {})
    assert caught.value.path == where


@pytest.mark.parametrize("kind", STRINGS)
def test_a_broken_reference_is_named(kind: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse_schema(kind, STRINGS[kind], {"other": "{"})
    assert caught.value.path == "reference 'other' line 1 column 2"


def test_references_count_into_the_size() -> None:
    with pytest.raises(InvalidSchema, match="too large"):
        parse_schema("AVRO", '"string"', {"a": " " * MAX_TEXT_BYTES, "b": '"int"'})
