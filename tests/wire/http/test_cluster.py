"""The HTTP port in a cluster: agents, partitions, moves and drains, and rejected requests."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from streamhouse.broker.broker import Broker
from streamhouse.config import FlushSettings
from streamhouse.model.names import TopicPartition
from streamhouse.wire.http.app import make_app
from streamhouse.wire.http.operations import MAX_BODY_BYTES
from tests.broker.cluster.test_cluster import PARTITIONS, BrokerCluster
from tests.broker.conftest import MakeWorld
from tests.broker.support import batch, produce

JSON = {"content-type": "application/json"}


class Site:
    """Agents and the HTTP port of each."""

    def __init__(self, cluster: BrokerCluster, ports: list[httpx.AsyncClient]) -> None:
        self.cluster, self.ports = cluster, ports

    def port(self, broker: Broker) -> httpx.AsyncClient:
        return self.ports[self.cluster.agents.index(broker)]

    async def get(self, path: str, **params: str) -> Any:
        response = await self.ports[0].get(path, params=params)
        assert response.status_code == 200, response.text
        return response.json()

    async def partition(self, number: int = 0) -> dict[str, Any]:
        result = (await self.get("/v1/partitions", topic="orders"))["partitions"]
        return next(each for each in result if each["partition"] == number)


@pytest.fixture
async def site(make_world: MakeWorld) -> AsyncIterator[Site]:
    cluster = BrokerCluster(await make_world(flush=FlushSettings(block_bytes=256, age_s=5.0)))
    async with AsyncExitStack() as stack:
        ports = []
        for _ in range(2):
            transport = httpx.ASGITransport(make_app(await cluster.join(), CollectorRegistry()))
            ports.append(
                await stack.enter_async_context(httpx.AsyncClient(transport=transport, base_url="http://agent"))
            )
        await cluster.pass_time(1.5)
        await cluster.topic()
        yield Site(cluster, ports)


async def test_agents_are_reported_with_how_much_each_one_leads(site: Site) -> None:
    name = TopicPartition("orders", 0)
    leader = await site.cluster.leader(name)
    await produce(leader, batch(b"a"), name)
    agents = (await site.get("/v1/agents"))["agents"]
    assert [(each["node"], each["state"], each["asked"]) for each in agents] == [(1, "live", True), (2, "live", False)]
    assert {each["node"]: each["partitions"] for each in agents}[leader.node_id] == 1
    assert sum(each["partitions"] for each in agents) == 1
    assert all(each["expires_in_ms"] > 0 for each in agents)
    assert agents[1]["kafka"] == "127.0.0.1:9002"


async def test_an_agent_that_drains_leads_nothing_until_that_is_undone(site: Site) -> None:
    for number in range(PARTITIONS):
        await site.cluster.produce(TopicPartition("orders", number), b"a")
    leaving = site.cluster.agents[1]
    before = {each["partition"] for each in (await site.get("/v1/partitions"))["partitions"] if each["leader"] == 2}
    assert before
    response = await site.ports[0].post("/v1/agents/2/drain", json={})
    assert [each["state"] for each in response.json()["agents"]] == ["live", "draining"]
    await site.cluster.pass_time(2.0)
    agents = (await site.get("/v1/agents"))["agents"]
    assert (agents[1]["partitions"], agents[1]["shards"], agents[1]["state"]) == (0, 0, "draining")
    assert {each["owner"] for each in (await site.get("/v1/partitions"))["partitions"]} == {1}
    assert (await site.ports[1].delete("/v1/agents/2/drain")).status_code == 200
    await site.cluster.pass_time(2.0)
    assert leaving.cluster.is_draining is False
    owned = {each["partition"] for each in (await site.get("/v1/partitions"))["partitions"] if each["owner"] == 2}
    assert owned == before


async def test_the_last_agent_that_takes_partitions_is_not_drained(site: Site) -> None:
    assert (await site.ports[0].post("/v1/agents/1/drain", json={})).status_code == 200
    refused = await site.ports[0].post("/v1/agents/2/drain", json={})
    assert (refused.status_code, refused.headers["content-type"]) == (422, "application/problem+json")
    assert "no other agent" in refused.json()["detail"]
    again = await site.ports[0].post("/v1/agents/1/drain", json={})  # it drains already, which is fine
    assert again.status_code == 200


@pytest.mark.parametrize("path", ["/v1/agents/7/drain"])
async def test_an_agent_that_is_not_there_is_not_found(site: Site, path: str) -> None:
    for response in (await site.ports[0].post(path, json={}), await site.ports[0].delete(path)):
        assert (response.status_code, response.json()["title"]) == (404, "UnknownAgent")
    assert (await site.ports[0].post("/v1/agents/x/drain", json={})).status_code == 400


async def test_a_dead_agent_is_reported_as_expired_and_can_not_be_drained(site: Site) -> None:
    site.cluster.world.metadata.refuse("claim_recovery", 1000)
    await site.cluster.kill(site.cluster.agents[1])
    await site.cluster.pass_time(site.cluster.world.settings.lease.ttl_s, step=1.0)
    agents = (await site.get("/v1/agents"))["agents"]
    assert [each["state"] for each in agents] == ["live", "expired"]
    assert agents[1]["expires_in_ms"] < 0
    assert (await site.ports[0].post("/v1/agents/2/drain", json={})).status_code == 404


async def test_the_leader_alone_knows_the_high_watermark(site: Site) -> None:
    name = TopicPartition("orders", 0)
    leader = await site.cluster.leader(name)
    other = next(each for each in site.cluster.agents if each is not leader)
    assert (await site.partition())["leader"] is None
    assert (await site.partition())["owner"] == leader.node_id
    assert (await site.partition())["high_watermark"] == 0
    await produce(leader, batch(b"a", b"b"), name)
    result = {
        each: (await site.port(each).get("/v1/partitions", params={"topic": "orders"})).json()["partitions"][0]
        for each in (leader, other)
    }
    assert [result[each]["high_watermark"] for each in (leader, other)] == [2, None]
    assert [result[each]["local"] for each in (leader, other)] == [True, False]
    assert result[leader]["bytes"] > result[other]["bytes"] == 0
    assert result[other]["leader"] == leader.node_id
    assert result[other]["lease_expires_in_ms"] > 0
    (own,) = (await site.port(leader).get("/v1/partitions", params={"local": "1"})).json()["partitions"]
    assert (own["partition"], own["high_watermark"], own["flushed_end"]) == (0, 2, 0)
    assert (await site.port(other).get("/v1/partitions", params={"local": "1"})).json() == {"partitions": []}


async def test_a_partition_moves_to_the_requested_agent_and_back(site: Site) -> None:
    name = TopicPartition("orders", 0)
    leader = await site.cluster.leader(name)
    target = next(each for each in site.cluster.agents if each is not leader)
    await site.cluster.produce(name, b"a")
    requests = {"topic": "orders", "partition": 0, "node": target.node_id}
    (moving,) = (await site.ports[0].post("/v1/partitions/move", json=requests)).json()["partitions"]
    assert (moving["leader"], moving["owner"]) == (leader.node_id, target.node_id)
    await site.cluster.pass_time(1.5)
    assert await site.cluster.produce(name, b"b") == 1
    there = await site.partition()
    assert (there["leader"], there["pinned_to"], there["high_watermark"] in (2, None)) == (
        target.node_id,
        target.node_id,
        True,
    )
    await site.ports[1].post("/v1/partitions/move", json={**requests, "node": None})
    await site.cluster.pass_time(1.5)
    back = await site.partition()
    assert (back["owner"], back["pinned_to"]) == (leader.node_id, None)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"topic": "nothing"}, 404),
        ({"partition": PARTITIONS}, 404),
        ({"partition": -1}, 400),
        ({"node": 9}, 404),
        ({"node": "x"}, 400),
        ({"more": 1}, 400),
    ],
)
async def test_a_move_of_nothing_or_to_nowhere_is_refused(site: Site, change: dict[str, Any], status: int) -> None:
    requests = {"topic": "orders", "partition": 0, "node": 1, **change}
    response = await site.ports[0].post("/v1/partitions/move", json=requests)
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")


async def test_nothing_moves_to_an_agent_that_drains(site: Site) -> None:
    await site.ports[0].post("/v1/agents/2/drain", json={})
    requests = {"topic": "orders", "partition": 0, "node": 2}
    refused = await site.ports[0].post("/v1/partitions/move", json=requests)
    assert (refused.status_code, "drains" in refused.json()["detail"]) == (422, True)


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"content-type": "text/plain"}, b"{}", 415),
        ({}, b"", 415),
        (JSON, b"", 400),
        (JSON, b"{", 400),
        (JSON, b" " * (MAX_BODY_BYTES + 1), 413),
    ],
)
async def test_only_json_that_is_not_too_large_changes_anything(
    site: Site, headers: dict[str, str], body: bytes, status: int
) -> None:
    response = await site.ports[0].post("/v1/agents/2/drain", headers=headers, content=body)
    assert response.status_code == status
    assert [each["state"] for each in (await site.get("/v1/agents"))["agents"]] == ["live", "live"]


async def test_a_metadata_store_that_is_away_is_reported_as_such(site: Site) -> None:
    site.cluster.world.metadata.refuse("membership", 1)
    response = await site.ports[0].get("/v1/agents")
    assert (response.status_code, response.json()["title"]) == (503, "Unavailable")
