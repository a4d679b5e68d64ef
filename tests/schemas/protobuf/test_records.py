"""Values become payloads and payloads values; what doesn't fit is named with its path."""

import random
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass

from streamhouse.errors import InvalidRecordValue
from streamhouse.schemas.protobuf import ProtobufSchema, parse

TEXT = """
    syntax = "proto3";
    package shop;
    import "google/protobuf/timestamp.proto";
    import "google/protobuf/struct.proto";
    import "google/protobuf/wrappers.proto";
    import "google/protobuf/any.proto";

    message Order {
      string order_id = 1;
      int32 count = 2;
      int64 total = 3;
      double price = 4;
      float weight = 5;
      bool paid = 6;
      bytes raw = 7;
      Kind kind = 8;
      optional uint32 priority = 9;
      repeated string tags = 10;
      repeated Line lines = 11;
      map<string, int64> counts = 12;
      map<int32, Line> by_number = 13;
      map<bool, Kind> kinds = 14;
      oneof payment { string card = 15; Line cash = 16; }
      google.protobuf.Timestamp at = 17;
      google.protobuf.Value anything = 18;
      google.protobuf.Int64Value maybe = 19;
      google.protobuf.Any more = 20;
      repeated double prices = 21;
      repeated Kind all_kinds = 22;
      google.protobuf.NullValue nothing = 23;
      message Line { fixed64 number = 1; Line next = 2; }
      enum Kind { NONE = 0; FRAGILE = 1; HEAVY = -5; }
    }
    message Other { string name = 1; map<string, string> m = 2; message Inner { sint32 n = 1; } }
"""
ORDER = {
    "orderId": "a-1",
    "count": -3,
    "total": "9007199254740993",
    "price": 1.25,
    "raw": "AAH/",
    "kind": "FRAGILE",
    "priority": 0,
    "tags": ["x", "é"],
    "lines": [{"number": "1"}, {"number": "2", "next": {"number": "3"}}],
    "counts": {"a": "1"},
    "byNumber": {"-7": {"number": "1"}},
    "kinds": {"true": "HEAVY"},
    "cash": {"number": "0"},
    "at": "2024-02-29T12:00:00.500Z",
    "anything": {"deep": [1, None, "x"]},
    "maybe": "5",
    "more": {"@type": "type.googleapis.com/shop.Other", "name": "n", "m": {}},
}


@pytest.fixture(scope="module")
def schema() -> ProtobufSchema:
    return parse(TEXT, {})


def library_message(schema: ProtobufSchema, name: str = "shop.Order") -> Any:
    return GetMessageClass(schema.files.pool.FindMessageTypeByName(name))()


def test_a_value_comes_back_with_the_defaults_of_what_it_left_out(schema: ProtobufSchema) -> None:
    back = schema.decode(schema.encode(ORDER))
    left_out = {"weight": 0.0, "paid": False, "prices": [], "allKinds": [], "nothing": None}
    assert back == {**ORDER, **left_out}


def test_fields_may_be_called_by_either_name(schema: ProtobufSchema) -> None:
    assert schema.encode({"order_id": "x"}) == schema.encode({"orderId": "x"})


def test_null_leaves_a_field_out(schema: ProtobufSchema) -> None:
    assert schema.encode({"orderId": None, "lines": None, "card": None, "cash": {}}) == schema.encode({"cash": {}})


def test_the_first_message_has_a_single_zero_in_front(schema: ProtobufSchema) -> None:
    assert schema.encode({"count": 1}) == b"\x00\x10\x01"


def test_other_messages_have_their_indexes_in_front(schema: ProtobufSchema) -> None:
    assert schema.encode({"name": "n"}, message="shop.Other") == b"\x02\x02\x0a\x01n"
    # Inside of Other comes the entry of its map first.
    assert schema.encode({"n": -1}, message="shop.Other.Inner") == b"\x04\x02\x02\x08\x01"


def test_a_payload_says_which_message_it_is(schema: ProtobufSchema) -> None:
    assert schema.decode(b"\x02\x02\x0a\x01n") == {"name": "n", "m": {}}
    assert schema.decode(memoryview(b"\x04\x02\x02\x08\x01")) == {"n": -1}


def test_clients_that_do_not_count_the_entries_of_maps_are_understood(schema: ProtobufSchema) -> None:
    assert schema.decode(b"\x04\x02\x00\x08\x01") == {"n": -1}


def test_a_file_that_only_passes_on_another_stands_for_it() -> None:
    other = 'syntax = "proto3"; package o; message O { int32 n = 1; }'
    schema = parse('syntax = "proto3"; import public "o.proto";', {"o.proto": other})
    assert schema.encode({"n": 1}) == b"\x00\x08\x01"
    assert schema.message_names() == ["o.O"]


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        ([], "/", "an object is expected, not an array"),
        ({"nope": 1}, "/nope", "shop.Order has no such field"),
        ({"count": "x"}, "/count", "an integer is expected, not a string"),
        ({"count": 1.5}, "/count", "an integer is expected"),
        ({"count": True}, "/count", "an integer is expected, not a bool"),
        ({"count": 2**31}, "/count", "a number from -2147483648 to 2147483647 is expected"),
        ({"price": "x"}, "/price", "a number is expected, not a string"),
        ({"price": float("nan")}, "/price", "stand in quotes"),
        ({"weight": 1e39}, "/weight", "too large for 32 bits"),
        ({"paid": 1}, "/paid", "true or false is expected, not a number"),
        ({"raw": "***"}, "/raw", "the string is no base64"),
        ({"raw": "AAA"}, "", ""),
        ({"kind": "NOPE"}, "/kind", "a value of the enum Kind is expected"),
        ({"orderId": 5}, "/orderId", "a string is expected, not a number"),
        ({"orderId": "\ud800"}, "/orderId", "half a surrogate pair"),
        ({"tags": "x"}, "/tags", "an array is expected, not a string"),
        ({"tags": ["x", None]}, "/tags/1", "a string is expected, not null"),
        ({"lines": [{}, {"next": {"number": -1}}]}, "/lines/1/next/number", "a number from 0 to"),
        ({"counts": {"a": "b"}}, "/counts/a", "an integer is expected"),
        ({"byNumber": {"x": {}}}, "/byNumber/x", "an integer is expected"),
        ({"byNumber": {"1": {"zz": 1}}}, "/byNumber/1/zz", "has no such field"),
        ({"card": "x", "cash": {}}, "/cash", "another field of the same oneof is set"),
        ({"order_id": "x", "orderId": "y"}, "/order_id", "under two names"),
        ({"at": "yesterday"}, "/at", "timestamp"),
        ({"more": {"@type": "type.googleapis.com/shop.Nope"}}, "/more", "shop.Nope"),
    ],
)
def test_what_does_not_fit_is_named_with_its_path(
    schema: ProtobufSchema, value: object, path: str, reason: str
) -> None:
    if not path:
        assert schema.encode(value)
        return
    with pytest.raises(InvalidRecordValue) as caught:
        schema.encode(value)
    assert caught.value.path == path
    assert reason in caught.value.reason


def test_a_value_that_is_nested_too_deeply_is_refused(schema: ProtobufSchema) -> None:
    line: dict[str, Any] = {}
    for _ in range(5_000):
        line = {"next": line}
    with pytest.raises(InvalidRecordValue) as caught:
        schema.encode({"cash": line})
    assert "too deeply" in caught.value.reason


@pytest.mark.parametrize(
    "payload", [b"", b"\x81", b"\x02", b"\x02\x08", b"\x02\x01", b"\xff" * 9, b"\x00\x0a\x05ab", b"\x00\x0a\x01\xff"]
)
def test_bytes_that_are_no_record_are_refused(schema: ProtobufSchema, payload: bytes) -> None:
    with pytest.raises(InvalidRecordValue):
        schema.decode(payload)


def test_a_string_of_proto2_that_is_no_text_is_refused() -> None:
    schema = parse("message A { optional string s = 1; map<string, string> m = 2; repeated string r = 3; }", {})
    for body in (b"\x0a\x01\xff", b"\x12\x03\x0a\x01\xff", b"\x1a\x01\xff"):
        with pytest.raises(InvalidRecordValue, match=r"(?i)utf-8"):
            schema.decode(b"\0" + body)


def test_bytes_that_are_wrong_inside_of_any_are_refused(schema: ProtobufSchema) -> None:
    wrong = b"\xa2\x01\x25\x0a\x1etype.googleapis.com/shop.Other\x12\x03\x0a\x05a"
    with pytest.raises(InvalidRecordValue):
        schema.decode(b"\0" + wrong)


def test_a_required_field_that_is_missing_inside_of_any_is_named() -> None:
    text = """
        import "google/protobuf/any.proto";
        message A { optional google.protobuf.Any any = 1; }
        message B { required int32 n = 1; }
    """
    with pytest.raises(InvalidRecordValue) as caught:
        parse(text, {}).encode({"any": {"@type": "type.googleapis.com/B"}})
    assert caught.value.path == "/any"


def test_required_fields_must_be_there() -> None:
    schema = parse("message A { required int32 n = 1; repeated A many = 2; }", {})
    with pytest.raises(InvalidRecordValue) as caught:
        schema.encode({"n": 1, "many": [{"n": 1}, {}]})
    assert (caught.value.path, caught.value.reason) == ("/many/1/n", "the field is required")
    with pytest.raises(InvalidRecordValue):
        schema.decode(b"\x00")


def test_extensions_go_under_their_full_name_in_brackets() -> None:
    schema = parse("package p; message A { extensions 5 to 9; } extend A { optional int32 x = 5; }", {})
    assert schema.decode(schema.encode({"[p.x]": 7})) == {"[p.x]": 7}


def test_a_schema_without_messages_has_no_records() -> None:
    schema = parse('syntax = "proto3"; enum E { Z = 0; }', {})
    with pytest.raises(InvalidRecordValue):
        schema.encode({})


def test_a_long_chain_of_types_is_no_trouble() -> None:
    links = "".join(f"message M{at} {{ M{at + 1} next = 1; }}" for at in range(3_000))
    schema = parse(f'syntax = "proto3"; {links} message M3000 {{}}', {})
    assert schema.decode(schema.encode({"next": {"next": {}}})) == {"next": {"next": {}}}


def random_order(chance: random.Random) -> dict[str, Any]:
    line = {"number": str(chance.randrange(2**64))}
    full: dict[str, Any] = {
        "orderId": "".join(chance.choice('aé"\n😀') for _ in range(chance.randrange(6))),
        "count": chance.randrange(-(2**31), 2**31),
        "total": chance.choice([str(chance.randrange(-(2**63), 2**63)), chance.randrange(100), 5.0, "1e3"]),
        "price": chance.choice([chance.gauss(0, 1e9), chance.randrange(9), "NaN", "-Infinity", "1.5"]),
        "weight": chance.choice([chance.gauss(0, 1e3), 0.1, 16777216.0, 3.4028234e38, 1e-45, "Infinity"]),
        "paid": chance.random() < 0.5,
        "raw": chance.choice(["", "AA==", "AA", "-_-_", "+/+/"]),
        "kind": chance.choice(["NONE", "HEAVY", 1, 77, -5]),
        "priority": chance.choice([0, 5, "7", None]),
        "tags": ["t"] * chance.randrange(3),
        "lines": [line, {"next": line}][: chance.randrange(3)],
        "counts": {"k": chance.randrange(9), "": "3"},
        "byNumber": {str(chance.randrange(-9, 9)): line},
        "kinds": {"true": "HEAVY", "false": 1},
        chance.choice(["card", "cash"]): None,
        "at": "1969-07-20T20:17:40.000000123Z",
        "anything": chance.choice([None, 1, "x", [True], {"a": {}}]),
        "maybe": chance.choice([None, 0, "9"]),
        "prices": [1, 2.5, "NaN"],
        "allKinds": [1, "NONE"],
        "nothing": chance.choice([None, "NULL_VALUE"]),
    }
    return {name: value for name, value in full.items() if chance.random() < 0.6}


def test_values_mean_what_they_mean_to_the_library(schema: ProtobufSchema) -> None:
    chance = random.Random(20_26)
    for _ in range(500):
        value = random_order(chance)
        expected = json_format.ParseDict(value, library_message(schema), descriptor_pool=schema.files.pool)
        payload = schema.encode(value)
        got = library_message(schema)
        got.ParseFromString(payload[1:])
        assert got.SerializeToString(deterministic=True) == expected.SerializeToString(deterministic=True), value
        as_json = json_format.MessageToDict(
            expected, always_print_fields_with_no_presence=True, descriptor_pool=schema.files.pool
        )
        assert schema.decode(payload) == as_json
