"""Typed columns: what the fields of each language become, and what records have there."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from streamhouse.client.sync import SyncClient
from streamhouse.client.types import NewSchema
from streamhouse.errors import InvalidRecordValue, Misconfigured
from streamhouse.format.columnar_decoder import ALL_COLUMNS, Selection, read_columns
from streamhouse.format.compression import Codec
from streamhouse.format.records import encode_batch
from streamhouse.model.names import TopicPartition
from streamhouse.model.record import NewRecord
from streamhouse.schemas import parse_schema
from streamhouse.spark.columns import typed_decoder
from streamhouse.spark.columns.typed_columns import TypedRecordBatchBuilder, check_typed, typed_schema
from streamhouse.spark.columns.typed_decoder import ReaderSchema, find_schema, latest_schema
from tests.spark.conftest import Read
from tests.support.agent import LiveAgent

PLACE = TopicPartition("orders", 3)
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": "bytes"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "buyer", "type": {"type": "record", "name": "Buyer", "fields": [{"name": "raw", "type": "bytes"}]}},
        {"name": "either", "type": ["int", "string"]},
    ],
}
PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Order {
  int64 order_id = 1;
  uint64 big = 2;
  bytes raw = 3;
  repeated int32 parts = 4;
  map<int32, string> names = 5;
  Kind kind = 6;
  google.protobuf.Timestamp at = 7;
  Buyer buyer = 8;
  optional string note = 9;
  enum Kind { NEW = 0; OLD = 1; }
  message Buyer { string full_name = 1; }
}
"""
JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": ["number", "null"]},
        "buyer": {"$ref": "#/$defs/buyer"},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}},
        "extra": {},
        "limits": {"type": "object", "additionalProperties": {"type": "number"}},
        "maybe": {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
    },
    "$defs": {"buyer": {"type": "object", "properties": {"name": {"type": "string"}}}},
}


def reader(kind: str, text: object) -> ReaderSchema:
    return ReaderSchema(type=kind, text=text if isinstance(text, str) else json.dumps(text), references=())


def decoded(
    monkeypatch: pytest.MonkeyPatch, schema: ReaderSchema, values: list[bytes | None], only: StructType | None = None
) -> pa.Table:
    """What payloads, written with this schema under id 1, are in Spark's columns."""
    parsed = schema.parsed()
    monkeypatch.setattr(typed_decoder, "writer_schema", lambda address, schema_id: parsed)
    batch = encode_batch(
        [
            NewRecord(key=b"k", value=None if value is None else b"\0\0\0\0\1" + value, timestamp_ms=5)
            for value in values
        ],
        codec=Codec.NONE,
        now_ms=0,
    )
    expected = only or typed_schema(schema, include_headers=False)
    check_typed(expected, schema)
    shape = TypedRecordBatchBuilder.of(expected, schema, "localhost:1")
    result = read_columns([batch], Selection(shape.required & ALL_COLUMNS), limit_bytes=1 << 20)
    return pa.Table.from_batches([shape.record_batch(result, PLACE, shift=100)])


def test_avro_records_are_columns_with_what_is_known_of_them_besides(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = reader("AVRO", AVRO)
    assert typed_schema(schema, include_headers=False).simpleString() == (
        "struct<id:bigint,note:string,price:decimal(9,2),day:date,at:timestamp,raw:binary,tags:array<string>,"
        "counts:map<string,int>,buyer:struct<raw:binary>,either:string,"
        "_key:binary,_topic:string,_partition:int,_offset:bigint,_timestamp:timestamp>"
    )
    order = {
        "id": 7, "note": None, "price": "12.50", "day": 1, "at": 1000, "raw": "\u00ff\u0000", "tags": ["a", "b"],
        "counts": {"x": 1}, "buyer": {"raw": "z"}, "either": {"int": 3},
    }  # fmt: skip
    row, none = decoded(monkeypatch, schema, [schema.parsed().encode(order), None]).to_pylist()
    assert row == {
        "id": 7, "note": None, "price": Decimal("12.50"), "day": date(1970, 1, 2),
        "at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "raw": b"\xff\0", "tags": ["a", "b"],
        "counts": [("x", 1)], "buyer": {"raw": b"z"}, "either": "3",
        "_key": b"k", "_topic": "orders", "_partition": 3, "_offset": 100,
        "_timestamp": datetime(1970, 1, 1, 0, 0, 0, 5000, tzinfo=UTC),
    }  # fmt: skip
    assert (none["id"], none["buyer"], none["_offset"]) == (None, None, 101)


def test_protobuf_messages_are_columns_by_the_names_of_their_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = reader("PROTOBUF", PROTO)
    order = {
        "orderId": "-5", "big": str(2**64 - 1), "raw": "/w==", "parts": [1, 2], "names": {"4": "four"}, "kind": "OLD",
        "at": "1970-01-01T00:00:01Z", "buyer": {"fullName": "Ada"},
    }  # fmt: skip
    (row,) = decoded(monkeypatch, schema, [schema.parsed().encode(order)]).to_pylist()
    assert {name: row[name] for name in row if not name.startswith("_")} == {
        "order_id": -5, "big": Decimal(2**64 - 1), "raw": b"\xff", "parts": [1, 2], "names": [(4, "four")],
        "kind": "OLD", "at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "buyer": {"full_name": "Ada"}, "note": None,
    }  # fmt: skip


def test_json_objects_are_columns_and_what_has_no_type_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    order = {
        "id": 3.0, "price": 2, "buyer": {"name": "Ada"}, "lines": [{"sku": "a"}, {}], "extra": [1, {"b": None}],
        "limits": {"x": 1}, "more": True,
    }  # fmt: skip
    (row,) = decoded(monkeypatch, reader("JSON", JSON_SCHEMA), [json.dumps(order).encode()]).to_pylist()
    assert {name: row[name] for name in row if not name.startswith("_")} == {
        "id": 3, "price": 2.0, "buyer": {"name": "Ada"}, "lines": [{"sku": "a"}, {"sku": None}],
        "extra": '[1,{"b":null}]', "limits": [("x", 1.0)], "maybe": None,
    }  # fmt: skip


def test_what_is_no_record_is_one_column(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = reader("AVRO", '"string"')
    table = decoded(monkeypatch, schema, [schema.parsed().encode("hello")], only=StructType().add("value", "string"))
    assert table.to_pylist() == [{"value": "hello"}]


def test_records_of_an_older_schema_have_the_new_fields_default(monkeypatch: pytest.MonkeyPatch) -> None:
    old = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    new = {**old, "fields": [*old["fields"], {"name": "raw", "type": "bytes", "default": "\u00ff"}]}
    written = parse_schema("AVRO", json.dumps(old), {})
    monkeypatch.setattr(ReaderSchema, "parsed", lambda self: parse_schema("AVRO", json.dumps(new), {}))
    shape = TypedRecordBatchBuilder.of(
        StructType().add("id", "long").add("raw", "binary"), reader("AVRO", new), "localhost:1"
    )
    monkeypatch.setattr(typed_decoder, "writer_schema", lambda address, schema_id: written)
    batch = encode_batch([NewRecord(value=b"\0\0\0\0\1" + written.encode({"id": 1}))], codec=Codec.NONE, now_ms=0)
    result = read_columns([batch], Selection(shape.required), limit_bytes=1 << 20)
    assert shape.record_batch(result, PLACE).to_pylist() == [{"id": 1, "raw": b"\xff"}]


@pytest.mark.parametrize("value", [b"", b"\x0e"])
def test_a_record_that_does_not_fit_is_named(monkeypatch: pytest.MonkeyPatch, value: bytes) -> None:
    with pytest.raises(InvalidRecordValue, match="record=orders-3@100"):
        decoded(monkeypatch, reader("AVRO", AVRO), [value])


def test_columns_that_no_record_has_are_refused() -> None:
    with pytest.raises(Misconfigured, match="column=prise"):
        check_typed(StructType().add("prise", "double"), reader("AVRO", AVRO))
    with pytest.raises(Misconfigured, match="column=id type=bigint"):
        check_typed(StructType().add("id", "string"), reader("AVRO", AVRO))


@pytest.mark.spark
def test_spark_reads_typed_columns_by_the_registry(read: Read, client: SyncClient) -> None:
    client.topics.create("typed", partitions=1)
    orders: list[dict[str, Any]] = [{"id": n, "buyer": {"name": f"buyer-{n % 3}"}} for n in range(30)]
    with client.producer("typed", schema=NewSchema(text=json.dumps(JSON_SCHEMA), type="JSON")) as producer:
        for order in orders:
            producer.enqueue(order, key=str(order["id"]))
    frame = read(topic="typed", schema="registry").where("_offset >= 10")
    rows = frame.groupBy("buyer.name").agg({"id": "sum"}).collect()
    assert {row[0]: row[1] for row in rows} == {
        f"buyer-{at}": sum(n for n in range(10, 30) if n % 3 == at) for at in range(3)
    }


ORDERS: list[bytes | None] = [
    b'\0\0\0\0\1{"id":1}',
    b"no schema",
    None,
    b'\0\0\0\0\1{"id":"none"}',
    b'\0\0\0\0\1{"id":',
    b'\0\0\0\0\1{"id":2}',
]


def errors_of(monkeypatch: pytest.MonkeyPatch, only: str | None, *, keep_values: bool = False) -> list[dict[str, Any]]:
    schema = reader("JSON", {"type": "object", "properties": {"id": {"type": "integer"}, "at": {"type": "integer"}}})
    parsed = schema.parsed()
    monkeypatch.setattr(typed_decoder, "writer_schema", lambda address, schema_id: parsed)
    batch = encode_batch([NewRecord(value=value) for value in ORDERS], codec=Codec.NONE, now_ms=0)
    expected = typed_schema(schema, include_headers=False, keep_errors=True)
    if only is not None:
        expected = StructType([expected[name] for name in only.split(",")])
    check_typed(expected, schema, keep_errors=True)
    shape = TypedRecordBatchBuilder.of(expected, schema, "localhost:1", keep_errors=True, keep_values=keep_values)
    result = read_columns([batch], Selection(shape.required), limit_bytes=1 << 20)
    rows: list[dict[str, Any]] = shape.record_batch(result, PLACE, shift=100).to_pylist()
    return rows


def test_records_that_cannot_be_decoded_are_reported_in_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = errors_of(monkeypatch, None)
    assert [row["id"] for row in rows] == [1, None, None, None, None, 2]
    assert [row["_value"] for row in rows] == [None, ORDERS[1], None, ORDERS[3], ORDERS[4], None]
    results = [row["_error"] for row in rows]
    assert [text is None for text in results] == [True, False, True, False, False, True]
    assert "record=orders-3@101" in results[1]
    assert "path=/id" in results[3]
    assert [row["_offset"] for row in rows] == list(range(100, 106))


@pytest.mark.parametrize("only", [None, "_value", "id,_value"])
def test_all_records_have_their_bytes_where_these_are_wanted(monkeypatch: pytest.MonkeyPatch, only: str | None) -> None:
    assert [row["_value"] for row in errors_of(monkeypatch, only, keep_values=True)] == ORDERS


@pytest.mark.parametrize("only", ["_error", "_error,_offset", "_value,id"])
def test_columns_of_errors_can_be_read_alone(monkeypatch: pytest.MonkeyPatch, only: str) -> None:
    rows = errors_of(monkeypatch, only)
    assert [any(row.get(name) is not None for name in ("_error", "_value")) for row in rows] == [
        False, True, False, True, True, False,
    ]  # fmt: skip


def test_records_with_such_a_column_of_their_own_are_not_mixed_up() -> None:
    schema = reader("JSON", {"type": "object", "properties": {"_error": {"type": "string"}}})
    with pytest.raises(Misconfigured, match="column=_error"):
        typed_schema(schema, include_headers=False, keep_errors=True)


@pytest.mark.spark
def test_a_pipeline_goes_on_over_records_that_cannot_be_decoded(
    spark: SparkSession, agent: LiveAgent, read: Read, client: SyncClient, tmp_path: Path
) -> None:
    client.topics.create("mixed", partitions=1)
    with client.producer("mixed", schema=NewSchema(text=json.dumps(JSON_SCHEMA), type="JSON")) as producer:
        producer.enqueue({"id": 1})
    with client.producer("mixed") as producer:
        producer.enqueue("no schema")
    with pytest.raises(Exception, match="decodeErrors=columns"):
        read(topic="mixed", schema="registry").collect()
    frame = read(topic="mixed", schema="registry", decodeErrors="columns")
    assert [(row.id, row._value, row._error is None) for row in frame.collect()] == [
        (1, None, True),
        (None, b"no schema", False),
    ]
    few = read("id bigint, _error string", topic="mixed", schema="registry", decodeErrors="columns")
    assert [(row.id, row._error is None) for row in few.collect()] == [(1, True), (None, False)]
    options = {"topic": "mixed", "schema": "registry", "decodeErrors": "columns", "startingOffsets": "earliest"}
    stream = spark.readStream.format("streamhouse").option("agents", agent.http).options(**options).load()
    target = stream.writeStream.format("memory").queryName("mixed").option("checkpointLocation", str(tmp_path))
    query = target.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    result = spark.sql("select id, _value from mixed order by _offset").collect()
    assert [(row.id, row._value) for row in result] == [(1, None), (None, b"no schema")]


async def test_a_topic_without_a_schema_has_none_and_a_client_that_requires_one_gets_an_error(agent: LiveAgent) -> None:
    assert await find_schema(agent.http, "typed-nothing") is None
    with pytest.raises(Misconfigured, match=r"no schema is registered for the topic; subject=typed-nothing-value do="):
        await latest_schema(agent.http, "typed-nothing")
