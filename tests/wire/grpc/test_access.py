"""Every method of gRPC with no, wrong, expired, insufficient and sufficient credentials; streams whose rights end; TLS.

Generated from what the methods declare."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from streamhouse.agent import Agent
from streamhouse.errors import Misconfigured
from streamhouse.model.access import CLUSTER_NAME, IMPLYING, USER, Acl, AclFilter, Principal, ResourceType
from streamhouse.model.needs import Right
from streamhouse.wire import authorization
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb
from streamhouse.wire.grpc.server import ADMIN, NEEDS, RECORDS
from tests.support.agent import free_port
from tests.support.certificates import make_authority
from tests.wire.grpc.conftest import StartAgent
from tests.wire.security import PASSWORD, Headers, basic, bearer, enough

POSITION: Final = pb.Position(topic="orders", partition=0, offset=0)
REQUESTS: Final[dict[str, Any]] = {
    "Produce": pb.ProduceRequest(topic="orders", records=[pb.Record(value=b"v")]),
    "ProduceBatches": pb.ProduceBatchesRequest(topic="orders", batches=[b"no batch"]),
    "ProduceStream": pb.ProduceStreamRequest(
        produce=pb.ProduceRequest(topic="orders", records=[pb.Record(value=b"v")])
    ),
    "ProduceBatchesStream": pb.ProduceBatchesStreamRequest(
        produce=pb.ProduceBatchesRequest(topic="orders", batches=[b"no batch"])
    ),
    "Fetch": pb.FetchRequest(positions=[POSITION]),
    "FetchBatches": pb.FetchBatchesRequest(positions=[POSITION]),
    "Consume": pb.ConsumeRequest(subscribe=[POSITION], grant_records=1),
    "ConsumeBatches": pb.ConsumeBatchesRequest(subscribe=[POSITION], grant_records=1),
    "CreateTopic": pb.CreateTopicRequest(name="orders"),
    "ListTopics": pb.ListTopicsRequest(),
    "DescribeTopic": pb.DescribeTopicRequest(name="orders"),
    "AlterTopic": pb.AlterTopicRequest(name="orders", partitions=2, set_config={"retention.ms": "1000"}, dry_run=True),
    "DeleteTopic": pb.DeleteTopicRequest(name="orders"),
    "ListPartitions": pb.ListPartitionsRequest(),
    "ListOffsets": pb.ListOffsetsRequest(positions=[POSITION]),
    "ListGroups": pb.ListGroupsRequest(),
    "DescribeGroup": pb.DescribeGroupRequest(group_id="billing"),
    "GetGroupLag": pb.GetGroupLagRequest(group_id="billing"),
    "ResetGroup": pb.ResetGroupRequest(group_id="billing", positions=[POSITION]),
    "DeleteGroup": pb.DeleteGroupRequest(group_id="billing"),
    "ListAgents": pb.ListAgentsRequest(),
    "GetCluster": pb.GetClusterRequest(),
    "AllocateProducerId": pb.AllocateProducerIdRequest(),
}
NAMES: Final = {
    ResourceType.TOPIC: "orders",
    ResourceType.GROUP: "billing",
    ResourceType.CLUSTER: CLUSTER_NAME,
}
STREAMS: Final = ("ProduceStream", "ProduceBatchesStream", "Consume", "ConsumeBatches")
Send = Callable[[str, Headers], Awaitable[str]]
OK: Final = "OK"
NOT_LET_IN: Final = ("UNAUTHENTICATED", "PERMISSION_DENIED")


def settings_of(folder: Path, protocol: str) -> dict[str, str]:
    make_authority(folder).issue(folder, "agent")
    (folder / "password").write_text(PASSWORD)
    return {
        "grpc__protocol": protocol,
        "grpc__failures_per_s": "100000",
        "security__authorization": "acls",
        "security__bootstrap_user": "admin",
        "security__bootstrap_password": f"file:{folder / 'password'}",
        "security__failed_login_delay_s": "0",
        "security__tls_certificate": str(folder / "agent.pem"),
        "security__tls_key": str(folder / "agent.key"),
    }


@pytest.fixture
async def agent(start_agent: StartAgent, tmp_path: Path) -> Agent:
    agent = await start_agent(**settings_of(tmp_path, "SASL_PLAINTEXT"))
    await agent.broker.create_topic("orders", partitions=1, overrides={})
    return agent


def caller(channel: Any) -> Send:
    """Sends the sample of a method, and says how the call ended; streams are over after the first answer."""

    async def send(name: str, headers: Headers) -> str:
        service = RECORDS if name in pb.DESCRIPTOR.services_by_name["RecordsService"].methods_by_name else ADMIN
        method = pb.DESCRIPTOR.services_by_name[service.rpartition(".")[2]].methods_by_name[name]
        decode = getattr(pb, method.output_type.name).FromString
        path, metadata = f"/{service}/{name}", tuple(headers.items())
        try:
            if name not in STREAMS:
                await channel.unary_unary(path, None, decode)(REQUESTS[name].SerializeToString(), metadata=metadata)
                return OK
            call = channel.stream_stream(path, None, decode)(metadata=metadata)
            await call.write(REQUESTS[name].SerializeToString())
            if name.startswith("Consume"):
                await call.done_writing()
                await asyncio.wait_for(call.read(), 0.3)
            else:
                message = await call.read()
                if message is not grpc.aio.EOF and message.HasField("error"):
                    return str(next(each.name for each in grpc.StatusCode if each.value[0] == message.error.code))
                await call.done_writing()
            return OK
        except TimeoutError:
            call.cancel()
            return OK
        except grpc.aio.AioRpcError as error:
            return str(error.code().name)
        except asyncio.InvalidStateError:
            return str((await call.code()).name)

    return send


@pytest.fixture
async def send(agent: Agent) -> Any:
    async with grpc.aio.insecure_channel(str(agent.ready.grpc)) as channel:
        yield caller(channel)


async def user(agent: Agent, name: str, rights: Sequence[Right]) -> Headers:
    security = agent.broker.security
    await security.users.create(name, PASSWORD)
    rules = [
        Acl(resource_type=kind, name=NAMES[kind], principal=Principal(USER, name), operation=operation)
        for operation, kind, _ in rights
    ]
    await security.access.add_acls(rules)
    return basic(name)


def test_every_method_declares_what_it_needs_and_has_a_sample() -> None:
    services = ("RecordsService", "AdminService")
    methods = {each for name in services for each in pb.DESCRIPTOR.services_by_name[name].methods_by_name}
    assert methods == set(NEEDS) == set(REQUESTS)


async def test_without_the_right_credentials_nothing_answers(agent: Agent, send: Send) -> None:
    _, expired = await agent.broker.security.users.create_key(Principal(USER, "admin"), ttl_s=0.001)
    await asyncio.sleep(0.01)
    for name in NEEDS:
        assert await send(name, {}) == "UNAUTHENTICATED", name
        assert await send(name, basic("admin", "wrong")) == "UNAUTHENTICATED", name
        assert await send(name, basic("nobody")) == "UNAUTHENTICATED", name
        assert await send(name, bearer(expired)) == "UNAUTHENTICATED", name


async def test_each_right_of_a_method_is_needed(agent: Agent, send: Send) -> None:
    for name, needs in NEEDS.items():
        rights = enough(needs)
        for number, missing in enumerate(rights):
            others = [each for each in rights if each != missing]
            if not any(each.operation in IMPLYING.get(missing.operation, ()) for each in others):
                headers = await user(agent, f"{name}-{number}", others)
                assert await send(name, headers) == "PERMISSION_DENIED", (name, missing)


async def test_with_its_rights_every_method_gets_through(agent: Agent, send: Send) -> None:
    for name, needs in NEEDS.items():
        headers = await user(agent, name, [*enough(needs), *needs.lists])
        assert await send(name, headers) not in NOT_LET_IN, name
        if await agent.broker.catalog.find_if_any("orders") is None:
            await agent.broker.create_topic("orders", partitions=1, overrides={})


async def test_listings_show_what_the_caller_may_see(agent: Agent) -> None:
    await agent.broker.create_topic("secrets", partitions=1, overrides={})
    headers = await user(agent, "reader", enough(NEEDS["Fetch"]))
    async with grpc.aio.insecure_channel(str(agent.ready.grpc)) as channel:
        method = channel.unary_unary(f"/{ADMIN}/ListTopics", None, pb.ListTopicsResponse.FromString)
        topics = (await method(b"", metadata=tuple(headers.items()))).topics
        assert [each.name for each in topics] == ["orders"]


async def test_a_stream_ends_when_the_right_to_read_does(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorization, "CHECK_S", 0.05)
    headers = await user(agent, "reader", enough(NEEDS["Consume"]))
    async with grpc.aio.insecure_channel(str(agent.ready.grpc)) as channel, asyncio.timeout(10):
        method = channel.stream_stream(f"/{RECORDS}/Consume", None, pb.ConsumeResponse.FromString)
        call = method(metadata=tuple(headers.items()))
        await call.write(REQUESTS["Consume"].SerializeToString())
        await asyncio.sleep(0.3)
        await agent.broker.security.access.delete_acls([AclFilter(principal=Principal(USER, "reader"))])
        assert await call.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_a_login_over_tls(start_agent: StartAgent, tmp_path: Path) -> None:
    agent = await start_agent(**settings_of(tmp_path, "SASL_SSL"))
    trusted = grpc.ssl_channel_credentials((tmp_path / "ca.pem").read_bytes())
    async with grpc.aio.secure_channel(str(agent.ready.grpc), trusted) as channel, asyncio.timeout(20):
        send = caller(channel)
        assert await send("GetCluster", {}) == "UNAUTHENTICATED"
        assert await send("GetCluster", basic("admin")) == OK


async def test_the_user_of_a_certificate(start_agent: StartAgent, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "SSL") | {
        "security__tls_ca": str(tmp_path / "ca.pem"),
        "security__tls_client_auth": "required",
        "security__tls_principal_rules": "RULE:^.*CN=([a-z]+).*$/$1/,DEFAULT",
    }
    authority = make_authority(tmp_path)
    for name in ("agent", "admin", "nobody"):
        authority.issue(tmp_path, name)
    agent = await start_agent(**settings)
    outcomes = {}
    for name in ("admin", "nobody"):
        files = [(tmp_path / part).read_bytes() for part in ("ca.pem", f"{name}.key", f"{name}.pem")]
        credentials = grpc.ssl_channel_credentials(*files)
        async with grpc.aio.secure_channel(str(agent.ready.grpc), credentials) as channel, asyncio.timeout(20):
            outcomes[name] = await caller(channel)("ListAgents", {})
    assert outcomes == {"admin": OK, "nobody": "PERMISSION_DENIED"}


async def test_a_key_with_a_password(start_agent: StartAgent, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "SASL_SSL")
    key = load_pem_private_key((tmp_path / "agent.key").read_bytes(), None)
    (tmp_path / "agent.key").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"of the key"))
    )
    (tmp_path / "key-password").write_text("of the key")
    agent = await start_agent(**settings, security__tls_key_password=f"file:{tmp_path / 'key-password'}")
    trusted = grpc.ssl_channel_credentials((tmp_path / "ca.pem").read_bytes())
    async with grpc.aio.secure_channel(str(agent.ready.grpc), trusted) as channel, asyncio.timeout(20):
        assert await caller(channel)("GetCluster", basic("admin")) == OK


async def test_listeners_of_several_protocols(start_agent: StartAgent, tmp_path: Path) -> None:
    ports = [free_port(), free_port()]
    settings = settings_of(tmp_path, "INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL") | {
        "grpc__listen": f"INSIDE://127.0.0.1:{ports[0]},OUTSIDE://127.0.0.1:{ports[1]}"
    }
    await start_agent(**settings)
    trusted = grpc.ssl_channel_credentials((tmp_path / "ca.pem").read_bytes())
    async with asyncio.timeout(20), grpc.aio.insecure_channel(f"127.0.0.1:{ports[0]}") as inside:
        assert await caller(inside)("GetCluster", {}) == OK
        assert await caller(inside)("ListAgents", {}) == "PERMISSION_DENIED"
        async with grpc.aio.secure_channel(f"127.0.0.1:{ports[1]}", trusted) as outside:
            assert await caller(outside)("GetCluster", {}) == "UNAUTHENTICATED"
            assert await caller(outside)("ListAgents", basic("admin")) == OK


@pytest.mark.parametrize(
    ("changed", "named"),
    [({"security__tls_min_version": "1.3"}, "tls_min_version"), ({"security__tls_client_auth": "requested"}, "requir")],
)
async def test_what_grpc_can_not_do_is_refused_at_the_start(
    start_agent: StartAgent, tmp_path: Path, changed: dict[str, str], named: str
) -> None:
    settings = settings_of(tmp_path, "SSL") | {"security__tls_ca": str(tmp_path / "ca.pem")} | changed
    with pytest.raises(Misconfigured, match=named):
        await start_agent(**settings)
