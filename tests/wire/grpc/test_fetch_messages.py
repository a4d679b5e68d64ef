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
    ResponseRoom,
    fill_batches,
    fill_records,
    partition_records,
    while_room,
)
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb
from tests.contracts.clocks import ManualClock

NAME, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
MANY = 10**9
LIMIT_BYTES = 10**6


def batches(*sizes: int, codec: Codec = Codec.NONE) -> bytes:
    """Consecutive batches with so many records of ten bytes each."""
    found, offset = bytearray(), 0
    for size in sizes:
        batch = encode_batch([NewRecord(b"%010d" % (offset + n)) for n in range(size)], codec=codec, now_ms=1)
        assign_offset(batch, base_offset=offset, leader_epoch=1)
        found += batch
        offset += size
    return bytes(found)


def a_piece(*sizes: int, offset: int = 0, codec: Codec = Codec.NONE) -> PartitionRecords:
    end = sum(sizes)
    found = FetchResult(name=NAME, high_watermark=end, log_start=0, records=[batches(*sizes, codec=codec)])
    return partition_records(found, offset)


def filled(pieces: "deque[PartitionRecords] | list[PartitionRecords]", room: ResponseRoom) -> pb.ConsumeResponse:
    response = pb.ConsumeResponse()
    fill_records(response, while_room(pieces, room), room, DecodeLimits(LIMIT_BYTES))
    return response


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("room", [1, 2, 3, 7, 100])
def test_messages_of_any_size_bring_every_record_once_in_order(room: int, codec: Codec) -> None:
    piece, seen, ends = a_piece(3, 1, 4, codec=codec), [], []
    while not piece.is_sent:
        (part,) = filled([piece], ResponseRoom(records=room, size_bytes=MANY)).partitions
        assert len(part.records) <= room
        seen += [record.offset for record in part.records]
        ends.append(part.next_offset)
    assert seen == list(range(8))
    assert ends[-1] == 8
    assert ends == sorted(ends)


def test_reading_from_inside_a_batch_leaves_out_what_came_before() -> None:
    (part,) = filled([a_piece(3, 3, offset=4)], ResponseRoom(records=MANY, size_bytes=MANY)).partitions
    assert [record.offset for record in part.records] == [4, 5]


def test_a_message_ends_with_the_record_that_reaches_its_size() -> None:
    room = ResponseRoom(records=MANY, size_bytes=25)
    (part,) = filled([a_piece(10)], room).partitions
    assert len(part.records) == 3
    assert room.size_bytes == -5


def test_a_piece_for_which_there_is_no_room_waits() -> None:
    first, second = a_piece(2), a_piece(2)
    message = filled([first, second], ResponseRoom(records=2, size_bytes=MANY))
    assert len(message.partitions) == 1
    assert first.is_sent
    assert not second.is_sent


def test_a_batch_that_can_not_be_opened_is_told_and_nothing_more_of_the_piece_is_sent() -> None:
    piece = a_piece(2, 2, codec=Codec.ZSTD)
    damaged = bytearray(piece.batches[1])
    damaged[70:] = bytes(len(damaged) - 70)
    piece.batches[1] = memoryview(damaged)
    (part,) = filled([piece], ResponseRoom(records=MANY, size_bytes=MANY)).partitions
    assert [record.offset for record in part.records] == [0, 1]
    assert part.error.name == "CorruptBatch"
    assert part.error.message.endswith("to go on behind what can't be read, read from offset=4")
    assert (part.next_offset, piece.is_sent) == (2, True)


def test_batches_go_whole_and_the_last_one_may_go_beyond() -> None:
    piece, response = a_piece(2, 2, 2), pb.ConsumeBatchesResponse()
    room = ResponseRoom(records=3, size_bytes=MANY)
    fill_batches(response, [piece], room)
    assert (len(response.partitions[0].batches), response.partitions[0].next_offset, room.records) == (2, 4, -1)
    assert b"".join(response.partitions[0].batches) == batches(2, 2)


def test_of_a_large_batch_no_more_is_open_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "DECODED_OBJECTS", 3)
    piece, seen = a_piece(10, 2, codec=Codec.LZ4), []
    while not piece.is_sent:
        (part,) = filled([piece], ResponseRoom(records=2, size_bytes=MANY)).partitions
        seen += [record.offset for record in part.records]
        assert len(piece.opened) < 3
    assert seen == list(range(12))
    assert piece.next_offset == 12


def test_a_message_has_no_more_records_and_headers_than_it_may_have() -> None:
    room = ResponseRoom(records=MANY, size_bytes=MANY, objects=5)
    (part,) = filled([a_piece(10)], room).partitions
    assert len(part.records) == 5
    assert room.is_full


def test_a_batch_that_needs_more_memory_begins_the_next_message() -> None:
    piece = a_piece(2, 50, codec=Codec.ZSTD)
    small, enough = DecodeLimits(100, may_grow=True), DecodeLimits(LIMIT_BYTES, may_grow=True)
    response = pb.ConsumeResponse()
    fill_records(response, [piece], ResponseRoom(records=MANY, size_bytes=MANY), small)
    (part,) = response.partitions
    assert ([record.offset for record in part.records], part.next_offset, part.error.name) == ([0, 1], 2, "")
    with pytest.raises(BatchTooLarge):
        fill_records(pb.ConsumeResponse(), [piece], ResponseRoom(records=MANY, size_bytes=MANY), small)
    fill_records(response := pb.ConsumeResponse(), [piece], ResponseRoom(records=MANY, size_bytes=MANY), enough)
    assert [record.offset for record in response.partitions[0].records] == list(range(2, 52))
    hopeless = a_piece(50, codec=Codec.ZSTD)
    fill_records(
        response := pb.ConsumeResponse(), [hopeless], ResponseRoom(records=MANY, size_bytes=MANY), DecodeLimits(100)
    )
    assert response.partitions[0].error.name == "BatchTooLarge"
    assert hopeless.is_sent


# --- credit


@pytest.fixture
def wishes() -> Subscription:
    return Subscription(max_partitions=2, message_bytes=1000)


def test_without_grants_there_is_no_limit_but_a_messages_own(wishes: Subscription) -> None:
    wishes.subscribe(NAME, 5)
    assert wishes.wants == {NAME: 5}
    wishes.spent(records=10**6, size_bytes=10**9)
    assert wishes.has_credit
    assert wishes.room().size_bytes == 1000


@pytest.mark.parametrize(("records", "size_bytes"), [(10, 0), (0, 10), (10, 10**6), (10**6, 10)])
def test_credit_of_either_kind_runs_out_and_can_be_granted_again(
    wishes: Subscription, records: int, size_bytes: int
) -> None:
    wishes.subscribe(NAME, 0)
    wishes.grant(records=records, size_bytes=size_bytes)
    wishes.changed.clear()
    wishes.spent(records=10, size_bytes=12)
    assert wishes.wants == {}
    wishes.grant(records=5, size_bytes=5)
    assert wishes.wants == {NAME: 0}
    assert wishes.changed.is_set()


def test_what_went_beyond_the_credit_is_owed(wishes: Subscription) -> None:
    wishes.subscribe(NAME, 0)
    wishes.grant(records=0, size_bytes=10)
    wishes.spent(records=1, size_bytes=25)
    wishes.grant(records=0, size_bytes=15)
    assert wishes.wants == {}
    wishes.grant(records=0, size_bytes=1)
    assert wishes.wants == {NAME: 0}


def test_more_credit_while_there_is_some_disturbs_nobody(wishes: Subscription) -> None:
    wishes.grant(records=1, size_bytes=0)
    wishes.changed.clear()
    wishes.grant(records=1, size_bytes=0)
    assert not wishes.changed.is_set()


def test_partitions_take_turns(wishes: Subscription) -> None:
    wishes.subscribe(NAME, 0)
    wishes.subscribe(OTHER, 0)
    wishes.moved(NAME, 3)
    assert list(wishes.wants.items()) == [(OTHER, 0), (NAME, 3)]


def test_what_was_read_for_another_position_is_not_wanted_any_more(wishes: Subscription) -> None:
    wishes.subscribe(NAME, 0)
    wishes.subscribe(NAME, 7)
    assert not wishes.is_at(NAME, 0)
    assert wishes.is_at(NAME, 7)
    wishes.drop(NAME)
    wishes.moved(NAME, 9)
    assert wishes.wants == {}


def test_there_are_no_more_partitions_than_allowed(wishes: Subscription) -> None:
    wishes.subscribe(NAME, 0)
    wishes.subscribe(OTHER, 0)
    wishes.subscribe(NAME, 1)
    with pytest.raises(Rejected, match=r"limit=2 setting=grpc\.max_positions"):
        wishes.subscribe(TopicPartition("orders", 2), 0)


def test_a_stream_is_over_when_its_client_can_get_nothing_more(wishes: Subscription) -> None:
    wishes.subscribe(NAME, 0)
    assert not wishes.is_over
    wishes.end()
    assert not wishes.is_over
    wishes.drop(NAME)
    assert wishes.is_over


# --- a stream that meets a batch that can't be opened


class FakeReading:
    """Reads the same two partitions again and again; the second batch of the first one is damaged."""

    def __init__(self, damaged: bytes) -> None:
        self.settings = GrpcSettings()
        self.limit_bytes = LIMIT_BYTES
        self.reads = 0
        self._data = {NAME: damaged, OTHER: batches(2, 2)}

    async def read(self, wants: Mapping[TopicPartition, int], **_: object) -> list[FetchResult]:
        self.reads += 1
        await asyncio.sleep(0)
        if self.reads > 1000:
            raise AssertionError("reads without end")
        if not any(offset < 4 for offset in wants.values()):
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
            for name, offset in wants.items()
        ]


async def made(pieces: Sequence[PartitionRecords], room: ResponseRoom) -> bytes:
    return filled(list(pieces), room).SerializeToString()


def cut_short(data: bytes) -> bytes:
    return data[:-5]


def with_damaged_batch(data: bytes) -> bytes:
    second = iter_batches(data)[1]
    return data[: second.position + 70] + bytes(len(data) - second.position - 70)


async def test_a_batch_that_can_not_be_opened_is_told_once_and_its_partition_is_dropped() -> None:
    reading = FakeReading(with_damaged_batch(batches(2, 2, codec=Codec.ZSTD)))
    sent: list[pb.ConsumeResponse] = []

    async def send(message: bytes) -> None:
        sent.append(pb.ConsumeResponse.FromString(message))

    stream = ConsumeStream(cast(FetchService, reading), ManualClock(), send, made, pb.ConsumeResponse)
    for name in (NAME, OTHER):
        stream._wishes.subscribe(name, 0)
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
    assert stream._wishes.names() == [OTHER]


async def test_bytes_that_are_no_batches_are_told_once_too() -> None:
    reading = FakeReading(batches(2, 2))
    whole = reading.read

    async def read(wants: Mapping[TopicPartition, int], **how: object) -> list[FetchResult]:
        return [
            replace(each, records=[cut_short(bytes(each.records[0]))]) if each.name == NAME and each.records else each
            for each in await whole(wants, **how)
        ]

    reading.read = read  # type: ignore[method-assign]
    sent: list[pb.ConsumeResponse] = []

    async def send(message: bytes) -> None:
        sent.append(pb.ConsumeResponse.FromString(message))

    stream = ConsumeStream(cast(FetchService, reading), ManualClock(), send, made, pb.ConsumeResponse)
    for name in (NAME, OTHER):
        stream._wishes.subscribe(name, 0)
    serving = asyncio.ensure_future(stream._serve())
    for _ in range(200):
        await asyncio.sleep(0)
    serving.cancel()
    failed = [part for message in sent for part in message.partitions if part.error.name]
    assert [(part.partition, part.error.name) for part in failed] == [(0, "CorruptBatch")]
    assert stream._wishes.names() == [OTHER]
