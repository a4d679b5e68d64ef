"""Which Avro schemas can read what: Java's rules, with a second library's opinion."""

import json

import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.schema import make_avsc_object
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamhouse.schemas import avro
from tests.schemas.test_avro_texts import a_field, record
from tests.support.depth import examples


def verdict(reader: object, writer: object) -> list[tuple[str, str]]:
    older = avro.parse(json.dumps(writer), {})
    return [(each.kind, each.path) for each in avro.parse(json.dumps(reader), {}).incompatibilities(older)]


def enum(*symbols: str, name: str = "E", **more: object) -> dict[str, object]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F", **more: object) -> dict[str, object]:
    return {"type": "fixed", "name": name, "size": size, **more}


LIST = record(a_field("int", "head"), a_field(["null", "L"], "tail"), name="L")
LONG_LIST = record(a_field("long", "head"), a_field(["null", "L"], "tail"), name="L")


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        ("long", "int"),
        ("float", "int"),
        ("float", "long"),
        ("double", "int"),
        ("double", "long"),
        ("double", "float"),
        ("bytes", "string"),
        ("string", "bytes"),
        (["null", "string"], "string"),
        (["int", "string"], ["string", "int"]),
        (["long", "string"], ["int"]),
        ("double", ["int", "float"]),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}),
        ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}),
        (record(a_field("int", "a"), a_field("int", "b", default=1)), record(a_field("int", "a"))),
        (record(a_field("int", "a")), record(a_field("int", "a"), a_field("int", "b"))),
        (record(a_field("int", "new", aliases=["old"])), record(a_field("int", "old"))),
        (record(name="a.R"), record(name="b.R")),
        (record(name="New", aliases=["a.Old"], namespace="a"), record(name="a.Old")),
        (enum("A", "B"), enum("A")),
        (enum("A", default="A"), enum("A", "B")),
        (fixed(4), fixed(4)),
        (LONG_LIST, LIST),
        ({"type": "long", "logicalType": "timestamp-millis"}, "long"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4},
            {"type": "bytes", "logicalType": "decimal", "precision": 9},
        ),
    ],
)
def test_readers_that_can(reader: object, writer: object) -> None:
    assert verdict(reader, writer) == []


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        ("int", "long", [("TYPE_MISMATCH", "/")]),
        ("null", "int", [("TYPE_MISMATCH", "/")]),
        ("string", fixed(3), [("TYPE_MISMATCH", "/")]),
        ("int", ["int", "string"], [("TYPE_MISMATCH", "/1")]),
        (["null", "int"], "string", [("MISSING_UNION_BRANCH", "/")]),
        (
            ["null", "int"],
            ["null", "string", "bytes"],
            [("MISSING_UNION_BRANCH", "/1"), ("MISSING_UNION_BRANCH", "/2")],
        ),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, [("TYPE_MISMATCH", "/items")]),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}, [("TYPE_MISMATCH", "/values")]),
        (record(name="A"), record(name="B"), [("NAME_MISMATCH", "/name")]),
        (enum("A"), enum("A", "B", "C"), [("MISSING_ENUM_SYMBOLS", "/symbols")]),
        (fixed(4), fixed(5, name="G"), [("NAME_MISMATCH", "/name"), ("FIXED_SIZE_MISMATCH", "/size")]),
        (
            record(a_field("int", "a"), a_field("int", "b"), a_field("int", "c")),
            record(a_field("long", "a"), a_field("int", "b")),
            [("TYPE_MISMATCH", "/fields/0/type"), ("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/2")],
        ),
        (record(a_field(enum("A", default="A"))), record(), [("TYPE_MISMATCH", "/fields/0/type")]),
        (
            record(a_field("int", "a", aliases=["b"])),
            record(a_field("int", "a"), a_field("int", "b")),
            [("TYPE_MISMATCH", "/fields/0")],
        ),
        (LIST, LONG_LIST, [("TYPE_MISMATCH", "/fields/0/type")]),
        (record(a_field("int"), aliases=["Old"]), record(a_field("int"), name="x.Old"), [("NAME_MISMATCH", "/name")]),
    ],
)
def test_readers_that_cannot_say_where_and_why(reader: object, writer: object, expected: list[tuple[str, str]]) -> None:
    assert verdict(reader, writer) == expected


def test_messages_are_what_java_adds() -> None:
    older = avro.parse(json.dumps(record(a_field(enum("A", "C", "B")), a_field("long", "g"))), {})
    newer = avro.parse(json.dumps(record(a_field(enum("A")), a_field("int", "g"), a_field("int", "h"))), {})
    assert [each.message for each in newer.incompatibilities(older)] == [
        "[B, C]",
        "reader type: INT not compatible with writer type: LONG",
        "h",
    ]


def test_unions_of_thousands_get_a_verdict_in_bounded_time() -> None:
    many = [avro.parse(json.dumps([enum("A", name=f"{prefix}{i}") for i in range(5_000)]), {}) for prefix in "ab"]
    assert [each.kind for each in many[0].incompatibilities(many[1])] == ["SCHEMA_TOO_COMPLEX"]


def test_types_that_lie_in_each_other_are_compared_however_deep_it_goes() -> None:
    """Twelve records that may each hold any of the twelve: pairs wait for pairs far beyond Python's own stack."""
    names = [f"T{i}" for i in range(12)]

    def family(leaf: str) -> str:
        kinds: list[object] = []
        union: list[object] = ["null"]
        for name in names:
            kinds.append(record(a_field(leaf, f"{name}_id"), a_field([*union, name], "child"), name=name))
            union.append(name)
        return json.dumps(kinds)

    older, newer = avro.parse(family("int"), {}), avro.parse(family("long"), {})
    assert newer.incompatibilities(older) == []
    assert older.incompatibilities(newer) != []


SCALARS = st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3) -> object:
    """Schemas whose named types have few names, so that they meet."""
    used: set[str] = set()

    def name(kind: str) -> str | None:
        free = [each for each in (f"{kind}{i}" for i in range(2)) if each not in used]
        if not free:
            return None
        used.add(chosen := draw(st.sampled_from(free)))
        return chosen

    def make(depth: int, union: bool = True) -> object:
        kind = draw(st.sampled_from(["scalar", "scalar", "array", "map", "enum", "fixed", "record", "union"]))
        if depth == 0 or kind == "scalar":
            return draw(SCALARS)
        if kind == "array":
            return {"type": "array", "items": make(depth - 1)}
        if kind == "map":
            return {"type": "map", "values": make(depth - 1)}
        if kind == "union":
            return make_union(depth) if union else draw(SCALARS)
        found = name(kind)
        return draw(SCALARS) if found is None else make_named(kind, found, depth)

    def make_union(depth: int) -> object:
        branches: dict[str, object] = {}
        for _ in range(draw(st.integers(1, 3))):
            branch = make(depth - 1, union=False)
            key = branch if isinstance(branch, str) else str(branch.get("name", branch["type"]))  # type: ignore[attr-defined,index]
            branches.setdefault(key, branch)
        return list(branches.values())

    def make_named(kind: str, found: str, depth: int) -> object:
        if kind == "enum":
            symbols = draw(st.lists(st.sampled_from("ABC"), min_size=1, unique=True))
            more = {"default": symbols[0]} if draw(st.booleans()) else {}
            return {"type": "enum", "name": found, "symbols": symbols, **more}
        if kind == "fixed":
            return {"type": "fixed", "name": found, "size": draw(st.integers(1, 2))}
        names = draw(st.lists(st.sampled_from("xyz"), unique=True, max_size=3))
        fields: list[object] = []
        for each in names:
            inner = make(depth - 1)
            defaults: dict[str, object] = {"default": None} if inner == "null" and draw(st.booleans()) else {}
            fields.append({"name": each, "type": inner, **defaults})
        return {"type": "record", "name": found, "fields": fields}

    return make(depth)


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schemas(), schemas())
def test_a_second_library_comes_to_the_same_verdict(reader: object, writer: object) -> None:
    checker = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]
    opinion = checker.get_compatibility(make_avsc_object(reader), make_avsc_object(writer))
    result = verdict(reader, writer)
    assert (result == []) == (opinion.compatibility == SchemaCompatibilityType.compatible)
    kinds = {getattr(each, "value", each) for each in opinion.incompatibilities}
    assert {kind.lower() for kind, _ in result} == {str(kind).lower() for kind in kinds}


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schemas())
def test_every_schema_can_read_itself_and_its_texts_are_stable(schema: object) -> None:
    parsed = avro.parse(json.dumps(schema), {})
    assert parsed.incompatibilities(parsed) == []
    assert avro.parse(parsed.canonical(), {}).canonical() == parsed.canonical()
    assert avro.parse(parsed.normalized(), {}).normalized() == parsed.normalized()
