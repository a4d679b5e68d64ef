"""librdkafka in a new group, while the metadata store is away for a moment: it must ask again, whatever it asked for.

Of its committed offsets it asks again after few errors only. After any other one it gives the error to the application
once, stays in its group with heartbeats, and never reads these partitions.
"""

import asyncio
import time

import pytest
from confluent_kafka import Consumer

from streamhouse.errors import Unavailable
from streamhouse.model.record import Acks, NewRecord
from tests.wire.kafka.cluster import BrokerCluster, Member, a_cluster, receipts

TOPIC = "orders"
PATIENT_S = 15.0
AWAY_S = 1.0


CALLS = (
    "partitions",
    "create_topic",
    "acquire",
    "load_groups",
    "commit_groups",
    "pending_offsets",
    "committed_offsets",
)
"""What a new group needs of the metadata store until it reads."""


class Outage:
    """The metadata store does not answer to one kind of call, for a while from its first use on."""

    def __init__(self, cluster: BrokerCluster, call: str) -> None:
        self._inner = getattr(cluster.metadata, call)
        self._ends_at = 0.0
        self.refused = 0
        setattr(cluster.metadata, call, self._call)

    async def _call(self, *args: object, **named: object) -> object:
        now = asyncio.get_running_loop().time()
        self._ends_at = self._ends_at or now + AWAY_S
        if now < self._ends_at:
            self.refused += 1
            raise Unavailable("the metadata store is away")
        return await self._inner(*args, **named)


def first_record(member: Member) -> tuple[bytes | None, list[object]]:
    """What a new group reads first, and the errors that its application was given."""
    config = {"bootstrap.servers": "{}:{}".format(*member.address), "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer(config)
    errors: list[object] = []
    try:
        consumer.subscribe([TOPIC])
        deadline = time.monotonic() + PATIENT_S
        while time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                return message.value(), errors
            if message is not None:
                errors.append(message.error())
        return None, errors
    finally:
        consumer.close()


@pytest.mark.parametrize("call", CALLS)
async def test_a_new_group_reads_when_the_store_is_back(call: str) -> None:
    async with a_cluster(1) as cluster:
        (member,) = cluster.members
        await cluster.topic(TOPIC, 1)
        record = NewRecord(b"first", partition=0)
        receipts(await member.broker.records.publish(TOPIC, [record], acks=Acks.WAL, timeout_s=PATIENT_S))
        outage = Outage(cluster, call)
        assert await asyncio.to_thread(first_record, member) == (b"first", [])
    assert outage.refused
