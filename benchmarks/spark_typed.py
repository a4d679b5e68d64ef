"""How fast do records become typed columns (`schema=registry`)? No Spark: one thread, from record batches to Arrow.

    .venv/bin/python -m benchmarks.spark_typed [--records N] [--repeat R] [--json]

A flat order of eight fields (two of them nullable) and one with a struct and a list in it, in each language. The best
of R rounds counts, by the CPU time that it took: others may use the machine meanwhile. `slow` is the same with an
object per record, which is what schemas get that have no quick way.
"""

import argparse
import json
import time
from dataclasses import asdict, dataclass
from typing import Any, Final
from unittest.mock import patch

from streamhouse.format.columnar_decoder import ALL_COLUMNS, Columns, Selection, read_columns
from streamhouse.format.compression import Codec
from streamhouse.format.records import encode_batch
from streamhouse.model.names import TopicPartition
from streamhouse.model.record import NewRecord
from streamhouse.schemas.base import ParsedSchema
from streamhouse.spark.columns import typed_decoder
from streamhouse.spark.columns.typed_columns import TypedRecordBatchBuilder, typed_schema
from streamhouse.spark.columns.typed_decoder import ReaderSchema

PLACE: Final = TopicPartition("orders", 0)
BATCH: Final = 5000
MILLIS: Final = {"type": "long", "logicalType": "timestamp-millis"}
AVRO_FLAT: Final[list[dict[str, Any]]] = [
    {"name": "id", "type": "long"},
    {"name": "customer", "type": "string"},
    {"name": "quantity", "type": "int"},
    {"name": "price", "type": "double"},
    {"name": "paid", "type": "boolean"},
    {"name": "note", "type": ["null", "string"], "default": None},
    {"name": "discount", "type": ["null", "double"], "default": None},
    {"name": "at", "type": "long"},
]
AVRO_DEEP: Final[list[dict[str, Any]]] = [
    *AVRO_FLAT,
    {"name": "buyer", "type": {"type": "record", "name": "Buyer", "fields": [{"name": "city", "type": "string"}]}},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
]
JSON_FLAT: Final[dict[str, Any]] = {
    "id": {"type": "integer"},
    "customer": {"type": "string"},
    "quantity": {"type": "integer"},
    "price": {"type": "number"},
    "paid": {"type": "boolean"},
    "note": {"type": ["string", "null"]},
    "discount": {"type": ["number", "null"]},
    "at": {"type": "integer"},
}
JSON_DEEP: Final[dict[str, Any]] = {
    **JSON_FLAT,
    "buyer": {"type": "object", "properties": {"city": {"type": "string"}}},
    "tags": {"type": "array", "items": {"type": "string"}},
}
PROTO_FLAT: Final = """
  int64 id = 1; string customer = 2; int32 quantity = 3; double price = 4; bool paid = 5;
  optional string note = 6; optional double discount = 7; int64 at = 8;
"""
PROTO_DEEP: Final = PROTO_FLAT + " Buyer buyer = 9; repeated string tags = 10; message Buyer { string city = 1; }"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    schema: str
    records_per_s: float
    slow_records_per_s: float


def order(number: int, *, deep: bool, texts: bool) -> dict[str, Any]:
    made = {
        "id": str(number) if texts else number,
        "customer": f"customer-{number % 1000}",
        "quantity": number % 10,
        "price": number / 8,
        "paid": number % 2 == 0,
        "note": None if number % 3 else "be quick",
        "discount": None if number % 5 else 0.25,
        "at": str(1_700_000_000_000 + number) if texts else 1_700_000_000_000 + number,
    }
    more = {"buyer": {"city": f"city-{number % 100}"}, "tags": ["new", "large"][: number % 3]} if deep else {}
    return {name: value for name, value in {**made, **more}.items() if not (texts and value is None)}


def schemas() -> list[tuple[str, ReaderSchema, bool]]:
    def avro(fields: list[dict[str, Any]]) -> str:
        return json.dumps({"type": "record", "name": "Order", "fields": fields})

    def protobuf(fields: str) -> str:
        return f'syntax = "proto3"; message Order {{ {fields} }}'

    def json_schema(fields: dict[str, Any]) -> str:
        return json.dumps({"type": "object", "properties": fields})

    return [
        ("avro flat", _schema("AVRO", avro(AVRO_FLAT)), False),
        ("avro deep", _schema("AVRO", avro(AVRO_DEEP)), True),
        ("json flat", _schema("JSON", json_schema(JSON_FLAT)), False),
        ("json deep", _schema("JSON", json_schema(JSON_DEEP)), True),
        ("protobuf flat", _schema("PROTOBUF", protobuf(PROTO_FLAT)), False),
        ("protobuf deep", _schema("PROTOBUF", protobuf(PROTO_DEEP)), True),
    ]


def _schema(kind: str, text: str) -> ReaderSchema:
    return ReaderSchema(type=kind, text=text, references=())


def batches(parsed: ParsedSchema, records: int, *, deep: bool) -> list[bytes]:
    texts = parsed.type == "PROTOBUF"  # whose JSON has long numbers as texts
    found = []
    for first in range(0, records, BATCH):
        made = [
            NewRecord(value=b"\0\0\0\0\1" + parsed.encode(order(n, deep=deep, texts=texts)))
            for n in range(first, min(first + BATCH, records))
        ]
        found.append(bytes(encode_batch(made, codec=Codec.NONE, now_ms=0)))
    return found


def rate(shape: TypedRecordBatchBuilder, read: list[Columns], records: int, repeat: int) -> float:
    took = []
    for _ in range(repeat):
        began = time.process_time()
        for each in read:
            shape.record_batch(each, PLACE)
        took.append(time.process_time() - began)
    return records / min(took)


def measured(name: str, schema: ReaderSchema, *, deep: bool, records: int, repeat: int) -> Figure:
    parsed = schema.parsed()
    shape = TypedRecordBatchBuilder.of(typed_schema(schema, include_headers=False), schema, "localhost:1")
    read = [
        read_columns([batch], Selection(shape.required & ALL_COLUMNS), limit_bytes=1 << 26)
        for batch in batches(parsed, records, deep=deep)
    ]
    with patch.object(typed_decoder, "writer_schema", lambda address, schema_id: parsed):
        quick = rate(shape, read, records, repeat)
        with patch.object(typed_decoder, "quick_reader", lambda *schemas, has_text: None):
            shape = TypedRecordBatchBuilder.of(typed_schema(schema, include_headers=False), schema, "localhost:1")
            slow = rate(shape, read, records, 1)
    return Figure(schema=name, records_per_s=quick, slow_records_per_s=slow)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    figures = [
        measured(name, schema, deep=deep, records=asked.records, repeat=asked.repeat)
        for name, schema, deep in schemas()
    ]
    if asked.json:
        print(json.dumps([asdict(figure) for figure in figures], indent=2))
        return
    for figure in figures:
        print(
            f"{figure.schema:14} {figure.records_per_s:12,.0f} records/CPU s   slow {figure.slow_records_per_s:12,.0f}"
        )


if __name__ == "__main__":
    main()
