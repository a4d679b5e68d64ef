"""JSON Schema's texts: drafts, references, and what is refused; nothing is ever fetched."""

import json
import socket

import pytest

from streamhouse.errors import InvalidRecordValue, InvalidSchema
from streamhouse.schemas import json_schema

OLD = ["http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-06/schema#"]
NEW = ["https://json-schema.org/draft/2019-09/schema", "https://json-schema.org/draft/2020-12/schema"]
DRAFTS = [*OLD, "http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-07/schema", *NEW]


def parsed(schema: object, **references: object) -> json_schema.JsonSchema:
    return json_schema.parse(json.dumps(schema), {name: json.dumps(each) for name, each in references.items()})


def fits(schema: json_schema.JsonSchema, value: object) -> bool:
    try:
        schema.encode(value)
    except InvalidRecordValue:
        return False
    return True


@pytest.mark.parametrize("draft", DRAFTS)
def test_every_draft_judges_values(draft: str) -> None:
    schema = parsed({"$schema": draft, "type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}})
    assert schema.encode({"a": 3, "b": "é"}) == '{"a":3,"b":"é"}'.encode()
    with pytest.raises(InvalidRecordValue) as caught:
        schema.encode({"a": 2})
    assert caught.value.path == "/a"
    assert "minimum" in caught.value.reason


def test_exclusive_limits_are_those_of_the_draft() -> None:
    assert not fits(parsed({"$schema": OLD[0], "maximum": 5, "exclusiveMaximum": True}), 5)
    assert not fits(parsed({"exclusiveMaximum": 5}), 5)
    with pytest.raises(InvalidSchema) as caught:
        parsed({"maximum": 5, "exclusiveMaximum": True})
    assert caught.value.path == "/exclusiveMaximum"


def test_a_draft_that_nobody_knows_is_taken_for_draft_7() -> None:
    assert not fits(parsed({"$schema": "urn:my-own", "const": 1}), 2)


@pytest.mark.parametrize(("schema", "value"), [(True, True), (False, False)])
def test_booleans_are_schemas(schema: bool, value: bool) -> None:
    assert fits(parsed(schema), {"any": "thing"}) is value


def test_the_canonical_text_is_compact_and_the_normalized_one_sorted() -> None:
    schema = json_schema.parse('{ "type": "object",\n "properties": {"b": {}, "a": {"title": "é"}} }', {})
    assert schema.canonical() == '{"type":"object","properties":{"b":{},"a":{"title":"é"}}}'
    assert schema.normalized() == '{"properties":{"a":{"title":"é"},"b":{}},"type":"object"}'


@pytest.mark.parametrize(
    ("schema", "path", "reason"),
    [
        ([], "/", "an object or a boolean"),
        ({"type": "text"}, "/type", "text"),
        ({"properties": {"a": {"minLength": -1}}}, "/properties/a/minLength", "-1"),
        ({"properties": 5}, "/properties", "object"),
        ({"properties": {"a": {"pattern": "["}}}, "/properties/a/pattern", "regex"),
        ({"pattern": "(?:a{1000}){1000}"}, "/pattern", "regex"),
        ({"$ref": "#/definitions/a"}, "/$ref", "nothing is there"),
        ({"allOf": [{"$ref": "#a"}]}, "/allOf/0/$ref", "no such anchor"),
        ({"properties": {"a": {"$ref": "other.json"}}}, "/properties/a/$ref", "not among the schema's references"),
        ({"$ref": "#/default", "default": 3}, "/$ref", "means no schema"),
        ({"$ref": "#/x", "x": {"properties": 5}}, "/", "no schema"),
        ({"$id": "http://[/"}, "/", "URI"),
        ({"$ref": "#"}, "/", "apply itself"),
        ({"allOf": [{"anyOf": [{"$ref": "#"}]}]}, "/", "apply itself"),
        ({"if": {"$ref": "#"}}, "/", "apply itself"),
    ],
)
def test_what_is_wrong_with_a_schema_is_reported_with_its_place(schema: object, path: str, reason: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parsed(schema)
    assert caught.value.path == path
    assert reason in caught.value.reason


@pytest.mark.parametrize("scheme", ["http", "https", "file"])
def test_remote_references_are_never_fetched(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.0)
        uri = f"{scheme}://127.0.0.1:{server.getsockname()[1]}/schema.json"
        for schema in ({"$ref": uri}, {"$id": uri, "$ref": "other.json"}, {"contains": {"$ref": uri}}):
            with pytest.raises(InvalidSchema, match="unresolved reference"):
                parsed(schema)
            with pytest.raises(InvalidSchema, match="unresolved reference"):
                parsed({"$ref": "a"}, a=schema)
        with pytest.raises(BlockingIOError):
            server.accept()


class TestReferences:
    @pytest.mark.parametrize(
        ("schema", "references"),
        [
            ({"$ref": "a.json"}, {"a.json": {"type": "integer"}}),
            ({"$ref": "a.json#/definitions/b"}, {"a.json": {"definitions": {"b": {"type": "integer"}}}}),
            ({"$ref": "a.json#/$defs/b"}, {"a.json": {"definitions": {"b": {"type": "integer"}}}}),
            ({"$ref": "#/$defs/b", "definitions": {"b": {"type": "integer"}}}, {}),
            ({"$ref": "#/definitions/a~1b~0%25", "definitions": {"a/b~%": {"type": "integer"}}}, {}),
            ({"$ref": "#b", "definitions": {"x": {"$id": "#b", "type": "integer"}}}, {}),
            ({"$ref": "a"}, {"a": {"$ref": "b"}, "b": {"type": "integer"}}),
            ({"$id": "http://one.test/x/root.json", "$ref": "a.json"}, {"a.json": {"type": "integer"}}),
            (
                {"$id": "http://one.test/x/root.json", "$ref": "a.json"},
                {"http://one.test/x/a.json": {"type": "integer"}},
            ),
            ({"$ref": "http://one.test/a"}, {"a.json": {"$id": "http://one.test/a", "type": "integer"}}),
            ({"$ref": "a"}, {"a": {"$schema": NEW[1], "prefixItems": [True], "type": "integer"}}),
            ({"$schema": NEW[1], "$ref": "#b", "$defs": {"x": {"$anchor": "b", "type": "integer"}}}, {}),
            ({"$schema": NEW[1], "$ref": "#/$defs/b", "$defs": {"b": {}}, "type": "integer"}, {}),
            ({"$schema": NEW[1], "$dynamicRef": "#b", "$defs": {"x": {"$dynamicAnchor": "b", "type": "integer"}}}, {}),
        ],
    )
    def test_are_found_by_name_pointer_anchor_and_id(self, schema: object, references: dict[str, object]) -> None:
        result = parsed(schema, **references)
        assert fits(result, 1)
        assert not fits(result, "a")

    def test_that_are_no_schemas_are_named(self) -> None:
        with pytest.raises(InvalidSchema) as caught:
            parsed({"$ref": "a"}, a={"type": 3})
        assert caught.value.path == "reference 'a' /type"

    def test_may_go_in_circles_through_the_parts_of_values(self) -> None:
        tree = parsed({"type": "object", "properties": {"left": {"$ref": "#"}}, "additionalProperties": False})
        assert fits(tree, {"left": {"left": {}}})
        assert not fits(tree, {"left": {"right": {}}})

    def test_to_the_meta_schema_need_no_text(self) -> None:
        schema = parsed({"properties": {"schema": {"$ref": "http://json-schema.org/draft-07/schema#"}}})
        assert fits(schema, {"schema": {"type": "string"}})
        assert not fits(schema, {"schema": {"type": "text"}})


class TestHostileTexts:
    def test_a_value_that_nests_without_end_overflows_nothing(self) -> None:
        schema = parsed({"items": {"$ref": "#"}})
        for depth in (200, 100_000):
            value: list[object] = []
            for _ in range(depth):
                value = [value]
            with pytest.raises(InvalidRecordValue):
                schema.encode(value)

    def test_brackets_in_texts_are_no_nesting(self) -> None:
        assert fits(parsed(True), ['"[{\\', "[" * 1_000, *[[] for _ in range(1_000)]])

    def test_a_payload_that_nests_without_end_overflows_nothing(self) -> None:
        with pytest.raises(InvalidRecordValue, match="not JSON"):
            parsed(True).decode(b"[" * 1_000_000)

    def test_a_long_chain_of_references_is_refused(self) -> None:
        chain: dict[str, object] = {f"d{i}": {"allOf": [{"$ref": f"#/definitions/d{i + 1}"}]} for i in range(5_000)}
        with pytest.raises(InvalidSchema, match="one behind the other"):
            parsed({"definitions": chain | {"d5000": {}}, "$ref": "#/definitions/d0"})

    @pytest.mark.parametrize("pattern", ["^(a+)+$", "^(?=(a+)+b)(a+)+c$", r"^(a+)+\1b$", "^(a|a)*$", "(x+x+)+y"])
    def test_patterns_that_take_forever_elsewhere_end_here(self, pattern: str) -> None:
        assert not fits(parsed({"pattern": pattern}), "a" * 50_000 + "!")

    def test_what_is_no_json_value_is_refused(self) -> None:
        with pytest.raises(InvalidRecordValue):
            parsed(True).encode({"a": object()})
        with pytest.raises(InvalidRecordValue):
            parsed(True).encode("\ud800")

    def test_broken_payloads_are_refused(self) -> None:
        with pytest.raises(InvalidRecordValue, match="not JSON"):
            parsed(True).decode(memoryview(b'{"a":'))
