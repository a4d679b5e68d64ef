"""The OpenAPI document: it is about every path that is served, and everything in it leads somewhere."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from streamhouse.broker.broker import Broker
from streamhouse.wire.http.app import make_app
from streamhouse.wire.http.authentication import Authentication
from streamhouse.wire.http.endpoint import Endpoint


@pytest.fixture
async def document(http: httpx.AsyncClient) -> dict[str, Any]:
    answer = await http.get("/openapi.json")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    response: dict[str, Any] = answer.json()
    return response


def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for each in part.values():
            yield from references(each)
    elif isinstance(part, list):
        for each in part:
            yield from references(each)


FOR_AGENTS = {"/v1/holds", "/v1/holds/{hold}/end", "/v1/traces/reads"}


async def test_every_declared_path_is_in_the_document(broker: Broker, document: dict[str, Any]) -> None:
    authentication = make_app(broker, CollectorRegistry()).app
    assert isinstance(authentication, Authentication)
    app = authentication.app
    assert isinstance(app, Starlette)
    endpoints = [getattr(route, "endpoint", None) for route in app.routes]
    served = {re.sub(r":\w+}", "}", each.path) for each in endpoints if isinstance(each, Endpoint)}
    assert served - FOR_AGENTS == set(document["paths"])
    assert {"/v1/topics/{topic}/records", "/v1/cluster", "/health/ready", "/v1/doctor"} <= served


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    names = {reference.removeprefix("#/components/schemas/") for reference in references(document)}
    assert names <= set(document["components"]["schemas"])
    assert "RecordShape" in names


def test_operations_have_names_of_their_own_and_say_how_they_refuse(document: dict[str, Any]) -> None:
    operations = [each for path in document["paths"].values() for each in path.values()]
    names = [each["operationId"] for each in operations]
    assert len(set(names)) == len(names)
    for each in operations:
        assert "application/problem+json" in each["responses"]["400"]["content"]
        assert each["summary"]


def test_parameters_say_what_they_are(document: dict[str, Any]) -> None:
    read = document["paths"]["/v1/topics/{topic}/partitions/{partition}/records"]["get"]
    by_name = {each["name"]: each for each in read["parameters"]}
    assert by_name["limit"]["schema"] == {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 100}
    assert (by_name["topic"]["in"], by_name["topic"]["required"]) == ("path", True)
    publish = document["paths"]["/v1/topics/{topic}/records"]["post"]
    assert "Idempotency-Key" in {each["name"] for each in publish["parameters"] if each["in"] == "header"}
    assert set(publish["requestBody"]["content"]) == {
        "application/json",
        "application/x-ndjson",
        "text/plain",
        "application/octet-stream",
    }


async def test_the_page_needs_nothing_from_elsewhere(http: httpx.AsyncClient) -> None:
    page = await http.get("/docs/api")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for text in [page.text, *[(await http.get(f"/docs/docs.{kind}")).text for kind in ("css", "js")]]:
        assert text
        assert not re.search(r"https?://(?!www\.w3\.org)", text)
