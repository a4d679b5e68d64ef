"""Avro's texts: what is a schema, and when two texts are the same one."""

import json

import pytest

from streamhouse.errors import InvalidSchema
from streamhouse.schemas import avro
from streamhouse.schemas.avro.parser import MAX_TYPE_DEPTH


def record(*fields: object, name: str = "R", **more: object) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def a_field(kind: object, name: str = "f", **more: object) -> dict[str, object]:
    return {"name": name, "type": kind, **more}


def refusal(schema: object, **references: str) -> tuple[str, str]:
    with pytest.raises(InvalidSchema) as caught:
        avro.parse(schema if isinstance(schema, str) else json.dumps(schema), references)
    return caught.value.path, caught.value.reason


@pytest.mark.parametrize(
    ("schema", "path", "reason"),
    [
        (3, "/", "a type is a name, a list or an object"),
        ({}, "/", "no type"),
        ("Other", "/", "undefined name: 'Other'"),
        ({"type": ["null", "string"]}, "/type", "a text here"),
        ({"type": "array"}, "/", "no items"),
        ({"type": "map", "values": "Other"}, "/values", "undefined name"),
        (["int", "int"], "/1", "duplicate in union: 'int'"),
        (["null", ["int"]], "/1", "may not hold a union"),
        ({"type": "fixed", "name": "F", "size": -1}, "/size", "whole number"),
        ({"type": "fixed", "name": "F", "size": True}, "/size", "whole number"),
        ({"type": "fixed", "name": "int", "size": 1}, "/name", "named after a primitive"),
        ({"type": "fixed", "name": "1F", "size": 1}, "/name", "illegal name"),
        ({"type": "fixed", "name": "F", "namespace": "a..b", "size": 1}, "/name", "illegal name"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "/symbols", "duplicate symbol"),
        ({"type": "enum", "name": "E", "symbols": ["A-B"]}, "/symbols/0", "illegal symbol"),
        ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, "/default", "no symbol"),
        ({"type": "enum", "name": "E", "symbols": "A"}, "/symbols", "list of texts"),
        ({"type": "record", "name": "R"}, "/", "no fields"),
        ({"type": "record", "name": "R", "fields": {}}, "/fields", "are a list"),
        (record(3), "/fields/0", "a field is an object"),
        (record({"type": "int"}), "/fields/0", "no name"),
        (record(a_field("int", "a b")), "/fields/0/name", "illegal field name"),
        (record(a_field("int"), a_field("int")), "/fields/1", "duplicate field: 'f'"),
        (record(a_field("int", order="up")), "/fields/0/order", "ascending"),
        (record(a_field(record(name="R"))), "/fields/0/type", "can't redefine: 'R'"),
        (record(a_field("int", default="x")), "/fields/0/default", "invalid default"),
        (record(a_field("int", default=2**31)), "/fields/0/default", "invalid default"),
        (record(a_field("int", default=True)), "/fields/0/default", "invalid default"),
        (record(a_field("long", default=1.5)), "/fields/0/default", "invalid default"),
        (record(a_field(["null", "int"], default="x")), "/fields/0/default", "invalid default"),
        (record(a_field({"type": "array", "items": "int"}, default=[1, None])), "/fields/0/default", "invalid default"),
        (record(a_field(record(a_field("int"), name="S"), default={})), "/fields/0/default", "invalid default"),
    ],
)
def test_what_is_wrong_with_a_schema_is_reported_with_its_place(schema: object, path: str, reason: str) -> None:
    result = refusal(schema)
    assert result[0] == path
    assert reason in result[1]


@pytest.mark.parametrize(
    "schema",
    [
        "string",
        record(a_field(["null", "string"], default="any branch will do")),
        record(a_field(record(a_field("int", default=1), name="S"), default={})),
        record(a_field(["null", "R"], default=None)),
        {"type": "string", "logicalType": "no such thing"},
        {"type": "bytes", "logicalType": "decimal", "precision": -1},
        {"type": "error", "name": "E", "fields": []},
    ],
)
def test_what_java_takes_is_taken(schema: object) -> None:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    assert avro.parse(text, {}).canonical() == (json.dumps(schema, separators=(",", ":")))


def test_spaces_and_the_order_of_words_make_no_other_schema() -> None:
    one = '{"type": "record", "name": "R", "fields": [{"name": "f", "type": {"type": "string"}}]}'
    two = '{"fields":[{"type":"string","name":"f"}],"name":"R","type":"record"}'
    assert avro.parse(one, {}).canonical() == avro.parse(two, {}).canonical()


def test_docs_defaults_aliases_and_foreign_words_stay() -> None:
    inner = {"type": "enum", "name": "E", "doc": "d", "symbols": ["A"], "default": "A", "x": {"b": 1}, "aliases": ["O"]}
    text = json.dumps(record(a_field(inner, doc="e", default="A", order="ignore", aliases=["g"], y=1), doc="f", z=[1]))
    canonical = (
        '{"type":"record","name":"R","doc":"f","fields":[{"name":"f","type":{"type":"enum","name":"E","doc":"d",'
        '"symbols":["A"],"default":"A","x":{"b":1},"aliases":["O"]},"doc":"e","default":"A","order":"ignore",'
        '"aliases":["g"],"y":1}],"z":[1]}'
    )
    assert avro.parse(text, {}).canonical() == canonical
    assert avro.parse(canonical, {}).canonical() == canonical


def test_names_are_short_where_the_namespace_says_the_rest() -> None:
    other = {"type": "fixed", "name": "x.y.F", "size": 2}
    text = json.dumps(record(a_field(other, "a"), a_field("x.y.F", "b"), a_field(["null", "a.b.R"], "c"), name="a.b.R"))
    assert avro.parse(text, {}).canonical() == (
        '{"type":"record","name":"R","namespace":"a.b","fields":[{"name":"a","type":{"type":"fixed","name":"F",'
        '"namespace":"x.y","size":2}},{"name":"b","type":"x.y.F"},{"name":"c","type":["null","R"]}]}'
    )


def test_a_name_without_a_namespace_is_found_from_inside_one() -> None:
    schema = avro.parse('[{"type":"fixed","name":"F","size":1},{"type":"record","name":"a.R","fields":[]}]', {})
    assert '"namespace":"a"' in schema.canonical()
    nested = record(a_field("F", "b"), name="a.R")
    assert avro.parse(json.dumps([{"type": "fixed", "name": "F", "size": 1}, nested]), {}).encode({"a.R": {"b": "x"}})


def test_normalizing_sorts_words_and_drops_what_goes_without_saying() -> None:
    one = record(
        a_field(
            {"type": "bytes", "scale": 0, "precision": 4, "logicalType": "decimal", "b": 1, "a": 2}, order="ascending"
        ),
        namespace="n",
        z=1,
        y={"b": 1, "a": 2},
        aliases=["T", "S"],
    )
    two = record(
        a_field({"type": "bytes", "logicalType": "decimal", "precision": 4, "a": 2, "b": 1}),
        name="n.R",
        aliases=["n.S", "n.T"],
        y={"a": 2, "b": 1},
        z=1,
    )
    texts = [avro.parse(json.dumps(each), {}) for each in (one, two)]
    assert texts[0].canonical() != texts[1].canonical()
    assert texts[0].normalized() == texts[1].normalized()
    assert avro.parse(texts[0].normalized(), {}).normalized() == texts[0].normalized()


class TestReferences:
    CITY = '{"type":"record","name":"a.City","fields":[{"name":"in","type":"a.Country"}]}'
    COUNTRY = '{"type":"enum","name":"a.Country","symbols":["NO","SE"]}'
    PERSON = (
        '{"type":"record","name":"a.Person","fields":[{"name":"born","type":"City"},{"name":"of","type":"Country"}]}'
    )

    @pytest.mark.parametrize("order", [("city", "country"), ("country", "city")])
    def test_come_in_any_order_and_stay_names(self, order: tuple[str, str]) -> None:
        texts = {"city": self.CITY, "country": self.COUNTRY}
        schema = avro.parse(self.PERSON, {name: texts[name] for name in order})
        assert schema.canonical() == (
            '{"type":"record","name":"Person","namespace":"a","fields":[{"name":"born","type":"City"},'
            '{"name":"of","type":"Country"}]}'
        )
        assert schema.normalized() == schema.canonical()
        value = {"born": {"in": "SE"}, "of": "NO"}
        assert schema.decode(schema.encode(value)) == value

    def test_that_are_missing_are_named(self) -> None:
        path, reason = refusal(self.PERSON, city=self.CITY)
        assert path == "reference 'city' /fields/0/type"
        assert "'a.Country'" in reason

    def test_may_bring_the_same_type_along_but_not_another_of_its_name(self) -> None:
        same = avro.parse(self.PERSON, {"1": self.COUNTRY, "2": self.COUNTRY, "3": self.CITY})
        assert same.canonical() == avro.parse(self.PERSON, {"1": self.COUNTRY, "3": self.CITY}).canonical()
        other = self.COUNTRY.replace("NO", "DK")
        assert "can't redefine" in refusal(self.PERSON, one=self.COUNTRY, two=other, three=self.CITY)[1]


class TestHostileTexts:
    def test_a_long_chain_of_names_is_refused(self) -> None:
        chain = [record(name="r0")] + [record(a_field(f"r{i - 1}"), name=f"r{i}") for i in range(1, 10_000)]
        assert "nested too deeply" in refusal(chain)[1]

    def test_a_chain_at_the_limit_works(self) -> None:
        length = MAX_TYPE_DEPTH - 1
        chain = [record(name="r0")] + [record(a_field(f"r{i - 1}"), name=f"r{i}") for i in range(1, length)]
        schema = avro.parse(json.dumps(chain), {})
        assert schema.normalized() == avro.parse(schema.canonical(), {}).normalized()
        assert schema.incompatibilities(avro.parse(json.dumps(chain), {})) == []

    def test_a_default_that_fits_branches_in_too_many_ways_is_refused(self) -> None:
        value: dict[str, object] = {}
        for _ in range(80):
            value = {"c": value}
        b = record(a_field(["A", "B"], "c"), a_field("int", "z"), name="B")
        a = record(a_field([b, "A"], "c"), name="A")
        assert "too many branches" in refusal([a, record(a_field(["A", "B"], default=value))])[1]

    def test_a_default_that_means_itself_ends(self) -> None:
        schema = avro.parse(json.dumps(record(a_field("R", default={}))), {})
        assert schema.canonical()
