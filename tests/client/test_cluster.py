"""Clients of a cluster whose agents die and come: they pause, and lose, double and mix up nothing."""

import asyncio

import pytest

from streamhouse.client.consumer import Consumer
from streamhouse.client.kafka_admin import Admin
from streamhouse.client.producer import Producer, ProducerSettings
from streamhouse.client.reader import ReadRange, RecordReader
from tests.wire.kafka.cluster import BrokerCluster, a_cluster

TOPIC, PARTITIONS, RECORDS = "orders", 6, 1_500


async def everything(bootstrap: str) -> dict[int, list[int]]:
    async with Admin(bootstrap) as admin:

        async def administrator() -> Admin:
            return admin

        reading = RecordReader(
            administrator, lambda starts: Consumer(bootstrap, TOPIC, starts=starts), TOPIC, ReadRange(until="end")
        )
        results: dict[int, list[int]] = {}
        async for record in reading:
            results.setdefault(record.partition, []).append(int(record.value))
        return results


def addresses(cluster: BrokerCluster) -> str:
    return ",".join(f"{member.address.host}:{member.address.port}" for member in cluster.members)


@pytest.mark.parametrize("ending", ["kill", "stop"])
async def test_a_producer_goes_on_when_an_agent_ends(ending: str) -> None:
    async with a_cluster(3) as cluster:
        await cluster.topic(TOPIC, PARTITIONS)
        settings = ProducerSettings(batch_bytes=2_000, timeout_s=60)
        async with Producer(addresses(cluster), TOPIC, settings=settings) as producer:
            deliveries = []
            for number in range(RECORDS):
                deliveries.append(await producer.enqueue(b"%d" % number, partition=number % PARTITIONS))
                if number % 50 == 0:
                    await deliveries[-1]
                if number == RECORDS // 3:
                    ended = asyncio.create_task(getattr(cluster.members[0], ending)())
            await ended
            receipts = [await delivery for delivery in deliveries]
        assert {receipt.partition for receipt in receipts} == set(range(PARTITIONS))
        result = await everything(addresses(cluster))
    assert result == {
        partition: [number for number in range(RECORDS) if number % PARTITIONS == partition]
        for partition in range(PARTITIONS)
    }


async def test_a_reader_goes_on_when_an_agent_is_killed() -> None:
    async with a_cluster(3) as cluster:
        await cluster.topic(TOPIC, PARTITIONS)
        bootstrap = addresses(cluster)
        async with Producer(bootstrap, TOPIC) as producer:
            for number in range(60):
                await producer.enqueue(b"%d" % number, partition=number % PARTITIONS)
            await producer.flush()
            seen: set[int] = set()
            async with Consumer(bootstrap, TOPIC, starts=dict.fromkeys(range(PARTITIONS), 0)) as consumer:
                while len(seen) < 60:
                    seen |= {int(r.value) for r in await consumer.poll(max_records=100, timeout_s=1)}
                await cluster.members[1].kill()
                for number in range(60, 120):
                    await producer.enqueue(b"%d" % number, partition=number % PARTITIONS)
                while len(seen) < 120:
                    seen |= {int(r.value) for r in await consumer.poll(max_records=100, timeout_s=1)}
        assert seen == set(range(120))
