"""Any agent answers for any partition and any group: what belongs to others is forwarded, and stored once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from streamhouse.broker.groups import JoinRequest, MemberRef, OffsetToCommit, SyncRequest
from streamhouse.errors import (
    CorruptBatch,
    DamagedRecords,
    GroupNotFound,
    IdempotencyKeyReused,
    InvalidRecord,
    InvalidTimestamp,
    NonEmptyGroup,
    OffsetOutOfRange,
    RecordTooLarge,
    UnknownTopic,
)
from streamhouse.model.fetch import PartitionFetch
from streamhouse.model.group import OfferedProtocol
from streamhouse.model.names import TopicPartition
from streamhouse.model.record import Acks, NewRecord, Receipt
from tests.wire.kafka.cluster import MANY_BYTES, BrokerCluster, a_cluster, read_all, receipts, records_of
from tests.wire.kafka.talk import a_batch, until

PARTITIONS = 8
ALL = [TopicPartition("orders", number) for number in range(PARTITIONS)]
PATIENT_S = 30.0


@pytest.fixture
async def cluster() -> AsyncIterator[BrokerCluster]:
    async with a_cluster(3) as cluster:
        await cluster.topic("orders", PARTITIONS)
        yield cluster


def to_all(prefix: str, each: int = 1) -> list[NewRecord]:
    return [
        NewRecord(f"{prefix}-{number}-{turn}".encode(), partition=number)
        for turn in range(each)
        for number in range(PARTITIONS)
    ]


async def foreign(cluster: BrokerCluster) -> TopicPartition:
    """A partition that the first agent doesn't lead."""
    own = await cluster.led_by(cluster.members[0], "orders")
    return next(name for name in ALL if name not in own)


async def test_a_range_that_another_agent_can_not_read_is_named_by_every_agent(cluster: BrokerCluster) -> None:
    name = await foreign(cluster)
    await cluster.members[0].broker.records.publish(
        "orders", [NewRecord(b"x", partition=name.partition)], acks=Acks.STORED, timeout_s=PATIENT_S
    )
    async for meta in cluster.objects.list("segments/"):
        await cluster.objects.delete(meta.key)
    for member in cluster.members:
        request = PartitionFetch(name, 0, MANY_BYTES)
        (result,) = await member.broker.records.read([request], max_bytes=MANY_BYTES, min_bytes=0, max_wait_s=0)
        assert isinstance(result.error, DamagedRecords)
        assert f"partition={name} offsets=[0,1) key=segments/" in str(result.error)


# --- publishing


async def test_every_agent_publishes_to_every_partition_and_every_agent_reads_all_of_it(cluster: BrokerCluster) -> None:
    expected: Counter[bytes | None] = Counter()
    for turn, member in enumerate(cluster.members):
        records = to_all(f"agent{turn}", each=3)
        responses = await member.broker.records.publish("orders", records, acks=Acks.WAL, timeout_s=PATIENT_S)
        got = receipts(responses)
        assert [receipt.partition for receipt in got] == [record.partition for record in records]
        expected.update(record.value for record in records)
        stored = await read_all(member.broker, "orders", PARTITIONS)
        for record, receipt in zip(records, got, strict=True):
            assert receipt.offset is not None
            assert stored[TopicPartition("orders", receipt.partition)][receipt.offset] == record.value
    for member in cluster.members:
        result = await read_all(member.broker, "orders", PARTITIONS)
        assert Counter(value for values in result.values() for value in values.values()) == expected
    assert sum(member.peers.appends for member in cluster.members) > 0


async def test_a_response_that_is_lost_leads_to_a_second_try_and_not_to_a_second_record(cluster: BrokerCluster) -> None:
    member, name = cluster.members[0], await foreign(cluster)
    for turn in range(5):
        member.peers.to_lose = 2
        records = [NewRecord(b"%d-%d" % (turn, number), partition=name.partition) for number in range(3)]
        responses = await member.broker.records.publish("orders", records, acks=Acks.WAL, timeout_s=PATIENT_S)
        assert [receipt.offset for receipt in receipts(responses)] == [turn * 3 + number for number in range(3)]
    assert member.peers.appends == 15
    values = list((await read_all(member.broker, "orders", PARTITIONS))[name].values())
    assert values == [b"%d-%d" % (turn, number) for turn in range(5) for number in range(3)]


async def test_many_calls_at_once_to_one_foreign_partition_each_get_their_own_offset(cluster: BrokerCluster) -> None:
    member, name = cluster.members[0], await foreign(cluster)

    async def publish(number: int) -> tuple[int | None, bytes]:
        value = b"%d" % number
        record = NewRecord(value, partition=name.partition)
        (receipt,) = receipts(
            await member.broker.records.publish("orders", [record], acks=Acks.WAL, timeout_s=PATIENT_S)
        )
        return receipt.offset, value

    member.peers.to_lose = 20
    result = await asyncio.gather(*(publish(number) for number in range(200)))
    stored = (await read_all(member.broker, "orders", PARTITIONS))[name]
    assert dict(result) == stored
    assert sorted(stored) == list(range(200))


async def test_whole_batches_are_forwarded_in_order_and_once(cluster: BrokerCluster) -> None:
    member, name = cluster.members[0], await foreign(cluster)
    member.peers.to_lose = 1
    batches = [a_batch(b"a", b"b"), a_batch(b"c"), a_batch(b"d", b"e")]
    responses = await member.broker.records.publish_batches(
        name, [memoryview(bytes(each)) for each in batches], acks=Acks.WAL, timeout_s=PATIENT_S
    )
    assert [receipt.offset for receipt in receipts(responses)] == [0, 2, 3]
    assert list((await read_all(member.broker, "orders", PARTITIONS))[name].values()) == [b"a", b"b", b"c", b"d", b"e"]


async def test_many_batches_of_one_call_are_in_flight_together_and_keep_their_order(cluster: BrokerCluster) -> None:
    member, name = cluster.members[0], await foreign(cluster)
    records = member.broker.records
    turns, each = 4, 12
    for turn in range(turns):
        member.peers.to_lose = turn * 3
        batches = [memoryview(bytes(a_batch(b"%d-%d" % (turn, number), b"and"))) for number in range(each)]
        responses = await records.publish_batches(name, batches, acks=Acks.WAL, timeout_s=PATIENT_S)
        base = turn * each * 2
        assert [receipt.offset for receipt in receipts(responses)] == [base + 2 * number for number in range(each)]
    values = [
        value for value in (await read_all(member.broker, "orders", PARTITIONS))[name].values() if value != b"and"
    ]
    assert values == [b"%d-%d" % (turn, number) for turn in range(turns) for number in range(each)]


@pytest.mark.parametrize("losses", [0, 2])
async def test_a_batch_that_is_refused_in_the_middle_of_others_holds_none_of_them_up(
    cluster: BrokerCluster, losses: int
) -> None:
    member, name = cluster.members[0], await foreign(cluster)
    records = member.broker.records
    await records.publish_batches(name, [memoryview(a_batch(b"first"))], acks=Acks.WAL, timeout_s=PATIENT_S)
    batches = [bytearray(a_batch(b"%d" % number)) for number in range(9)]
    batches[3][-1] ^= 1
    batches[7] = bytearray(a_batch(b"far ahead", timestamp_ms=2**52))
    member.peers.to_lose = losses
    responses = await records.publish_batches(
        name, [memoryview(each) for each in batches], acks=Acks.WAL, timeout_s=PATIENT_S
    )
    assert isinstance(responses.pop(7), InvalidTimestamp)
    assert isinstance(responses.pop(3), CorruptBatch)
    assert [receipt.offset for receipt in receipts(responses)] == [1, 2, 3, 4, 5, 6, 7]
    stored = (await read_all(member.broker, "orders", PARTITIONS))[name]
    assert list(stored.values()) == [b"first", b"0", b"1", b"2", b"4", b"5", b"6", b"8"]


async def test_records_that_need_many_batches_at_another_agent_are_in_order_without_those_that_are_refused(
    cluster: BrokerCluster,
) -> None:
    await cluster.topic("strict", PARTITIONS, **{"cleanup.policy": "compact", "max.message.bytes": "300"})
    member = cluster.members[0]
    for name in [each for each in (TopicPartition("strict", n) for n in range(4)) if not member.leads(each)]:
        records = [
            NewRecord(b"%d" % number, key=None if number % 50 == 7 else b"%d" % number, partition=name.partition)
            for number in range(200)
        ]
        member.peers.to_lose = 3
        responses = await member.broker.records.publish("strict", records, acks=Acks.WAL, timeout_s=PATIENT_S)
        refused = [number for number, response in enumerate(responses) if isinstance(response, InvalidRecord)]
        assert refused == [7, 57, 107, 157]
        kept = [
            (record, response) for record, response in zip(records, responses, strict=True) if record.key is not None
        ]
        stored = (await read_all(member.broker, "strict", PARTITIONS))[name]
        assert list(stored.values()) == [record.value for record, _ in kept]
        assert [response.offset for _, response in kept if isinstance(response, Receipt)] == list(stored)


async def test_a_refusal_of_another_agent_is_the_same_error_for_the_same_record(cluster: BrokerCluster) -> None:
    await cluster.topic("strict", PARTITIONS, **{"cleanup.policy": "compact", "max.message.bytes": "300"})
    for member in cluster.members:
        for number in range(PARTITIONS):
            records = [
                NewRecord(b"a", key=b"k", partition=number),
                NewRecord(b"b", partition=number),
                NewRecord(bytes(range(256)) * 2, key=b"k", partition=number),
                NewRecord(b"c", key=b"l", partition=number),
            ]
            responses = await member.broker.records.publish("strict", records, acks=Acks.WAL, timeout_s=PATIENT_S)
            kinds = [Receipt, InvalidRecord, RecordTooLarge, Receipt]
            assert [type(response) for response in responses] == kinds, responses


async def test_a_topic_made_at_one_agent_can_be_written_at_once_through_another(cluster: BrokerCluster) -> None:
    for member in cluster.members:
        name = f"fresh-{member.address.port}"
        responses = await member.broker.records.publish(name, [NewRecord(b"a")], acks=Acks.WAL, timeout_s=PATIENT_S)
        assert [receipt.offset for receipt in receipts(responses)] == [0]


async def test_buffered_is_answered_without_an_offset_where_another_agent_leads_and_arrives(
    cluster: BrokerCluster,
) -> None:
    member, name = cluster.members[0], await foreign(cluster)
    record = NewRecord(b"a", partition=name.partition)
    responses = await member.broker.records.publish("orders", [record], acks=Acks.BUFFERED, timeout_s=PATIENT_S)
    assert [receipt.offset for receipt in receipts(responses)] == [None]
    requests = [PartitionFetch(name, 0, MANY_BYTES)]
    (got,) = await member.broker.records.read(requests, max_bytes=MANY_BYTES, min_bytes=1, max_wait_s=PATIENT_S)
    assert [each.value for each in records_of(got.records)] == [b"a"]
    assert member.broker.records.buffered_acks.lost_records == 0


async def test_stored_at_another_agent_is_flushed_soon_and_looked_for_once_for_all_who_wait(
    cluster: BrokerCluster,
) -> None:
    member, name = cluster.members[0], await foreign(cluster)
    before = member.broker.records.stored.looks

    async def publish(number: int) -> int:
        record = NewRecord(b"%d" % number, partition=name.partition)
        responses = await member.broker.records.publish("orders", [record], acks=Acks.STORED, timeout_s=PATIENT_S)
        (receipt,) = receipts(responses)
        assert receipt.offset is not None
        return receipt.offset

    offsets = await asyncio.gather(*(publish(number) for number in range(100)))
    topic = await member.broker.topic("orders")
    states = {state.partition.partition: state for state in await cluster.metadata.partitions([topic.topic_id])}
    assert states[name.partition].flushed_end > max(offsets)
    assert member.broker.records.stored.looks - before < 100


# --- idempotency keys


async def test_a_key_is_the_same_key_at_every_agent(cluster: BrokerCluster) -> None:
    records = to_all("once", each=2)
    responses = [
        [
            receipt[:2]
            for receipt in receipts(
                await member.broker.records.publish(
                    "orders", records, acks=Acks.WAL, idempotency_key="payment-7", timeout_s=PATIENT_S
                )
            )
        ]
        for member in cluster.members
    ]
    assert responses[0] == responses[1] == responses[2]
    result = await read_all(cluster.members[0].broker, "orders", PARTITIONS)
    assert sum(len(values) for values in result.values()) == len(records)
    for member in cluster.members:
        answers = await member.broker.records.publish(
            "orders", to_all("other", each=2), acks=Acks.WAL, idempotency_key="payment-7", timeout_s=PATIENT_S
        )
        assert all(isinstance(response, IdempotencyKeyReused) for response in answers), answers


# --- reading


async def test_a_read_wakes_for_a_record_in_any_partition_wherever_it_is_led(cluster: BrokerCluster) -> None:
    reader = cluster.members[0].broker.records
    offsets = dict.fromkeys(ALL, 0)
    for name in ALL:
        requests = [PartitionFetch(each, offsets[each], MANY_BYTES) for each in ALL]
        reading = asyncio.ensure_future(reader.read(requests, max_bytes=MANY_BYTES, min_bytes=1, max_wait_s=PATIENT_S))
        record = NewRecord(str(name).encode(), partition=name.partition)
        await cluster.members[1].broker.records.publish("orders", [record], acks=Acks.WAL, timeout_s=PATIENT_S)
        result = await reading
        assert [got.name for got in result] == ALL
        assert [(got.name, [r.value for r in records_of(got.records)]) for got in result if got.records] == [
            (name, [str(name).encode()])
        ]
        offsets[name] += 1


async def test_a_read_that_is_given_up_leaves_nothing_running(cluster: BrokerCluster) -> None:
    member = cluster.members[0]
    await read_all(member.broker, "orders", PARTITIONS)
    before = {task.get_name() for task in asyncio.all_tasks() if not task.get_name().startswith("kafka-")}
    requests = [PartitionFetch(name, 0, MANY_BYTES) for name in ALL]
    reading = asyncio.ensure_future(
        member.broker.records.read(requests, max_bytes=MANY_BYTES, min_bytes=1, max_wait_s=PATIENT_S)
    )
    polls = [each.server for each in cluster.members[1:]]
    await until(
        lambda: all(
            any(connection.has_pending_responses or connection.tasks for connection in each.connections)
            for each in polls
        )
    )
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await until(lambda: not any(connection.tasks for each in polls for connection in each.connections))
    after = {task.get_name() for task in asyncio.all_tasks() if not task.get_name().startswith("kafka-")}
    assert "read" not in after - before


async def test_an_offset_that_is_not_there_is_reported_by_every_agent(cluster: BrokerCluster) -> None:
    for member in cluster.members:
        for name in (ALL[0], ALL[1], ALL[2]):
            requests = [PartitionFetch(name, 77, MANY_BYTES)]
            (got,) = await member.broker.records.read(requests, max_bytes=1000, min_bytes=1, max_wait_s=PATIENT_S)
            assert isinstance(got.error, OffsetOutOfRange)
        with pytest.raises(UnknownTopic):
            await member.broker.records.latest(TopicPartition("orders", PARTITIONS))


async def test_limits_hold_for_the_whole_response(cluster: BrokerCluster) -> None:
    member = cluster.members[0]
    records = [NewRecord(b"x" * 1000, partition=number) for number in range(PARTITIONS)]
    await member.broker.records.publish("orders", records, acks=Acks.WAL, timeout_s=PATIENT_S)
    requests = [PartitionFetch(name, 0, MANY_BYTES) for name in ALL]
    for limit, most in ((1, 1), (3000, 2), (MANY_BYTES, PARTITIONS)):
        result = await member.broker.records.read(requests, max_bytes=limit, min_bytes=1, max_wait_s=PATIENT_S)
        assert 1 <= sum(bool(got.records) for got in result) <= most
        assert limit == 1 or sum(got.size_bytes for got in result) <= limit


async def test_ends_and_times_are_reported_by_any_agent(cluster: BrokerCluster) -> None:
    start_ms = 1_700_000_000_000
    records = [
        NewRecord(b"a", timestamp_ms=start_ms + turn, partition=number)
        for turn in range(3)
        for number in range(PARTITIONS)
    ]
    await cluster.members[0].broker.records.publish("orders", records, acks=Acks.WAL, timeout_s=PATIENT_S)
    for member in cluster.members:
        for name in ALL:
            assert (await member.broker.records.earliest(name)).offset == 0
            assert (await member.broker.records.latest(name)).offset == 3
            result = await member.broker.records.at_time(name, start_ms + 1)
            assert result is not None
            assert (result.offset, result.timestamp_ms) == (1, start_ms + 1)
            assert await member.broker.records.at_time(name, start_ms + 3) is None


# --- groups


async def test_groups_are_listed_described_moved_and_deleted_at_any_agent(cluster: BrokerCluster) -> None:
    groups = [f"group-{number}" for number in range(12)]
    for number, group in enumerate(groups):
        request = cluster.members[number % 3].broker.records
        result = await request.commit(group, {ALL[0]: OffsetToCommit(offset=number, metadata="here")})
        assert result == {ALL[0]: None}
    for member in cluster.members:
        records = member.broker.records
        assert [group.group_id for group in await records.groups()] == sorted(groups)
        for number, group in enumerate(groups):
            committed = await records.committed(group)
            assert {name: (at.offset, at.metadata) for name, at in committed.items()} == {ALL[0]: (number, "here")}
            assert (await records.describe_group(group)).state == "Empty"
    for number, group in enumerate(groups):
        await cluster.members[(number + 1) % 3].broker.records.delete_group(group)
    for member in cluster.members:
        assert await member.broker.records.groups() == []
        for call in (member.broker.records.committed, member.broker.records.describe_group):
            with pytest.raises(GroupNotFound):
                await call(groups[0])


async def test_a_group_with_members_is_not_moved_or_deleted_from_outside(cluster: BrokerCluster) -> None:
    group = "busy"
    session = await cluster.members[0].broker.groups.coordinator_of(group)
    coordinator = next(each for each in cluster.members if each.address == session.kafka)
    join = JoinRequest(
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=(OfferedProtocol("range", b""),),
        learns_id=False,
    )
    joined = await coordinator.broker.groups.join(group, join)
    await coordinator.broker.groups.sync(
        group,
        SyncRequest(member_id=joined.member_id, generation=joined.generation, assignments={joined.member_id: b""}),
    )
    await coordinator.broker.groups.heartbeat(
        group, MemberRef(member_id=joined.member_id, generation=joined.generation)
    )
    for member in cluster.members:
        records = member.broker.records
        described = await records.describe_group(group)
        assert (described.state, [each.member_id for each in described.members]) == ("Stable", [joined.member_id])
        with pytest.raises(NonEmptyGroup):
            await records.commit(group, {ALL[0]: OffsetToCommit(offset=1)})
        with pytest.raises(NonEmptyGroup):
            await records.delete_group(group)


async def test_a_group_commits_what_it_can_and_says_what_it_cannot(cluster: BrokerCluster) -> None:
    nowhere = TopicPartition("nowhere", 0)
    for member in cluster.members:
        offsets = {ALL[0]: OffsetToCommit(offset=1), nowhere: OffsetToCommit(offset=1)}
        result = await member.broker.records.commit("mixed", offsets)
        assert result[ALL[0]] is None
        assert result[nowhere] is not None
