"""Logins at a real agent: users and API keys over Kafka with TLS, and what is said when they are wrong; users, keys,
rules, roles and quotas over HTTP."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from streamhouse.client.consumer import Consumer
from streamhouse.client.credentials import Credentials
from streamhouse.client.group_consumer import GroupConsumer
from streamhouse.client.http import Http
from streamhouse.client.kafka_admin import Admin
from streamhouse.client.producer import Producer
from streamhouse.client.security import Security
from streamhouse.client.security_types import Rule
from streamhouse.clock import SystemClock
from streamhouse.dev.security import LocalSecurity, prepare_security
from streamhouse.errors import (
    AccessDenied,
    InvalidAcl,
    InvalidConfig,
    InvalidCredentials,
    Misconfigured,
    NotAuthenticated,
    Rejected,
    TopicAccessDenied,
    UnknownKey,
    UnknownUser,
    UserExists,
)
from tests.support.agent import LiveAgent


@pytest.fixture(scope="module")
def security(tmp_path_factory: pytest.TempPathFactory) -> LocalSecurity:
    return prepare_security(tmp_path_factory.mktemp("security"), clock=SystemClock())


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory, security: LocalSecurity) -> Iterator[LiveAgent]:
    """Kafka and HTTP with logins and access rules, Kafka with TLS."""
    settings = {**security.settings, "http.protocol": "SASL_PLAINTEXT", "grpc.listen": ""}
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


@asynccontextmanager
async def administering(agent: LiveAgent, known: Credentials) -> AsyncIterator[Security]:
    async with Http(f"http://{agent.http}", credentials=known) as http:
        yield Security(http)


@pytest.fixture
def admin(security: LocalSecurity) -> Credentials:
    return Credentials(user=security.user, password=security.password)


async def test_users_are_created_listed_and_deleted(agent: LiveAgent, admin: Credentials) -> None:
    async with administering(agent, admin) as access:
        created = await access.create_user("carol", "hunter22")
        assert created.mechanisms == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
        assert created in await access.users()
        with pytest.raises(UserExists):
            await access.create_user("carol", "another")
        with pytest.raises((InvalidCredentials, Rejected)):
            await access.create_user("a,b", "x")
        await access.delete_user("carol")
        with pytest.raises(UnknownUser):
            await access.delete_user("carol")


async def test_a_user_may_do_what_rules_allow_and_a_key_stands_for_it(
    agent: LiveAgent, security: LocalSecurity, admin: Credentials
) -> None:
    bob = Credentials(user="bob", password="hunter22", ca=str(security.ca))
    async with administering(agent, admin) as access:
        await access.create_user("bob", "hunter22")
        made = await access.create_key("User:bob", description="of a test", ttl_s=3600)
        assert made.key in await access.keys()
    root = Credentials(user=security.user, password=security.password, ca=str(security.ca))
    async with Admin(agent.bootstrap, credentials=root) as administrator:
        await administrator.create_topic("etl-orders", partitions=1, configs={})
    with pytest.raises(TopicAccessDenied):
        async with Producer(agent.bootstrap, "etl-orders", credentials=bob):
            pass
    async with administering(agent, Credentials(user="bob", password="hunter22")) as access:
        with pytest.raises(AccessDenied):
            await access.users()
    rule = Rule(principal="User:bob", operation="all", resource_type="topic", name="etl-", pattern="prefixed")
    async with administering(agent, admin) as access:
        await access.create_acls([rule])
        assert await access.acls({"principal": "User:bob"}) == [rule]
        assert await access.acls({"resource_type": "topic", "name": "etl-orders", "matching": "true"}) == [rule]
        assert await access.acls({"resource_type": "topic", "name": "etl-orders"}) == []
    by_key = Credentials(token=made.api_key, ca=str(security.ca))
    for known in (bob, by_key):
        async with Producer(agent.bootstrap, "etl-orders", credentials=known) as producer:
            await producer.send("hello")
    async with administering(agent, admin) as access:
        await access.revoke_key(made.key.key_id)
        with pytest.raises(UnknownKey):
            await access.revoke_key(made.key.key_id)
        assert await access.delete_acls({"principal": "User:bob"}) == [rule]
        with pytest.raises(InvalidAcl, match="rules to delete"):
            await access.delete_acls({})
    with pytest.raises(NotAuthenticated):
        async with Admin(agent.bootstrap, credentials=by_key):
            pass


async def test_roles_and_quotas_are_changed_bit_by_bit(agent: LiveAgent, admin: Credentials) -> None:
    async with administering(agent, admin) as access:
        await access.change_role("etl", added=["User:a", "User:b"])
        assert (await access.change_role("etl", removed=["User:a"])).members == ["User:b"]
        assert [role.name for role in await access.roles()] == ["etl"]
        with pytest.raises(InvalidAcl):
            await access.change_role("etl", added=["Role:other"])
        await access.set_quota({"user": "a"}, {"producer_byte_rate": 1000.0, "consumer_byte_rate": 5.0})
        left = await access.set_quota({"user": "a"}, {"consumer_byte_rate": None})
        assert left.limits == {"producer_byte_rate": 1000.0}
        assert await access.quotas() == [left]
        with pytest.raises((InvalidConfig, Rejected), match="part of an entity"):
            await access.set_quota({"users": "a"}, {"producer_byte_rate": 1.0})
