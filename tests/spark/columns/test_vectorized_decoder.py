"""Quick ways: columns that are read without an object per record are those that are read record by record."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from streamhouse.format.columnar_decoder import ALL_COLUMNS, Binary, Selection, read_columns
from streamhouse.format.compression import Codec
from streamhouse.format.payload_decoder import IS_COMPILED
from streamhouse.format.records import encode_batch
from streamhouse.model.names import TopicPartition
from streamhouse.model.record import NewRecord
from streamhouse.schemas import parse_schema
from streamhouse.schemas.base import ParsedSchema
from streamhouse.spark.columns import typed_decoder
from streamhouse.spark.columns.typed_columns import TypedRecordBatchBuilder, typed_schema
from streamhouse.spark.columns.typed_decoder import Decoded, Decoder, ReaderSchema
from streamhouse.spark.columns.vectorized_decoder import vectorized_decoder
from tests.support.depth import examples

pytestmark = pytest.mark.skipif(not IS_COMPILED, reason="built without a compiler")

PREFIX = b"\0\0\0\0\1"
PLACE = TopicPartition("orders", 3)
LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)
TEXTS = st.text(max_size=8)
BYTES = st.binary(max_size=8).map(lambda data: data.decode("latin-1"))
FOUR = st.binary(min_size=4, max_size=4).map(lambda data: data.decode("latin-1"))
FLOATS = st.floats(width=32, allow_nan=False)

AVRO_FIELDS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("boolean", st.booleans()),
    ("int", INTS),
    ("long", LONGS),
    ("float", FLOATS),
    ("double", st.floats(allow_nan=False)),
    ("string", TEXTS),
    ("bytes", BYTES),
    (["null", "string"], st.none() | TEXTS),
    (["long", "null"], st.none() | LONGS),
    ({"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]}, st.sampled_from("ABC")),
    ({"type": "fixed", "name": "Four", "size": 4}, FOUR),
    ({"type": "long", "logicalType": "timestamp-millis"}, st.integers(-(10**12), 10**13)),
    ({"type": "long", "logicalType": "timestamp-micros"}, LONGS),
    ({"type": "long", "logicalType": "local-timestamp-nanos"}, LONGS),
    ({"type": "int", "logicalType": "date"}, st.integers(-10000, 10000)),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: f"{n / 100:.2f}"),
    ),
    ({"type": "array", "items": "long"}, st.lists(LONGS, max_size=3)),
    ({"type": "array", "items": ["null", "string"]}, st.lists(st.none() | TEXTS, max_size=3)),
    ({"type": "map", "values": "double"}, st.dictionaries(TEXTS, st.floats(allow_nan=False), max_size=3)),
    (
        ["null", {"type": "record", "name": "Buyer", "fields": [
            {"name": "city", "type": "string"}, {"name": "tags", "type": {"type": "array", "items": "int"}},
        ]}],
        st.none() | st.fixed_dictionaries({"city": TEXTS, "tags": st.lists(INTS, max_size=2)}),
    ),
]  # fmt: skip
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": f"f{at}", "type": kind} for at, (kind, _) in enumerate(AVRO_FIELDS)],
}
AVRO_VALUES = st.fixed_dictionaries({f"f{at}": values for at, (_, values) in enumerate(AVRO_FIELDS)})

JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": ["number", "null"]},
        "paid": {"type": "boolean"},
        "buyer": {"type": "object", "properties": {"name": {"type": "string"}}},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}
JSON_VALUES = st.fixed_dictionaries(
    {},
    optional={
        "id": LONGS,
        "price": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "paid": st.booleans(),
        "buyer": st.none() | st.fixed_dictionaries({}, optional={"name": TEXTS, "more": st.lists(INTS, max_size=2)}),
        "tags": st.lists(TEXTS, max_size=3),
        "unknown": st.recursive(TEXTS | INTS, lambda inner: st.lists(inner, max_size=2), max_leaves=4),
    },
)

PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Order {
  int32 a = 1; sint32 b = 2; uint32 c = 3; fixed32 d = 4; sfixed32 e = 5; int64 f = 6; sint64 g = 7; uint64 h = 8;
  fixed64 i = 9; sfixed64 j = 10; float k = 11; double l = 12; bool m = 13; string n = 14; bytes o = 15;
  optional int64 p = 16; optional string q = 17; repeated int32 r = 18; repeated string s = 19; Kind t = 20;
  Buyer u = 21; repeated Buyer v = 22; google.protobuf.Timestamp w = 23; repeated Kind x = 24;
  oneof choice { string y = 25; int32 z = 26; Buyer aa = 27; }
  enum Kind { NEW = 0; OLD = 7; }
  message Buyer { string city = 1; repeated int64 parts = 2; Kind kind = 3; }
}
"""
UNSIGNED = st.integers(0, 2**64 - 1).map(str)
KINDS = st.sampled_from(["NEW", "OLD", 5, -3])
BUYERS = st.fixed_dictionaries(
    {}, optional={"city": TEXTS, "parts": st.lists(LONGS.map(str), max_size=2), "kind": KINDS}
)
CHOICES: list[dict[str, Any]] = [{}, {"y": "why"}, {"z": 3}, {"aa": {"city": "x"}}]
PROTO_VALUES = st.tuples(
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys("abe", INTS),
            **{name: st.integers(0, 2**32 - 1) for name in "cd"},
            **{name: LONGS.map(str) for name in "fgjp"},
            **dict.fromkeys("hi", UNSIGNED),
            "k": FLOATS.filter(lambda value: abs(value) < 3e38),
            "l": st.floats(allow_nan=False, allow_infinity=False),
            "m": st.booleans(),
            "n": TEXTS,
            "o": st.sampled_from(["", "AAE=", "/w=="]),
            "q": TEXTS,
            "r": st.lists(INTS, max_size=3),
            "s": st.lists(TEXTS, max_size=3),
            "t": KINDS,
            "u": BUYERS,
            "v": st.lists(BUYERS, max_size=2),
            "w": st.sampled_from(["1970-01-01T00:00:01Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z"]),
            "x": st.lists(KINDS, max_size=3),
        },
    ),
    st.sampled_from(CHOICES),
).map(lambda both: {**both[0], **both[1]})


def decoder(reader: ReaderSchema) -> Decoder:
    shape = TypedRecordBatchBuilder.of(typed_schema(reader, include_headers=False), reader, "localhost:1")
    assert shape.decoder is not None
    return shape.decoder


def schema(kind: str, text: object) -> ReaderSchema:
    return ReaderSchema(type=kind, text=text if isinstance(text, str) else json.dumps(text), references=())


SCHEMAS = {"AVRO": schema("AVRO", AVRO), "JSON": schema("JSON", JSON_SCHEMA), "PROTOBUF": schema("PROTOBUF", PROTO)}
PARSED = {kind: each.parsed() for kind, each in SCHEMAS.items()}
VALUES: dict[str, st.SearchStrategy[Any]] = {"AVRO": AVRO_VALUES, "JSON": JSON_VALUES, "PROTOBUF": PROTO_VALUES}
DECODERS = {kind: decoder(each) for kind, each in SCHEMAS.items()}


def column_of(payloads: list[bytes | None]) -> Binary:
    batch = encode_batch(
        [NewRecord(value=None if each is None else PREFIX + each) for each in payloads], codec=Codec.NONE, now_ms=0
    )
    values = read_columns([batch], Selection(ALL_COLUMNS), limit_bytes=1 << 24).value
    assert values is not None
    return values


def both_ways(kind: str, payloads: list[bytes | None], writer: ParsedSchema | None = None) -> tuple[Decoded, Decoded]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typed_decoder, "writer_schema", lambda address, schema_id: writer or PARSED[kind])
        values = column_of(payloads)
        quick = replace(DECODERS[kind], _quick={})
        slow = replace(DECODERS[kind], _quick={1: None})
        result = quick.decode(values), slow.decode(values)
        assert quick._quick.get(1, quick) is not None, "there is no quick way"
        return result


def check_same(quick: Decoded, slow: Decoded) -> None:
    for name, one, other in zip("abcdefghijklmnopqrstuvwxyz" * 2, quick.arrays, slow.arrays, strict=False):
        one.validate(full=True)
        assert one.equals(other) or one.to_pylist() == other.to_pylist(), name
    assert {row: str(error) for row, error in quick.wrong.items()} == {
        row: str(error) for row, error in slow.wrong.items()
    }


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_what_was_written_is_read_alike(kind: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | VALUES[kind], min_size=1, max_size=5))
    encode: Callable[[Any], bytes] = json_bytes if kind == "JSON" else PARSED[kind].encode
    quick, slow = both_ways(kind, [None if value is None else encode(value) for value in values])
    check_same(quick, slow)


def json_bytes(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_bytes_that_nobody_wrote_are_judged_alike(kind: str, data: st.DataObject) -> None:
    encode: Callable[[Any], bytes] = json_bytes if kind == "JSON" else PARSED[kind].encode
    good = encode(data.draw(VALUES[kind]))
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    payloads: list[bytes | None] = [good, spoiled(good, chance), chance.randbytes(chance.randrange(12)), good]
    quick, slow = both_ways(kind, payloads)
    check_same(quick, slow)


def spoiled(good: bytes, chance: random.Random) -> bytes:
    data = bytearray(good)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(data) + 1)
        what = chance.randrange(3)
        if what == 0:
            data[at : at + 1] = chance.randbytes(1)
        elif what == 1:
            del data[at : at + chance.randrange(4)]
        else:
            data[at:at] = chance.choice([chance.randbytes(2), b'"', b"}", b"{", b"[", b"\\", b"null", b"1e5", b"\n"])
    return bytes(data)


def test_one_odd_record_among_many_leaves_the_others_quick() -> None:
    payloads: list[bytes | None] = [b'{"id":%d}' % n for n in range(1000)]
    payloads[500], payloads[700] = b'{"id":"no number"}', b'{"id":7.0}'
    quick, slow = both_ways("JSON", payloads)
    check_same(quick, slow)
    assert set(quick.wrong) == {500}
    assert quick.arrays[0].null_count == 1


def test_objects_that_end_in_the_next_record_shift_nothing() -> None:
    payloads: list[bytes | None] = [b'{"id":1}{"id":2}', b'{"id":3', b'"tags":[]}', b'{"tags":["', b'"]}', b'{"id":4}']
    quick, slow = both_ways("JSON", payloads)
    check_same(quick, slow)
    assert quick.arrays[0].to_pylist() == [None, None, None, None, None, 4]


def test_json_that_is_nested_without_end_is_refused_and_nothing_falls_over() -> None:
    quick, slow = both_ways("JSON", [b'{"unknown":' + b"[" * 200_000 + b"]" * 200_000 + b"}", b'{"id":1}'])
    check_same(quick, slow)
    assert set(quick.wrong) == {0}


def test_fields_of_an_older_or_newer_writer_go_by_their_names() -> None:
    fields = [
        {"name": "new", "type": ["int", "string", {"type": "array", "items": "long"}]},
        {"name": "f2", "type": "int"},
        {"name": "f7", "type": "string"},
    ]
    writer = parse_schema("AVRO", json.dumps({"type": "record", "name": "Order", "fields": fields}), {})
    payload = writer.encode({"new": [1, 2], "f2": 5, "f7": "x"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typed_decoder, "writer_schema", lambda address, schema_id: writer)
        own = [each for each in PARSED_FIELDS if each in ("f2", "f7", "f8", "f19")]
        kinds = typed_schema(SCHEMAS["AVRO"], include_headers=False)
        shape = TypedRecordBatchBuilder.of(StructType([kinds[name] for name in own]), SCHEMAS["AVRO"], "localhost:1")
        assert shape.decoder is not None
        result = shape.decoder.decode(column_of([payload]))
        assert shape.decoder._quick[1] is not None
    assert [array.to_pylist() for array in result.arrays] == [[5], ["x"], [None], [None]]


PARSED_FIELDS = [f"f{at}" for at in range(len(AVRO_FIELDS))]


def test_a_list_that_says_it_has_more_than_there_is_takes_no_memory() -> None:
    text = {"type": "record", "name": "R", "fields": [{"name": "xs", "type": {"type": "array", "items": "long"}}]}
    reader = schema("AVRO", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typed_decoder, "writer_schema", lambda address, schema_id: reader.parsed())
        result = decoder(reader).decode(column_of([b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" + b"\x02"]))
    assert set(result.wrong) == {0}


def test_records_of_several_schemas_are_in_the_order_of_their_offsets() -> None:
    other = parse_schema("JSON", json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}}), {})
    batch = encode_batch(
        [NewRecord(value=b"\0\0\0\0" + bytes([1 + n % 3]) + b'{"id":%d}' % n) for n in range(9)],
        codec=Codec.NONE,
        now_ms=0,
    )
    values = read_columns([batch], Selection(ALL_COLUMNS), limit_bytes=1 << 24).value
    assert values is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typed_decoder, "writer_schema", lambda address, schema_id: other)
        result = replace(DECODERS["JSON"], _quick={2: None}).decode(values)
    assert result.arrays[0].to_pylist() == list(range(9))
    assert result.arrays[0].type == pa.int64()


def test_a_writer_of_another_language_is_read_record_by_record() -> None:
    """Its values mean something else: a time may be a number in one, and a text in the other."""
    shape = decoder(SCHEMAS["AVRO"])
    assert vectorized_decoder(PARSED["JSON"], PARSED["AVRO"], shape.columns, has_text=False) is None
    assert vectorized_decoder(PARSED["AVRO"], PARSED["AVRO"], shape.columns, has_text=False) is not None
