"""Real clients in two tenants: the page's example makes them, and neither sees what the other does under its names."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import aiokafka
import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin
import pytest
from confluent_kafka.cimpl import NewTopic

from tests.support.secure_agent import PASSWORD, SecureAgent

PAGE: Final = Path(__file__).parents[2] / "docs/security.md"
TIMEOUT_S: Final = 20.0


def example() -> str:
    """The commands by which the page makes a tenant."""
    (section,) = re.findall(r"^## Tenants$(.*?)^## ", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (script,) = re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return str(script)


def run_example(agent: SecureAgent, tenant: str) -> None:
    login = {
        "STREAMHOUSE_USER": "admin",
        "STREAMHOUSE_PASSWORD_FILE": str(agent.folder / "password"),
        "STREAMHOUSE_AGENTS": str(agent.live.http),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(agent.folder),
    }
    script = "set -e\n" + example().replace("acme", tenant)
    done = subprocess.run(
        ["sh", "-c", script], cwd=agent.folder, env=login, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureAgent]:
    more = {"http.protocol": "SASL_PLAINTEXT"}
    agent = SecureAgent(tmp_path_factory.mktemp("tenants"), "SASL_PLAINTEXT", more)
    agent.live.start()
    try:
        run_example(agent, "acme")
        run_example(agent, "beta")
        yield agent
    finally:
        agent.live.stop()


def confluent(agent: SecureAgent, user: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": agent.live.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": PASSWORD,
        **more,
    }


def aio(agent: SecureAgent, user: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": agent.live.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": user,
        "sasl_plain_password": PASSWORD,
    }


def test_librdkafka_in_two_tenants(agent: SecureAgent) -> None:
    for tenant in ("acme", "beta"):
        admin = confluent_kafka.admin.AdminClient(confluent(agent, f"{tenant}~admin"))
        (made,) = admin.create_topics([NewTopic("clicks", 2)]).values()
        made.result(TIMEOUT_S)
        assert set(admin.list_topics(timeout=TIMEOUT_S).topics) == {"orders", "clicks"}
        producer = confluent_kafka.Producer(
            confluent(agent, f"{tenant}~admin", **{"transactional.id": "transfer", "acks": "all"})
        )
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        for number in range(10):
            producer.produce("clicks", value=f"{tenant}-{number}", partition=number % 2)
        producer.commit_transaction(TIMEOUT_S)
    for tenant in ("acme", "beta"):
        consumer = confluent_kafka.Consumer(
            confluent(agent, f"{tenant}~admin", **{"group.id": "billing", "auto.offset.reset": "earliest"})
        )
        consumer.subscribe(["clicks"])
        seen = [(each.value() or b"").decode() for each in consumer.consume(10, timeout=TIMEOUT_S)]
        assert sorted(seen) == sorted(f"{tenant}-{number}" for number in range(10))
        consumer.commit(asynchronous=False)
        consumer.close()
        admin = confluent_kafka.admin.AdminClient(confluent(agent, f"{tenant}~admin"))
        groups = admin.list_consumer_groups().result(TIMEOUT_S)
        assert not groups.errors, groups.errors
        assert [each.group_id for each in groups.valid] == ["billing"]


async def test_aiokafka_in_two_tenants(agent: SecureAgent) -> None:
    for tenant in ("acme", "beta"):
        admin = aiokafka.admin.AIOKafkaAdminClient(**aio(agent, f"{tenant}~admin"))
        await admin.start()
        await admin.create_topics([aiokafka.admin.NewTopic("views", 1, 1)])
        await admin.close()
        async with aiokafka.AIOKafkaProducer(**aio(agent, f"{tenant}~admin"), enable_idempotence=True) as producer:
            await producer.send_and_wait("views", f"of {tenant}".encode())
    for tenant in ("acme", "beta"):
        consumer = aiokafka.AIOKafkaConsumer(
            "views", **aio(agent, f"{tenant}~admin"), group_id="watchers", auto_offset_reset="earliest"
        )
        async with consumer, asyncio.timeout(TIMEOUT_S):
            assert (await consumer.getone()).value == f"of {tenant}".encode()
            await consumer.commit()


def test_a_user_whom_a_tenants_administrator_made_has_the_rights_that_it_gave(agent: SecureAgent) -> None:
    for tenant, other in (("acme", "beta"), ("beta", "acme")):
        consumer = confluent_kafka.Consumer(
            confluent(agent, f"{tenant}~alice", **{"group.id": "billing", "auto.offset.reset": "earliest"})
        )
        assert set(consumer.list_topics(timeout=TIMEOUT_S).topics) == {"orders"}
        consumer.assign([confluent_kafka.TopicPartition("orders", 0, 0)])
        (message,) = consumer.consume(1, timeout=TIMEOUT_S)
        assert message.value() == b"first order"
        for guess in (f"{other}~orders", f"{tenant}~orders"):
            with pytest.raises(confluent_kafka.KafkaException):
                consumer.get_watermark_offsets(confluent_kafka.TopicPartition(guess, 0), timeout=5)
        consumer.close()
