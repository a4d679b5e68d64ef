"""Quotas over gRPC: by the client id in the metadata of a call, and for new connections of an address."""

import grpc
import pytest

from streamhouse.model.quota import CONNECTION_CREATION_RATE, CONTROLLER_MUTATION_RATE, QuotaEntity
from streamhouse.wire.grpc.connection_quotas import ConnectionQuotas
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb
from streamhouse.wire.grpc.server import ADMIN
from tests.broker.conftest import make_world, world
from tests.broker.support import World
from tests.contracts.clocks import ManualClock
from tests.wire.grpc.conftest import Connect, StartAgent
from tests.wire.grpc.talk import Refused

__all__ = ["make_world", "world"]


class StoppedClock(ManualClock):
    """A clock on which calls that wait do so at the same time."""

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


OWN_CONNECTION = ("grpc.use_local_subchannel_pool", 1)


async def test_quotas_of_a_client_id_apply_to_calls_that_name_it(start_agent: StartAgent) -> None:
    agent = await start_agent()
    await agent.broker.security.quotas.alter(QuotaEntity(client_id="loader"), {CONTROLLER_MUTATION_RATE: 0.01})
    codes = []
    async with grpc.aio.insecure_channel(str(agent.ready.grpc)) as channel:
        create = channel.unary_unary(f"/{ADMIN}/CreateTopic", pb.CreateTopicRequest.SerializeToString)
        for name, client_id in (("first", "loader"), ("second", "loader"), ("third", "other")):
            call = create(pb.CreateTopicRequest(name=name), metadata=(("x-client-id", client_id),))
            codes.append(await call.code())
    assert codes == [grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.OK]


async def test_calls_of_a_new_connection_wait_while_its_address_is_above_its_rate(
    start_agent: StartAgent, connect: Connect
) -> None:
    agent = await start_agent()
    known, new = await connect(agent, OWN_CONNECTION), await connect(agent, OWN_CONNECTION)
    await agent.broker.security.quotas.alter(QuotaEntity(address="10.0.0.7"), {CONNECTION_CREATION_RATE: 1.0})
    await known(pb.ListTopicsRequest(), pb.ListTopicsResponse)
    await agent.broker.security.quotas.alter(QuotaEntity(address="127.0.0.1"), {CONNECTION_CREATION_RATE: 0.01})
    with pytest.raises(Refused, match="DEADLINE_EXCEEDED"):
        await new(pb.ListTopicsRequest(), pb.ListTopicsResponse, timeout=0.3)
    await known(pb.ListTopicsRequest(), pb.ListTopicsResponse)


async def test_a_connection_counts_once_and_all_its_calls_wait_for_its_turn(world: World) -> None:
    quotas, clock = (await world.start()).security.quotas, StoppedClock()
    connections = ConnectionQuotas(quotas, clock, remembered=3)
    await connections.wait_turn("ipv4:10.0.0.7:1", "10.0.0.7")
    await quotas.alter(QuotaEntity(address="10.0.0.7"), {CONNECTION_CREATION_RATE: 1.0})
    for port in (2, 3, 3, 3):
        await connections.wait_turn(f"ipv4:10.0.0.7:{port}", "10.0.0.7")
    assert clock.slept == [pytest.approx(1.0)] * 3
    for port in (4, 5):
        await connections.wait_turn(f"ipv4:10.0.0.8:{port}", "10.0.0.8")
    assert len(clock.slept) == 3
    assert repr(connections) == "<ConnectionQuotas connections=3>"
