"""Two tenants with the same names: for each API, a tenant can't tell whether the other one is there.

The oracle doesn't ask how names are translated: the same request is answered in two clusters, of which one has a
neighbour with topics, groups, transactions, users and rules of the same names. Both answers must be the same.
"""

import json
import re
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace

from streamhouse.broker.broker import Broker
from streamhouse.config import KafkaSettings, SecuritySettings, Settings
from streamhouse.config.fields import Address
from streamhouse.config.listener_spec import ListenerProtocol, ListenerSpec
from streamhouse.config.secrets import Secrets
from streamhouse.errors import Misconfigured
from streamhouse.model.access import Acl, AclFilter, Operation, PatternType, Principal, ResourceType
from streamhouse.wire.kafka import connection, handlers
from streamhouse.wire.kafka.api_registry import APIS, Api
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestEntryData,
)
from streamhouse.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from streamhouse.wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from streamhouse.wire.kafka.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from streamhouse.wire.kafka.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from streamhouse.wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from streamhouse.wire.kafka.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from streamhouse.wire.kafka.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from streamhouse.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from streamhouse.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from streamhouse.wire.kafka.messages.produce import ProduceResponse
from streamhouse.wire.kafka.sasl.login import BEFORE_LOGIN
from streamhouse.wire.kafka.schema import Field, Request, Response, fields_of
from streamhouse.wire.kafka.tenants import REFUSED, Kind, UnclassifiedField, enter, kind_of, leave, plan_of
from streamhouse.wire.listener import OpenListener, bind
from tests.support.depth import scaled
from tests.wire.kafka.sasl.logins import ScramClient, authenticate, handshake, plain
from tests.wire.kafka.talk import (
    Client,
    a_batch,
    a_broker,
    a_server,
    batches_of,
    create_topic,
    fetch,
    fetch_request,
    produce,
    produce_request,
    quick_settings,
)

assert handlers

NAMES: Final = ("INSIDE", "ACME", "BETA", "LOGIN", "ACMELOGIN")
SECRET: Final = "a secret of this cluster"
PASSWORD: Final = "correct horse battery"
TOPIC, GROUP, TRANSACTION = "orders", "billing", "transfer"
EVERYTHING: Final = [kind for kind in ResourceType if kind is not ResourceType.DELEGATION_TOKEN]


class Cluster:
    """A cluster with a listener for each tenant, and others for those who log in."""

    def __init__(self, broker: Broker, addresses: dict[str, Address]) -> None:
        self.broker = broker
        self._addresses = addresses
        self._clients: list[Client] = []

    async def client(self, listener: str) -> Client:
        client = await Client.connect(*self._addresses[listener])
        self._clients.append(client)
        return client

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


def settings_of(*, authorization: Any = "none", kafka: KafkaSettings | None = None) -> Settings:
    listen = ",".join(f"{name}://127.0.0.1:{number}" for number, name in enumerate(NAMES, 1))
    security = SecuritySettings(
        authorization=authorization,
        super_users="User:root",
        listener_tenants="ACME:acme,BETA:beta,ACMELOGIN:acme",
        failed_login_delay_s=0.01,
    )
    quick = quick_settings(kafka or KafkaSettings(listen=listen))
    groups = replace(quick.groups, initial_rebalance_delay_s=0.0)
    return replace(quick, security=security, groups=groups)


@asynccontextmanager
async def a_cluster(folder: Path, *, authorization: str = "none") -> AsyncIterator[Cluster]:
    settings = settings_of(authorization=authorization)
    listeners: dict[str, OpenListener] = {}
    for name in NAMES:
        listening = bind(Address("127.0.0.1", 0), flag="--kafka")
        bound = Address(*listening.getsockname()[:2])
        protocol = ListenerProtocol.SASL_PLAINTEXT if "LOGIN" in name else ListenerProtocol.PLAINTEXT
        spec = ListenerSpec(name=name, bind=bound, advertised=Address("broker.example", 9092), protocol=protocol)
        listeners[name] = OpenListener(spec=spec, listening=listening, advertised=bound)
    async with a_broker(folder, settings, secrets=Secrets(cluster_secret=SECRET)) as broker:
        if authorization == "acls":
            await broker.security.access.add_acls([all_of("acme"), *rules_of("acme"), *rules_of("beta")])
        async with a_server(broker, settings, listeners=list(listeners.values())):
            cluster = Cluster(broker, {name: listener.bound for name, listener in listeners.items()})
            try:
                yield cluster
            finally:
                await cluster.close()


def all_of(tenant: str) -> Acl:
    return Acl(
        resource_type=ResourceType.CLUSTER,
        name=f"{tenant}~kafka-cluster",
        principal=Principal("User", f"{tenant}~ANONYMOUS"),
        operation=Operation.ALL,
    )


def rules_of(tenant: str) -> Sequence[Acl]:
    """As an operator makes them, so that a tenant's clients may do everything in it."""
    return [all_of(tenant)] + [
        Acl(
            resource_type=kind,
            name=f"User:{tenant}~" if kind is ResourceType.USER else f"{tenant}~",
            pattern=PatternType.PREFIXED,
            principal=Principal("User", f"{tenant}~ANONYMOUS"),
            operation=Operation.ALL,
        )
        for kind in EVERYTHING
        if kind is not ResourceType.CLUSTER
    ]


async def call(client: Client, request: Request, version: int) -> Any:
    return await client.call(request, request.response_class, version)


async def populate(client: Client, *, authorization: str, partitions: int) -> None:
    """Everything of which a cluster can have some."""
    await create_topic(client, TOPIC, partitions=partitions)
    await produce(client, TOPIC, (0, a_batch(b"one", b"two")))
    await commit(client, GROUP, offset=2)
    await commit(client, "", offset=1)
    await begin_transaction(client, TRANSACTION)
    limit = OpData(key="producer_byte_rate", value=1e9)
    for entity in ("alice", None):
        named = [EntityData(entity_type="user", entity_name=entity)]
        request = AlterClientQuotasRequest(entries=[RequestEntryData(entity=named, ops=[limit])])
        assert (await call(client, request, 1)).entries[0].error_code == ErrorCode.NONE
    if authorization == "acls":
        rule = AclCreation(
            resource_type=2,
            resource_name=TOPIC,
            resource_pattern_type=3,
            principal="User:*",
            host="*",
            operation=3,
            permission_type=3,
        )
        assert (await call(client, CreateAclsRequest(creations=[rule]), 3)).results[0].error_code == ErrorCode.NONE


async def commit(client: Client, group: str, *, offset: int) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
    request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=topics)
    assert (await call(client, request, 8)).topics[0].partitions[0].error_code == ErrorCode.NONE


async def begin_transaction(client: Client, transactional_id: str) -> int:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    response = await client.call(request, InitProducerIdResponse, 4)
    assert response.error_code == ErrorCode.NONE
    return response.producer_id


# --- each API -------------------------------------------------------------------------------------------------------

SPECIAL: Final[dict[tuple[str, str], Any]] = {
    ("DescribeConfigs", "resource_type"): 2,
    ("AlterConfigs", "resource_type"): 2,
    ("IncrementalAlterConfigs", "resource_type"): 2,
    ("Produce", "acks"): -1,
    ("Fetch", "replica_id"): -1,
    ("Fetch", "session_epoch"): -1,
    ("Fetch", "max_bytes"): 1 << 20,
    ("Fetch", "partition_max_bytes"): 1 << 20,
    ("Fetch", "current_leader_epoch"): -1,
    ("Fetch", "forgotten_topics_data"): [],
    ("ListOffsets", "timestamp"): -1,
    ("ListOffsets", "replica_id"): -1,
    ("OffsetForLeaderEpoch", "replica_id"): -1,
    ("OffsetCommit", "generation_id_or_member_epoch"): -1,
    ("OffsetCommit", "member_id"): "",
    ("OffsetCommit", "group_instance_id"): None,
    ("DescribeAcls", "resource_type_filter"): 1,
    ("DescribeAcls", "pattern_type_filter"): 1,
    ("DescribeAcls", "operation"): 1,
    ("DescribeAcls", "permission_type"): 1,
    ("DescribeAcls", "resource_name_filter"): None,
    ("DescribeAcls", "principal_filter"): None,
    ("DescribeAcls", "host_filter"): None,
    ("DeleteAcls", "resource_type_filter"): 1,
    ("DeleteAcls", "pattern_type_filter"): 1,
    ("DeleteAcls", "operation"): 1,
    ("DeleteAcls", "permission_type"): 1,
    ("DeleteAcls", "resource_name_filter"): None,
    ("DeleteAcls", "principal_filter"): None,
    ("DeleteAcls", "host_filter"): None,
    ("DescribeClientQuotas", "components"): [],
    ("DescribeUserScramCredentials", "users"): None,
    ("DescribeDelegationToken", "owners"): None,
    ("ListTransactions", "transactional_id_pattern"): ".*fer",
    ("ElectLeaders", "topic_partitions"): None,
    ("DescribeLogDirs", "topics"): None,
    ("JoinGroup", "session_timeout_ms"): 10_000,
    ("InitProducerId", "transaction_timeout_ms"): 60_000,
    ("InitProducerId", "producer_id"): -1,
    ("InitProducerId", "producer_epoch"): -1,
    ("DeleteTopics", "name"): None,
    ("ApiVersions", "client_software_name"): "tests",
    ("ApiVersions", "client_software_version"): "1",
    ("Metadata", "name"): TOPIC,
    ("DescribeTopicPartitions", "response_partition_limit"): 100,
    ("DescribeTopicPartitions", "cursor"): None,
}


def build(struct: type, api: Api, version: int, topic_id: UUID) -> Any:
    present = [each for each in fields_of(struct) if each.exists_in(version)]
    made = struct(**{each.name: value(each, each.type, api, version, topic_id) for each in present})
    if struct.__name__ == "MetadataRequestTopic" and version >= 12:
        made.name = None
    return made


def value(field: Field, of: Any, api: Api, version: int, topic_id: UUID) -> Any:
    if (api.name, field.name) in SPECIAL:
        return SPECIAL[api.name, field.name]
    if isinstance(of, list):
        return [value(field, of[0], api, version, topic_id)]
    if isinstance(of, type):
        return None if field.tag is not None else build(of, api, version, topic_id)
    if of == "records":
        return bytes(a_batch(b"v")) if api.name == "Produce" else None
    if of == "uuid":
        return topic_id
    if of == "string":
        return text(field.name)
    return {"bytes": b"", "bool": False}.get(of, 0)


def text(name: str) -> str:
    if "group" in name and "instance" not in name:
        return GROUP
    if "transactional" in name:
        return TRANSACTION
    if "topic" in name or name in ("name", "resource_name", "key", "coordinator_keys"):
        return TOPIC
    return "User:alice" if name == "principal" else "*" if name == "host" else ""


CASES: Final = [
    pytest.param(api, version, id=f"{api.name}-v{version}")
    for _, api in sorted(APIS.items())
    if api.key not in BEFORE_LOGIN
    for version in sorted(scaled(quick={api.last}, nightly={api.first, api.last}))
]
WAYS: Final = scaled(
    quick=[("none", False), ("acls", True)],
    nightly=[(authorization, is_populated) for authorization in ("none", "acls") for is_populated in (False, True)],
)
"""Who may do what, and whether the tenant has the same as its neighbour."""
CHANGEABLE: Final = re.compile(
    r"(?:UUID\(')?[0-9a-f]{8}-[0-9a-f-]{27}(?:'\))?|port=\d+|(?:producer_id|log_append_time_ms|leader_epoch|[a-z_]*timestamp[a-z_]*)=-?\d+"
    r"|(?:member_id|leader|token_id)='[^']*'|hmac=b.*?(?=[,)])|memory at 0x[0-9a-f]+"
)


def shape(response: Response) -> str:
    """A response, without what differs from one cluster to the next."""
    return CHANGEABLE.sub("_", repr(response))


async def snapshot(broker: Broker, *, authorization: str) -> Any:
    """What the neighbour has, as its operators see it."""
    groups = [f"acme~{GROUP}", "acme~"]
    topics = [topic for topic in await broker.topics() if topic.name.startswith("acme~")]
    committed = await broker.groups.fetch(dict.fromkeys(groups), stable=False)
    transactions = await broker.transactions.list(states=set(), producer_ids=set(), min_duration_ms=-1)
    acls = await broker.security.access.acls(AclFilter()) if authorization == "acls" else []
    return (
        topics,
        committed,
        [each for each in transactions if each.transactional_id.startswith("acme~")],
        [each for each in await broker.security.quotas.list() if "acme~" in str(each.entity)],
        sorted(acl for acl in acls if "acme~" in str(acl)),
        [user.name for user in await broker.security.users.list()],
    )


@pytest.mark.parametrize(("authorization", "is_populated"), WAYS)
@pytest.mark.parametrize(("api", "version"), CASES)
async def test_a_tenant_can_not_see_whether_there_is_another(
    tmp_path: Path, api: Api, version: int, authorization: str, *, is_populated: bool
) -> None:
    responses = []
    for name in ("alone", "beside"):
        async with a_cluster(tmp_path / name, authorization=authorization) as cluster:
            topic_id, before = uuid4(), None
            if name == "beside":
                neighbour = await cluster.client("ACME")
                await populate(neighbour, authorization=authorization, partitions=3)
                topic_id = (await cluster.broker.topic(f"acme~{TOPIC}")).topic_id
                before = await snapshot(cluster.broker, authorization=authorization)
            client = await cluster.client("BETA")
            if is_populated:
                await populate(client, authorization=authorization, partitions=1)
            request = build(api.request, api, version, topic_id)
            response = await call(client, request, version)
            assert "acme" not in repr(response)
            assert "beta~" not in repr(response)  # a lone "~" may be a byte of a checksum
            responses.append(shape(response))
            if before is not None:
                assert await snapshot(cluster.broker, authorization=authorization) == before
    assert responses[0] == responses[1]


# --- what clients might guess ---------------------------------------------------------------------------------------


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with a_cluster(tmp_path) as cluster:
        yield cluster


async def test_tenants_have_their_own_records_offsets_and_cluster(cluster: Cluster) -> None:
    acme, beta, operator = [await cluster.client(name) for name in ("ACME", "BETA", "INSIDE")]
    for client, values in ((acme, [b"a", b"b", b"c"]), (beta, [b"d"])):
        await create_topic(client, TOPIC)
        await produce(client, TOPIC, (0, a_batch(*values)))
    for client, end in ((acme, 3), (beta, 1)):
        (part,) = await fetch(client, fetch_request(TOPIC, (0, 0)))
        assert part.high_watermark == end
        assert len(batches_of(part)) == 1
    seen = [await client.call(MetadataRequest(topics=None), MetadataResponse, 9) for client in (acme, beta, operator)]
    assert [[topic.name for topic in each.topics] for each in seen[:2]] == [[TOPIC], [TOPIC]]
    assert {"acme~orders", "beta~orders"} <= {topic.name for topic in seen[2].topics}
    assert len({each.cluster_id for each in seen}) == 3


@pytest.mark.parametrize("guess", ["acme~orders", "~orders", "acme~", "beta~orders", "../acme~orders"])
async def test_a_name_with_a_tenant_in_it_is_no_topic_for_a_tenant(cluster: Cluster, guess: str) -> None:
    acme, beta = await cluster.client("ACME"), await cluster.client("BETA")
    await create_topic(acme, TOPIC)
    named = [MetadataRequestTopic(name=guess)]
    response = await beta.call(MetadataRequest(topics=named, allow_auto_topic_creation=True), MetadataResponse, 9)
    assert response.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert response.topics[0].name == guess


async def test_the_topic_id_of_another_tenant_is_unknown(cluster: Cluster) -> None:
    acme, beta = await cluster.client("ACME"), await cluster.client("BETA")
    await create_topic(acme, TOPIC)
    await produce(acme, TOPIC, (0, a_batch(b"secret")))
    topic_id = (await cluster.broker.topic("acme~orders")).topic_id
    (part,) = await fetch(beta, fetch_request("", (0, 0), topic_id=topic_id), 13)
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert not part.records
    response = await beta.call(produce_request("", (0, a_batch(b"v")), topic_id=topic_id), ProduceResponse, 13)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    (part,) = await fetch(acme, fetch_request("", (0, 0), topic_id=topic_id), 13)
    assert part.high_watermark == 1


async def test_a_transactional_id_fences_nobody_in_another_tenant(cluster: Cluster) -> None:
    acme, beta = await cluster.client("ACME"), await cluster.client("BETA")
    first, second = await begin_transaction(acme, TRANSACTION), await begin_transaction(beta, TRANSACTION)
    assert first != second
    listed = await acme.call(ListTransactionsRequest(), ListTransactionsResponse, 1)
    assert [(each.transactional_id, each.producer_id) for each in listed.transaction_states] == [(TRANSACTION, first)]


async def test_groups_are_listed_by_their_tenant_only(cluster: Cluster) -> None:
    acme, beta = await cluster.client("ACME"), await cluster.client("BETA")
    await create_topic(acme, TOPIC)
    await commit(acme, GROUP, offset=1)
    assert [each.group_id for each in (await call(acme, ListGroupsRequest(), 4)).groups] == [GROUP]
    assert (await beta.call(ListGroupsRequest(), ListGroupsResponse, 4)).groups == []


async def test_a_client_of_a_tenant_is_no_agent_whatever_it_says(cluster: Cluster) -> None:
    acme = await cluster.client("ACME")
    await create_topic(acme, TOPIC)
    request = build(APIS[27].request, APIS[27], 1, uuid4())
    response = await call(acme, request, 1)
    assert ErrorCode.CLUSTER_AUTHORIZATION_FAILED in set(codes_in(response))


@pytest.mark.parametrize("key", REFUSED)
async def test_what_is_no_tenants_business_is_denied_to_who_may_do_everything(cluster: Cluster, key: int) -> None:
    acme = await cluster.client("ACME")
    await create_topic(acme, TOPIC)
    api = APIS[key]
    request = build(api.request, api, api.last, uuid4())
    if key == 43:
        request.topic_partitions = None
    assert ErrorCode.CLUSTER_AUTHORIZATION_FAILED in set(codes_in(await call(acme, request, api.last)))


async def test_a_tenant_is_not_told_where_records_are(cluster: Cluster) -> None:
    acme, operator = await cluster.client("ACME"), await cluster.client("INSIDE")
    request = DescribeLogDirsRequest(topics=None)
    result = await operator.call(request, DescribeLogDirsResponse, 4)
    assert cluster.broker.topic_admin.store in result.results[0].log_dir
    result = await acme.call(request, DescribeLogDirsResponse, 4)
    assert cluster.broker.topic_admin.store not in repr(result)


def codes_in(struct: Any) -> Iterator[int]:
    for each in fields_of(type(struct)):
        content = getattr(struct, each.name)
        if each.name == "error_code":
            yield content
        for part in content if isinstance(content, list) else [content]:
            if fields_of(type(part)):
                yield from codes_in(part)


# --- logins ---------------------------------------------------------------------------------------------------------


async def by_plain(client: Client, user: str, password: str = PASSWORD) -> int:
    assert (await handshake(client, "PLAIN")).error_code == ErrorCode.NONE
    return (await authenticate(client, plain(user, password))).error_code


async def by_scram(client: Client, user: str, password: str = PASSWORD) -> int:
    assert (await handshake(client, "SCRAM-SHA-512")).error_code == ErrorCode.NONE
    scram = ScramClient("SCRAM-SHA-512", user, password)
    challenge = await authenticate(client, scram.first())
    return (await authenticate(client, scram.final(challenge.auth_bytes))).error_code


@pytest.mark.parametrize("log_in", [by_plain, by_scram])
async def test_a_user_is_in_the_tenant_that_its_name_or_its_listener_shows(
    cluster: Cluster, log_in: Callable[[Client, str], Awaitable[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = list[str]()
    monkeypatch.setattr(cluster.broker.security.audit, "failed_login", lambda name, *_, **__: failed.append(name))
    for user in ("acme~alice", "beta~alice", "carol"):
        await cluster.broker.security.users.create(user, PASSWORD)
    acme = await cluster.client("ACME")
    await create_topic(acme, TOPIC)
    for listener, user, topics in (
        ("LOGIN", "acme~alice", [TOPIC]),
        ("LOGIN", "beta~alice", []),
        ("LOGIN", "carol", ["acme~orders"]),
        ("ACMELOGIN", "alice", [TOPIC]),
    ):
        client = await cluster.client(listener)
        assert await log_in(client, user) == ErrorCode.NONE
        response = await client.call(MetadataRequest(topics=None), MetadataResponse, 9)
        assert [each.name for each in response.topics if not (each.name or "").startswith("__")] == topics
    for user in ("acme~alice", "beta~alice", "carol", "~alice"):
        assert await log_in(await cluster.client("ACMELOGIN"), user) == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert failed == ["acme~acme~alice", "acme~beta~alice", "acme~carol", "acme~~alice"]


async def test_credentials_of_others_are_refused_on_the_listener_of_a_tenant(cluster: Cluster) -> None:
    security = cluster.broker.security
    assert security.tokens is not None
    for user in ("acme~alice", "beta~alice", "carol"):
        await security.users.create(user, PASSWORD)
    texts = {
        user: (await security.users.create_key(Principal("User", user)))[1]
        for user in ("acme~alice", "beta~alice", "carol")
    }
    texts["agent"] = security.tokens.make(Principal("Agent", "127.0.0.1:1"))
    texts["worker"] = security.tokens.make(Principal("Worker", "one"))
    outcomes = {}
    for user, text in texts.items():
        client = await cluster.client("ACMELOGIN")
        await handshake(client, "OAUTHBEARER")
        response = await authenticate(client, f"n,,\x01auth=Bearer {text}\x01\x01".encode())
        outcomes[user] = not response.error_code and not response.auth_bytes
    assert outcomes == {"acme~alice": True, "beta~alice": False, "carol": False, "agent": False, "worker": False}


async def test_nobody_makes_tokens_for_who_has_not_logged_in(cluster: Cluster) -> None:
    acme = await cluster.client("ACME")
    response = await call(acme, build(APIS[38].request, APIS[38], 3, uuid4()), 3)
    assert response.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def test_groups_that_a_token_claims_are_the_tenants(cluster: Cluster) -> None:
    security = cluster.broker.security
    assert security.tokens is not None
    groups = (Principal("Group", "ops"), Principal("Group", "acme~dev"), Principal("Group", "beta~dev"))
    token = security.tokens.make(Principal("User", "acme~alice"), groups=groups)
    caller = await security.log_in_with_token(token, host="127.0.0.1", listener="LOGIN")
    assert [each.name for each in caller.groups] == ["acme~ops", "acme~dev", "acme~beta~dev"]
    again = security.tokens.make(caller.principal, groups=caller.groups)
    assert (await security.log_in_with_token(again, host="127.0.0.1", listener="LOGIN")).groups == caller.groups


# --- rules and quotas -----------------------------------------------------------------------------------------------


async def test_rules_of_a_tenant_are_about_nothing_else(tmp_path: Path) -> None:
    async with a_cluster(tmp_path, authorization="acls") as cluster:
        await cluster.broker.security.users.create("acme~bob", PASSWORD)
        await cluster.broker.security.users.create("beta~bob", PASSWORD)
        acme, beta = await cluster.client("ACME"), await cluster.client("BETA")
        for client in (acme, beta):
            await create_topic(client, TOPIC)
        everything = AclCreation(
            resource_type=2,
            resource_name="*",
            resource_pattern_type=3,
            principal="User:*",
            host="*",
            operation=2,
            permission_type=3,
        )
        made = await call(acme, CreateAclsRequest(creations=[everything]), 3)
        assert made.results[0].error_code == ErrorCode.NONE
        seen = {}
        for user in ("acme~bob", "beta~bob"):
            client = await cluster.client("LOGIN")
            assert await by_plain(client, user) == ErrorCode.NONE
            response = await client.call(MetadataRequest(topics=None), MetadataResponse, 9)
            seen[user] = [topic.name for topic in response.topics]
        assert seen == {"acme~bob": [TOPIC], "beta~bob": []}
        all_rules = DescribeAclsRequest(
            resource_type_filter=2,
            pattern_type_filter=3,
            operation=1,
            permission_type=1,
            resource_name_filter="*",
            principal_filter=None,
            host_filter=None,
        )
        listed = await acme.call(all_rules, DescribeAclsResponse, 3)
        assert [(each.resource_name, rule.principal) for each in listed.resources for rule in each.acls] == [
            ("*", "User:*"),
            ("*", "User:ANONYMOUS"),
        ]


async def test_a_tenants_limit_holds_for_its_own_clients_only(cluster: Cluster) -> None:
    acme, beta = await cluster.client("ACME"), await cluster.client("BETA")
    limit = OpData(key="producer_byte_rate", value=1.0)
    for entity_type in ("user", "client-id"):
        named = [EntityData(entity_type=entity_type, entity_name=None)]
        await call(acme, AlterClientQuotasRequest(entries=[RequestEntryData(entity=named, ops=[limit])]), 1)
    for client in (acme, beta):
        await create_topic(client, TOPIC)
    waits = []
    for client in (acme, beta):
        response = await client.call(produce_request(TOPIC, (0, a_batch(b"v" * 1000))), ProduceResponse, 9)
        waits.append(response.throttle_time_ms)
    assert waits[0] > 0
    assert waits[1] == 0


async def test_addresses_have_no_limits_of_a_tenant(cluster: Cluster) -> None:
    acme = await cluster.client("ACME")
    named = [EntityData(entity_type="ip", entity_name="127.0.0.1")]
    ops = [OpData(key="connection_creation_rate", value=1.0)]
    response = await call(acme, AlterClientQuotasRequest(entries=[RequestEntryData(entity=named, ops=ops)]), 1)
    assert response.entries[0].error_code == ErrorCode.INVALID_REQUEST


# --- the settings and the table of fields ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["ACME", "ACME:", "ACME:Acme", "ACME:a~b", "ACME:acme,ACME:beta", "NOWHERE:acme", "INSIDE:acme", ":acme"]
)
async def test_wrong_settings_are_refused(tmp_path: Path, text: str) -> None:
    good = settings_of()
    wrong = replace(good, security=replace(good.security, listener_tenants=text))
    with pytest.raises(Misconfigured, match=r"security\.listener_tenants"):
        async with a_broker(tmp_path, wrong):
            raise AssertionError("it started")


@pytest.mark.parametrize("api", [pytest.param(api, id=api.name) for api in APIS.values()])
def test_every_text_of_every_message_is_classified(api: Api) -> None:
    plan_of(api.request)
    plan_of(api.request.response_class)


def test_a_text_that_nobody_has_classified_is_noticed() -> None:
    field = replace_name(fields_of(ApiVersionsRequest)[0], "brand_new")
    with pytest.raises(UnclassifiedField, match="brand_new"):
        kind_of(ApiVersionsResponse, field)


def replace_name(field: Field, name: str) -> Field:
    return Field(**{each: getattr(field, each) for each in Field.__slots__} | {"name": name})


KAFKAS_WORDS: Final = {"topicName", "groupId", "transactionalId"}


def test_the_table_agrees_with_kafkas_own_definitions() -> None:
    """Kafka says of many fields what they name (`entityType`); kafka-python ships its definitions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        folder = files("kafka.protocol.schemas.resources")
    wrong, seen = [], 0
    for api in APIS.values():
        for message in (api.request, api.request.response_class):
            results = [each for each in folder.iterdir() if each.name == f"{message.__name__}.json"]
            for path in results:
                definition = json.loads(re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.MULTILINE))
                for struct, name in tagged(definition, message.__name__):
                    seen += 1
                    if not is_translated(message, struct, name):
                        wrong.append(f"{message.__name__}: {struct}.{name}")
    assert seen > 60
    assert not wrong


def tagged(definition: Any, name: str) -> Iterator[tuple[str, str]]:
    common = {each["name"]: each["fields"] for each in definition.get("commonStructs", [])}

    def visit(fields: Any, struct: str) -> Iterator[tuple[str, str]]:
        for field in fields:
            kind = field["type"].removeprefix("[]")
            if field.get("entityType") in KAFKAS_WORDS:
                yield struct, snake(field["name"])
            if kind[0].isupper():
                yield from visit(field.get("fields") or common[kind], kind)

    return visit(definition["fields"], name)


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def is_translated(struct: type, wanted: str, name: str) -> bool:
    """Whether a field of the struct of this name, anywhere in a message, counts as a tenant's."""
    for field in fields_of(struct):
        if struct.__name__.endswith(wanted) and field.name == name:
            return kind_of(struct, field) in (Kind.NAME, Kind.GROUP)
        inner = field.type[0] if isinstance(field.type, list) else field.type
        if isinstance(inner, type) and is_translated(inner, wanted, name):
            return True
    return False


def test_a_response_shows_nothing_of_others_whatever_a_handler_returns() -> None:
    from streamhouse.wire.kafka.messages.list_groups import ListedGroup

    response = ListGroupsResponse(
        groups=[ListedGroup(group_id=name) for name in ("acme~g", "beta~g", "g", "acme-x~g", "xacme~g")]
    )
    leave("acme", response)
    assert [each.group_id for each in response.groups] == ["g"]
    request = MetadataRequest(topics=[MetadataRequestTopic(name="g"), MetadataRequestTopic(name=None)])
    enter("acme", request)
    assert request.topics is not None
    assert [each.name for each in request.topics] == ["acme~g", None]


async def test_many_names_are_translated_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[str, list[bool]] = {"enter": [], "leave": []}

    def noted(name: str, work: Callable[[str, Any], None]) -> Callable[[str, Any], None]:
        def note_and_work(tenant: str, message: Any) -> None:
            threads[name].append(threading.current_thread() is threading.main_thread())
            work(tenant, message)

        return note_and_work

    monkeypatch.setattr(connection, "enter", noted("enter", enter))
    monkeypatch.setattr(connection, "leave", noted("leave", leave))
    async with a_cluster(tmp_path) as cluster:
        client = await cluster.client("ACME")
        for count in (10, 10_000):
            topics = [MetadataRequestTopic(name=f"name-{number}") for number in range(count)]
            request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            response = await call(client, request, 9)
            assert [each.name for each in response.topics] == [each.name for each in topics]
    assert threads == {"enter": [True, False], "leave": [True, False]}
