"""Fetch and FetchBatches: some partitions, once."""

import asyncio

import grpc
import pytest
from google.protobuf.message import Message

from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb
from tests.wire.grpc.conftest import Connect, StartAgent
from tests.wire.grpc.talk import Client, Refused

Position = pb.Position


async def fetched(client: Client, *positions: pb.Position, **more: int) -> list[pb.PartitionRecords]:
    return list((await client(pb.FetchRequest(positions=positions, **more), pb.FetchResponse)).partitions)


async def timed(client: Client) -> None:
    """Records of the times 100, 200 … 500."""
    await client.create("orders")
    records = [pb.Record(value=b"%d" % n, timestamp_ms=n * 100) for n in range(1, 6)]
    await client(pb.ProduceRequest(topic="orders", records=records), pb.ProduceResponse)


@pytest.mark.parametrize(
    ("position", "values"),
    [
        (Position(topic="orders", partition=0, offset=3), [b"4", b"5"]),
        (Position(topic="orders", partition=0, edge=pb.EDGE_EARLIEST), [b"1", b"2", b"3", b"4", b"5"]),
        (Position(topic="orders", partition=0, edge=pb.EDGE_LATEST), []),
        (Position(topic="orders", partition=0), []),
        (Position(topic="orders", partition=0, timestamp_ms=201), [b"3", b"4", b"5"]),
        (Position(topic="orders", partition=0, timestamp_ms=10_000), []),
    ],
)
async def test_reading_begins_where_the_client_says(client: Client, position: Position, values: list[bytes]) -> None:
    await timed(client)
    (part,) = await fetched(client, position)
    assert [record.value for record in part.records] == values
    assert (part.next_offset, part.high_watermark, part.log_start) == (5, 5, 0)


async def test_a_position_without_a_partition_means_all_of_the_topic(client: Client) -> None:
    await client.create("orders", 3)
    await client.produce("orders", b"a", partition=2)
    parts = await fetched(client, Position(topic="orders", edge=pb.EDGE_EARLIEST))
    assert [(part.partition, [record.value for record in part.records]) for part in parts] == [
        (0, []),
        (1, []),
        (2, [b"a"]),
    ]


async def test_a_response_holds_no_more_records_than_requested_and_says_where_to_go_on(client: Client) -> None:
    await timed(client)
    offset, seen = 0, []
    for _ in range(3):
        (part,) = await fetched(client, Position(topic="orders", partition=0, offset=offset), max_records=2)
        seen.append([record.offset for record in part.records])
        offset = part.next_offset
    assert seen == [[0, 1], [2, 3], [4]]


async def test_a_response_is_as_large_as_requested_also_when_records_were_compressed(client: Client) -> None:
    await client.create("orders")
    await client.produce("orders", *(b"x" * 1000 for _ in range(100)))
    (part,) = await fetched(client, Position(topic="orders", partition=0, offset=0), max_bytes=10_000)
    assert len(part.records) == 10
    assert part.next_offset == 10


async def test_no_response_is_larger_than_a_message_may_be(start_agent: StartAgent, connect: Connect) -> None:
    client = await connect(await start_agent(grpc__max_message_bytes="20000"))
    for _ in range(4):
        await client.produce("orders", *(b"x" * 1000 for _ in range(15)))
    (part,) = await fetched(client, Position(topic="orders", partition=0, offset=0), max_bytes=2**31 - 1)
    assert 0 < len(part.records) <= 20


async def test_a_call_waits_for_the_first_records(client: Client) -> None:
    await client.create("orders")
    waiting = asyncio.create_task(fetched(client, Position(topic="orders", partition=0, offset=0), max_wait_ms=15_000))
    await client.produce("elsewhere", b"no")
    assert not waiting.done()
    await client.produce("orders", b"yes")
    (part,) = await waiting
    assert [record.value for record in part.records] == [b"yes"]


async def test_a_call_that_waits_answers_before_its_deadline(client: Client) -> None:
    await client.create("orders")
    request = pb.FetchRequest(positions=[Position(topic="orders", partition=0, offset=0)], max_wait_ms=60_000)
    response = await client(request, pb.FetchResponse, timeout=1.0)
    assert response.partitions[0].next_offset == 0


async def test_one_partition_that_fails_says_so_and_the_others_are_read(client: Client) -> None:
    await timed(client)
    good, bad, gone = await fetched(
        client,
        Position(topic="orders", partition=0, offset=4),
        Position(topic="orders", partition=5, edge=pb.EDGE_EARLIEST),
        Position(topic="orders", partition=7, offset=0),
    )
    assert [record.value for record in good.records] == [b"5"]
    assert (bad.partition, bad.error.name, gone.partition, gone.error.name) == (5, "UnknownTopic", 7, "UnknownTopic")


async def test_an_offset_beyond_the_end_is_out_of_range(client: Client) -> None:
    await timed(client)
    (part,) = await fetched(client, Position(topic="orders", partition=0, offset=77))
    assert (part.error.name, part.error.code) == ("OffsetOutOfRange", grpc.StatusCode.OUT_OF_RANGE.value[0])


async def test_batches_are_read_as_they_were_stored(client: Client) -> None:
    await timed(client)
    request = pb.FetchBatchesRequest(positions=[Position(topic="orders", partition=0, offset=2)])
    (part,) = (await client(request, pb.FetchBatchesResponse)).partitions
    assert len(part.batches) == 1, "the batch is whole: it begins before the offset"
    assert int.from_bytes(part.batches[0][:8], "big") == 0
    assert part.next_offset == 5


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.FetchRequest(positions=[Position(partition=0)]), r"field=positions\[0\].topic"),
        (pb.FetchRequest(positions=[Position(topic="a", partition=-2)]), r"field=positions\[0\].partition value=-2"),
        (pb.FetchRequest(positions=[Position(topic="a", partition=0, offset=-5)]), r"field=positions\[0\].offset"),
        (pb.FetchRequest(max_bytes=-1), "field=max_bytes"),
        (pb.FetchRequest(max_wait_ms=-1), "field=max_wait_ms"),
        (pb.FetchRequest(min_bytes=-1), "field=min_bytes"),
        (pb.FetchRequest(max_records=-1), "field=max_records"),
    ],
)
async def test_what_can_not_be_understood_names_the_field(client: Client, request_: Message, field: str) -> None:
    with pytest.raises(Refused, match=f"INVALID_ARGUMENT.*{field}"):
        await client(request_, pb.FetchResponse)


async def test_no_more_partitions_are_read_at_once_than_allowed(start_agent: StartAgent, connect: Connect) -> None:
    client = await connect(await start_agent(grpc__max_positions="3"))
    await client.create("orders", 4)
    with pytest.raises(Refused, match="INVALID_ARGUMENT: too many partitions; field=positions requested=4 limit=3"):
        await fetched(client, Position(topic="orders"))
