"""Confluent's registry client and its serialisers, unchanged, against a live agent: register, produce, consume."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient, Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.schema_registry.schema_registry_client import (
    ConfigCompatibilityLevel,
    Metadata,
    MetadataProperties,
    ServerConfig,
)
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from tests.compat.clients import TIMEOUT_S
from tests.support.agent import LiveAgent

ORDER = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
ORDER_WITH_NOTE = (
    '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},'
    '{"name":"note","type":["null","string"],"default":null}]}'
)
ORDER_WITH_PRICE = (
    '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"price","type":"double"}]}'
)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    with LiveAgent(tmp_path_factory.mktemp("registry") / "data") as agent:
        yield agent
    assert "Traceback" not in agent.output


@pytest.fixture
def registry(agent: LiveAgent) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": f"http://{agent.http}"}) as client:
        yield client


class Wire:
    """Produces and consumes one topic."""

    def __init__(self, bootstrap: str, topic: str, **settings: str) -> None:
        self._topic = topic
        self._errors: list[KafkaError | None] = []
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest", "check.crcs": True}
        )
        admin: Any = AdminClient({"bootstrap.servers": bootstrap})
        config = {name.replace("_", "."): value for name, value in settings.items()}
        admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(TIMEOUT_S)
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def field(self, part: MessageField = MessageField.VALUE) -> SerializationContext:
        return SerializationContext(self._topic, part)

    def send(self, value: bytes | None, key: bytes | None = None) -> KafkaError | None:
        """Returns why it was refused, None when it is stored."""
        self._errors.clear()
        self._producer.produce(
            self._topic, value=value, key=key, on_delivery=lambda error, _: self._errors.append(error)
        )
        assert self._producer.flush(TIMEOUT_S) == 0
        return self._errors[0]

    def next(self) -> Message:
        message = self._consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error() is not None:
            raise KafkaException(message.error())
        return message

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def wire(agent: LiveAgent, topic: str) -> Iterator[Wire]:
    wire = Wire(agent.bootstrap, topic, streamhouse_schema_validation="subject")
    yield wire
    wire.close()


# --- the client


def test_a_schema_is_registered_found_and_deleted(registry: SchemaRegistryClient, topic: str) -> None:
    schema = Schema(ORDER, "AVRO")
    schema_id = registry.register_schema(topic, schema)
    assert registry.register_schema(topic, schema) == schema_id
    assert registry.get_schema(schema_id).schema_str == ORDER
    result = registry.lookup_schema(topic, schema)
    assert (result.subject, result.version, result.schema_id) == (topic, 1, schema_id)
    assert result.guid is not None
    assert registry.get_schema_by_guid(result.guid).schema_str == ORDER
    assert registry.get_latest_version(topic).version == 1
    assert registry.get_versions(topic) == [1]
    assert topic in registry.get_subjects()
    assert [each.subject for each in registry.get_schema_versions(schema_id)].count(topic) == 1
    assert topic in registry.get_subjects_by_schema_id(schema_id)
    assert registry.delete_subject(topic) == [1]
    assert topic in registry.get_subjects(deleted=True)
    assert registry.delete_subject(topic, permanent=True) == [1]
    assert topic not in registry.get_subjects(deleted=True)


def test_versions_must_get_along(registry: SchemaRegistryClient, topic: str) -> None:
    registry.register_schema(topic, Schema(ORDER, "AVRO"))
    with pytest.raises(SchemaRegistryError, match="incompatible") as refused:
        registry.register_schema(topic, Schema(ORDER_WITH_PRICE, "AVRO"))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
    assert not registry.test_compatibility(topic, Schema(ORDER_WITH_PRICE, "AVRO"))
    assert not registry.test_compatibility_all_versions(topic, Schema(ORDER_WITH_PRICE, "AVRO"))
    assert registry.test_compatibility(topic, Schema(ORDER_WITH_NOTE, "AVRO"))
    registry.set_compatibility(topic, "NONE")
    assert registry.get_compatibility(topic) == "NONE"
    registry.register_schema(topic, Schema(ORDER_WITH_PRICE, "AVRO"))
    assert registry.get_versions(topic) == [1, 2]


def test_configurations_modes_and_contexts_are_spoken(registry: SchemaRegistryClient, topic: str) -> None:
    registry.set_config(topic, ServerConfig(compatibility=ConfigCompatibilityLevel.FULL, compatibility_group="major"))
    result = registry.get_config(topic)
    assert (result.compatibility_level, result.compatibility_group) == (ConfigCompatibilityLevel.FULL, "major")
    registry.delete_config(topic)
    with pytest.raises(SchemaRegistryError) as refused:
        registry.get_config(topic)
    assert refused.value.error_code == 40408
    assert registry.update_mode(topic, "READONLY") == "READONLY"
    with pytest.raises(SchemaRegistryError) as refused:
        registry.register_schema(topic, Schema(ORDER, "AVRO"))
    assert refused.value.error_code == 42205
    assert registry.delete_mode(topic) == "READONLY"
    assert registry.get_global_mode() == "READWRITE"
    registry.register_schema(f":.{topic}:orders", Schema(ORDER, "AVRO"))
    assert f".{topic}" in registry.get_contexts()
    assert set(registry.get_schema_types()) == {"AVRO", "JSON", "PROTOBUF"}


def test_metadata_find_versions(registry: SchemaRegistryClient, topic: str) -> None:
    for text, owner in ((ORDER, "a"), (ORDER_WITH_NOTE, "b")):
        metadata = Metadata(tags=None, properties=MetadataProperties({"owner": owner}), sensitive=None)
        registry.register_schema(topic, Schema(text, "AVRO", metadata=metadata))
    assert registry.get_latest_with_metadata(topic, {"owner": "a"}).version == 1
    result = registry.get_latest_version(topic).schema.metadata
    assert result is not None
    assert result.properties == MetadataProperties({"owner": "b"})


async def test_the_async_client_is_answered_as_well(agent: LiveAgent, topic: str) -> None:
    async with AsyncSchemaRegistryClient({"url": f"http://{agent.http}"}) as registry:
        schema_id = await registry.register_schema(topic, Schema(ORDER, "AVRO"))
        assert (await registry.get_schema(schema_id)).schema_str == ORDER
        assert await registry.get_versions(topic) == [1]
        with pytest.raises(SchemaRegistryError) as refused:
            await registry.get_version(topic, 7)
        assert refused.value.error_code == 40402


def test_what_was_registered_is_there_after_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    with LiveAgent(tmp_path_factory.mktemp("restarted") / "data") as agent:
        with SchemaRegistryClient({"url": f"http://{agent.http}"}) as registry:
            schema_id = registry.register_schema("s", Schema(ORDER, "AVRO"))
        agent.kill()
        agent.start()
        with SchemaRegistryClient({"url": f"http://{agent.http}"}) as registry:
            assert registry.get_schema(schema_id).schema_str == ORDER
            assert registry.register_schema("s", Schema(ORDER_WITH_NOTE, "AVRO")) == schema_id + 1


# --- serialisers, on a topic that takes nothing else


def test_avro_goes_through(registry: SchemaRegistryClient, wire: Wire) -> None:
    serialize, deserialize = AvroSerializer(registry, ORDER), AvroDeserializer(registry)
    assert wire.send(serialize({"id": 7}, wire.field())) is None
    assert deserialize(wire.next().value(), wire.field()) == {"id": 7}
    newer = AvroSerializer(registry, ORDER_WITH_NOTE)
    assert wire.send(newer({"id": 8, "note": "late"}, wire.field())) is None
    message = wire.next()
    assert deserialize(message.value(), wire.field()) == {"id": 8, "note": "late"}
    older = AvroDeserializer(registry, ORDER)
    assert older(message.value(), wire.field()) == {"id": 8}


def test_avro_with_references_goes_through(registry: SchemaRegistryClient, wire: Wire, topic: str) -> None:
    registry.register_schema(f"{topic}-order", Schema(ORDER, "AVRO"))
    reference = SchemaReference("Order", f"{topic}-order", 1)
    basket = Schema(
        '{"type":"record","name":"Basket","fields":[{"name":"orders","type":{"type":"array","items":"Order"}}]}',
        "AVRO",
        [reference],
    )
    serialize, deserialize = AvroSerializer(registry, basket), AvroDeserializer(registry)
    value = {"orders": [{"id": 1}, {"id": 2}]}
    assert wire.send(serialize(value, wire.field())) is None
    assert deserialize(wire.next().value(), wire.field()) == value
    with pytest.raises(SchemaRegistryError) as refused:
        registry.delete_version(f"{topic}-order", 1)
    assert refused.value.error_code == 42206
    assert registry.get_referenced_by(f"{topic}-order", 1) == [registry.get_latest_version(f"{topic}-value").schema_id]


def test_json_schema_goes_through(registry: SchemaRegistryClient, wire: Wire) -> None:
    schema = (
        '{"$schema":"http://json-schema.org/draft-07/schema#","title":"Order","type":"object",'
        '"properties":{"id":{"type":"integer"}},"required":["id"]}'
    )
    serialize, deserialize = JSONSerializer(schema, registry), JSONDeserializer(None, schema_registry_client=registry)
    assert wire.send(serialize({"id": 7}, wire.field())) is None
    assert deserialize(wire.next().value(), wire.field()) == {"id": 7}


def order_message() -> Any:
    """The class of an order, whose file imports that of its price, and one of Protobuf's own."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    field = descriptor_pb2.FieldDescriptorProto
    money = descriptor_pb2.FileDescriptorProto(name="shop/v1/money.proto", package="shop.v1", syntax="proto3")
    price = money.message_type.add(name="Money")
    price.field.add(name="cents", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    orders = descriptor_pb2.FileDescriptorProto(name="shop/v1/order.proto", package="shop.v1", syntax="proto3")
    orders.dependency.extend(["shop/v1/money.proto", "google/protobuf/timestamp.proto"])
    order = orders.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    kinds = (("price", 2, ".shop.v1.Money"), ("at", 3, ".google.protobuf.Timestamp"))
    for name, number, kind in kinds:
        order.field.add(name=name, number=number, type=field.TYPE_MESSAGE, type_name=kind, label=field.LABEL_OPTIONAL)
    pool.Add(money)
    pool.Add(orders)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.v1.Order"))


def test_protobuf_with_imports_goes_through(registry: SchemaRegistryClient, wire: Wire) -> None:
    order = order_message()
    serialize = ProtobufSerializer(order, registry)
    deserialize = ProtobufDeserializer(order, {"use.deprecated.format": False}, registry)
    value = order(id=7, price={"cents": 350}, at={"seconds": 1})
    assert wire.send(serialize(value, wire.field())) is None
    result = deserialize(wire.next().value(), wire.field())
    assert (result.id, result.price.cents, result.at.seconds) == (7, 350, 1)
    assert "shop/v1/money.proto" in registry.get_subjects()


# --- what is refused


def test_records_without_a_schema_are_refused(registry: SchemaRegistryClient, wire: Wire, topic: str) -> None:
    foreign = registry.register_schema(f"{topic}-elsewhere", Schema(ORDER, "AVRO"))
    for value in (b"bare", b"\0\0\0", b"\0" + (2**31 - 1).to_bytes(4) + b"x", b"\0" + foreign.to_bytes(4) + b"\x02"):
        error = wire.send(value)
        assert error is not None
        assert error.code() == KafkaError.INVALID_RECORD
    assert wire.send(None, key=b"gone") is None  # a deletion has nothing to describe
    registry.register_schema(f"{topic}-value", Schema(ORDER, "AVRO"))
    assert wire.send(b"\0" + foreign.to_bytes(4) + b"\x02") is None  # the same schema, the same id, now the topic's too
