"""Kafka's clients log in with certificates (mTLS); rules of principals make users of their subjects."""

import asyncio
import ssl
import uuid
import warnings
from collections.abc import Iterator
from typing import Any

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import pytest
from confluent_kafka.cimpl import NewTopic

from tests.support.secure_agent import SecureAgent

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas in a deprecated way
    import kafka
    import kafka.errors

TIMEOUT_S = 20.0


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureAgent]:
    settings = {
        "security.tls_client_auth": "required",
        "security.tls_principal_rules": "RULE:^.*CN=([a-z]+).*$/$1/,DEFAULT",
    }
    secure = SecureAgent(tmp_path_factory.mktemp("mtls"), "SSL", settings)
    for name in ("admin", "nobody"):
        secure.authority.issue(secure.folder, name)
    with secure.live:
        yield secure


def librdkafka(agent: SecureAgent, name: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "bootstrap.servers": agent.live.bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(agent.ca),
    }
    if name:
        config["ssl.certificate.location"] = str(agent.folder / f"{name}.pem")
        config["ssl.key.location"] = str(agent.folder / f"{name}.key")
    return config


@pytest.fixture
def topic(agent: SecureAgent) -> str:
    name = f"t{uuid.uuid4().hex[:8]}"
    admin = confluent_kafka.admin.AdminClient(librdkafka(agent, "admin"))
    (made,) = admin.create_topics([NewTopic(name, 1)]).values()
    made.result(TIMEOUT_S)
    return name


def test_librdkafka_is_the_user_of_its_certificate(agent: SecureAgent, topic: str) -> None:
    producer = confluent_kafka.Producer(librdkafka(agent, "admin"))
    producer.produce(topic, b"value")
    assert producer.flush(TIMEOUT_S) == 0
    group = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(librdkafka(agent, "admin") | group)
    consumer.subscribe([topic])
    message = consumer.poll(TIMEOUT_S)
    consumer.close()
    assert message is not None
    assert message.value() == b"value"


def test_a_user_without_rights_sees_and_writes_nothing(agent: SecureAgent, topic: str) -> None:
    nobody = librdkafka(agent, "nobody") | {"enable.idempotence": False}
    outcomes: list[Any] = []
    producer = confluent_kafka.Producer(nobody)
    assert topic not in producer.list_topics(timeout=TIMEOUT_S).topics
    producer.produce(topic, b"value", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(TIMEOUT_S)
    assert outcomes[0].code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_without_a_certificate_nobody_is_served(agent: SecureAgent) -> None:
    assert confluent_kafka.admin.AdminClient(librdkafka(agent, "admin")).list_topics(timeout=TIMEOUT_S).brokers
    anybody = confluent_kafka.admin.AdminClient(librdkafka(agent, "") | {"log_level": 2})
    with pytest.raises(confluent_kafka.KafkaException):
        anybody.list_topics(timeout=2)


def context_of(agent: SecureAgent) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(agent.ca))
    context.load_cert_chain(agent.folder / "admin.pem", agent.folder / "admin.key")
    return context


def test_aiokafka(agent: SecureAgent, topic: str) -> None:
    async def run() -> bytes | None:
        settings = {
            "bootstrap_servers": agent.live.bootstrap,
            "security_protocol": "SSL",
            "ssl_context": context_of(agent),
        }
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"value")
        reader = aiokafka.AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings)
        async with reader as consumer, asyncio.timeout(TIMEOUT_S):
            value: bytes | None = (await consumer.getone()).value
            return value

    assert asyncio.run(run()) == b"value"


def test_kafka_python(agent: SecureAgent, topic: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=agent.live.bootstrap, security_protocol="SSL", ssl_context=context_of(agent)
    )
    assert producer.send(topic, b"value").get(TIMEOUT_S).offset == 0
    producer.close()
