"""Three agents and PostgreSQL: the one that coordinates a transaction is killed between two steps of it."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from streamhouse.wire.kafka.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.compat.test_transactions import COMMITTED, committed, read
from tests.crash.pair import PARTITIONS, SETTINGS
from tests.stores.postgres.conftest import databases, empty_database
from tests.support.agent import LiveAgent
from tests.wire.kafka.talk import Client

__all__ = ["databases", "empty_database"]

pytestmark = [pytest.mark.crash, pytest.mark.postgres, pytest.mark.timeout(180)]

TOPIC, GROUP, ID = "orders", "readers", "payments"
ENDS_S = 60.0
"""Far more than it takes others to take over."""


@pytest.fixture
def agents(tmp_path: Path, empty_database: str) -> Iterator[list[LiveAgent]]:
    flags = ["--metadata", empty_database, "--store", f"file://{tmp_path}/bucket"]
    for setting in ("wal.kind=object", "groups.initial_rebalance_delay_s=0", "transactions.grace_s=1", *SETTINGS):
        flags += ["--set", setting]
    with ExitStack() as stack:
        yield [stack.enter_context(LiveAgent(tmp_path / f"agent{number}", *flags)) for number in range(3)]


async def coordinator(agents: list[LiveAgent]) -> LiveAgent:
    """Whom the agents name; the same by all of them."""
    host, _, port = agents[0].bootstrap.rpartition(":")
    client = await Client.connect(host, int(port))
    request = FindCoordinatorRequest(key=ID, key_type=1)
    result = await client.call(request, FindCoordinatorResponse, 2)
    await client.close()
    (agent,) = [each for each in agents if each.bootstrap == f"{result.host}:{result.port}"]
    return agent


def created(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(ENDS_S)


@pytest.mark.parametrize(("step", "commits"), [("produced", True), ("offsets", False), ("ended", True)])
async def test_a_transaction_goes_on_when_its_coordinator_is_killed(
    agents: list[LiveAgent], step: str, commits: bool
) -> None:
    bootstrap = ",".join(agent.bootstrap for agent in agents)
    created(bootstrap)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": ID, "transaction.timeout.ms": 60_000})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    producer.init_transactions(ENDS_S)
    dies = await coordinator(agents)
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce(TOPIC, b"%d" % partition, partition=partition)
    producer.flush(ENDS_S)
    if step == "produced":
        dies.kill()
    place = [TopicPartition(TOPIC, 0, 7)]
    producer.send_offsets_to_transaction(place, consumer.consumer_group_metadata(), ENDS_S)
    if step == "offsets":
        dies.kill()
    (producer.commit_transaction if commits else producer.abort_transaction)(ENDS_S)
    if step == "ended":
        dies.kill()
    consumer.close()
    left = ",".join(agent.bootstrap for agent in agents if agent.is_running)
    for partition in range(PARTITIONS):
        assert seen(left, partition) == ([b"%d" % partition] if commits else [])
    assert committed(left, GROUP, TOPIC) == (7 if commits else -1001)


def seen(bootstrap: str, partition: int) -> list[bytes]:
    """The committed records after the end of the transaction, which a later record shows."""
    plain = Producer({"bootstrap.servers": bootstrap})
    plain.produce(TOPIC, b"behind it", partition=partition)
    assert plain.flush(ENDS_S) == 0
    deadline = time.monotonic() + ENDS_S
    while time.monotonic() < deadline:
        result = read(bootstrap, TOPIC, COMMITTED, partition=partition)
        if result[-1:] == [b"behind it"]:
            return result[:-1]
    raise AssertionError(f"the transaction never ends in partition {partition}")
