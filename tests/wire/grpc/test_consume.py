"""Consume streams: records for ever, as fast as the client takes them and no faster."""

import asyncio

import grpc
import pytest

from streamhouse.agent import Agent
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb
from tests.wire.grpc.conftest import Connect, StartAgent
from tests.wire.grpc.talk import Client, Refused, Stream, metric, values_of

Position = pb.Position
Consume = Stream[pb.ConsumeResponse]
EARLIEST = Position(topic="orders", edge=pb.EDGE_EARLIEST)


def consume(client: Client) -> Consume:
    return client.stream("Consume", pb.ConsumeResponse)


async def values(stream: Consume, count: int) -> list[bytes]:
    """The next values, however they are spread over messages."""
    received: list[bytes] = []
    while len(received) < count:
        received += values_of([await stream.next()])
    return received


async def test_what_is_there_comes_first_and_then_what_comes(client: Client) -> None:
    await client.create("orders")
    await client.produce("orders", b"a", b"b")
    stream = consume(client)
    await stream.send(pb.ConsumeRequest(subscribe=[EARLIEST]))
    assert await values(stream, 2) == [b"a", b"b"]
    await client.produce("orders", b"c")
    response = await stream.next()
    assert values_of([response]) == [b"c"]
    (part,) = response.partitions
    assert (part.records[0].offset, part.next_offset, part.high_watermark) == (2, 3, 3)


async def test_many_partitions_come_in_one_stream_each_in_its_order(client: Client) -> None:
    await client.create("orders", 4)
    stream = consume(client)
    await stream.send(pb.ConsumeRequest(subscribe=[EARLIEST]))
    for n in range(40):
        await client.produce("orders", b"%d" % n, partition=n % 4)
    received: dict[int, list[bytes]] = {}
    while sum(map(len, received.values())) < 40:
        for part in (await stream.next()).partitions:
            received.setdefault(part.partition, []).extend(record.value for record in part.records)
    assert received == {number: [b"%d" % n for n in range(number, 40, 4)] for number in range(4)}


@pytest.mark.parametrize(
    ("position", "first"),
    [
        (Position(topic="orders", partition=0, offset=2), b"3"),
        (Position(topic="orders", partition=0, timestamp_ms=350), b"4"),
        (Position(topic="orders", partition=0, edge=pb.EDGE_LATEST), b"new"),
    ],
)
async def test_reading_begins_where_the_client_says(client: Client, position: Position, first: bytes) -> None:
    await client.create("orders")
    records = [pb.Record(value=b"%d" % n, timestamp_ms=n * 100) for n in range(1, 6)]
    await client(pb.ProduceRequest(topic="orders", records=records), pb.ProduceResponse)
    stream = consume(client)
    await stream.send(pb.ConsumeRequest(subscribe=[position, Position(topic="orders", partition=9)]))
    assert (await stream.next()).partitions[0].error.name == "UnknownTopic"  # so it has begun
    await client.produce("orders", b"new")
    assert (await values(stream, 1))[0] == first


async def test_no_more_records_are_sent_than_were_granted(client: Client) -> None:
    await client.create("orders")
    await client.produce("orders", *(b"%d" % n for n in range(10)))
    stream = consume(client)
    await stream.send(pb.ConsumeRequest(subscribe=[EARLIEST], grant_records=3))
    assert await values(stream, 3) == [b"0", b"1", b"2"]
    await stream.send(pb.ConsumeRequest(grant_records=1), pb.ConsumeRequest(grant_records=2))
    assert await values(stream, 3) == [b"3", b"4", b"5"]
    await stream.end()
    assert await stream.rest() == [], "who grants nothing more gets nothing more"
    assert await stream.code() is grpc.StatusCode.OK


async def test_bytes_can_be_granted_too_and_one_record_may_go_beyond(client: Client) -> None:
    await client.create("orders")
    await client.produce("orders", *(b"x" * 100 for _ in range(10)))
    stream = consume(client)
    await stream.send(pb.ConsumeRequest(subscribe=[EARLIEST], grant_bytes=250))
    assert len(await values(stream, 3)) == 3
    await stream.send(pb.ConsumeRequest(grant_bytes=51))  # 50 are owed
    assert len(await values(stream, 1)) == 1
    await stream.end()
    assert await stream.rest() == []


async def test_partitions_come_and_go_while_the_stream_runs(client: Client) -> None:
    await client.create("orders", 2)
    stream = consume(client)
    await stream.send(pb.ConsumeRequest(subscribe=[Position(topic="orders", partition=0, offset=0)]))
    await client.produce("orders", b"a", partition=0)
    assert await values(stream, 1) == [b"a"]
    await stream.send(
        pb.ConsumeRequest(
            subscribe=[Position(topic="orders", partition=1, offset=0)],
            unsubscribe=[pb.TopicPartition(topic="orders", partition=0)],
        )
    )
    await client.produce("orders", b"b", partition=1)
    assert await values(stream, 1) == [b"b"]
    await client.produce("orders", b"not wanted", partition=0)
    await client.produce("orders", b"c", partition=1)
    assert await values(stream, 1) == [b"c"]
    await stream.send(pb.ConsumeRequest(subscribe=[Position(topic="orders", partition=1, offset=0)]))
    assert await values(stream, 2) == [b"b", b"c"], "it may be read again from anywhere"


async def test_a_client_that_has_said_all_goes_on_reading_and_ends_it_when_it_likes(client: Client) -> None:
    await client.create("orders")
    stream = consume(client)
    await stream.send(pb.ConsumeRequest(subscribe=[EARLIEST]))
    await stream.end()
    for n in range(3):
        await client.produce("orders", b"%d" % n)
        assert await values(stream, 1) == [b"%d" % n]
    stream.call.cancel()


async def test_a_partition_that_can_not_be_read_is_reported_and_dropped(client: Client) -> None:
    await client.create("orders")
    await client.produce("orders", b"a")
    stream = consume(client)
    await stream.send(pb.ConsumeRequest(subscribe=[Position(topic="orders", partition=0, offset=99)]))
    (part,) = (await stream.next()).partitions
    assert (part.error.name, part.error.retriable) == ("OffsetOutOfRange", False)
    await stream.end()
    assert await stream.rest() == []


async def test_batches_come_as_they_were_stored_and_are_granted_whole(client: Client) -> None:
    await client.create("orders")
    for n in range(4):
        await client.produce("orders", b"%d-a" % n, b"%d-b" % n)
    stream = client.stream("ConsumeBatches", pb.ConsumeBatchesResponse)
    await stream.send(pb.ConsumeBatchesRequest(subscribe=[EARLIEST], grant_records=3))
    received = [part for _ in range(1) for part in (await stream.next()).partitions]
    assert [len(part.batches) for part in received] == [2], "the last one goes beyond"
    assert received[-1].next_offset == 4
    await stream.send(pb.ConsumeBatchesRequest(grant_records=100))
    await stream.end()
    assert (await stream.next()).partitions[-1].next_offset == 8
    stream.call.cancel()


async def test_messages_stay_small_whatever_is_in_the_log(start_agent: StartAgent, connect: Connect) -> None:
    client = await connect(await start_agent(grpc__fetch_bytes="10000"))
    await client.create("orders")
    for _ in range(3):
        await client.produce("orders", *(b"x" * 1000 for _ in range(100)))
    stream = consume(client)
    await stream.send(pb.ConsumeRequest(subscribe=[EARLIEST]))
    count = 0
    while count < 300:
        response = await stream.next()
        assert response.ByteSize() < 12_000
        count += len(values_of([response]))


async def test_a_client_that_does_not_read_costs_no_more_than_its_window(
    start_agent: StartAgent, connect: Connect
) -> None:
    agent = await start_agent(grpc__fetch_bytes="100000")
    client, lazy = await connect(agent), await connect(agent)
    await client.create("orders")
    for _ in range(40):
        await client.produce("orders", *(b"x" * 1000 for _ in range(1000)))
    stream = consume(lazy)
    before = await sent_bytes(agent)
    await stream.send(pb.ConsumeRequest(subscribe=[EARLIEST]))
    first = values_of([await stream.next()])
    for n in range(200):  # time enough to send all of it
        await client.produce("others", b"%d" % n)
    assert await sent_bytes(agent) - before < 20_000_000
    assert len(await values(stream, 40_000 - len(first))) == 40_000 - len(first), "and nothing is lost"


async def test_a_client_that_takes_nothing_for_too_long_is_cut(start_agent: StartAgent, connect: Connect) -> None:
    agent = await start_agent(grpc__slow_reader_timeout_s="0.2")
    client, lazy = await connect(agent), await connect(agent)
    await client.create("orders")
    for _ in range(40):
        await client.produce("orders", *(b"x" * 1000 for _ in range(1000)))
    stream = consume(lazy)
    await stream.send(pb.ConsumeRequest(subscribe=[EARLIEST]))
    await stream.next()
    async with asyncio.timeout(20):
        while not await metric(agent, "streamhouse_grpc_calls_total", code="RESOURCE_EXHAUSTED"):
            pass
    with pytest.raises(Refused, match="RESOURCE_EXHAUSTED: the client took nothing for too long"):
        await values(stream, 40_000)


async def test_streams_are_ended_when_the_agent_stops(start_agent: StartAgent, connect: Connect) -> None:
    agent = await start_agent()
    client = await connect(agent)
    await client.create("orders")
    stream = consume(client)
    await stream.send(pb.ConsumeRequest(subscribe=[EARLIEST]))
    await client.produce("orders", b"a")
    await values(stream, 1)
    agent.stop()
    with pytest.raises(Refused, match="UNAVAILABLE"):
        await values(stream, 1)


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (pb.ConsumeRequest(subscribe=[Position()]), r"INVALID_ARGUMENT.*field=subscribe\[0\].topic"),
        (pb.ConsumeRequest(grant_records=-1), "INVALID_ARGUMENT.*field=grant_records"),
        (pb.ConsumeRequest(subscribe=[Position(topic="nowhere")]), "NOT_FOUND.*name=nowhere"),
    ],
)
async def test_what_can_not_be_understood_ends_the_stream(
    client: Client, request_: pb.ConsumeRequest, text: str
) -> None:
    stream = consume(client)
    await stream.send(request_)
    with pytest.raises(Refused, match=text):
        await stream.next()


async def sent_bytes(agent: Agent) -> float:
    return await metric(agent, "streamhouse_grpc_sent_bytes_total")
