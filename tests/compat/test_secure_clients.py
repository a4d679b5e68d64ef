"""Kafka's clients log in over TLS and without it, with every mechanism; missing rights are errors."""

import asyncio
import ssl
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.abc
import confluent_kafka
import confluent_kafka.admin
import pytest
from confluent_kafka.cimpl import NewTopic

from streamhouse.clock import SystemClock
from streamhouse.dev.security import prepare_security
from tests.support.agent import LiveAgent
from tests.support.secure_agent import PASSWORD, SECRET, SecureAgent

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas in a deprecated way
    import kafka
    import kafka.errors

TIMEOUT_S = 20.0
MECHANISMS = ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER"]


class Clients(SecureAgent):
    """With the settings of its clients."""

    def confluent(self, mechanism: str, user: str = "admin", password: str = PASSWORD) -> dict[str, Any]:
        config: dict[str, Any] = {
            "bootstrap.servers": self.live.bootstrap,
            "security.protocol": self.protocol,
            "sasl.mechanisms": mechanism,
            "ssl.ca.location": str(self.ca),
        }
        if mechanism == "OAUTHBEARER":
            return config | {"oauth_cb": lambda _: (self.token(user), time.time() + 200)}
        return config | {"sasl.username": user, "sasl.password": password}

    def aiokafka(self, mechanism: str) -> dict[str, Any]:
        token = self.token()

        class Token(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
            async def token(self) -> str:
                return token

        context = ssl.create_default_context(cafile=str(self.ca))
        return {
            "bootstrap_servers": self.live.bootstrap,
            "security_protocol": self.protocol,
            "ssl_context": context if self.protocol == "SASL_SSL" else None,
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "admin",
            "sasl_plain_password": PASSWORD,
            "sasl_oauth_token_provider": Token() if mechanism == "OAUTHBEARER" else None,
        }


@pytest.fixture(scope="module", params=["SASL_SSL", "SASL_PLAINTEXT"])
def agent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    secure = Clients(tmp_path_factory.mktemp("secure"), request.param)
    with secure.live:
        yield secure
    assert PASSWORD not in secure.live.output
    assert SECRET not in secure.live.output


def new_topic(agent: Clients) -> str:
    name = f"t{uuid.uuid4().hex[:8]}"
    admin = confluent_kafka.admin.AdminClient(agent.confluent("SCRAM-SHA-512"))
    for made in admin.create_topics([NewTopic(name, 1, 1)]).values():
        made.result(TIMEOUT_S)
    return name


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka(agent: Clients, mechanism: str) -> None:
    topic = new_topic(agent)
    producer = confluent_kafka.Producer(agent.confluent(mechanism) | {"enable.idempotence": True})
    producer.produce(topic, b"value")
    assert producer.flush(TIMEOUT_S) == 0
    group = {"group.id": f"g{topic}", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(agent.confluent(mechanism) | group)
    consumer.subscribe([topic])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.value() == b"value"
    assert consumer.commit(message=message, asynchronous=False)
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(agent: Clients, mechanism: str) -> None:
    topic = new_topic(agent)

    async def run() -> bytes | None:
        settings = agent.aiokafka(mechanism)
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"value")
        reader = aiokafka.AIOKafkaConsumer(topic, group_id="g", auto_offset_reset="earliest", **settings)
        async with reader as consumer, asyncio.timeout(TIMEOUT_S):
            value: bytes | None = (await consumer.getone()).value
            return value

    assert asyncio.run(run()) == b"value"


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"])
def test_kafka_python(agent: Clients, mechanism: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=agent.live.bootstrap,
        security_protocol=agent.protocol,
        ssl_cafile=str(agent.ca),
        sasl_mechanism=mechanism,
        sasl_plain_username="admin",
        sasl_plain_password=PASSWORD,
    )
    assert producer.send(new_topic(agent), b"value").get(TIMEOUT_S).offset == 0
    producer.close()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"])
def test_a_wrong_login_is_told_to_the_application(agent: Clients, mechanism: str) -> None:
    errors: list[Any] = []
    config = agent.confluent(mechanism, password="wrong") | {"error_cb": errors.append}
    if mechanism == "OAUTHBEARER":
        config["oauth_cb"] = lambda _: ("nonsense", time.time() + 200)
    producer = confluent_kafka.Producer(config)
    wait_until(lambda: producer.poll(0.1) or errors)
    assert any(error.code() == confluent_kafka.KafkaError._AUTHENTICATION for error in errors), errors


def test_rules_and_users_are_managed_and_hold(agent: Clients) -> None:
    topic = new_topic(agent)
    admin = confluent_kafka.admin.AdminClient(agent.confluent("SCRAM-SHA-512"))
    api: Any = confluent_kafka.admin  # whose stubs leave out half of it
    secret = api.ScramCredentialInfo(api.ScramMechanism.SCRAM_SHA_256, 4096)
    user = f"bob{topic}"
    added = api.UserScramCredentialUpsertion(user, secret, b"bob's password")
    for done in admin.alter_user_scram_credentials([added]).values():
        done.result(TIMEOUT_S)
    bob = agent.confluent("SCRAM-SHA-256", user, "bob's password")
    refused = confluent_kafka.Consumer(bob | {"group.id": f"of-{user}", "auto.offset.reset": "earliest"})
    assert topic not in refused.list_topics(timeout=TIMEOUT_S).topics
    outcomes: list[Any] = []
    producer = confluent_kafka.Producer(bob | {"enable.idempotence": False})
    producer.produce(topic, b"v", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(TIMEOUT_S)
    assert outcomes[0].code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
    rule = api.AclBinding(
        api.ResourceType.TOPIC,
        topic,
        api.ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        api.AclOperation.WRITE,
        api.AclPermissionType.ALLOW,
    )
    for made in admin.create_acls([rule]).values():
        made.result(TIMEOUT_S)
    every = api.AclBindingFilter(
        api.ResourceType.ANY,
        None,
        api.ResourcePatternType.ANY,
        f"User:{user}",
        None,
        api.AclOperation.ANY,
        api.AclPermissionType.ANY,
    )
    assert admin.describe_acls(every).result(TIMEOUT_S) == [rule]
    producer = confluent_kafka.Producer(bob)
    producer.produce(topic, b"v", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert outcomes[1] is None
    assert topic in refused.list_topics(timeout=TIMEOUT_S).topics
    refused.close()
    (deleted,) = [done.result(TIMEOUT_S) for done in admin.delete_acls([every]).values()]
    assert deleted == [rule]


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"


def test_an_agent_that_was_started_securely_serves_who_logs_in(tmp_path: Path) -> None:
    security = prepare_security(tmp_path / "data" / "security", clock=SystemClock())
    live = LiveAgent(tmp_path / "data", "--secure", ca=security.ca)
    live.start()
    try:
        config: dict[str, Any] = {
            "bootstrap.servers": live.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": security.user,
            "sasl.password": security.password,
            "ssl.ca.location": str(security.ca),
        }
        admin = confluent_kafka.admin.AdminClient(config)
        (made,) = admin.create_topics([NewTopic("orders", 1)]).values()
        made.result(TIMEOUT_S)
        assert set(admin.list_topics(timeout=TIMEOUT_S).topics) == {"orders"}
    finally:
        live.stop()
