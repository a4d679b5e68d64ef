"""Access control of an agent: rules that change while it runs, users, keys and passwords, over a real SQLite store."""

import asyncio
from collections.abc import Sequence
from typing import Literal

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.config import SecuritySettings
from streamhouse.errors import (
    AccessDenied,
    InvalidAcl,
    InvalidCredentials,
    NotAuthenticated,
    SecurityDisabled,
    TopicAccessDenied,
    UnknownUser,
)
from streamhouse.model.access import (
    AGENT,
    CLUSTER,
    ROLE,
    USER,
    WORKER,
    Acl,
    AclFilter,
    Caller,
    Operation,
    Permission,
    Principal,
    Resource,
    ResourceType,
)
from streamhouse.model.credentials import ApiKey
from tests.broker.conftest import MakeWorld
from tests.broker.support import World, settle

ALICE = Caller(principal=Principal(USER, "alice"), host="10.0.0.1")
ADMIN = Caller(principal=Principal(USER, "admin"))
ORDERS = Resource(ResourceType.TOPIC, "orders")
READ = Acl(resource_type=ResourceType.TOPIC, name="orders", principal=ALICE.principal, operation=Operation.READ)
SECURITY = SecuritySettings(authorization="acls", super_users="User:admin")


@pytest.fixture
async def world(make_world: MakeWorld) -> World:
    return await make_world(security=SECURITY)


@pytest.fixture
async def broker(world: World) -> Broker:
    return await world.start()


async def test_nothing_is_allowed_without_a_rule_but_to_super_users_and_agents(broker: Broker) -> None:
    access = broker.security.access
    assert not access.allows(ALICE, Operation.READ, ORDERS)
    assert access.allows(ADMIN, Operation.READ, ORDERS)
    assert access.allows(Caller(principal=Principal(AGENT, "1"), is_unrestricted=True), Operation.WRITE, ORDERS)
    with pytest.raises(TopicAccessDenied, match=r"principal=User:alice operation=read topic=orders"):
        access.check(ALICE, Operation.READ, ORDERS)


async def test_a_rule_holds_at_once_and_no_longer_than_it_is_there(broker: Broker) -> None:
    access = broker.security.access
    await access.add_acls([READ])
    assert access.allows(ALICE, Operation.READ, ORDERS)
    assert access.operations(ALICE, ORDERS) == {Operation.READ, Operation.DESCRIBE}
    assert await access.acls(AclFilter(principal=ALICE.principal)) == [READ]
    assert await access.delete_acls([AclFilter(name="orders")]) == [[READ]]
    assert not access.allows(ALICE, Operation.READ, ORDERS)


TENANT_ADMIN = Caller(principal=Principal(USER, "acme~admin"), tenant="acme")
OUTSIDE = [
    Resource(ResourceType.TOPIC, "orders"),
    Resource(ResourceType.TOPIC, "beta~orders"),
    Resource(ResourceType.TOPIC, "acme-x~orders"),
    Resource(ResourceType.GROUP, "acme"),
    Resource(ResourceType.USER, "User:alice"),
    Resource(ResourceType.USER, "acme~alice"),
    Resource(ResourceType.DELEGATION_TOKEN, "acme~1"),
]
INSIDE = [
    Resource(ResourceType.TOPIC, "acme~orders"),
    Resource(ResourceType.GROUP, "acme~"),
    Resource(ResourceType.USER, "User:acme~alice"),
    CLUSTER,
]


@pytest.mark.parametrize("authorization", ["none", "acls"])
async def test_nothing_outside_of_a_tenant_is_allowed_whatever_rules_say(
    make_world: MakeWorld, authorization: Literal["none", "acls"]
) -> None:
    super_users = "User:acme~admin"
    world = await make_world(security=SecuritySettings(authorization=authorization, super_users=super_users))
    access = (await world.start()).security.access
    for resource in OUTSIDE:
        assert not access.allows(TENANT_ADMIN, Operation.READ, resource), resource
        assert not access.may(TENANT_ADMIN, Operation.READ, resource), resource
    for resource in INSIDE:
        assert access.allows(TENANT_ADMIN, Operation.DESCRIBE, resource), resource
        assert access.may(TENANT_ADMIN, Operation.DESCRIBE, resource), resource
    assert not access.allows(TENANT_ADMIN, Operation.CLUSTER_ACTION, CLUSTER)
    with pytest.raises(AccessDenied):
        access.check_process(TENANT_ADMIN, WORKER)


async def test_a_rule_about_the_cluster_is_about_the_tenants_only(broker: Broker) -> None:
    access = broker.security.access
    rule = Acl(
        resource_type=ResourceType.CLUSTER,
        name="acme~kafka-cluster",
        principal=Principal(USER, "acme~*"),
        operation=Operation.CREATE,
    )
    await access.add_acls([rule])
    assert access.allows(TENANT_ADMIN, Operation.CREATE, CLUSTER)
    assert not access.allows(ALICE, Operation.CREATE, CLUSTER)
    other = Caller(principal=Principal(USER, "beta~admin"), tenant="beta")
    assert not access.allows(other, Operation.CREATE, CLUSTER)


async def test_a_rule_of_another_agent_holds_when_it_is_announced(world: World, broker: Broker) -> None:
    running = asyncio.ensure_future(broker.security.access.run())
    await settle()
    await world.sqlite.add_acls([READ], max_acls=10)
    await settle()
    assert broker.security.access.allows(ALICE, Operation.READ, ORDERS)
    running.cancel()


async def test_rules_that_were_read_earlier_never_replace_those_that_were_read_later(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = broker.security.access
    await access.add_acls([READ])
    read, going_on, reads = access._metadata.acls, asyncio.Event(), list[int]()

    async def slow_at_first() -> Sequence[Acl]:
        reads.append(len(reads))
        acls = await read()
        if reads[-1] == 0 and len(reads) == 1:
            await going_on.wait()
        return acls

    monkeypatch.setattr(access._metadata, "acls", slow_at_first)
    earlier = asyncio.ensure_future(access.load())
    await settle()
    revoking = asyncio.ensure_future(access.delete_acls([AclFilter(name="orders")]))
    await settle()
    going_on.set()
    await asyncio.gather(earlier, revoking)
    assert not access.allows(ALICE, Operation.READ, ORDERS)


async def test_a_role_gives_what_its_rules_say(broker: Broker) -> None:
    access = broker.security.access
    role = Acl(
        resource_type=ResourceType.TOPIC, name="*", principal=Principal(ROLE, "reader"), operation=Operation.READ
    )
    await access.add_acls([role])
    assert not access.allows(ALICE, Operation.READ, ORDERS)
    await access.change_role("reader", added=[ALICE.principal])
    assert access.allows(ALICE, Operation.READ, ORDERS)
    await access.change_role("reader", removed=[ALICE.principal])
    assert not access.allows(ALICE, Operation.READ, ORDERS)


async def test_nobody_but_agents_changes_the_audit_topic(broker: Broker) -> None:
    audit = Resource(ResourceType.TOPIC, "__audit")
    access = broker.security.access
    assert access.allows(ADMIN, Operation.READ, audit)
    for operation in (Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS, Operation.CREATE):
        assert not access.allows(ADMIN, operation, audit)


async def test_acts_and_refusals_are_recorded_and_looks_at_rights_are_not(
    world: World, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "streamhouse.audit")
    access = broker.security.access
    access.check(ADMIN, Operation.CREATE, ORDERS)
    access.check(ADMIN, Operation.READ, ORDERS)
    access.operations(ADMIN, ORDERS)
    with pytest.raises(AccessDenied):
        access.check(ALICE, Operation.DELETE, ORDERS)
    await broker.security.audit.flush(_unused, agent="a")
    written = [
        (each.__dict__["principal"], each.__dict__["operation"], each.__dict__["outcome"]) for each in caplog.records
    ]
    assert written == [("User:admin", "create", "allowed"), ("User:alice", "delete", "denied")]


async def _unused(records: object) -> None:
    raise AssertionError("there is no audit topic")


async def test_processes_do_what_is_theirs_only(broker: Broker) -> None:
    access = broker.security.access
    worker = Caller(principal=Principal(WORKER, "w"))
    access.check_process(worker, WORKER)
    for caller, kinds in ((worker, ("Supervisor",)), (ADMIN, (WORKER,)), (ALICE, (WORKER,))):
        with pytest.raises(AccessDenied):
            access.check_process(caller, *kinds)


@pytest.mark.parametrize(
    "acl",
    [
        Acl(resource_type=ResourceType.TOPIC, name="", principal=ALICE.principal, operation=Operation.READ),
        Acl(resource_type=ResourceType.GROUP, name="g", principal=ALICE.principal, operation=Operation.WRITE),
        Acl(resource_type=ResourceType.CLUSTER, name="x", principal=ALICE.principal, operation=Operation.ALTER),
        Acl(resource_type=ResourceType.TOPIC, name="t", principal=Principal(AGENT, "1"), operation=Operation.READ),
        Acl(
            resource_type=ResourceType.TOPIC,
            name="t",
            principal=ALICE.principal,
            operation=Operation.READ,
            host="somewhere",
            permission=Permission.DENY,
        ),
    ],
)
async def test_a_rule_that_makes_no_sense_is_refused(broker: Broker, acl: Acl) -> None:
    with pytest.raises(InvalidAcl):
        await broker.security.access.add_acls([acl])


async def test_without_access_control_everybody_may_do_everything(make_world: MakeWorld) -> None:
    broker = await (await make_world()).start()
    access = broker.security.access
    assert access.allows(ALICE, Operation.DELETE, ORDERS)
    with pytest.raises(SecurityDisabled, match=r"security\.authorization=acls"):
        await access.add_acls([READ])


async def test_only_the_password_logs_in_and_a_new_one_replaces_it(broker: Broker) -> None:
    security = broker.security
    await security.users.create("alice", "first")
    for _ in range(2):  # the second time it is remembered
        caller = await security.log_in("alice", "first", host="10.0.0.1", listener="PUBLIC")
    assert (caller.principal, caller.host, caller.is_unrestricted) == (ALICE.principal, "10.0.0.1", False)
    await security.users.create("alice", "second", is_new=False)
    for name, password in (("alice", "first"), ("alice", ""), ("bob", "second"), ("alice", "x" * 5000)):
        with pytest.raises(NotAuthenticated, match="user or password is wrong"):
            await security.log_in(name, password, host="10.0.0.1", listener="PUBLIC")
    await security.log_in("alice", "second", host="10.0.0.1", listener="PUBLIC")
    await security.users.delete("alice")
    with pytest.raises(NotAuthenticated):
        await security.log_in("alice", "second", host="10.0.0.1", listener="PUBLIC")
    with pytest.raises(UnknownUser):
        await security.users.delete("alice")


async def test_a_key_logs_in_until_it_is_revoked_or_expires(world: World, broker: Broker) -> None:
    users = broker.security.users
    key, text = await users.create_key(ALICE.principal, description="laptop", ttl_s=60)
    caller = await broker.security.log_in_with_token(text, host="h", listener="L")
    assert (caller.principal, caller.expires_at_ms) == (ALICE.principal, key.expires_at_ms)
    other, _ = await users.create_key(ALICE.principal)
    wrong = text.replace(key.key_id, other.key_id)
    for forged in (wrong, text[:-1] + ("0" if text[-1] != "0" else "1"), "shk_", "shk_" + "0" * 81):
        with pytest.raises(NotAuthenticated):
            await broker.security.log_in_with_token(forged, host="h", listener="L")
    world.clock.skip(61)
    with pytest.raises(NotAuthenticated):
        await broker.security.log_in_with_token(text, host="h", listener="L")


async def test_a_key_that_was_verified_is_not_looked_up_again(
    world: World, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    users, looked_up = broker.security.users, []
    key, text = await users.create_key(ALICE.principal)
    find = world.sqlite.find_key

    async def counted(key_id: str) -> ApiKey | None:
        looked_up.append(key_id)
        return await find(key_id)

    monkeypatch.setattr(world.sqlite, "find_key", counted)
    for _ in range(3):
        assert (await users.check_key(text)).principal == ALICE.principal
    assert looked_up == [key.key_id]
    assert broker.security.remembers_token(text)
    assert not broker.security.remembers_token("shk_" + "0" * 81)
    await users.revoke_key(key.key_id)
    with pytest.raises(NotAuthenticated):
        await users.check_key(text)


async def test_passwords_are_checked_again_while_changes_cannot_be_heard_of(
    world: World, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = broker.security.users
    await users.create("alice", "a password")
    await users.check_password("alice", "a password")
    running = asyncio.ensure_future(broker.security.run(lambda *_: asyncio.sleep(0)))
    await settle()
    await world.clock.advance(30)
    assert users.remembers("alice", "a password")
    monkeypatch.setattr(type(world.sqlite), "is_listening", False)
    await world.clock.advance(1)
    assert not users.remembers("alice", "a password")
    running.cancel()


@pytest.mark.parametrize("name", ["", "*", "ANONYMOUS", "a,b", "a:b", "a=b", "a\x00", "x" * 201])
async def test_a_name_that_rules_could_not_name_is_refused(broker: Broker, name: str) -> None:
    with pytest.raises(InvalidCredentials):
        await broker.security.users.create(name, "password")


async def test_the_bootstrap_user_is_created_once(make_world: MakeWorld) -> None:
    assert await _bootstraps(make_world, "admin") == ["admin"]


async def _bootstraps(make_world: MakeWorld, name: str) -> list[str]:
    broker = await (await make_world(security=SECURITY)).start()
    assert await broker.security.users.bootstrap(name, "secret")
    assert not await broker.security.users.bootstrap(name, "another")
    await broker.security.log_in(name, "secret", host="h", listener="L")
    return [user.name for user in await broker.security.users.list()]
