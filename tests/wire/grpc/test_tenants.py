"""Two tenants with the same names over gRPC: nobody can tell whether the other one is there.

As in `tests/wire/kafka/test_tenants.py`: each method is asked of two agents, of which one has a neighbour's topics,
records and groups, by a user who may do everything.
"""

import re
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor

from streamhouse.agent import Agent
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb
from streamhouse.wire.grpc.server import ADMIN, RECORDS
from streamhouse.wire.grpc.tenants import REFUSED, kind_of
from tests.wire.grpc.conftest import StartAgent
from tests.wire.grpc.test_access import REQUESTS, STREAMS, settings_of
from tests.wire.security import PASSWORD, basic

ACME, BETA = "acme~admin", "beta~admin"
METHODS: Final = {
    method.name: (RECORDS if service.name == "RecordsService" else ADMIN, method)
    for service in pb.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
CHANGEABLE: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f-]{27}|batches: [^\n]*|(?:created_at_ms|timestamp_ms|epoch|producer_id): -?\d+"
)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("alone", "beside"):
        (tmp_path / name).mkdir()
    return tmp_path / "alone", tmp_path / "beside"


async def start(start_agent: StartAgent, folder: Path) -> Agent:
    more = {"security__super_users": f"User:{ACME},User:{BETA}", "agent__data": str(folder / "data")}
    agent = await start_agent(**settings_of(folder, "SASL_PLAINTEXT"), **more)
    for user in (ACME, BETA):
        await agent.broker.security.users.create(user, PASSWORD)
    return agent


async def ask(channel: Any, name: str, user: str, request: Any = None) -> Any:
    """The answer of a method, or the error; of a stream, the first message."""
    service, method = METHODS[name]
    path, metadata = f"/{service}/{name}", tuple(basic(user).items())
    decode, data = getattr(pb, method.output_type.name).FromString, (request or REQUESTS[name]).SerializeToString()
    try:
        if name not in STREAMS:
            return await channel.unary_unary(path, None, decode)(data, metadata=metadata)
        call = channel.stream_stream(path, None, decode)(metadata=metadata)
        await call.write(data)
        response = await call.read()
        call.cancel()
        return response
    except grpc.aio.AioRpcError as error:
        return f"{error.code()} {error.details()}"


async def populate(channel: Any, user: str) -> None:
    for name in ("CreateTopic", "Produce", "ResetGroup"):
        assert not isinstance(response := await ask(channel, name, user), str), response


def channel_to(agent: Agent) -> Any:
    return grpc.aio.insecure_channel(str(agent.ready.grpc))


@pytest.mark.parametrize("is_populated", [False, True], ids=["nothing", "the-same"])
async def test_a_tenant_can_not_see_whether_there_is_another(
    start_agent: StartAgent, folders: tuple[Path, Path], *, is_populated: bool
) -> None:
    alone, beside = [await start(start_agent, folder) for folder in folders]
    async with channel_to(alone) as first, channel_to(beside) as second:
        await populate(second, ACME)
        before = [str(await ask(second, name, ACME)) for name in ("ListTopics", "ListGroups", "GetGroupLag")]
        if is_populated:
            for channel in (first, second):
                await populate(channel, BETA)
        for name in REQUESTS:
            if not is_populated and name in ("Consume", "ConsumeBatches"):
                continue  # they wait for what isn't there
            shown = [str(await ask(channel, name, BETA)) for channel in (first, second)]
            assert not any("acme" in each or "beta~" in each for each in shown), (name, shown)
            assert CHANGEABLE.sub("_", shown[0]) == CHANGEABLE.sub("_", shown[1]), name
        assert [str(await ask(second, name, ACME)) for name in ("ListTopics", "ListGroups", "GetGroupLag")] == before


async def test_a_tenant_reads_its_own_records_in_streams_too(
    start_agent: StartAgent, folders: tuple[Path, Path]
) -> None:
    agent = await start(start_agent, folders[0])
    async with channel_to(agent) as channel:
        for user in (ACME, BETA):
            await ask(channel, "CreateTopic", user)
            record = pb.Record(value=user.encode())
            request = pb.ProduceStreamRequest(produce=pb.ProduceRequest(topic="orders", records=[record]))
            response = await ask(channel, "ProduceStream", user, request)
            assert list(response.produced.offsets) == [0]
        for user in (ACME, BETA):
            response = await ask(channel, "Consume", user)
            assert [each.topic for each in response.partitions] == ["orders"]
            assert [each.value for part in response.partitions for each in part.records] == [user.encode()]


async def test_what_is_about_agents_is_refused(start_agent: StartAgent, folders: tuple[Path, Path]) -> None:
    agent = await start(start_agent, folders[0])
    async with channel_to(agent) as channel:
        for name in REFUSED:
            response = await ask(channel, name, ACME)
            assert str(response).startswith("StatusCode.PERMISSION_DENIED")
            assert "acme" not in response


def test_every_text_of_every_message_is_classified() -> None:
    def visit(message: Any) -> int:
        seen = 0
        for field in message.fields:
            if field.type == FieldDescriptor.TYPE_STRING:
                kind_of(field)
                seen += 1
        return seen

    assert sum(visit(each) for each in pb.DESCRIPTOR.message_types_by_name.values()) > 40
