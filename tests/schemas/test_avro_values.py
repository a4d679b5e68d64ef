"""Avro's values: JSON in, bytes out, and back; payloads from strangers do no harm."""

import io
import json
import math
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamhouse.errors import InvalidRecordValue
from streamhouse.schemas import avro
from streamhouse.schemas.avro.decoder import MAX_EMPTY_ITEMS, can_use_fastavro, read_checked
from tests.schemas.test_avro_compatibility import schemas
from tests.schemas.test_avro_texts import a_field, record
from tests.support.depth import examples


def parsed(schema: object) -> avro.AvroSchema:
    return avro.parse(json.dumps(schema), {})


def refusal(schema: object, value: object) -> tuple[str, str]:
    with pytest.raises(InvalidRecordValue) as caught:
        parsed(schema).encode(value)
    return caught.value.path, caught.value.reason


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
FIXED_DECIMAL = {"type": "fixed", "name": "D", "size": 4, "logicalType": "decimal", "precision": 5, "scale": 2}
UUID = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
POINT = record(a_field("int", "x"), a_field("int", "y", default=7), name="Point")
PLACE = record(a_field("string", "name"), name="Place")


@pytest.mark.parametrize(
    ("schema", "value", "payload"),
    [
        ("null", None, b""),
        ("boolean", True, b"\x01"),
        ("int", -1, b"\x01"),
        ("long", 2**63 - 1, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ("long", -(2**63), b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ("float", 1.5, b"\x00\x00\xc0\x3f"),
        ("double", 1.5, b"\x00\x00\x00\x00\x00\x00\xf8\x3f"),
        ("bytes", "\x00ÿ", b"\x04\x00\xff"),
        ("string", "é", b"\x04\xc3\xa9"),
        ({"type": "fixed", "name": "F", "size": 2}, "ab", b"ab"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", b"\x02"),
        ({"type": "array", "items": "int"}, [1, 2], b"\x04\x02\x04\x00"),
        ({"type": "array", "items": "int"}, [], b"\x00"),
        ({"type": "map", "values": "int"}, {"a": 1}, b"\x02\x02a\x02\x00"),
        (POINT, {"x": 1, "y": 2}, b"\x02\x04"),
        (["null", "string"], None, b"\x00"),
        (["null", "string"], "a", b"\x02\x02a"),
        ({"type": "long", "logicalType": "timestamp-millis"}, 1, b"\x02"),
        (DECIMAL, "-12.50", b"\x04\xfb\x1e"),
        (FIXED_DECIMAL, "1.00", b"\x00\x00\x00\x64"),
        (UUID, "00010203-0405-0607-0809-0a0b0c0d0e0f", bytes(range(16))),
    ],
)
def test_values_have_the_bytes_that_avro_says(schema: object, value: object, payload: bytes) -> None:
    assert parsed(schema).encode(value) == payload
    assert parsed(schema).decode(memoryview(payload)) == value


@pytest.mark.parametrize(
    ("schema", "given", "comes_out"),
    [
        (["null", "string"], {"string": "a"}, "a"),
        (["null", "int"], {"int": 1}, 1),
        (["int", "double"], 1, 1),
        (["double", "int"], 1, 1),
        (["int", "double"], 1.5, 1.5),
        (["bytes", "string"], "a", "a"),
        (["bytes", "string"], {"bytes": "a"}, {"bytes": "a"}),
        ([POINT, PLACE], {"Place": {"name": "here"}}, {"Place": {"name": "here"}}),
        ([POINT, PLACE], {"name": "here"}, {"Place": {"name": "here"}}),
        (["null", POINT], {"x": 1, "y": 2}, {"x": 1, "y": 2}),
        (["string", {"type": "map", "values": "string"}], {"string": "a"}, "a"),
        (["int", {"type": "map", "values": "string"}], {"int": "a"}, {"map": {"int": "a"}}),
        ("double", 1, 1.0),
        ("double", "-Infinity", -math.inf),
        (POINT, {"x": 1}, {"x": 1, "y": 7}),
        (DECIMAL, 3, "3.00"),
        (DECIMAL, 0.1, "0.10"),
        (["null", DECIMAL, "string"], "x", "x"),
    ],
)
def test_what_is_written_with_ease_comes_out_in_one_form(schema: object, given: object, comes_out: object) -> None:
    schema = parsed(schema)
    assert schema.decode(schema.encode(given)) == comes_out
    assert schema.encode(comes_out) == schema.encode(given)


@pytest.mark.parametrize(
    ("schema", "value", "path", "reason"),
    [
        ("int", "1", "/", "expected a whole number (int), got a text"),
        ("int", True, "/", "got a boolean"),
        ("int", 1.0, "/", "got a number"),
        ("int", 2**31, "/", "out of the range of int"),
        ("long", 2**63, "/", "out of the range of long"),
        ("float", 1e300, "/", "out of the range of float"),
        ("double", 10**400, "/", "out of the range of double"),
        ("bytes", "€", "/", "up to U+00FF"),
        ("string", "\ud800", "/", "surrogate"),
        ({"type": "fixed", "name": "F", "size": 2}, "abc", "/", "expected 2 bytes, got 3"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", "/", "no symbol of E: 'B'"),
        ({"type": "array", "items": "int"}, [1, "a"], "/1", "whole number"),
        ({"type": "map", "values": "int"}, {"a": 1, "b": None}, "/b", "got null"),
        (POINT, {"y": 1}, "/x", "missing, and there is no default"),
        (POINT, {"x": 1, "z": 1}, "/z", "no field of Point"),
        (POINT, [1], "/", "expected the record Point, got a list"),
        (record(a_field({"type": "array", "items": POINT})), {"f": [{"x": 1}, {"x": "a"}]}, "/f/1/x", "whole number"),
        (["null", "int"], "a", "/", "a branch of the union"),
        (["int", "string"], None, "/", "a branch of the union"),
        (["null", POINT], {"Point": {"x": "a"}}, "/Point/x", "whole number"),
        (["null", POINT], {"x": "a"}, "/x", "whole number"),
        (DECIMAL, "1.234", "/", "doesn't fit; precision=5 scale=2"),
        (DECIMAL, "12345", "/", "doesn't fit"),
        (DECIMAL, "1e999999999", "/", "no decimal number"),
        (DECIMAL, "NaN", "/", "no decimal number"),
        (DECIMAL, "one", "/", "no decimal number: 'one'"),
        (UUID, "x", "/", "no UUID"),
    ],
)
def test_what_does_not_fit_is_reported_with_its_place(schema: object, value: object, path: str, reason: str) -> None:
    result = refusal(schema, value)
    assert result[0] == path
    assert reason in result[1]


@pytest.mark.parametrize(
    ("schema", "payload", "reason"),
    [
        ("int", b"", ""),
        ("int", b"\x02\x02", "bytes are left over; at=1 left=1"),
        ("string", b"\x04a", ""),
        ("string", b"\x01", ""),
        ("bytes", b"\x01", "ends too early"),
        ("bytes", b"\xff" * 20, "a number is cut off or too long"),
        ("string", b"\x02\xff", ""),
        (["null", "int"], b"\x04", ""),
        (["null", "int"], b"\x01", ""),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", ""),
        ({"type": "array", "items": "int"}, b"\x7e", ""),
        ({"type": "array", "items": "bytes"}, b"\x02\x04a", "ends too early"),
    ],
)
def test_bytes_of_another_schema_are_refused(schema: object, payload: bytes, reason: str) -> None:
    with pytest.raises(InvalidRecordValue) as caught:
        parsed(schema).decode(payload)
    assert reason in caught.value.reason


class TestHostileValues:
    LIST = record(a_field(["null", "L"], "next"), name="L")

    def test_a_payload_that_nests_without_end_overflows_nothing(self) -> None:
        with pytest.raises(InvalidRecordValue, match="nested too deeply"):
            parsed(self.LIST).decode(b"\x02" * 1_000_000 + b"\x00")

    def test_a_value_that_nests_without_end_overflows_nothing(self) -> None:
        value: dict[str, object] = {"next": None}
        for _ in range(100_000):
            value = {"next": value}
        with pytest.raises(InvalidRecordValue, match="nested too deeply"):
            parsed(self.LIST).encode(value)

    @pytest.mark.parametrize("items", ["null", record(name="Nothing"), {"type": "array", "items": "null"}])
    def test_a_few_bytes_make_no_list_of_billions(self, items: object) -> None:
        huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
        with pytest.raises(InvalidRecordValue):
            parsed({"type": "array", "items": items}).decode(huge * 2)

    def test_lists_of_nothing_share_one_limit(self) -> None:
        schema = parsed({"type": "array", "items": {"type": "array", "items": "null"}})
        inner = schema.encode([[None] * (MAX_EMPTY_ITEMS // 2)])[1:-1]
        assert len(schema.decode(b"\x02" + inner + b"\x00")) == 1  # type: ignore[arg-type]
        with pytest.raises(InvalidRecordValue, match="items without bytes"):
            schema.decode(b"\x06" + inner * 3 + b"\x00")

    def test_a_value_that_fits_branches_in_too_many_ways_must_be_tagged(self) -> None:
        b = record(a_field(["null", "A", "B"], "c"), a_field("int", "x"), name="B")
        a = record(a_field(["null", "A", b], "c"), a_field("string", "x"), name="A")
        value: dict[str, object] = {"c": None, "x": 1}
        for _ in range(60):
            value = {"c": value, "x": 1}
        assert "tag the values" in refusal([a, "B"], value)[1]

    def test_a_default_that_means_itself_is_not_written(self) -> None:
        assert "nested too deeply" in refusal(record(a_field("R", default={})), {})[1]


@st.composite
def schemas_and_values(draw: st.DrawFn) -> tuple[object, object]:
    schema = draw(schemas())
    return schema, draw(values(schema))


def values(schema: Any) -> st.SearchStrategy[object]:
    """Values of a schema without recursion, every union's tagged."""
    if isinstance(schema, list):
        return st.one_of([_tagged(branch) for branch in schema])
    kind = schema if isinstance(schema, str) else schema["type"]
    match kind:
        case "array":
            return st.lists(values(schema["items"]), max_size=3)
        case "map":
            return st.dictionaries(st.text(max_size=3), values(schema["values"]), max_size=3)
        case "record":
            return st.fixed_dictionaries({each["name"]: values(each["type"]) for each in schema["fields"]})
        case "enum":
            return st.sampled_from(schema["symbols"])
        case "fixed":
            return st.binary(min_size=schema["size"], max_size=schema["size"]).map(lambda raw: raw.decode("latin-1"))
    return SCALARS[kind]


def _tagged(branch: Any) -> st.SearchStrategy[object]:
    tag = _tag(branch)
    return values(branch).map(lambda value: None if tag == "null" else {tag: value})


def _tag(branch: Any) -> str:
    return branch if isinstance(branch, str) else str(branch.get("name", branch["type"]))


SCALARS: dict[str, st.SearchStrategy[object]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=5).map(lambda raw: raw.decode("latin-1")),
    "string": st.text(max_size=5),
}


def for_fastavro(schema: Any, value: Any) -> object:
    """The same value in fastavro's form."""
    if isinstance(schema, list):
        if value is None:
            return None
        [(tag, inner)] = value.items()
        branch = next(b for b in schema if _tag(b) == tag)
        return (tag, for_fastavro(branch, inner))
    kind = schema if isinstance(schema, str) else schema["type"]
    match kind:
        case "array":
            return [for_fastavro(schema["items"], item) for item in value]
        case "map":
            return {name: for_fastavro(schema["values"], item) for name, item in value.items()}
        case "record":
            return {each["name"]: for_fastavro(each["type"], value[each["name"]]) for each in schema["fields"]}
        case "bytes" | "fixed":
            return value.encode("latin-1")
    return value


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schemas_and_values())
def test_bytes_are_those_of_another_library_and_go_both_ways(pair: tuple[object, object]) -> None:
    schema, value = pair
    ours = parsed(schema)
    theirs = io.BytesIO()
    fastavro.schemaless_writer(theirs, fastavro.parse_schema(schema), for_fastavro(schema, value))  # type: ignore[arg-type]
    payload = ours.encode(value)
    assert payload == theirs.getvalue()
    comes_out = ours.decode(payload)
    assert read_checked(ours.root)(payload) == comes_out
    assert ours.decode(ours.encode(comes_out)) == comes_out


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, b"\x01"),
        ({"type": "map", "values": {"type": "enum", "name": "e", "symbols": ["A", "B"]}}, b"\x02\x02k\x03\x00"),
        (["null", "int"], b"\x01\x00"),
        ({"type": "array", "items": ["null", "int"]}, b"\x02\x03\x00"),
    ],
)
def test_a_negative_index_is_none_from_the_end(kind: object, payload: bytes) -> None:
    ours = parsed(record(a_field(kind)))
    for read in (ours.decode, read_checked(ours.root)):
        with pytest.raises(InvalidRecordValue):
            read(payload)


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schemas(), st.binary(max_size=30))
def test_the_quick_reader_and_the_careful_one_agree_on_any_bytes(schema: object, payload: bytes) -> None:
    ours = parsed(schema)
    if not can_use_fastavro(ours.root):
        return
    try:
        quick = ours.decode(payload)
    except InvalidRecordValue:
        return
    assert json.dumps(read_checked(ours.root)(payload)) == json.dumps(quick)
