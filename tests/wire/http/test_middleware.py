"""The gate of the HTTP port: pages of other sites, names that aren't ours, and what is counted."""

from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from streamhouse.broker.broker import Broker
from streamhouse.wire.http.app import make_app
from streamhouse.wire.http.errors import ForeignOrigin
from streamhouse.wire.http.middleware import check_browser

BODY = {"records": [{"value": 1}]}


def request(method: str = "POST", *, server: str = "127.0.0.1", **headers: str) -> dict[str, Any]:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "method": method, "server": (server, 8080), "headers": raw}


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1:8080", "[::1]:8080", "box.localhost", "named.example:1"])
def test_this_machine_goes_by_names_of_its_own(host: str) -> None:
    check_browser(request(host=host), {"named.example"})


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_name_that_was_made_to_point_here_is_refused(method: str) -> None:
    with pytest.raises(ForeignOrigin, match=r"http\.allowed_hosts"):
        check_browser(request(method, host="rebound.example:8080"), set())


def test_an_agent_that_others_reach_goes_by_any_name() -> None:
    check_browser(request(server="10.1.2.3", host="streams.internal:8080"), set())


def test_its_own_pages_may_change_things() -> None:
    check_browser(request(host="localhost:8080", origin="http://localhost:8080"), set())


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "",
        "http://localhost:3000",
        "https://127.0.0.1:8080.evil",
        "http://[",
        "http://[::1",
        "http://]localhost:8080",
        "http://[zz]:8080",
        "//\u2100.example",
        "\xff\xfe",
    ],
)
def test_pages_of_other_sites_may_change_nothing(origin: str) -> None:
    with pytest.raises(ForeignOrigin, match="other sites"):
        check_browser(request(host="localhost:8080", origin=origin), set())
    check_browser(request("GET", host="localhost:8080", origin=origin), set())  # they can't read the answer


HOSTILE = [
    b"http://[",
    b"[",
    b"]",
    b"\xff\xfe\x00"[:2],
    b"%",
    b"a" * 5000,
    b";;;=,",
    b"-1",
    b"99999999999999999999999",
    b'"',
]
READ = [
    "origin",
    "host",
    "accept",
    "content-type",
    "content-length",
    "range",
    "last-event-id",
    "idempotency-key",
    "cookie",
]


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("value", HOSTILE)
async def test_no_header_makes_an_agent_fail(http: httpx.AsyncClient, name: str, value: bytes) -> None:
    for method, path in (("POST", "/v1/topics/orders/records"), ("GET", "/v1/topics/orders/records"), ("GET", "/")):
        headers: list[tuple[bytes, bytes]] = [(name.encode(), value)]
        content = b'{"records": []}' if method == "POST" else b""
        response = await http.request(method, path, content=content, headers=headers)
        assert response.status_code < 500, (method, path, response.text)


async def test_a_foreign_origin_is_refused_and_nothing_is_published(broker: Broker, http: httpx.AsyncClient) -> None:
    response = await http.post(
        "/v1/topics/orders/records",
        content=b"x",
        headers={"origin": "http://evil.example", "content-type": "text/plain"},
    )
    assert (response.status_code, response.json()["title"]) == (403, "ForeignOrigin")
    assert (await http.get("/v1/topics/orders/records")).json()["records"] == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("PUT", "/v1/topics/orders", 405),
        ("OPTIONS", "/v1/topics", 405),
        ("TRACE", "/v1/topics", 405),
        ("GET", "/v1/topics/", 404),
        ("GET", "/nothing", 404),
        ("GET", "/docs/secret", 404),
        ("GET", "/docs/..%2fapp.py", 404),
        ("GET", "/v1/topics?internal=1&internal=0", 400),
        ("GET", "/v1/topics?unknown=1", 400),
        ("POST", "/v1/topics", 415),
    ],
)
async def test_every_refusal_is_a_problem(http: httpx.AsyncClient, method: str, path: str, status: int) -> None:
    answer = await http.request(method, path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    response = answer.json()
    assert (response["status"], bool(response["title"]), bool(response["detail"])) == (status, True, True)
    assert ("allow" in answer.headers) == (status == 405)


async def test_a_defect_shows_nothing_about_our_insides(
    broker: Broker, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def defect() -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(broker, "topics", defect)
    transport = httpx.ASGITransport(make_app(broker, CollectorRegistry()), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://agent") as client:
        response = await client.get("/v1/topics")
    assert (response.status_code, response.headers["content-type"]) == (500, "application/problem+json")
    assert "secret" not in response.text


async def test_requests_are_counted_by_what_was_declared(http: httpx.AsyncClient) -> None:
    await http.post("/v1/topics/orders/records", json=BODY)
    await http.get("/v1/topics/nothing")
    await http.get("/made/up/path")
    await http.request("BREW", "/v1/topics")
    text = (await http.get("/metrics")).text
    for line in (
        'requests_total{method="POST",route="/v1/topics/{topic}/records",status="200"} 1.0',
        'requests_total{method="GET",route="/v1/topics/{topic}",status="404"} 1.0',
        'requests_total{method="GET",route="unmatched",status="404"} 1.0',
        'requests_total{method="other",route="/v1/topics",status="405"} 1.0',
        "received_bytes_total 25.0",
        "requests_active 1.0",
    ):
        assert f"streamhouse_http_{line}" in text
    assert "made" not in text
