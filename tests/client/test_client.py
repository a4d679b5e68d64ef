"""The async client against a live agent: what its page promises."""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import streamhouse
from streamhouse import Client, NewSchema, SchemaRef
from streamhouse.errors import (
    GroupNotFound,
    IncompatibleSchema,
    InvalidPartitions,
    InvalidRecordValue,
    InvalidSchema,
    Misconfigured,
    Rejected,
    TopicExists,
    Unavailable,
    UnknownSubject,
    UnknownTopic,
)
from streamhouse.model.names import TopicPartition
from tests.client.live import agent as agent
from tests.client.live import topic as topic
from tests.support.agent import LiveAgent, free_port

ORDER = NewSchema(text='{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}')
KINDS = [
    ORDER,
    NewSchema(text='{"type": "object", "properties": {"id": {"type": "integer"}}}', type="JSON"),
    NewSchema(text='syntax = "proto3"; message Order { int32 id = 1; }', type="PROTOBUF"),
]


@pytest.fixture
async def client(agent: LiveAgent) -> AsyncIterator[Client]:
    async with Client(agent.http) as opened:
        yield opened


async def values(client: Client, topic: str, **how: Any) -> list[Any]:
    return [record.value async for record in client.consume(topic, **{"until": "end", **how})]


# --- topics and groups


async def test_the_life_of_a_topic(client: Client, topic: str) -> None:
    created = await client.topics.create(topic, partitions=3, config={"retention.ms": 3_600_000})
    assert [p.partition for p in created.partitions] == [0, 1, 2]
    with pytest.raises(TopicExists):
        await client.topics.create(topic)
    assert await client.topics.create(topic, exist_ok=True) == await client.topics.get(topic)
    assert topic in [each.name for each in await client.topics.list()]
    assert (await client.topics.config(topic))["retention.ms"] == "3600000"
    await client.topics.configure(topic, {"retention.ms": None, "max.message.bytes": 2000})
    config = await client.topics.config(topic)
    assert (config["retention.ms"] != "3600000", config["max.message.bytes"]) == (True, "2000")
    assert len((await client.topics.grow(topic, 4)).partitions) == 4
    await client.topics.delete(topic)
    with pytest.raises(UnknownTopic):
        await client.topics.delete(topic)
    await client.topics.delete(topic, missing_ok=True)


async def test_agents_show_who_they_are(client: Client, agent: LiveAgent) -> None:
    (alone,) = await client.cluster.agents()
    assert (alone.kafka, alone.http) == (agent.bootstrap, agent.http)
    assert await client.cluster.bootstrap() == agent.bootstrap
    assert (await client.cluster.examine()).version == streamhouse.__version__


async def test_a_group_is_seen_moved_and_deleted(client: Client, topic: str) -> None:
    await client.topics.create(topic)
    async with client.producer(topic) as producer:
        for number in range(5):
            await producer.enqueue(b"%d" % number)
    async with client.consumer(topic, group=f"g-{topic}") as consumer:
        records = [await anext(aiter(consumer)) for _ in range(1)]
        await consumer.commit(records[0])
    assert await client.groups.lag(f"g-{topic}") == {TopicPartition(topic, 0): 4}
    assert await client.groups.reset(f"g-{topic}", topic, to=-2) == {TopicPartition(topic, 0): 3}
    assert await client.groups.committed(f"g-{topic}") == {TopicPartition(topic, 0): 3}
    assert f"g-{topic}" in [group.name for group in await client.groups.list()]
    await client.groups.delete(f"g-{topic}")
    with pytest.raises(GroupNotFound):
        await client.groups.get(f"g-{topic}")


# --- records


async def test_what_is_sent_comes_back(client: Client, topic: str) -> None:
    await client.topics.create(topic, partitions=2)
    async with client.producer(topic) as producer:
        receipt = await producer.send(b"raw", key="k", headers={"a": "1", "b": None}, partition=1, timestamp_ms=1234)
    assert receipt == streamhouse.Receipt(partition=1, offset=0, timestamp_ms=1234)
    (record,) = [each async for each in client.consume(topic, until="end")]
    assert record == streamhouse.Record(topic, 1, 0, 1234, b"k", b"raw", (("a", b"1"), ("b", None)))


async def test_text_is_text_and_other_values_are_json(client: Client, topic: str) -> None:
    await client.topics.create(topic)
    async with client.producer(topic) as producer:
        for value in ("café", {"id": 1}, [1, 2], 7):
            await producer.enqueue(value)
        with pytest.raises(Rejected, match="neither bytes, text nor JSON"):
            await producer.send(object())
        with pytest.raises(Rejected, match="lone surrogate"):
            await producer.send("\ud800")
        with pytest.raises(Rejected, match="lone surrogate"):
            await producer.send(b"v", headers={"h": "\ud800"})
        with pytest.raises(Rejected, match="a key is bytes or text"):
            await producer.send(b"v", key=1)
    records = [record async for record in client.consume(topic, until="end")]
    assert records[0].text() == "café"
    assert [record.json() for record in records[1:]] == [{"id": 1}, [1, 2], 7]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_many_records_are_stored_in_order_in_every_codec(client: Client, topic: str, compression: Any) -> None:
    await client.topics.create(topic)
    async with client.producer(topic, compression=compression, batch_bytes=20_000) as producer:
        deliveries = [await producer.enqueue(b"%d" % number) for number in range(5_000)]
    assert [(await delivery).offset for delivery in deliveries] == list(range(5_000))
    assert await values(client, topic) == [b"%d" % number for number in range(5_000)]


async def test_records_without_keys_spread_and_keys_stay_together(client: Client, topic: str) -> None:
    await client.topics.create(topic, partitions=3)
    async with client.producer(topic, batch_bytes=1_000) as producer:
        spread = [await producer.enqueue(b"x" * 100) for _ in range(200)]
        keyed = [await producer.enqueue(b"x", key="same") for _ in range(20)]
    assert {(await delivery).partition for delivery in spread} == {0, 1, 2}
    assert len({(await delivery).partition for delivery in keyed}) == 1


async def test_a_full_memory_makes_the_sender_wait(client: Client, topic: str) -> None:
    await client.topics.create(topic)
    async with client.producer(topic, buffer_bytes=10_000, batch_bytes=5_000) as producer:
        for number in range(1_000):
            await producer.enqueue(b"%0100d" % number)
            assert producer._buffered_bytes < 11_000
    assert len(await values(client, topic)) == 1_000


async def test_a_failure_that_nobody_looked_at_is_raised_at_the_end(client: Client, topic: str) -> None:
    await client.topics.create(topic, config={"max.message.bytes": 1_000})
    producer = await client.producer(topic).__aenter__()
    await producer.enqueue(b"x" * 2_000)
    await producer.enqueue(b"small")
    with pytest.raises(Rejected, match="too large"):
        await producer.__aexit__(None, None, None)
    async with client.producer(topic) as producer:
        with pytest.raises(Rejected, match="too large"):
            await (await producer.enqueue(b"x" * 2_000))
    assert await values(client, topic) == [b"small"]


async def test_a_batch_that_is_too_large_for_its_topic_is_stored_in_parts(client: Client, topic: str) -> None:
    await client.topics.create(topic, config={"max.message.bytes": 1_000})
    async with client.producer(topic) as producer:
        deliveries = [await producer.enqueue(b"%0100d" % number) for number in range(100)]
    assert [(await delivery).offset for delivery in deliveries] == list(range(100))


async def test_a_partition_that_is_not_there_is_refused_at_once(client: Client, topic: str) -> None:
    await client.topics.create(topic)
    async with client.producer(topic) as producer:
        with pytest.raises(InvalidPartitions, match="allowed=0 to 0"):
            await producer.send(b"v", partition=1)


async def test_a_topic_that_is_deleted_fails_what_is_sent_to_it(client: Client, topic: str) -> None:
    await client.topics.create(topic)
    async with client.producer(topic) as producer:
        await producer.send(b"v")
        await client.topics.delete(topic)
        with pytest.raises(UnknownTopic):
            await producer.send(b"v")


async def test_reading_starts_and_ends_at_the_given_offsets(client: Client, topic: str) -> None:
    await client.topics.create(topic, partitions=2)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    async with client.producer(topic) as producer:
        for number in range(10):
            moment_ms = int((start + timedelta(hours=number)).timestamp() * 1000)
            await producer.enqueue(b"%d" % number, partition=0, timestamp_ms=moment_ms)
    assert await values(client, topic, from_={0: 8}) == [b"8", b"9"]
    assert await values(client, topic, from_=-3, partitions=[0]) == [b"7", b"8", b"9"]
    assert await values(client, topic, from_=start + timedelta(hours=7)) == [b"7", b"8", b"9"]
    assert await values(client, topic, until=start + timedelta(hours=2)) == [b"0", b"1"]
    assert await values(client, topic, limit=2) == [b"0", b"1"]
    assert await values(client, topic, from_="latest") == []
    with pytest.raises(UnknownTopic):
        await values(client, f"{topic}-not")


async def test_reading_goes_on_until_it_is_left(client: Client, topic: str) -> None:
    await client.topics.create(topic)
    results: list[bytes] = []
    async with client.producer(topic) as producer, aclosing(client.consume(topic).records()) as records:
        await producer.send(b"0")
        async for record in records:
            results.append(record.value)
            if len(results) == 3:
                break
            await producer.send(b"%d" % len(results))
    assert results == [b"0", b"1", b"2"]


async def test_a_group_reads_again_what_was_not_worked_on(client: Client, topic: str) -> None:
    await client.topics.create(topic)
    async with client.producer(topic) as producer:
        for number in range(5):
            await producer.enqueue(b"%d" % number)
    with suppress(ZeroDivisionError):
        async with client.consumer(topic, group=topic) as consumer:
            async for record in consumer:
                if record.value == b"2":
                    raise ZeroDivisionError
    assert await client.groups.committed(topic) == {TopicPartition(topic, 0): 2}
    async with client.consumer(topic, group=topic, commit="explicit") as consumer:
        again = []
        async for record in consumer:
            again.append(record.value)
            if record.offset == 4:
                break
        await consumer.commit()
    assert again == [b"2", b"3", b"4"]
    assert await client.groups.lag(topic) == {TopicPartition(topic, 0): 0}


# --- schemas


@pytest.mark.parametrize("schema", KINDS, ids=lambda schema: schema.type)
async def test_values_are_written_and_read_by_a_schema(client: Client, topic: str, schema: NewSchema) -> None:
    await client.topics.create(topic)
    async with client.producer(topic, schema=schema, key_schema=schema) as producer:
        await producer.send({"id": 1}, key={"id": 2})
        await producer.send(None, key={"id": 2})
    registered = await client.schemas.latest(f"{topic}-value")
    assert (registered.type, registered.version) == (schema.type, 1)
    (raw, _) = [record async for record in client.consume(topic, until="end")]
    assert raw.value[:5] == b"\0" + registered.id.to_bytes(4, "big")
    read = [r async for r in client.consume(topic, until="end", decode=True, decode_keys=True)]
    assert [(record.key, record.value) for record in read] == [({"id": 2}, {"id": 1}), ({"id": 2}, None)]
    async with client.producer(topic, schema=f"{topic}-value") as producer:
        await producer.send({"id": 3})
    async with client.producer(topic, schema=SchemaRef(subject=f"{topic}-value", version=1)) as producer:
        await producer.send({"id": 4})
    async with client.consumer(topic, group=topic, decode=True) as consumer:
        results = []
        async for record in consumer:
            results.append(record.value)
            if len(results) == 4:
                break
    assert results == [{"id": 1}, None, {"id": 3}, {"id": 4}]


async def test_a_value_that_does_not_fit_is_refused_with_its_path(client: Client, topic: str) -> None:
    async with client.producer(topic, schema=ORDER) as producer:
        with pytest.raises(InvalidRecordValue, match="path=/id"):
            await producer.send({"id": "one"})


async def test_bytes_without_a_schema_are_reported_by_their_place(client: Client, topic: str) -> None:
    async with client.producer(topic) as producer:
        await producer.send(b"plain")
    with pytest.raises(InvalidRecordValue, match=f"record={topic}-0@0"):
        await values(client, topic, decode=True)


async def test_the_life_of_a_subject(client: Client, topic: str) -> None:
    first = await client.schemas.register(topic, ORDER)
    assert await client.schemas.register(topic, ORDER) == first
    assert (await client.schemas.by_id(first.id)).text == first.text
    wider = NewSchema(text=ORDER.text.replace("]", ', {"name": "who", "type": "string"}]'))
    verdict = await client.schemas.check(topic, wider)
    assert not verdict.compatible
    assert any("READER_FIELD_MISSING_DEFAULT_VALUE" in message for message in verdict.messages)
    with pytest.raises(IncompatibleSchema, match="READER_FIELD_MISSING_DEFAULT_VALUE"):
        await client.schemas.register(topic, wider)
    with pytest.raises(InvalidSchema):
        await client.schemas.register(topic, NewSchema(text="{"))
    assert await client.schemas.compatibility(topic) == "BACKWARD"
    assert await client.schemas.set_compatibility("none", topic) == "NONE"
    assert (await client.schemas.register(topic, wider)).version == 2
    assert await client.schemas.versions(topic) == [1, 2]
    assert await client.schemas.subjects(topic) == [topic]
    assert await client.schemas.delete(topic, 1) == [1]
    await client.schemas.reset_compatibility(topic)
    assert await client.schemas.delete(topic) == [2]
    assert sorted(await client.schemas.delete(topic, permanent=True)) == [1, 2]
    with pytest.raises(UnknownSubject):
        await client.schemas.latest(topic)


async def test_references_are_looked_up_all_the_way_down(client: Client, topic: str) -> None:
    inner = NewSchema(text='{"type": "record", "name": "Inner", "fields": [{"name": "n", "type": "int"}]}')
    middle = NewSchema(
        text='{"type": "record", "name": "Middle", "fields": [{"name": "inner", "type": "Inner"}]}',
        references=(streamhouse.SchemaReference(name="Inner", subject=f"{topic}-inner", version=1),),
    )
    outer = NewSchema(
        text='{"type": "record", "name": "Outer", "fields": [{"name": "middle", "type": "Middle"}]}',
        references=(streamhouse.SchemaReference(name="Middle", subject=f"{topic}-middle", version=1),),
    )
    await client.schemas.register(f"{topic}-inner", inner)
    await client.schemas.register(f"{topic}-middle", middle)
    async with client.producer(topic, schema=outer) as producer:
        await producer.send({"middle": {"inner": {"n": 1}}})
    assert await values(client, topic, decode=True) == [{"middle": {"inner": {"n": 1}}}]


# --- addresses


async def test_the_next_address_is_asked_where_nobody_answers(agent: LiveAgent) -> None:
    async with Client(f"127.0.0.1:{free_port()}, http://{agent.http}/") as client:
        assert await client.cluster.bootstrap() == agent.bootstrap


async def test_nobody_at_all_is_said_at_once() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    with pytest.raises(Unavailable, match=f"no agent answers on http://{nobody}; start one with: streamhouse up"):
        await Client(nobody).__aenter__()


@pytest.mark.parametrize("address", ["", "ftp://x:1", "host:port", "http://:80"])
def test_an_address_that_is_none_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(Misconfigured, match="such as localhost:8080"):
        Client(address)


async def test_parts_of_a_client_that_is_not_open_say_so(agent: LiveAgent) -> None:
    client = Client(agent.http)
    with pytest.raises(Rejected, match="async with Client"):
        await client.topics.list()
    with pytest.raises(Rejected, match="use it in: async with client"):
        await client.producer("t").send(b"v")
    async with client:
        assert "open" in repr(client)
    assert "closed" in repr(client)


@pytest.mark.parametrize(("option", "value"), [("compression", "brotli"), ("acks", "2")])
async def test_an_option_that_is_not_known_is_refused_with_those_that_are(
    client: Client, topic: str, option: str, value: Any
) -> None:
    with pytest.raises(Rejected, match=f"no such {option}; {option}='{value}' allowed="):
        client.producer(topic, **{option: value})


def test_a_program_without_logging_does_not_log_every_try() -> None:
    program = "import logging, streamhouse.client; logging.getLogger('aiokafka.conn').error('noise')"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert result.stderr == b""
