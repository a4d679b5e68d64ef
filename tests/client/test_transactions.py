"""Transactions of any client, looked at and aborted with ours, against a live agent."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from confluent_kafka import KafkaException, Producer

from streamhouse import Client
from streamhouse.client.sync import SyncClient
from streamhouse.client.types import TransactionPartition
from streamhouse.errors import TransactionalIdNotFound
from tests.client.live import agent as agent
from tests.client.live import topic as topic
from tests.support.agent import LiveAgent

TIMEOUT_S = 20.0


@pytest.fixture
def producer(agent: LiveAgent, topic: str) -> Iterator[Producer]:
    """With a transaction open, whose id is the topic's name with a slash in it."""
    settings = {"bootstrap.servers": agent.bootstrap, "transactional.id": f"t/{topic}", "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"x")
    producer.flush(TIMEOUT_S)
    yield producer
    producer.purge()


async def test_a_transaction_is_listed_shown_and_aborted(agent: LiveAgent, topic: str, producer: Producer) -> None:
    async with Client(agent.http) as client:
        assert f"t/{topic}" in [each.transactional_id for each in await client.transactions.list(state="Ongoing")]
        assert await client.transactions.list(open_for=timedelta(hours=1)) == []
        response = await client.transactions.get(f"t/{topic}")
        assert (response.is_open, response.partitions) == (True, [TransactionPartition(topic=topic, partition=0)])
        (held,) = await client.cluster.partitions(topic)
        assert (held.is_held_back, held.last_stable_offset, held.high_watermark) == (True, 0, 1)
        done = await client.transactions.abort(f"t/{topic}")
        assert (done.aborted, done.after.is_open) == (True, False)
        (free,) = await client.cluster.partitions(topic)
        assert (free.is_held_back, free.last_stable_offset) == (False, 2)
        assert [record async for record in client.consume(topic, until="end")] == []
        with pytest.raises(TransactionalIdNotFound, match="no such transactional id"):
            await client.transactions.get("never")
    with pytest.raises(KafkaException):
        producer.commit_transaction(TIMEOUT_S)


def test_the_sync_client_does_the_same(agent: LiveAgent, topic: str, producer: Producer) -> None:
    with SyncClient(agent.http) as client:
        assert f"t/{topic}" in [each.transactional_id for each in client.transactions.list()]
        assert client.transactions.get(f"t/{topic}").state == "Ongoing"
        assert client.transactions.abort(f"t/{topic}").aborted
        with pytest.raises(TransactionalIdNotFound):
            client.transactions.abort("never")
    producer.purge()
