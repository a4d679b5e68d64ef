"""The main metrics of all agents as JSON."""

import httpx
from prometheus_client import CollectorRegistry, Counter

from streamhouse.broker.broker import Broker
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
