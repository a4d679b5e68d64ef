"""Every API x {no rights, the rights that it declares, all but one of them, super user}: none falls through."""

from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from streamhouse.broker.broker import Broker
from streamhouse.clock import Ids, SystemClock
from streamhouse.config import KafkaSettings, SecuritySettings, Settings
from streamhouse.config.fields import Address
from streamhouse.config.listener_spec import DEFAULT_NAME, ListenerSpec
from streamhouse.model.access import (
    ANY,
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Caller,
    Principal,
    ResourceType,
)
from streamhouse.model.needs import Need, Right
from streamhouse.wire.kafka import handlers
from streamhouse.wire.kafka.api_registry import APIS, Api
from streamhouse.wire.kafka.client_metrics import ClientMetrics
from streamhouse.wire.kafka.client_software import UNNAMED
from streamhouse.wire.kafka.context import CloseConnection, Context, KafkaMetrics, PendingResponse
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.sasl.exchanges import LoginOrigin
from streamhouse.wire.kafka.sasl.login import BEFORE_LOGIN, Login
from streamhouse.wire.kafka.schema import Field, Response, fields_of
from streamhouse.wire.listener import OpenListener, bind
from tests.support.depth import scaled
from tests.wire.kafka.talk import a_batch, a_broker, quick_settings

assert handlers

DENIED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)
TOPIC: Final = "orders"
SECRETS: Final = ("orders", "group-one", "txn-one", "User:carol")
"""What nobody is told of who has no right to know it."""

FOUND_FIRST: Final = frozenset({"DescribeTransactions", "OffsetDelete"})
"""What they tell of topics, after they have found the transaction or the group, of which there is none here."""
LISTINGS: Final = frozenset({"ListGroups", "ListTransactions", "DescribeDelegationToken"})
"""They leave out what the caller may not know, and have no error for it."""
SELF_SERVICE: Final = frozenset(
    {
        "ApiVersions",
        "DescribeCluster",
        "SaslHandshake",
        "SaslAuthenticate",
        "CreateDelegationToken",
        "RenewDelegationToken",
        "ExpireDelegationToken",
        "DescribeDelegationToken",
        "GetTelemetrySubscriptions",
        "PushTelemetry",
    }
)
"""Open to everybody, or about what the caller itself has."""

SPECIAL: Final[dict[tuple[str, str], Any]] = {
    ("DescribeConfigs", "resource_type"): 2,
    ("AlterConfigs", "resource_type"): 2,
    ("IncrementalAlterConfigs", "resource_type"): 2,
    ("Produce", "acks"): -1,
    ("Fetch", "replica_id"): -1,
    ("OffsetForLeaderEpoch", "replica_id"): -1,
    ("AddPartitionsToTxn", "verify_only"): False,
    ("DeleteTopics", "name"): None,
    ("DescribeTransactions", "transactional_ids"): ["txn-one"],
}


@pytest.fixture
def settings() -> Settings:
    quick = quick_settings(KafkaSettings())
    security = SecuritySettings(authorization="acls", super_users="User:root")
    return replace(quick, security=security)


@pytest.fixture
async def broker(tmp_path: Path, settings: Settings) -> AsyncIterator[Broker]:
    async with a_broker(tmp_path, settings) as broker:
        await broker.create_topic(TOPIC, partitions=1, overrides={})
        yield broker


def caller_named(name: str) -> Caller:
    return Caller(principal=Principal("User", name), host="127.0.0.1", listener=DEFAULT_NAME)


async def no_delay() -> None:
    """Failed logins are answered at once."""


async def ask(broker: Broker, api: Api, version: int, caller: Caller) -> Response | None:
    """The answer to a request with as little in it as the API needs; None where the connection would be closed."""
    topic_id = (await broker.topic(TOPIC)).topic_id
    request = build(api.request, api, version, topic_id)
    listening = bind(Address("127.0.0.1", 0), flag="--kafka")
    context = Context(
        broker=broker,
        api=api.name,
        version=version,
        client_id="streamhouse-agent",  # which is not believed
        client_host=caller.host,
        caller=caller,
        listener=OpenListener(
            spec=ListenerSpec(name=DEFAULT_NAME, bind=Address("127.0.0.1", 0)),
            listening=listening,
            advertised=Address("127.0.0.1", 1),
        ),
        advertised=Address("127.0.0.1", 1),
        cluster_id="a-cluster",
        metrics=KafkaMetrics(
            CollectorRegistry(), ClientMetrics(KafkaSettings(client_metrics="*"), SystemClock(), Ids())
        ),
        retain=lambda _: None,
        software=UNNAMED,
        set_software=lambda _: None,
        login=Login(
            LoginOrigin(security=broker.security, host=caller.host, listener=DEFAULT_NAME),
            broker.settings.security,
            SystemClock(),
            caller=caller,
            is_required=False,
        ),
        delay_failed_login=no_delay,
    )
    try:
        result = await api.handle(context, request)
        return await result.respond() if isinstance(result, PendingResponse) else result
    except CloseConnection:
        return None
    finally:
        listening.close()


def build(struct: type, api: Api, version: int, topic_id: UUID) -> Any:
    present = [each for each in fields_of(struct) if each.exists_in(version)]
    return struct(**{each.name: value(each, each.type, api, version, topic_id) for each in present})


def value(field: Field, of: Any, api: Api, version: int, topic_id: UUID) -> Any:
    if (api.name, field.name) in SPECIAL:
        return SPECIAL[api.name, field.name]
    if isinstance(of, list):
        return [value(field, of[0], api, version, topic_id)]
    if isinstance(of, type):
        return None if field.tag is not None else build(of, api, version, topic_id)
    named = {"records": a_batch(b"v"), "uuid": topic_id, "string": text(field.name), "bytes": b""}
    if of == "records" and api.name != "Produce":
        return None
    if of in named:
        return named[of]
    return False if of == "bool" else 0


def text(name: str) -> str:
    if "group" in name and "instance" not in name:
        return "group-one"
    if "transactional" in name:
        return "txn-one"
    if "topic" in name or name in ("name", "resource_name", "key", "coordinator_keys"):
        return TOPIC
    return ""


def codes_in(struct: Any) -> Iterator[int]:
    for each in fields_of(type(struct)):
        content = getattr(struct, each.name)
        if each.name.endswith("error_code") and each.name != "topic_config_error_code":
            yield content
        for part in content if isinstance(content, list) else [content]:
            if fields_of(type(part)):
                yield from codes_in(part)


def is_denied(response: Response | None) -> bool:
    return response is not None and not DENIED.isdisjoint(codes_in(response))


def allow(right: Right, principal: Principal) -> Acl:
    name = CLUSTER_NAME if right.type is ResourceType.CLUSTER else ANY
    return Acl(resource_type=right.type, name=name, principal=principal, operation=right.operation)


async def grant(broker: Broker, needs: Sequence[Need], principal: Principal) -> None:
    await broker.security.access.delete_acls([AclFilter()])
    if acls := {allow(right, principal) for need in needs for right in need.rights[:1]}:
        await broker.security.access.add_acls(list(acls))


CASES: Final = [
    pytest.param(api, version, id=f"{api.name}-v{version}")
    for _, api in sorted(APIS.items())
    for version in sorted(scaled(quick={api.last}, nightly={api.first, api.last}))
]


def test_every_api_declares_what_it_needs() -> None:
    assert {api.key for api in APIS.values() if api.needs.is_open} == BEFORE_LOGIN
    assert {api.name for api in APIS.values() if not api.needs.all_of} <= SELF_SERVICE
    for api in APIS.values():
        assert all(need.rights or need.processes for need in api.needs.all_of), api.name


@pytest.mark.parametrize(("api", "version"), CASES)
async def test_without_rights_nothing_is_done_and_nothing_is_reported(broker: Broker, api: Api, version: int) -> None:
    response = await ask(broker, api, version, caller_named("mallory"))
    if api.name in SELF_SERVICE | LISTINGS:
        assert not any(secret in repr(response) for secret in SECRETS)
        return
    assert is_denied(response), response
    assert ErrorCode.NONE not in set(codes_in(response)) or api.name in ("Metadata", "DescribeTopicPartitions", *NESTED)
    assert (await broker.catalog.find(TOPIC)).partitions == 1


NESTED: Final = frozenset(
    api.name
    for api in APIS.values()
    for fields in [fields_of(api.request.response_class)]
    if any(each.name == "error_code" for each in fields)
)
"""Answers with a code at the top that concerns the whole request, and others further down."""


@pytest.mark.parametrize(("api", "version"), CASES)
async def test_declared_rights_are_enough(broker: Broker, api: Api, version: int) -> None:
    await grant(broker, api.needs.all_of, Principal("User", "alice"))
    assert not is_denied(await ask(broker, api, version, caller_named("alice")))


@pytest.mark.parametrize(("api", "version"), CASES)
async def test_each_declared_right_is_needed(broker: Broker, api: Api, version: int) -> None:
    for missing in [need for need in api.needs.all_of if not need.when]:
        await grant(broker, [need for need in api.needs.all_of if need != missing], Principal("User", "alice"))
        response = await ask(broker, api, version, caller_named("alice"))
        assert is_denied(response) or api.name in LISTINGS | FOUND_FIRST, missing


@pytest.mark.parametrize(("api", "version"), CASES)
async def test_a_super_user_may_do_everything(broker: Broker, api: Api, version: int) -> None:
    assert not is_denied(await ask(broker, api, version, caller_named("root")))


@pytest.mark.parametrize("kind", ["Worker", "Supervisor"])
@pytest.mark.parametrize(("api", "version"), CASES)
async def test_workers_and_supervisors_are_nobody_on_this_wire(
    broker: Broker, api: Api, version: int, kind: str
) -> None:
    response = await ask(broker, api, version, Caller(principal=Principal(kind, "one"), host="127.0.0.1"))
    assert is_denied(response) or api.name in SELF_SERVICE | LISTINGS
