"""Leaders die, leave and arrive while others publish and read through them: a pause for the caller, and no error."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from streamhouse.errors import StreamhouseError, Unavailable
from streamhouse.model.fetch import PartitionFetch
from streamhouse.model.names import TopicPartition
from streamhouse.model.record import Acks, NewRecord, Receipt
from tests.wire.kafka.cluster import MANY_BYTES, BrokerCluster, a_cluster, read_all, receipts, records_of
from tests.wire.kafka.talk import a_batch

PARTITIONS = 6
ALL = [TopicPartition("orders", number) for number in range(PARTITIONS)]
PATIENT_S = 60.0
PUBLISHERS = 8
BEFORE, AFTER = 15, 15


@pytest.fixture
async def cluster() -> AsyncIterator[BrokerCluster]:
    async with a_cluster(3) as cluster:
        await cluster.topic("orders", PARTITIONS)
        yield cluster


async def kill(cluster: BrokerCluster) -> None:
    await cluster.members[1].kill()


async def leave(cluster: BrokerCluster) -> None:
    await cluster.members[1].stop()


async def die_and_leave(cluster: BrokerCluster) -> None:
    await cluster.members[1].kill()
    await cluster.members[2].stop()


Told = list[tuple[NewRecord, Receipt | StreamhouseError]]


async def publish_around(
    cluster: BrokerCluster,
    event: Callable[[BrokerCluster], Awaitable[None]],
    *,
    acks: Acks = Acks.WAL,
    keyed: bool = False,
) -> Told:
    """Publish through the first agent before, while and after it happens."""
    results: Told = []
    under_way = asyncio.Event()

    async def publisher(number: int) -> None:
        for turn in range(BEFORE + AFTER):
            records = [NewRecord(b"%d/%d/%d" % (number, turn, each), partition=each) for each in range(PARTITIONS)]
            responses = await cluster.members[0].broker.records.publish(
                "orders",
                records,
                acks=acks,
                idempotency_key=f"{number}/{turn}" if keyed else None,
                timeout_s=PATIENT_S,
            )
            results.extend(zip(records, responses, strict=True))
            if len(results) >= PUBLISHERS * BEFORE * PARTITIONS:
                under_way.set()

    async with asyncio.TaskGroup() as work:
        for number in range(PUBLISHERS):
            work.create_task(publisher(number))
        await under_way.wait()
        await event(cluster)
    return results


async def check_once(cluster: BrokerCluster, reported: Told) -> None:
    """Every receipt's record is at its offset, and nothing is stored twice."""
    result = await read_all(cluster.members[0].broker, "orders", PARTITIONS)
    for record, response in reported:
        if isinstance(response, Receipt):
            assert response.offset is not None
            assert result[TopicPartition("orders", response.partition)][response.offset] == record.value
    counted = Counter(value for values in result.values() for value in values.values())
    assert {value: count for value, count in counted.items() if count > 1} == {}
    assert set(counted) <= {record.value for record, _ in reported}


@pytest.mark.parametrize("event", [kill, leave, die_and_leave])
async def test_what_is_published_through_a_leader_that_goes_is_stored_once_and_no_client_sees_an_error(
    cluster: BrokerCluster, event: Callable[[BrokerCluster], Awaitable[None]]
) -> None:
    assert await cluster.led_by(cluster.members[1], "orders"), "nobody to lose"
    result = await publish_around(cluster, event)
    assert [response for _, response in result if not isinstance(response, Receipt)] == []
    assert len(result) == PUBLISHERS * (BEFORE + AFTER) * PARTITIONS
    await check_once(cluster, result)
    assert cluster.members[0].peers.appends > 0


async def test_whole_batches_in_flight_to_a_leader_that_dies_are_stored_once_and_in_order(
    cluster: BrokerCluster,
) -> None:
    results: Told = []
    turns, each = 30, 7

    async def publisher(name: TopicPartition) -> None:
        for turn in range(turns):
            values = [b"%d/%d/%d" % (name.partition, turn, number) for number in range(each)]
            batches = [memoryview(bytes(a_batch(value))) for value in values]
            responses = await cluster.members[0].broker.records.publish_batches(
                name, batches, acks=Acks.WAL, timeout_s=PATIENT_S
            )
            results.extend((NewRecord(value), response) for value, response in zip(values, responses, strict=True))
            if turn == turns // 3:
                under_way.set()

    under_way = asyncio.Event()
    async with asyncio.TaskGroup() as work:
        for name in ALL:
            work.create_task(publisher(name))
        await under_way.wait()
        await kill(cluster)
    await check_once(cluster, results)
    result = await read_all(cluster.members[0].broker, "orders", PARTITIONS)
    for name in await cluster.led_by(cluster.members[2], "orders"):
        expected = [b"%d/%d/%d" % (name.partition, t, n) for t in range(turns) for n in range(each)]
        assert list(result[name].values()) == expected
    errors = [response for _, response in results if not isinstance(response, Receipt)]
    assert errors == []


async def test_responses_lost_on_top_of_a_dead_leader_store_nothing_twice(cluster: BrokerCluster) -> None:
    cluster.members[0].peers.to_lose = 100
    result = await publish_around(cluster, kill)
    assert [response for _, response in result if not isinstance(response, Receipt)] == []
    assert cluster.members[0].peers.to_lose == 0
    await check_once(cluster, result)


async def test_a_key_is_recognised_by_whichever_agent_leads_after_its_leader_died(cluster: BrokerCluster) -> None:
    result = await publish_around(cluster, kill, keyed=True)
    await check_once(cluster, result)
    again = cluster.members[2].broker.records
    for number in range(PUBLISHERS):
        for turn in range(BEFORE + AFTER):
            records = [NewRecord(b"%d/%d/%d" % (number, turn, each), partition=each) for each in range(PARTITIONS)]
            before = {record.value: response for record, response in result}
            responses = receipts(
                await again.publish(
                    "orders", records, acks=Acks.WAL, idempotency_key=f"{number}/{turn}", timeout_s=PATIENT_S
                )
            )
            expected = receipts([before[record.value] for record in records])
            assert [response[:2] for response in responses] == [response[:2] for response in expected]
    await check_once(cluster, result)


async def test_stored_holds_after_the_leader_died_while_it_was_waited_for(cluster: BrokerCluster) -> None:
    result = await publish_around(cluster, kill, acks=Acks.STORED)
    assert [response for _, response in result if not isinstance(response, Receipt)] == []
    await check_once(cluster, result)
    topic = await cluster.members[0].broker.topic("orders")
    flushed = {
        each.partition.partition: each.flushed_end for each in await cluster.metadata.partitions([topic.topic_id])
    }
    for _, response in result:
        assert isinstance(response, Receipt)
        assert response.offset is not None
        assert response.offset < flushed[response.partition]


@pytest.mark.parametrize("event", [kill, leave])
async def test_readers_go_on_with_the_next_leader_and_miss_nothing(
    cluster: BrokerCluster, event: Callable[[BrokerCluster], Awaitable[None]]
) -> None:
    total = PUBLISHERS * (BEFORE + AFTER) * PARTITIONS
    seen: list[tuple[TopicPartition, int, bytes | None]] = []

    async def reader() -> None:
        offsets = dict.fromkeys(ALL, 0)
        while len(seen) < total:
            requests = [PartitionFetch(name, offsets[name], MANY_BYTES) for name in ALL]
            actual = await cluster.members[2].broker.records.read(
                requests, max_bytes=MANY_BYTES, min_bytes=1, max_wait_s=PATIENT_S
            )
            for got in actual:
                assert got.error is None, got
                for record in records_of(got.records):
                    if record.offset >= offsets[got.name]:
                        seen.append((got.name, record.offset, record.value))
                        offsets[got.name] = record.offset + 1

    reading = asyncio.create_task(reader())
    result = await publish_around(cluster, event)
    await asyncio.wait_for(reading, PATIENT_S)
    assert Counter(value for _, _, value in seen) == Counter(record.value for record, _ in result)


async def test_a_deadline_that_ends_before_the_next_leader_is_there_is_an_error_that_says_so(
    cluster: BrokerCluster,
) -> None:
    lost = (await cluster.led_by(cluster.members[1], "orders"))[0]
    await cluster.members[1].kill()
    record = NewRecord(b"late", partition=lost.partition)
    (response,) = await cluster.members[0].broker.records.publish("orders", [record], acks=Acks.WAL, timeout_s=0.2)
    assert isinstance(response, Unavailable)


async def test_offsets_and_groups_are_served_by_the_agent_that_has_them_after_an_agent_died(
    cluster: BrokerCluster,
) -> None:
    records = cluster.members[0].broker.records
    await records.publish(
        "orders", [NewRecord(b"a", partition=each) for each in range(PARTITIONS)], acks=Acks.WAL, timeout_s=PATIENT_S
    )
    await cluster.members[1].kill()
    assert [(await records.latest(name)).offset for name in ALL] == [1] * PARTITIONS
    assert await records.groups() == []
