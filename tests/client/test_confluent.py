"""Values written by confluent-kafka's serialisers are read by this client, and the other way round."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry import topic_subject_name_strategy as by_topic
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from streamhouse import Client, NewSchema
from tests.client.live import agent as agent
from tests.client.live import topic as topic
from tests.support.agent import LiveAgent

AVRO = """{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"},
    {"name": "who", "type": ["null", "string"], "default": null},
    {"name": "tags", "type": {"type": "array", "items": "string"}}]}"""
JSON = """{"title": "Order", "type": "object", "required": ["id"],
    "properties": {"id": {"type": "integer"}, "who": {"type": "string"}}}"""
ORDERS: list[dict[str, Any]] = [{"id": 1, "who": None, "tags": []}, {"id": 2, "who": "ann", "tags": ["a", "b"]}]


@pytest.fixture
def registry(agent: LiveAgent) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": f"http://{agent.http}"}) as client:
        yield client


async def written_here(client: Client, topic: str, schema: NewSchema, values: list[Any]) -> list[bytes]:
    async with client.producer(topic, schema=schema) as producer:
        for value in values:
            await producer.send(value)
    return [record.value async for record in client.consume(topic, until="end")]


async def read_here(client: Client, topic: str, payloads: list[bytes | None]) -> list[Any]:
    async with client.producer(topic) as producer:
        for payload in payloads:
            await producer.send(payload, key=b"k")
    return [record.value async for record in client.consume(topic, until="end", decode=True)]


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


async def test_avro(agent: LiveAgent, topic: str, registry: SchemaRegistryClient) -> None:
    async with Client(agent.http) as client:
        payloads = await written_here(client, topic, NewSchema(text=AVRO), ORDERS)
        read = AvroDeserializer(registry)
        assert [read(payload, context(topic)) for payload in payloads] == ORDERS
        write = AvroSerializer(registry, AVRO, conf={"subject.name.strategy": by_topic})
        theirs = [write(order, context(f"{topic}-b")) for order in ORDERS]
        assert await read_here(client, f"{topic}-b", theirs) == ORDERS


async def test_json_schema(agent: LiveAgent, topic: str, registry: SchemaRegistryClient) -> None:
    values = [{"id": 1}, {"id": 2, "who": "ann"}]
    async with Client(agent.http) as client:
        payloads = await written_here(client, topic, NewSchema(text=JSON, type="JSON"), values)
        read = JSONDeserializer(None, schema_registry_client=registry)
        assert [read(payload, context(topic)) for payload in payloads] == values
        write = JSONSerializer(JSON, registry, conf={"subject.name.strategy": by_topic})
        theirs = [write(value, context(f"{topic}-b")) for value in values]
        assert await read_here(client, f"{topic}-b", theirs) == values


def order_class() -> Any:
    """`shop.Order`, as a generated module would have it."""
    file = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Customer").field.add(name="who", number=1, type=9, label=1)
    order = file.message_type.add(name="Order")
    order.field.add(name="order_id", number=1, type=5, label=1)
    order.field.add(name="customer", number=2, type=11, label=1, type_name=".shop.Customer")
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


async def test_protobuf_with_a_message_that_is_not_the_first(
    agent: LiveAgent, topic: str, registry: SchemaRegistryClient
) -> None:
    text = """syntax = "proto3"; package shop;
        message Customer { string who = 1; }
        message Order { int32 order_id = 1; Customer customer = 2; }"""
    schema = NewSchema(text=text, type="PROTOBUF", message="shop.Order")
    order = order_class()
    messages = [order(order_id=1), order(order_id=2, customer={"who": "ann"})]
    values = [{"orderId": 1}, {"orderId": 2, "customer": {"who": "ann"}}]
    settings = {"use.deprecated.format": False}
    async with Client(agent.http) as client:
        payloads = await written_here(client, topic, schema, values)
        read = ProtobufDeserializer(order, settings, registry)
        assert [read(payload, context(topic)) for payload in payloads] == messages
        write = ProtobufSerializer(order, registry, {**settings, "subject.name.strategy": by_topic})
        theirs = [write(message, context(f"{topic}-b")) for message in messages]
        assert await read_here(client, f"{topic}-b", theirs) == values
