"""What confluent-kafka's serialiser sends is understood, and what is made here is what its deserialiser reads."""

from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.common.protobuf import _create_index_array, _schema_to_str, _str_to_proto
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool

from streamhouse.schemas.protobuf import ProtobufSchema, parse
from streamhouse.schemas.protobuf.descriptors import message_class
from streamhouse.schemas.protobuf.schema import indexes_of

TEXT = """
    syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto"; import "google/type/money.proto";
    message Order { string id = 1; google.protobuf.Timestamp at = 2; google.type.Money price = 3; }
    message Outer {
      map<string, int32> m = 1;
      message First { int32 n = 1; }
      message Second { int32 n = 1; message Deep { string s = 1; } }
    }
"""
CONTEXT = SerializationContext("orders", MessageField.VALUE)
FRAME = 5  # a zero and the schema's id


@pytest.fixture(scope="module")
def schema() -> ProtobufSchema:
    return parse(TEXT, {})


def message_type(schema: ProtobufSchema, name: str) -> Descriptor:
    return schema.files.pool.FindMessageTypeByName(name)


def registry() -> SchemaRegistryClient:
    return SchemaRegistryClient.new_client({"url": "mock://"})


@pytest.mark.parametrize("name", ["Order", "Outer", "Outer.First", "Outer.Second", "Outer.Second.Deep"])
def test_messages_have_the_same_indexes(schema: ProtobufSchema, name: str) -> None:
    message = message_type(schema, f"shop.{name}")
    assert indexes_of(message) == _create_index_array(message)


def test_the_schema_that_the_client_registers_is_the_text_it_was_compiled_from(schema: ProtobufSchema) -> None:
    sent = _schema_to_str(message_type(schema, "shop.Order").file)
    assert parse(sent, {}).canonical() == schema.canonical()


def test_the_client_can_build_what_is_served_as_serialised(schema: ProtobufSchema) -> None:
    file = _str_to_proto("orders.proto", schema.serialized())
    pool = DescriptorPool()
    for name in ("google/protobuf/timestamp.proto", "google/type/money.proto"):
        pool.AddSerializedFile(schema.files.by_name[name].SerializeToString())
    pool.Add(file)
    assert pool.FindMessageTypeByName("shop.Outer.Second.Deep").fields_by_name["s"].number == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (
            "Order",
            {"id": "x", "at": "2024-01-01T00:00:00Z", "price": {"currencyCode": "EUR", "units": "5", "nanos": 0}},
        ),
        ("Outer.Second.Deep", {"s": "é"}),
    ],
)
def test_records_go_both_ways(schema: ProtobufSchema, name: str, value: dict[str, Any]) -> None:
    kind = message_class(message_type(schema, f"shop.{name}"))
    client = registry()
    payload = schema.encode(value, message=f"shop.{name}")
    message = json_format.ParseDict(value, kind())
    sent = ProtobufSerializer(kind, client)(message, CONTEXT)
    assert sent is not None
    assert sent[FRAME:] == payload
    assert schema.decode(sent[FRAME:]) == value
    assert ProtobufDeserializer(kind, {}, client)(sent, CONTEXT) == message
