"""Which changes of a .proto file break a reader, and what they are called."""

import pytest

from streamhouse.schemas.avro import parse as parse_avro
from streamhouse.schemas.protobuf import parse
from streamhouse.schemas.protobuf.compatibility import differences


def changes(older: str, newer: str, *, syntax: str = "proto3") -> list[str]:
    head = f'syntax = "{syntax}";'
    result = differences(parse(head + older, {}).files, parse(head + newer, {}).files)
    return [f"{each.kind} {each.path}" for each in result]


def is_allowed(older: str, newer: str, *, syntax: str = "proto3") -> bool:
    head = f'syntax = "{syntax}";'
    return not parse(head + newer, {}).incompatibilities(parse(head + older, {}))


@pytest.mark.parametrize(
    ("older", "newer", "change"),
    [
        ("message A { int32 a = 1; }", "message A { int32 a = 1; int32 b = 2; }", "FIELD_ADDED #/A/2"),
        ("message A { int32 a = 1; int32 b = 2; }", "message A { int32 a = 1; }", "FIELD_REMOVED #/A/2"),
        ("message A { int32 a = 1; }", "message A { int32 b = 1; }", "FIELD_NAME_CHANGED #/A/1"),
        ("message A {}", "message A {} message B {}", "MESSAGE_ADDED #/B"),
        ("message A {}", "message A {} enum E { Z = 0; }", "ENUM_ADDED #/E"),
        ("message A {} enum E { Z = 0; }", "message A {}", "ENUM_REMOVED #/E"),
        ("enum E { Z = 0; }", "enum E { Z = 0; Y = 1; }", "ENUM_CONST_ADDED #/E/1"),
        ("enum E { Z = 0; Y = 1; }", "enum E { Z = 0; }", "ENUM_CONST_REMOVED #/E/1"),
        ("enum E { Z = 0; }", "enum E { Y = 0; }", "ENUM_CONST_CHANGED #/E/0"),
        ("message A { string a = 1; }", "message A { repeated string a = 1; }", ""),
        ("message A { int32 a = 1; }", "message A { uint64 a = 1; }", ""),
        ("message A { int32 a = 1; } enum E { Z = 0; }", "message A { E a = 1; } enum E { Z = 0; }", ""),
        ("message A { string a = 1; }", "message A { bytes a = 1; }", ""),
        (
            "message A { oneof o { int32 a = 1; } }",
            "message A { int32 a = 1; }",
            "ONEOF_FIELD_MOVED_TO_TOP_LEVEL #/A/1",
        ),
        ("message A { int32 a = 1; oneof o { int32 b = 2; } }", "message A { int32 a = 1; }", "ONEOF_REMOVED #/A/o"),
    ],
)
def test_a_change_that_readers_cope_with_is_allowed(older: str, newer: str, change: str) -> None:
    result = changes(older, newer)
    assert change in result if change else not result
    assert is_allowed(older, newer)


@pytest.mark.parametrize(
    ("older", "newer", "change"),
    [
        ("package a; message A {}", "package b; message A {}", "PACKAGE_CHANGED #/"),
        ("message A {} message B {}", "message A {}", "MESSAGE_REMOVED #/B"),
        ("message A { message B {} }", "message A {}", "MESSAGE_REMOVED #/A/B"),
        ("message A { int32 a = 1; }", "message A { string a = 1; }", "FIELD_SCALAR_KIND_CHANGED #/A/1"),
        ("message A { int32 a = 1; }", "message A { sint32 a = 1; }", "FIELD_SCALAR_KIND_CHANGED #/A/1"),
        ("message A { fixed32 a = 1; }", "message A { float a = 1; }", "FIELD_SCALAR_KIND_CHANGED #/A/1"),
        ("message A { int32 a = 1; }", "message A { A a = 1; }", "FIELD_KIND_CHANGED #/A/1"),
        ("message A { map<string, int32> a = 1; }", "message A { repeated A a = 1; }", "FIELD_KIND_CHANGED #/A/1"),
        (
            "message A { map<string, int32> a = 1; }",
            "message A { map<string, string> a = 1; }",
            "FIELD_SCALAR_KIND_CHANGED #/A/1",
        ),
        (
            "message A { A a = 1; } message B {}",
            "message A { B a = 1; } message B {}",
            "FIELD_NAMED_TYPE_CHANGED #/A/1",
        ),
        (
            "message A { optional int32 a = 1; }",
            "message A { repeated int32 a = 1; }",
            "FIELD_NUMERIC_LABEL_CHANGED #/A/1",
        ),
        (
            "message A { oneof o { int32 a = 1; int32 b = 2; } }",
            "message A { oneof o { int32 a = 1; } }",
            "ONEOF_FIELD_REMOVED #/A/o/2",
        ),
        (
            "message A { int32 a = 1; int32 b = 2; }",
            "message A { oneof o { int32 a = 1; int32 b = 2; } }",
            "MULTIPLE_FIELDS_MOVED_TO_ONEOF #/A/o",
        ),
        (
            "message A { int32 a = 1; oneof o { int32 b = 2; } }",
            "message A { oneof o { int32 a = 1; int32 b = 2; } }",
            "FIELD_MOVED_TO_EXISTING_ONEOF #/A/o",
        ),
    ],
)
def test_a_change_that_breaks_readers_is_named_with_its_path(older: str, newer: str, change: str) -> None:
    assert change in changes(older, newer)
    assert not is_allowed(older, newer)


def test_required_fields_may_neither_come_nor_go() -> None:
    without, required = "message A { }", "message A { required int32 a = 1; }"
    assert changes(without, required, syntax="proto2") == ["REQUIRED_FIELD_ADDED #/A/1"]
    assert changes(required, without, syntax="proto2") == ["REQUIRED_FIELD_REMOVED #/A/1"]
    assert not is_allowed(without, required, syntax="proto2")
    assert not is_allowed(required, without, syntax="proto2")


def test_labels_of_proto2_are_compared_though_optional_is_the_rule() -> None:
    older, newer = "message A { optional int32 a = 1; }", "message A { repeated int32 a = 1; }"
    assert changes(older, newer, syntax="proto2") == ["FIELD_NUMERIC_LABEL_CHANGED #/A/1"]


def test_a_type_that_is_imported_is_compared_as_deep_as_fields_reach() -> None:
    text = 'syntax = "proto3"; import "b.proto"; message A { b.B b = 1; b.B again = 2; }'
    before = {"b.proto": 'syntax = "proto3"; package b; message B { B self = 1; int32 n = 2; }'}
    after = {"b.proto": 'syntax = "proto3"; package b; message B { B self = 1; string n = 2; }'}
    result = parse(text, after).incompatibilities(parse(text, before))
    assert [f"{each.kind} {each.path}" for each in result] == [
        "FIELD_NAMED_TYPE_CHANGED #/A/1",
        "FIELD_NAMED_TYPE_CHANGED #/A/2",
        "FIELD_NAMED_TYPE_CHANGED #/B/1",
        "FIELD_SCALAR_KIND_CHANGED #/B/2",
    ]


def test_a_change_is_found_at_the_end_of_a_long_chain_of_imported_types() -> None:
    def chain(last: str) -> dict[str, str]:
        links = "".join(f"message M{at} {{ M{at + 1} next = 1; }}" for at in range(2_000))
        return {"b.proto": f'syntax = "proto3"; {links} message M2000 {{ {last} n = 1; }}'}

    text = 'syntax = "proto3"; import "b.proto"; message A { M0 first = 1; }'
    newer, older = parse(text, chain("string")), parse(text, chain("int32"))
    assert newer.incompatibilities(older)[0].path == "#/A/1"
    assert not newer.incompatibilities(newer)


def test_a_schema_in_another_language_can_not_be_replaced() -> None:
    result = parse("message A {}", {}).incompatibilities(parse_avro('"string"', {}))
    assert [each.kind for each in result] == ["SCHEMA_TYPE_MISMATCH"]
