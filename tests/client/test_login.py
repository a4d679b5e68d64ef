"""Logins at a real agent: users and API keys over Kafka with TLS, and what is said when they are wrong."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streamhouse.client.consumer import Consumer
from streamhouse.client.credentials import Credentials
from streamhouse.client.group_consumer import GroupConsumer
from streamhouse.client.kafka_admin import Admin
from streamhouse.client.producer import Producer
from streamhouse.clock import SystemClock
from streamhouse.dev.security import LocalSecurity, prepare_security
from streamhouse.errors import Misconfigured, NotAuthenticated
from tests.support.agent import LiveAgent


@pytest.fixture(scope="module")
def security(tmp_path_factory: pytest.TempPathFactory) -> LocalSecurity:
    return prepare_security(tmp_path_factory.mktemp("security"), clock=SystemClock())


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory, security: LocalSecurity) -> Iterator[LiveAgent]:
    """Kafka with TLS, logins and access rules; HTTP is on loopback and asks nobody."""
    settings = {**security.settings, "http.protocol": "PLAINTEXT", "grpc.listen": ""}
    flags = [flag for name, value in settings.items() for flag in ("--set", f"{name}={value}")]
    data: Path = tmp_path_factory.mktemp("login") / "data"
    with LiveAgent(data, *flags, "--set", "groups.initial_rebalance_delay_s=0") as started:
        yield started


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"])
async def test_records_are_written_and_read_as_a_user(
    agent: LiveAgent, security: LocalSecurity, mechanism: str
) -> None:
    known = Credentials(
        user=security.user,
        password=security.password,
        ca=str(security.ca),
        sasl_mechanism=mechanism,  # type: ignore[arg-type]
    )
    topic = f"orders-{mechanism.lower()}"
    async with Admin(agent.bootstrap, credentials=known) as admin:
        await admin.create_topic(topic, partitions=1, configs={})
    async with Producer(agent.bootstrap, topic, credentials=known) as producer:
        assert (await producer.send("hello")).offset == 0
    async with Consumer(agent.bootstrap, topic, starts={0: 0}, credentials=known) as consumer:
        assert [record.value for record in await consumer.poll(max_records=1, timeout_s=10)] == [b"hello"]
    group = GroupConsumer(agent.bootstrap, topic, group=f"g-{topic}", from_beginning=True, credentials=known)
    async with group as member:
        async for record in member:
            assert record.value == b"hello"
            break


@pytest.mark.parametrize("given", [{"user": "admin", "password": "wrong"}, {"user": "nobody", "password": "wrong"}])
async def test_a_wrong_login_is_said_and_never_the_password(
    agent: LiveAgent, security: LocalSecurity, given: dict[str, str]
) -> None:
    known = Credentials(**given, ca=str(security.ca))  # type: ignore[arg-type]
    with pytest.raises(NotAuthenticated, match=f"login failed at {agent.bootstrap}; user={given['user']}") as raised:
        async with Admin(agent.bootstrap, credentials=known):
            pass
    assert "wrong" not in str(raised.value)


async def test_a_wrong_token_is_said(agent: LiveAgent, security: LocalSecurity) -> None:
    with pytest.raises(NotAuthenticated, match="login failed"):
        async with Admin(agent.bootstrap, credentials=Credentials(token="shk_1", ca=str(security.ca))):
            pass


async def test_a_plain_client_is_told_that_the_listener_wants_tls(agent: LiveAgent) -> None:
    with pytest.raises(Misconfigured, match="wants TLS; give the authority"):
        async with Admin(agent.bootstrap):
            pass
