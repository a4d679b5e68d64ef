"""Produce and ProduceBatches: what is answered is what is in the log."""

import asyncio
import threading

import grpc
import pytest
from google.protobuf.message import Message

from streamhouse.agent import Agent
from streamhouse.broker.forwarding.publish import MAX_BATCHES
from streamhouse.format.compression import Codec
from streamhouse.format.records import encode_batch
from streamhouse.model.record import NewRecord
from streamhouse.wire.grpc import produce, produce_stream
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb
from streamhouse.wire.grpc.produce import Results, produce_response
from streamhouse.wire.grpc.requests import MAX_RECORDS
from tests.wire.grpc.conftest import Connect, StartAgent
from tests.wire.grpc.talk import Client, Refused, stalled


def batch(*values: bytes, codec: Codec = Codec.NONE) -> bytes:
    return bytes(encode_batch([NewRecord(value) for value in values], codec=codec, now_ms=1_700_000_000_000))


async def test_records_get_partitions_and_offsets_in_their_order(client: Client) -> None:
    await client.create("orders", 2)
    records = [pb.Record(value=b"%d" % n, partition=n % 2) for n in range(6)]
    response = await client(pb.ProduceRequest(topic="orders", records=records), pb.ProduceResponse)
    assert list(response.partitions) == [0, 1, 0, 1, 0, 1]
    assert list(response.offsets) == [0, 0, 1, 1, 2, 2]
    assert not response.errors
    assert await client.values("orders") == [b"0", b"2", b"4", b"1", b"3", b"5"]


async def test_nulls_empty_bytes_headers_and_times_survive(client: Client) -> None:
    await client.create("orders")
    sent = [
        pb.Record(),
        pb.Record(key=b"", value=b""),
        pb.Record(
            key=b"\x00\xff",
            value=b"x" * 1000,
            headers=[pb.Header(key="a", value=b"1"), pb.Header(key="a"), pb.Header(key="é", value=b"")],
            timestamp_ms=1_700_000_000_123,
        ),
    ]
    await client(pb.ProduceRequest(topic="orders", records=sent), pb.ProduceResponse)
    response = await client(
        pb.FetchRequest(positions=[pb.Position(topic="orders", partition=0, offset=0)]), pb.FetchResponse
    )
    null, empty, full = response.partitions[0].records
    assert (null.HasField("key"), null.HasField("value")) == (False, False)
    assert (empty.HasField("key"), empty.HasField("value")) == (True, True)
    assert (full.key, full.value, full.timestamp_ms) == (sent[2].key, sent[2].value, sent[2].timestamp_ms)
    assert list(full.headers) == list(sent[2].headers)
    assert not full.headers[1].HasField("value")


@pytest.mark.parametrize("acks", [pb.ACKS_UNSPECIFIED, pb.ACKS_BUFFERED, pb.ACKS_WAL, pb.ACKS_STORED])
async def test_every_kind_of_ack_is_given(start_agent: StartAgent, connect: Connect, acks: pb.Acks) -> None:
    client = await connect(await start_agent(flush__age_s="0.05", flush__check_s="0.01"))
    request = pb.ProduceRequest(topic="orders", records=[pb.Record(value=b"a")], acks=acks)
    assert list((await client(request, pb.ProduceResponse)).partitions) == [0]


async def test_a_stored_record_is_in_a_segment_when_it_is_acknowledged(
    start_agent: StartAgent, connect: Connect
) -> None:
    client = await connect(await start_agent(flush__age_s="0.05", flush__check_s="0.01"))
    request = pb.ProduceRequest(topic="orders", records=[pb.Record(value=b"a")], acks=pb.ACKS_STORED)
    await client(request, pb.ProduceResponse)
    (partition,) = (await client(pb.ListPartitionsRequest(topic="orders"), pb.ListPartitionsResponse)).partitions
    assert partition.flushed_end == 1


async def test_a_request_that_comes_again_under_its_key_is_stored_once(client: Client) -> None:
    request = pb.ProduceRequest(topic="orders", records=[pb.Record(value=b"a")], idempotency_key="order-17")
    first = await client(request, pb.ProduceResponse)
    assert await client(request, pb.ProduceResponse) == first
    assert await client.values("orders") == [b"a"]
    request.records[0].value = b"b"
    with pytest.raises(Refused) as refused:
        await client(request, pb.ProduceResponse)
    assert refused.value.code is grpc.StatusCode.ALREADY_EXISTS
    assert refused.value.metadata["streamhouse-error"] == "IdempotencyKeyReused"


async def test_a_key_that_is_too_long_is_refused(client: Client) -> None:
    request = pb.ProduceRequest(topic="orders", records=[pb.Record(value=b"a")], idempotency_key="k" * 256)
    with pytest.raises(Refused, match="field=idempotency_key") as refused:
        await client(request, pb.ProduceResponse)
    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT


async def test_records_that_can_not_be_stored_are_named_and_the_others_are_stored(client: Client) -> None:
    await client.create("orders", 1)
    records = [pb.Record(value=b"good", partition=0), pb.Record(value=b"lost", partition=7)]
    response = await client(pb.ProduceRequest(topic="orders", records=records), pb.ProduceResponse)
    assert list(response.offsets) == [0, -1]
    (failed,) = response.errors
    assert (failed.index, failed.error.name, failed.error.code) == (1, "UnknownTopic", 5)
    assert not failed.error.retriable
    assert await client.values("orders") == [b"good"]


@pytest.mark.parametrize("codec", list(Codec))
async def test_whole_batches_are_stored_as_they_are(client: Client, codec: Codec) -> None:
    await client.create("orders", 2)
    batches = [batch(b"a", b"b", codec=codec), batch(b"c", codec=codec)]
    request = pb.ProduceBatchesRequest(topic="orders", partition=1, batches=batches)
    response = await client(request, pb.ProduceBatchesResponse)
    assert list(response.base_offsets) == [0, 2]
    assert await client.values("orders") == [b"a", b"b", b"c"]
    position = pb.Position(topic="orders", partition=1, offset=0)
    read = await client(pb.FetchBatchesRequest(positions=[position]), pb.FetchBatchesResponse)
    stored = b"".join(read.partitions[0].batches)
    # All but the base offset and the leader's epoch.
    assert stored[16 : len(batches[0])] == batches[0][16:]
    assert len(stored) == sum(map(len, batches))


async def test_a_damaged_batch_is_refused_and_its_neighbours_are_stored(client: Client) -> None:
    damaged = bytearray(batch(b"b"))
    damaged[-1] ^= 1
    request = pb.ProduceBatchesRequest(topic="orders", batches=[batch(b"a"), bytes(damaged), b"", batch(b"c")])
    response = await client(request, pb.ProduceBatchesResponse)
    assert list(response.base_offsets) == [0, -1, -1, 1]
    assert [(each.index, each.error.name) for each in response.errors] == [(1, "CorruptBatch"), (2, "CorruptBatch")]
    assert await client.values("orders") == [b"a", b"c"]


@pytest.mark.parametrize(
    ("request_", "response", "field"),
    [
        (pb.ProduceRequest(records=[pb.Record(value=b"a")]), pb.ProduceResponse, "field=topic"),
        (pb.ProduceRequest(topic="orders"), pb.ProduceResponse, "field=records"),
        (pb.ProduceBatchesRequest(topic="orders"), pb.ProduceBatchesResponse, "field=batches"),
        (
            pb.ProduceBatchesRequest(topic="orders", partition=-1, batches=[b"x"]),
            pb.ProduceBatchesResponse,
            "field=partition",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_can_not_be_understood_names_the_field(
    client: Client, request_: Message, response: type[Message], field: str
) -> None:
    with pytest.raises(Refused) as refused:
        await client(request_, response)
    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert field in refused.value.text


async def test_the_response_to_many_records_is_made_in_a_thread(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    makers: list[bool] = []

    def make(results: Results) -> pb.ProduceResponse:
        makers.append(threading.current_thread() is threading.main_thread())
        return produce_response(results)

    monkeypatch.setattr(produce, "produce_response", make)
    monkeypatch.setattr(produce_stream, "produce_response", make)
    stream = client.stream("ProduceStream", pb.ProduceStreamResponse)
    for count in (3, 5000):
        request = pb.ProduceRequest(topic="orders", records=[pb.Record(value=b"12")] * count)
        assert len((await client(request, pb.ProduceResponse)).offsets) == count
        await stream.send(pb.ProduceStreamRequest(produce=request))
        assert len((await stream.next()).produced.offsets) == count
    assert makers == [True, True, False, False]


async def test_more_records_than_a_message_may_have_are_refused_before_they_are_read(client: Client) -> None:
    many = pb.ProduceRequest(topic="orders", records=[pb.Record()] * (MAX_RECORDS + 1))
    with pytest.raises(Refused, match="too many records in one message") as refused:
        await client(many, pb.ProduceResponse)
    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT


async def test_more_batches_than_a_request_may_have_are_refused(client: Client) -> None:
    many = pb.ProduceBatchesRequest(topic="orders", batches=[b"x"] * (MAX_BATCHES + 1))
    with pytest.raises(Refused, match="INVALID_ARGUMENT: too many batches in one request"):
        await client(many, pb.ProduceBatchesResponse)


async def test_an_unknown_number_for_acks_is_refused(client: Client) -> None:
    raw = pb.ProduceRequest(topic="orders", records=[pb.Record(value=b"a")]).SerializeToString() + b"\x18\x09"
    with pytest.raises(Refused, match="INVALID_ARGUMENT: unknown acks; field=acks value=9"):
        await client(pb.ProduceRequest.FromString(raw), pb.ProduceResponse)


async def test_bytes_that_are_no_message_are_refused(client: Client) -> None:
    method = client.channel.unary_unary("/streamhouse.v1.RecordsService/Produce")
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await method(b"\xff\xff\xff")
    assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "streamhouse.v1.ProduceRequest" in str(failed.value.details())


async def test_a_topic_that_is_not_there_is_not_found(start_agent: StartAgent, connect: Connect) -> None:
    client = await connect(await start_agent(topics__auto_create="false"))
    with pytest.raises(Refused) as refused:
        await client.produce("nowhere", b"a")
    assert refused.value.code is grpc.StatusCode.NOT_FOUND
    assert refused.value.metadata["streamhouse-error"] == "UnknownTopic"


async def test_more_bytes_at_once_than_the_agent_takes_are_refused_with_a_time_to_come_back(
    start_agent: StartAgent, connect: Connect
) -> None:
    agent = await start_agent(grpc__max_inflight_bytes="1000")
    client = await connect(agent)
    with stalled(agent) as begun:
        first = asyncio.create_task(client.produce("orders", b"x" * 900))
        await begun.wait()
        with pytest.raises(Refused) as refused:
            await client.produce("orders", b"y" * 900)
    first.cancel()
    assert refused.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert int(refused.value.metadata["retry-after-ms"]) > 0
    await asyncio.gather(first, return_exceptions=True)


async def test_what_the_agent_has_is_what_it_said(agent: Agent, client: Client) -> None:
    """Neighbours on one loop: what comes over gRPC is seen by the broker, as what comes over Kafka is."""
    await client.produce("orders", b"a", b"b")
    assert agent.broker.traffic.appended_records == 2
