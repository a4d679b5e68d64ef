"""Health over gRPC says what /health/ready says, and reflection says what there is."""

from contextlib import suppress
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from streamhouse.agent import Agent
from tests.wire.grpc.conftest import Connect, StartAgent
from tests.wire.grpc.talk import TIMEOUT_S, Client

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
SERVICES = {
    "streamhouse.v1.RecordsService",
    "streamhouse.v1.AdminService",
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
}


async def check(client: Client, service: str = "") -> int:
    method = client.channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )
    response = await method(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT_S)
    return int(response.status)


def watch(client: Client, service: str = "") -> Any:
    return client.channel.unary_stream(
        "/grpc.health.v1.Health/Watch",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT_S)


@pytest.mark.parametrize("service", ["", "streamhouse.v1.RecordsService", "streamhouse.v1.AdminService"])
async def test_an_agent_that_is_ready_serves(client: Client, service: str) -> None:
    assert await check(client, service) == SERVING


async def test_a_service_that_is_not_there_is_not_found(client: Client) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await check(client, "streamhouse.v1.Nothing")
    assert failed.value.code() is grpc.StatusCode.NOT_FOUND
    assert (await watch(client, "streamhouse.v1.Nothing").read()).status == (
        health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    )


async def test_a_watching_client_gets_each_change(
    agent: Agent, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching = watch(client)
    assert (await watching.read()).status == SERVING
    with monkeypatch.context() as patched:
        patched.setattr(type(agent.broker.budget), "pressure", 1.0)
        assert (await watching.read()).status == NOT_SERVING
        assert await check(client) == NOT_SERVING
    assert (await watching.read()).status == SERVING
    watching.cancel()


async def test_watching_ends_when_the_agent_stops(start_agent: StartAgent, connect: Connect) -> None:
    agent = await start_agent()
    watching = watch(await connect(agent))
    assert (await watching.read()).status == SERVING
    agent.stop()
    seen = set()
    with suppress(grpc.aio.AioRpcError):
        while (response := await watching.read()) is not grpc.aio.EOF:
            seen.add(response.status)
    assert await watching.code() is grpc.StatusCode.UNAVAILABLE
    assert seen <= {NOT_SERVING}


# --- reflection, as grpcurl asks for it


class Reflection:
    """Asks one version of the protocol; the messages of both are the same on the wire."""

    def __init__(self, client: Client, version: str) -> None:
        self._call = client.channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )(timeout=TIMEOUT_S)

    async def ask(self, **question: str) -> Any:
        await self._call.write(reflection_pb2.ServerReflectionRequest(**question))
        return await self._call.read()

    async def pool(self, symbol: str) -> descriptor_pool.DescriptorPool:
        """What a tool knows of a symbol after asking for it."""
        pool = descriptor_pool.DescriptorPool()
        response = await self.ask(file_containing_symbol=symbol)
        for raw in reversed(response.file_descriptor_response.file_descriptor_proto):
            pool.Add(descriptor_pb2.FileDescriptorProto.FromString(raw))
        return pool


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_tools_find_out_which_services_there_are_and_what_they_take(client: Client, version: str) -> None:
    reflection = Reflection(client, version)
    listed = (await reflection.ask(list_services="")).list_services_response.service
    assert {each.name for each in listed} == SERVICES
    for name in SERVICES:
        service = (await reflection.pool(name)).FindServiceByName(name)
        assert service.methods
    service = (await reflection.pool("streamhouse.v1.RecordsService")).FindServiceByName(
        "streamhouse.v1.RecordsService"
    )
    consume = service.methods_by_name["Consume"]
    assert (consume.client_streaming, consume.server_streaming) == (True, True)
    assert "grant_records" in consume.input_type.fields_by_name
    unknown = await reflection.ask(file_containing_symbol="streamhouse.v1.Nothing")
    assert unknown.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


async def test_a_tool_can_call_what_it_learned_by_reflection_alone(client: Client) -> None:
    """As grpcurl does: no generated class is used on this side."""
    pool = await Reflection(client, "v1").pool("streamhouse.v1.AdminService.GetCluster")
    method = pool.FindServiceByName("streamhouse.v1.AdminService").methods_by_name["GetCluster"]
    question = message_factory.GetMessageClass(method.input_type)
    response = message_factory.GetMessageClass(method.output_type)
    call = client.channel.unary_unary(
        f"/{method.containing_service.full_name}/{method.name}",
        request_serializer=question.SerializeToString,
        response_deserializer=response.FromString,
    )
    result = json_format.MessageToDict(await call(question(), timeout=TIMEOUT_S))
    assert result["agents"][0]["state"] == "live"
