"""Produce streams: one answer per message, in order; a message fails alone; clients are held back, not buffered."""

import asyncio

import grpc
import pytest

from streamhouse.agent import Agent
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb
from tests.wire.grpc.conftest import Connect, StartAgent
from tests.wire.grpc.talk import Client, Refused, metric, stalled
from tests.wire.grpc.test_produce import batch


def message(
    *values: bytes, topic: str = "orders", key: str = "", acks: pb.Acks = pb.ACKS_WAL
) -> pb.ProduceStreamRequest:
    records = [pb.Record(value=value, partition=0) for value in values]
    return pb.ProduceStreamRequest(
        produce=pb.ProduceRequest(topic=topic, records=records, idempotency_key=key, acks=acks)
    )


async def test_messages_are_stored_and_answered_in_their_order(client: Client) -> None:
    await client.create("orders")
    stream = client.stream("ProduceStream", pb.ProduceStreamResponse)
    sent = [[b"%d-%d" % (n, part) for part in range(n % 3 + 1)] for n in range(200)]

    async def send() -> None:
        for values in sent:
            await stream.send(message(*values))
        await stream.end()

    _, responses = await asyncio.gather(send(), stream.rest())
    assert len(responses) == len(sent)
    assert [len(response.produced.offsets) for response in responses] == [len(values) for values in sent]
    flat = [value for values in sent for value in values]
    assert [offset for response in responses for offset in response.produced.offsets] == list(range(len(flat)))
    assert await client.values("orders") == flat


async def test_a_message_that_fails_says_so_in_its_place_and_the_stream_goes_on(client: Client) -> None:
    await client.create("orders")
    stream = client.stream("ProduceStream", pb.ProduceStreamResponse)
    await stream.send(message(b"a"), message(b"b", topic=""), message(b"c", topic="a/b"), message(), message(b"d"))
    await stream.end()
    responses = await stream.rest()
    assert [response.WhichOneof("result") for response in responses] == [
        "produced",
        "error",
        "error",
        "error",
        "produced",
    ]
    assert [response.error.name for response in responses[1:4]] == ["Rejected", "InvalidTopicName", "Rejected"]
    assert "field=records" in responses[3].error.message
    assert await stream.code() is grpc.StatusCode.OK
    assert await client.values("orders") == [b"a", b"d"]


async def test_a_message_may_be_for_any_topic_and_carry_a_key(client: Client) -> None:
    stream = client.stream("ProduceStream", pb.ProduceStreamResponse)
    await stream.send(
        message(b"a", topic="one"),
        message(b"b", topic="two", key="k"),
        message(b"c", topic="one"),
        message(b"b", topic="two", key="k"),
        message(b"d", topic="two"),
    )
    await stream.end()
    responses = await stream.rest()
    assert [list(response.produced.offsets) for response in responses] == [[0], [0], [1], [0], [1]]
    assert await client.values("one") == [b"a", b"c"]
    assert await client.values("two") == [b"b", b"d"]


async def test_batches_are_stored_and_answered_in_their_order(client: Client) -> None:
    await client.create("orders", 2)
    stream = client.stream("ProduceBatchesStream", pb.ProduceBatchesStreamResponse)
    for n in range(20):
        produce = pb.ProduceBatchesRequest(topic="orders", partition=n % 2, batches=[batch(b"%d" % n, b"+")])
        await stream.send(pb.ProduceBatchesStreamRequest(produce=produce))
    await stream.send(pb.ProduceBatchesStreamRequest(produce=pb.ProduceBatchesRequest(topic="orders", batches=[b"no"])))
    await stream.end()
    *responses, last = await stream.rest()
    assert [list(response.produced.base_offsets) for response in responses] == [[n // 2 * 2] for n in range(20)]
    assert last.error.name == "CorruptBatch"
    assert await client.values("orders") == [
        value for first in (0, 1) for n in range(first, 20, 2) for value in (b"%d" % n, b"+")
    ]


async def test_no_more_messages_are_read_than_may_be_in_flight(start_agent: StartAgent, connect: Connect) -> None:
    """While messages are not acknowledged, the agent takes so many of them and no more; the client can't go on."""
    agent = await start_agent(grpc__stream_inflight="4")
    client, other = await connect(agent), await connect(agent)
    stream = client.stream("ProduceStream", pb.ProduceStreamResponse)
    large = message(b"x" * 1_000_000)

    async def send() -> None:
        for _ in range(100):
            await stream.call.write(large)

    with stalled(agent) as begun:
        sending = asyncio.create_task(send())
        await begun.wait()
        for _ in range(200):  # time enough to take them all
            await other(pb.ListTopicsRequest(), pb.ListTopicsResponse)
        assert await metric(agent, "streamhouse_grpc_received_bytes_total") < 6_000_000
        assert not sending.done()
        sending.cancel()
        stream.call.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def test_a_cancelled_stream_leaves_whole_messages_only(client: Client) -> None:
    await client.create("orders")
    stream = client.stream("ProduceStream", pb.ProduceStreamResponse)
    for n in range(40):
        await stream.send(message(b"%d-a" % n, b"%d-b" % n, b"%d-c" % n))
    await stream.next()
    stream.call.cancel()
    values = await client.values("orders")
    while values != (again := await client.values("orders")):  # what was on its way
        values = again
    assert len(values) >= 3
    assert values == [b"%d-%c" % (n, part) for n in range(len(values) // 3) for part in b"abc"]


async def test_a_client_that_sends_nothing_gets_nothing(client: Client) -> None:
    stream = client.stream("ProduceStream", pb.ProduceStreamResponse)
    await stream.end()
    assert await stream.rest() == []
    assert await stream.code() is grpc.StatusCode.OK


async def test_streams_are_ended_when_the_agent_stops(start_agent: StartAgent, connect: Connect) -> None:
    agent: Agent = await start_agent()
    client = await connect(agent)
    stream = client.stream("ProduceStream", pb.ProduceStreamResponse)
    await stream.send(message(b"a"))
    await stream.next()
    agent.stop()
    with pytest.raises(Refused, match="UNAVAILABLE: the agent is stopping"):
        await stream.next()
