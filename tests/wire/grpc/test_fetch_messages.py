"""Outgoing messages and credit: decided without sockets."""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import pytest

from streamhouse.config import GrpcSettings
from streamhouse.errors import BatchTooLarge, Rejected
from streamhouse.format.batch import assign_offset, iter_batches
from streamhouse.format.compression import Codec
from streamhouse.format.records import encode_batch
from streamhouse.model.fetch import FetchResult
from streamhouse.model.names import TopicPartition
from streamhouse.model.record import NewRecord
from streamhouse.wire.grpc import fetch as outgoing
from streamhouse.wire.grpc.consume_stream import ConsumeStream, Subscription
from streamhouse.wire.grpc.fetch import (
    DecodeLimits,
    FetchService,
    PartitionRecords,
    ResponseBudget,
    fill_batches,
    fill_records,
    partition_records,
    within_budget,
)
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb
from tests.contracts.clocks import ManualClock

NAME, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
MANY = 10**9
LIMIT_BYTES = 10**6


def batches(*sizes: int, codec: Codec = Codec.NONE) -> bytes:
    """Consecutive batches with so many records of ten bytes each."""
    data, offset = bytearray(), 0
    for size in sizes:
        batch = encode_batch([NewRecord(b"%010d" % (offset + n)) for n in range(size)], codec=codec, now_ms=1)
        assign_offset(batch, base_offset=offset, leader_epoch=1)
        data += batch
        offset += size
    return bytes(data)


def a_piece(*sizes: int, offset: int = 0, codec: Codec = Codec.NONE) -> PartitionRecords:
    end = sum(sizes)
    result = FetchResult(name=NAME, high_watermark=end, log_start=0, records=[batches(*sizes, codec=codec)])
    return partition_records(result, offset)


def filled(pieces: "deque[PartitionRecords] | list[PartitionRecords]", budget: ResponseBudget) -> pb.ConsumeResponse:
    response = pb.ConsumeResponse()
    fill_records(response, within_budget(pieces, budget), budget, DecodeLimits(LIMIT_BYTES))
    return response


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("budget", [1, 2, 3, 7, 100])
def test_messages_of_any_size_bring_every_record_once_in_order(budget: int, codec: Codec) -> None:
    piece, seen, ends = a_piece(3, 1, 4, codec=codec), [], []
    while not piece.is_sent:
        (part,) = filled([piece], ResponseBudget(records=budget, size_bytes=MANY)).partitions
        assert len(part.records) <= budget
        seen += [record.offset for record in part.records]
        ends.append(part.next_offset)
    assert seen == list(range(8))
    assert ends[-1] == 8
    assert ends == sorted(ends)


def test_reading_from_inside_a_batch_leaves_out_what_came_before() -> None:
    (part,) = filled([a_piece(3, 3, offset=4)], ResponseBudget(records=MANY, size_bytes=MANY)).partitions
    assert [record.offset for record in part.records] == [4, 5]


def test_a_message_ends_with_the_record_that_reaches_its_size() -> None:
    budget = ResponseBudget(records=MANY, size_bytes=25)
    (part,) = filled([a_piece(10)], budget).partitions
    assert len(part.records) == 3
    assert budget.size_bytes == -5


def test_a_piece_beyond_the_budget_waits() -> None:
    first, second = a_piece(2), a_piece(2)
    message = filled([first, second], ResponseBudget(records=2, size_bytes=MANY))
    assert len(message.partitions) == 1
    assert first.is_sent
    assert not second.is_sent


def test_a_batch_that_can_not_be_decoded_is_reported_and_nothing_more_of_the_piece_is_sent() -> None:
    piece = a_piece(2, 2, codec=Codec.ZSTD)
    damaged = bytearray(piece.batches[1])
    damaged[70:] = bytes(len(damaged) - 70)
    piece.batches[1] = memoryview(damaged)
    (part,) = filled([piece], ResponseBudget(records=MANY, size_bytes=MANY)).partitions
    assert [record.offset for record in part.records] == [0, 1]
    assert part.error.name == "CorruptBatch"
    assert part.error.message.endswith("to continue behind what can't be read, read from offset=4")
    assert (part.next_offset, piece.is_sent) == (2, True)


def test_batches_go_whole_and_the_last_one_may_go_beyond() -> None:
    piece, response = a_piece(2, 2, 2), pb.ConsumeBatchesResponse()
    budget = ResponseBudget(records=3, size_bytes=MANY)
    fill_batches(response, [piece], budget)
    assert (len(response.partitions[0].batches), response.partitions[0].next_offset, budget.records) == (2, 4, -1)
    assert b"".join(response.partitions[0].batches) == batches(2, 2)


def test_of_a_large_batch_no_more_is_open_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "DECODED_OBJECTS", 3)
    piece, seen = a_piece(10, 2, codec=Codec.LZ4), []
    while not piece.is_sent:
        (part,) = filled([piece], ResponseBudget(records=2, size_bytes=MANY)).partitions
        seen += [record.offset for record in part.records]
        assert len(piece.opened) < 3
    assert seen == list(range(12))
    assert piece.next_offset == 12


def test_a_message_has_no_more_records_and_headers_than_it_may_have() -> None:
    budget = ResponseBudget(records=MANY, size_bytes=MANY, objects=5)
    (part,) = filled([a_piece(10)], budget).partitions
    assert len(part.records) == 5
    assert budget.is_full


def test_a_batch_that_needs_more_memory_begins_the_next_message() -> None:
    piece = a_piece(2, 50, codec=Codec.ZSTD)
    small, enough = DecodeLimits(100, may_grow=True), DecodeLimits(LIMIT_BYTES, may_grow=True)
    response = pb.ConsumeResponse()
    fill_records(response, [piece], ResponseBudget(records=MANY, size_bytes=MANY), small)
    (part,) = response.partitions
    assert ([record.offset for record in part.records], part.next_offset, part.error.name) == ([0, 1], 2, "")
    with pytest.raises(BatchTooLarge):
        fill_records(pb.ConsumeResponse(), [piece], ResponseBudget(records=MANY, size_bytes=MANY), small)
    fill_records(response := pb.ConsumeResponse(), [piece], ResponseBudget(records=MANY, size_bytes=MANY), enough)
    assert [record.offset for record in response.partitions[0].records] == list(range(2, 52))
    hopeless = a_piece(50, codec=Codec.ZSTD)
    fill_records(
        response := pb.ConsumeResponse(), [hopeless], ResponseBudget(records=MANY, size_bytes=MANY), DecodeLimits(100)
    )
    assert response.partitions[0].error.name == "BatchTooLarge"
    assert hopeless.is_sent


# --- credit


@pytest.fixture
def subscription() -> Subscription:
    return Subscription(max_partitions=2, message_bytes=1000)


def test_without_grants_there_is_no_limit_but_a_messages_own(subscription: Subscription) -> None:
    subscription.subscribe(NAME, 5)
    assert subscription.positions == {NAME: 5}
    subscription.spent(records=10**6, size_bytes=10**9)
    assert subscription.has_credit
    assert subscription.budget().size_bytes == 1000


@pytest.mark.parametrize(("records", "size_bytes"), [(10, 0), (0, 10), (10, 10**6), (10**6, 10)])
def test_credit_of_either_kind_runs_out_and_can_be_granted_again(
    subscription: Subscription, records: int, size_bytes: int
) -> None:
    subscription.subscribe(NAME, 0)
    subscription.grant(records=records, size_bytes=size_bytes)
    subscription.changed.clear()
    subscription.spent(records=10, size_bytes=12)
    assert subscription.positions == {}
    subscription.grant(records=5, size_bytes=5)
    assert subscription.positions == {NAME: 0}
    assert subscription.changed.is_set()


def test_what_exceeded_the_credit_is_deducted_from_the_next_grant(subscription: Subscription) -> None:
    subscription.subscribe(NAME, 0)
    subscription.grant(records=0, size_bytes=10)
    subscription.spent(records=1, size_bytes=25)
    subscription.grant(records=0, size_bytes=15)
    assert subscription.positions == {}
    subscription.grant(records=0, size_bytes=1)
    assert subscription.positions == {NAME: 0}


def test_more_credit_while_there_is_some_changes_nothing(subscription: Subscription) -> None:
    subscription.grant(records=1, size_bytes=0)
    subscription.changed.clear()
    subscription.grant(records=1, size_bytes=0)
    assert not subscription.changed.is_set()


def test_partitions_take_turns(subscription: Subscription) -> None:
    subscription.subscribe(NAME, 0)
    subscription.subscribe(OTHER, 0)
    subscription.advance(NAME, 3)
    assert list(subscription.positions.items()) == [(OTHER, 0), (NAME, 3)]


def test_records_read_for_an_old_position_are_dropped(subscription: Subscription) -> None:
    subscription.subscribe(NAME, 0)
    subscription.subscribe(NAME, 7)
    assert not subscription.is_at(NAME, 0)
    assert subscription.is_at(NAME, 7)
    subscription.drop(NAME)
    subscription.advance(NAME, 9)
    assert subscription.positions == {}


def test_there_are_no_more_partitions_than_allowed(subscription: Subscription) -> None:
    subscription.subscribe(NAME, 0)
    subscription.subscribe(OTHER, 0)
    subscription.subscribe(NAME, 1)
    with pytest.raises(Rejected, match=r"limit=2 setting=grpc\.max_positions"):
        subscription.subscribe(TopicPartition("orders", 2), 0)


def test_a_stream_is_over_when_its_client_can_get_nothing_more(subscription: Subscription) -> None:
    subscription.subscribe(NAME, 0)
    assert not subscription.is_over
    subscription.end()
    assert not subscription.is_over
    subscription.drop(NAME)
    assert subscription.is_over


# --- a stream that meets a batch that can't be opened


class FakeReading:
    """Reads the same two partitions again and again; the second batch of the first one is damaged."""

    def __init__(self, damaged: bytes) -> None:
        self.settings = GrpcSettings()
        self.limit_bytes = LIMIT_BYTES
        self.reads = 0
        self._data = {NAME: damaged, OTHER: batches(2, 2)}

    async def read(self, positions: Mapping[TopicPartition, int], **_: object) -> list[FetchResult]:
        self.reads += 1
        await asyncio.sleep(0)
        if self.reads > 1000:
            raise AssertionError("reads without end")
        if not any(offset < 4 for offset in positions.values()):
            await asyncio.get_running_loop().create_future()
        return [
            FetchResult(
                name=name,
                high_watermark=4,
                log_start=0,
                records=[memoryview(self._data[name])[iter_batches(self._data[name])[offset // 2].position :]]
                if offset < 4
                else [],
            )
            for name, offset in positions.items()
        ]


async def made(pieces: Sequence[PartitionRecords], budget: ResponseBudget) -> bytes:
    return filled(list(pieces), budget).SerializeToString()


def cut_short(data: bytes) -> bytes:
    return data[:-5]


def with_damaged_batch(data: bytes) -> bytes:
    second = iter_batches(data)[1]
    return data[: second.position + 70] + bytes(len(data) - second.position - 70)


async def test_a_batch_that_can_not_be_decoded_is_reported_once_and_its_partition_is_dropped() -> None:
    reading = FakeReading(with_damaged_batch(batches(2, 2, codec=Codec.ZSTD)))
    sent: list[pb.ConsumeResponse] = []

    async def send(message: bytes) -> None:
        sent.append(pb.ConsumeResponse.FromString(message))

    stream = ConsumeStream(cast(FetchService, reading), ManualClock(), send, made, pb.ConsumeResponse)
    for name in (NAME, OTHER):
        stream._subscription.subscribe(name, 0)
    serving = asyncio.ensure_future(stream._serve())
    for _ in range(200):
        await asyncio.sleep(0)
    assert not serving.done()
    serving.cancel()
    parts = [part for message in sent for part in message.partitions]
    failed = [part for part in parts if part.error.name]
    assert [(part.partition, part.error.name, part.next_offset) for part in failed] == [(0, "CorruptBatch", 2)]
    assert {number: [r.offset for p in parts if p.partition == number for r in p.records] for number in (0, 1)} == {
        0: [0, 1],
        1: [0, 1, 2, 3],
    }
    assert stream._subscription.names() == [OTHER]


async def test_bytes_that_are_no_batches_are_reported_once_too() -> None:
    reading = FakeReading(batches(2, 2))
    whole = reading.read

    async def read(positions: Mapping[TopicPartition, int], **how: object) -> list[FetchResult]:
        return [
            replace(each, records=[cut_short(bytes(each.records[0]))]) if each.name == NAME and each.records else each
            for each in await whole(positions, **how)
        ]

    reading.read = read  # type: ignore[method-assign]
    sent: list[pb.ConsumeResponse] = []

    async def send(message: bytes) -> None:
        sent.append(pb.ConsumeResponse.FromString(message))

    stream = ConsumeStream(cast(FetchService, reading), ManualClock(), send, made, pb.ConsumeResponse)
    for name in (NAME, OTHER):
        stream._subscription.subscribe(name, 0)
    serving = asyncio.ensure_future(stream._serve())
    for _ in range(200):
        await asyncio.sleep(0)
    serving.cancel()
    failed = [part for message in sent for part in message.partitions if part.error.name]
    assert [(part.partition, part.error.name) for part in failed] == [(0, "CorruptBatch")]
    assert stream._subscription.names() == [OTHER]
