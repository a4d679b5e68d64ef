"""The main metrics of all agents as JSON."""

import asyncio
from dataclasses import replace

import httpx
from prometheus_client import CollectorRegistry, Counter

from streamhouse.broker.broker import Broker
from streamhouse.model.names import NodeId
from streamhouse.wire.http.app import make_app

from .test_cluster import Site, site

__all__ = ["site"]


async def test_samples_are_named_as_in_the_text_format_and_zeros_are_left_out(broker: Broker) -> None:
    registry = CollectorRegistry()
    requests = Counter("streamhouse_object_store_requests", "", ["operation", "outcome"], registry=registry)
    requests.labels("head", "ok").inc(3)
    requests.labels("head", "error")
    Counter("streamhouse_something_else", "", registry=registry).inc()
    transport = httpx.ASGITransport(make_app(broker, registry))
    async with httpx.AsyncClient(transport=transport, base_url="http://agent") as http:
        (agent,) = (await http.get("/v1/metrics")).json()["agents"]
        requests.labels("head", "ok").inc()
        again = (await http.get("/v1/metrics?local=true")).json()["agents"][0]
    del agent["samples"]["streamhouse_http_requests_active"], again["samples"]["streamhouse_http_requests_active"]
    assert agent["samples"] == {'streamhouse_object_store_requests_total{operation="head",outcome="ok"}': 3.0}
    assert again == agent  # nothing is collected twice in a second


async def test_an_agent_that_does_not_answer_has_an_error(site: Site) -> None:
    own, other = (await site.get("/v1/metrics"))["agents"]
    assert own["error"] is None
    assert "can't be reached" in other["error"]
    assert other["samples"] == {}
    assert len((await site.get("/v1/metrics", local="true"))["agents"]) == 1


async def test_those_who_ask_at_the_same_time_share_one_response_of_the_other_agents(broker: Broker) -> None:
    requests = list[object]()

    class Counted:
        async def metrics(self, at: object, *, timeout_s: float) -> bytes:
            requests.append(at)
            return b'{"agents": [{"node": 9, "at_ms": 1, "samples": {}}]}'

        async def trace_reads(self, at: object, body: object, *, timeout_s: float) -> None: ...

    other = replace(broker.agents()[0], node_id=NodeId(9))
    agents = broker.agents()
    broker.agents = lambda: [*agents, other]  # type: ignore[method-assign]
    transport = httpx.ASGITransport(make_app(broker, CollectorRegistry(), peers=Counted()))
    async with httpx.AsyncClient(transport=transport, base_url="http://agent") as http:
        responses = await asyncio.gather(*(http.get("/v1/metrics") for _ in range(10)))
    assert {len(response.json()["agents"]) for response in responses} == {2}
    assert len(requests) == 1
