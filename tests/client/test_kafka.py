"""Producer, consumer and admin against librdkafka's mock broker."""

import socket
from typing import get_args

import pytest

from streamhouse.client.consumer import Consumer
from streamhouse.client.kafka_admin import Admin
from streamhouse.client.producer import Producer, ProducerSettings
from streamhouse.client.types import EARLIEST, LATEST, Acks, Compression, Record
from streamhouse.errors import Rejected, Unavailable, UnknownTopic
from streamhouse.model.record import NewRecord


async def fill(broker: str, topic: str, records: list[NewRecord]) -> None:
    async with Admin(broker) as admin:
        await admin.topic(topic, create=True)
    async with Producer(broker, topic) as producer:
        for record in records:
            await producer.put(record)


async def read(broker: str, topic: str, starts: dict[int, int], number: int) -> list[Record]:
    results: list[Record] = []
    async with Consumer(broker, topic, starts=starts) as consumer:
        while len(results) < number:
            results += await consumer.poll(max_records=number - len(results), timeout_s=1)
    return results


async def test_records_come_back_as_they_were_sent(broker: str) -> None:
    sent = [
        NewRecord(value=b"v", key=b"k", headers=(("a", b"1"), ("a", b"2")), partition=1),
        NewRecord(value=None, key=b"\x00\xff", partition=1),
        NewRecord(value=b"", key=None, partition=1),
    ]
    await fill(broker, "come-back", sent)
    result = await read(broker, "come-back", {1: 0}, 3)
    assert [(r.value, r.key, r.headers, r.partition, r.offset) for r in result] == [
        (record.value, record.key, record.headers, 1, offset) for offset, record in enumerate(sent)
    ]


@pytest.mark.parametrize("acks", get_args(Acks))
@pytest.mark.parametrize("compression", get_args(Compression))
async def test_every_codec_and_acknowledgement_works(broker: str, acks: Acks, compression: Compression) -> None:
    topic = f"codec-{compression}-{acks}"
    async with Admin(broker) as admin:
        await admin.topic(topic, create=True)
    settings = ProducerSettings(acks=acks, compression=compression)
    async with Producer(broker, topic, settings=settings) as producer:
        receipt = await producer.send(b"x" * 1000, partition=0)
    assert (receipt.partition, receipt.offset) == (0, None if acks == "0" else 0)
    (result,) = await read(broker, topic, {0: 0}, 1)
    assert result.value == b"x" * 1000


async def test_reading_starts_at_the_given_offset_and_shows_its_position(broker: str) -> None:
    await fill(broker, "positions", [NewRecord(value=b"%d" % n, partition=0) for n in range(5)])
    async with Consumer(broker, "positions", starts={0: 3}) as consumer:
        (first,) = await consumer.poll(max_records=1, timeout_s=5)
        assert (first.offset, first.value) == (3, b"3")
        assert await consumer.positions() == {0: 4}


async def test_topics_have_partitions_with_leaders_and_epochs(broker: str) -> None:
    async with Admin(broker) as admin:
        topic = await admin.topic("leaders", create=True)
        assert [p.partition for p in topic.partitions] == [0, 1, 2, 3]
        (node,) = (await admin.cluster()).agents
        assert {p.leader for p in topic.partitions} == {node}
        assert all(p.epoch >= 0 for p in topic.partitions)
        assert topic in await admin.topics()
        assert (await admin.cluster()).agents[node] == broker


async def test_offsets_of_the_ends(broker: str) -> None:
    await fill(broker, "ends", [NewRecord(value=b"v", partition=n % 2) for n in range(5)])
    async with Admin(broker) as admin:
        topic = await admin.topic("ends")
        assert await admin.offsets(topic, EARLIEST) == {0: 0, 1: 0, 2: 0, 3: 0}
        assert await admin.offsets(topic, LATEST) == {0: 3, 1: 2, 2: 0, 3: 0}
        assert await admin.offsets(topic, LATEST, [1]) == {1: 2}


async def test_a_topic_is_not_created_by_a_request(broker: str) -> None:
    async with Admin(broker) as admin:
        with pytest.raises(UnknownTopic, match="name=never"):
            await admin.topic("never")
        assert "never" not in [topic.name for topic in await admin.topics()]


async def test_a_request_that_the_broker_does_not_know_is_distinguished(broker: str) -> None:
    async with Admin(broker) as admin:
        await admin.topic("shy", create=True)
        assert await admin.configs("shy") is None
        with pytest.raises(Rejected):
            await admin.create_topic("made", configs={})


async def test_a_record_without_key_and_value_is_refused(broker: str) -> None:
    async with Producer(broker, "empty") as producer:
        with pytest.raises(Rejected, match="needs a key or a value"):
            await producer.send(None)


@pytest.fixture
def nobody() -> str:
    """An address without a listener."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


async def test_nobody_listening_is_said_with_the_address_and_what_to_do(nobody: str) -> None:
    clients: list[Admin | Producer | Consumer] = [
        Admin(nobody),
        Producer(nobody, "t"),
        Producer(nobody, "t", settings=ProducerSettings(acks="1")),
        Consumer(nobody, "t", starts={0: 0}),
    ]
    for client in clients:
        with pytest.raises(Unavailable, match=f"no agent answers on {nobody}; start one with: streamhouse up"):
            await client.__aenter__()


async def test_someone_silent_is_given_up_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        clients: list[Admin | Producer] = [
            Admin(address, timeout_s=0.1),
            Producer(address, "t", settings=ProducerSettings(timeout_s=0.2)),
        ]
        for client in clients:
            with pytest.raises(Unavailable, match=f"no agent answers on {address}"):
                await client.__aenter__()
