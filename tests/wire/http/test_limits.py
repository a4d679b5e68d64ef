"""Limits of the HTTP port on real sockets: slow and broken-off requests, too many, too large, not HTTP."""

import asyncio
import json
from functools import partial
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from starlette.responses import PlainTextResponse

from streamhouse.config import HttpSettings
from streamhouse.wire.http import server
from streamhouse.wire.http.middleware import HttpMetrics, RequestLimits
from streamhouse.wire.http.request_body import RequestBodies
from streamhouse.wire.http.server import SLICE_BYTES, Connection
from tests.contracts.clocks import ManualClock

from .conftest import Site, StartSite
from .test_streams import RECORDS, until, with_topic

CUT = 'streamhouse_http_cut_total{{why="{}"}}'


def head(path: str, *headers: str, method: str = "POST") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, dict[str, Any]]:
    """Status and body of an answer that has a length."""
    async with asyncio.timeout(10):
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        length = next(int(line.split(":")[1]) for line in lines if line.startswith("content-length"))
        return int(lines[0].split()[1]), json.loads(await reader.readexactly(length))


async def ended(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(10):
        try:
            return await reader.read() == b""
        except ConnectionResetError:
            return True


async def stored(site: Site) -> list[Any]:
    return [record["value"] for record in (await site.http.get(RECORDS)).json()["records"]]


async def has_stored(site: Site, count: int) -> bool:
    return len(await stored(site)) == count


async def test_headers_that_do_not_come_are_not_waited_for(start_site: StartSite) -> None:
    site = await start_site(header_timeout_s=0.1)
    silent, _ = await site.connect()
    reader, writer = await site.connect()
    writer.write(b"GET /v1/topics HTTP/1.1\r\nHost: local")
    assert await ended(reader)
    assert await ended(silent)
    assert await site.metric(CUT.format("no headers")) == 2


async def test_headers_of_a_second_request_are_not_waited_for_either(start_site: StartSite) -> None:
    site = await start_site(header_timeout_s=0.1)
    reader, writer = await site.connect()
    writer.write(head("/v1/topics", method="GET"))
    assert (await answer_of(reader))[0] == 200
    writer.write(b"GET / HT")
    assert await ended(reader)
    assert await site.metric(CUT.format("no headers")) == 1


@pytest.mark.parametrize("pieces", [1, 7])
async def test_headers_have_a_largest_size_however_they_come(start_site: StartSite, pieces: int) -> None:
    site = await start_site(max_header_bytes=40_000)
    whole = head(f"/v1/topics?{'x' * 30_000}=1", method="GET")
    too_long = head(f"/v1/topics?{'x' * 41_000}=1", method="GET")[:40_999]  # what comes later would not be read
    for request, is_http in ((whole, True), (too_long, False)):
        reader, writer = await site.connect()
        step = len(request) // pieces + 1
        for at in range(0, len(request), step):
            writer.write(request[at : at + step])
            await asyncio.sleep(0.01)
        status, problem = await answer_of(reader)
        assert (status, "not HTTP" in problem["detail"]) == (400, not is_http)
        writer.close()


async def test_an_idle_connection_is_closed(start_site: StartSite) -> None:
    site = await start_site(idle_timeout_s=1, header_timeout_s=0.05)
    reader, writer = await site.connect()
    writer.write(head("/v1/topics", method="GET"))
    assert (await answer_of(reader))[0] == 200
    assert await ended(reader)
    assert await site.metric(CUT.format("no headers")) == 0


async def test_a_body_that_comes_too_slowly_is_given_up(start_site: StartSite) -> None:
    site = await with_topic(await start_site(body_timeout_s=0.1, header_timeout_s=0.1))
    reader, writer = await site.connect()
    writer.write(head(RECORDS, "Content-Type: application/json", "Content-Length: 100") + b'{"records": [')
    status, result = await answer_of(reader)
    assert (status, result["title"]) == (408, "BodyTimeout")
    assert await ended(reader)


async def test_an_upload_that_pauses_too_long_keeps_its_whole_records(start_site: StartSite) -> None:
    site = await with_topic(await start_site(body_idle_timeout_s=0.3, header_timeout_s=0.1))
    reader, writer = await site.connect()
    line = b'{"value": 1}\n{"value": 2}\n{"val'
    writer.write(head(RECORDS, "Content-Type: application/x-ndjson", "Transfer-Encoding: chunked"))
    writer.write(b"%x\r\n%s\r\n" % (len(line), line))
    status, result = await answer_of(reader)
    assert (status, result["records"], result["failed"], result["complete"]) == (200, 2, 1, False)
    assert await ended(reader)
    assert await stored(site) == [1, 2]


async def test_an_upload_that_breaks_off_leaves_whole_records_only(start_site: StartSite) -> None:
    site = await with_topic(await start_site(upload_linger_s=30))
    _, writer = await site.connect()
    line = b'{"value": 1}\n{"value": 2}\n{"val'
    writer.write(head(RECORDS, "Content-Type: application/x-ndjson", "Transfer-Encoding: chunked"))
    writer.write(b"%x\r\n%s\r\n" % (len(line), line))
    await writer.drain()
    await until(site, "streamhouse_http_received_bytes_total", len(line) + len('{"name":"orders","partitions":2}'))
    writer.transport.abort()
    await until(site, "streamhouse_http_requests_active", 1)  # the one that asks
    assert await stored(site) == [1, 2]


async def test_records_of_an_upload_are_published_while_it_goes_on(start_site: StartSite) -> None:
    site = await with_topic(await start_site(upload_linger_s=0.01))
    reader, writer = await site.connect()
    writer.write(head(RECORDS, "Content-Type: application/x-ndjson", "Transfer-Encoding: chunked"))
    for number in range(3):
        line = b'{"value": %d}\n' % number
        writer.write(b"%x\r\n%s\r\n" % (len(line), line))
        await writer.drain()
        await site.until(partial(has_stored, site, number + 1))
    writer.write(b"0\r\n\r\n")
    assert (await answer_of(reader))[1]["records"] == 3


async def test_an_upload_faster_than_the_log_is_not_kept_in_memory(start_site: StartSite) -> None:
    """A line without an end stops at its limit, not at the end of memory."""
    site = await with_topic(await start_site(max_line_bytes=100_000))
    reader, writer = await site.connect()
    writer.write(head(RECORDS, "Content-Type: application/x-ndjson", "Transfer-Encoding: chunked"))
    chunk = b"%x\r\n%s\r\n" % (50_000, b"x" * 50_000)
    for _ in range(4):
        writer.write(chunk)
    status, result = await answer_of(reader)
    assert (status, "http.max_line_bytes" in result["detail"]) == (413, True)


def in_chunks(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in pieces) + b"0\r\n\r\n"


@pytest.mark.parametrize("size", [1, 7, 5_000, 100_000])
async def test_bodies_in_chunks_of_any_size_and_requests_behind_them_are_whole(
    start_site: StartSite, size: int
) -> None:
    site = await with_topic(await start_site())
    reader, writer = await site.connect()
    numbers = range(300)
    lines = b"".join(b'{"value": %d}\n' % number for number in numbers)
    upload = head(RECORDS, "Content-Type: application/x-ndjson", "Transfer-Encoding: chunked") + in_chunks(lines, size)
    writer.write(upload + head("/v1/topics", method="GET") + upload)
    assert (await answer_of(reader))[1]["records"] == len(numbers)
    assert (await answer_of(reader))[0] == 200
    assert (await answer_of(reader))[1]["records"] == len(numbers)
    records = (await site.http.get(RECORDS, params={"limit": "1000"})).json()["records"]
    assert sorted(each["value"] for each in records) == sorted([*numbers, *numbers])


async def test_others_have_their_turn_while_a_body_comes_in_very_small_chunks(
    start_site: StartSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[int] = []
    parse = Connection._parse

    def noted(connection: Connection, data: bytes) -> None:
        parsed.append(len(data))
        parse(connection, data)

    monkeypatch.setattr(Connection, "_parse", noted)
    site = await with_topic(await start_site())
    reader, writer = await site.connect()
    upload = head(RECORDS, "Content-Type: application/x-ndjson", "Transfer-Encoding: chunked")
    writer.write(upload + in_chunks(b'{"value": 1}\n' * 2000, 1))
    assert (await answer_of(reader))[1]["records"] == 2000
    assert max(parsed) <= SLICE_BYTES


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_is_too_large_is_refused(start_site: StartSite, chunked: bool) -> None:
    site = await with_topic(await start_site(max_body_bytes=1000))
    body = b"x" * 1001

    async def pieces() -> Any:
        yield body

    response = await site.http.post(
        RECORDS, content=pieces() if chunked else body, headers={"content-type": "text/plain"}
    )
    assert (response.status_code, response.json()["title"]) == (413, "BodyTooLarge")
    assert (await site.http.post(RECORDS, content=body[:-1], headers={"content-type": "text/plain"})).is_success


async def test_a_client_that_is_refused_and_goes_on_sending_gets_the_response_and_is_cut_off_then(
    start_site: StartSite,
) -> None:
    site = await with_topic(await start_site(max_body_bytes=1000, header_timeout_s=0.2))
    reader, writer = await site.connect()
    writer.write(head(RECORDS, "Content-Type: text/plain", "Transfer-Encoding: chunked"))
    chunk = b"%x\r\n%s\r\n" % (50_000, b"x" * 50_000)
    writer.write(chunk)
    assert (await answer_of(reader))[0] == 413
    for _ in range(4):
        writer.write(chunk)
    assert await ended(reader)


async def test_bodies_together_take_so_much_memory_and_no_more(start_site: StartSite) -> None:
    site = await with_topic(await start_site(max_inflight_bytes=1000))
    first, writing = await site.connect()
    writing.write(head(RECORDS, "Content-Type: text/plain", "Content-Length: 900") + b"x" * 800)
    await until(site, "streamhouse_http_received_bytes_total", 800 + len('{"name":"orders","partitions":2}'))
    refused = await site.http.post(RECORDS, content=b"x" * 300, headers={"content-type": "text/plain"})
    assert (refused.status_code, "http.max_inflight_bytes" in refused.json()["detail"]) == (429, True)
    writing.write(b"x" * 100)
    assert (await answer_of(first))[0] == 200
    assert (await site.http.post(RECORDS, content=b"x" * 300, headers={"content-type": "text/plain"})).is_success


async def test_so_many_requests_are_answered_at_once_and_no_more(start_site: StartSite) -> None:
    site = await with_topic(await start_site(max_requests=1))
    waiting = asyncio.create_task(site.http.get("/v1/topics/orders/partitions/0/records?wait_ms=20000"))

    async def is_refused() -> bool:
        return (await site.http.get("/v1/topics")).status_code == 429

    await site.until(is_refused)
    refused = await site.http.get("/v1/topics")
    assert (refused.headers["retry-after"], refused.json()["title"]) == ("1", "TooManyRequests")
    for probe in ("/health/live", "/health/ready"):
        assert (await site.http.get(probe)).is_success
    waiting.cancel()


async def test_so_many_connections_are_open_and_no_more(start_site: StartSite) -> None:
    site = await start_site(max_connections=2)
    assert (await site.http.get("/health/live")).is_success  # keeps its connection
    kept, _ = await site.connect()
    refused, _ = await site.connect()
    assert await ended(refused)
    assert await site.metric(CUT.format("too many connections")) == 1
    assert not kept.at_eof()


async def test_one_address_has_its_share_of_connections(start_site: StartSite) -> None:
    site = await start_site(max_connections_per_ip_overrides="127.0.0.1:2")
    assert (await site.http.get("/health/live")).is_success  # keeps its connection
    kept, writer = await site.connect()
    refused, _ = await site.connect()
    assert await ended(refused)
    assert await site.metric(CUT.format("too many connections of one address")) == 1
    assert not kept.at_eof()
    writer.close()
    await site.until(partial(may_connect, site))


async def may_connect(site: Site) -> bool:
    reader, writer = await site.connect()
    writer.write(head("/v1/topics", method="GET"))
    try:
        return (await answer_of(reader))[0] == 200
    except (ConnectionError, asyncio.IncompleteReadError):
        return False
    finally:
        writer.close()


async def test_clients_on_this_machine_are_not_limited_by_default(start_site: StartSite) -> None:
    site = await start_site(max_connections_per_ip=1, connections_per_s=1, connections_per_s_per_ip=1)
    assert [await may_connect(site) for _ in range(10)] == [True] * 10
    assert await site.metric("streamhouse_http_delayed_connections_total") == 0


async def test_a_connection_that_comes_too_soon_is_served_when_its_turn_has_come(start_site: StartSite) -> None:
    site = await start_site(max_connections_per_ip_overrides="127.0.0.1:100", connections_per_s_per_ip=10)
    assert (await site.http.get("/health/live")).is_success
    requests = [await site.connect() for _ in range(12)]
    for _, writer in requests:
        writer.write(head("/v1/topics", method="GET"))
    for reader, _ in requests:
        assert (await answer_of(reader))[0] == 200
    assert await site.metric("streamhouse_http_delayed_connections_total") >= 1


async def test_one_that_waits_for_its_turn_may_go_away(start_site: StartSite) -> None:
    site = await start_site(max_connections_per_ip_overrides="127.0.0.1:100", connections_per_s_per_ip=2)
    assert (await site.http.get("/health/live")).is_success
    requests = [await site.connect() for _ in range(3)]
    await until(site, "streamhouse_http_delayed_connections_total", 2)
    for _, writer in requests:
        writer.transport.abort()
    assert (await site.http.get("/health/live")).is_success


async def test_refusals_of_a_client_that_asks_without_end_are_held_back_longer_and_longer() -> None:
    clock = ManualClock()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse("", status_code=int(scope["path"][1:]))(scope, receive, send)

    settings = HttpSettings(failures_per_s=5, max_failure_delay_s=0.2)
    resume = RequestLimits(app, settings, HttpMetrics(CollectorRegistry()), bodies=RequestBodies(settings), clock=clock)

    async def ask(status: int, *, port: int = 1) -> None:
        clock.advance(ms=1)
        transport = httpx.ASGITransport(resume, client=("10.0.0.7", port))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.get(f"/{status}")).status_code == status

    for _ in range(5):
        await ask(404)
    assert clock.slept == []
    for _ in range(5):
        await ask(503)
    assert len(clock.slept) == 5
    assert clock.slept == sorted(clock.slept)
    assert clock.slept[-1] == pytest.approx(0.2)
    await ask(200)
    await ask(429)
    await ask(404, port=2)
    assert len(clock.slept) == 5


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\x02\x00\x01\x00", b"nonsense\r\n\r\n"])
async def test_what_is_not_http_gets_that_error(start_site: StartSite, garbage: bytes) -> None:
    site = await start_site(header_timeout_s=0.2)
    reader, writer = await site.connect()
    writer.write(garbage)
    async with asyncio.timeout(10):
        response = await reader.read()
    assert not response or (b"400" in response.split(b"\r\n")[0] and b"application/problem+json" in response)
    assert (await site.http.get("/health/live")).is_success


async def test_a_compressed_body_is_not_opened(start_site: StartSite) -> None:
    site = await with_topic(await start_site())
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    response = await site.http.post(RECORDS, content=b"\x1f\x8b", headers=headers)
    assert (response.status_code, response.json()["title"]) == (415, "UnsupportedMediaType")


async def test_responses_have_the_date_and_nothing_about_our_software(start_site: StartSite) -> None:
    response = await (await start_site()).http.get("/health/live")
    assert response.headers["date"].endswith("GMT")
    assert "server" not in response.headers


async def test_a_client_that_asks_too_often_in_a_second_is_told_when_to_come_again(start_site: StartSite) -> None:
    site = await start_site(requests_per_s=0.5)
    assert (await site.http.get("/v1/topics")).status_code == 200
    response = await site.http.get("/v1/topics")
    assert (response.status_code, response.json()["title"]) == (429, "TooManyRequests")
    assert "http.requests_per_s" in response.json()["detail"]
    assert int(response.headers["retry-after"]) in (1, 2)


async def test_a_body_with_two_lengths_is_refused_and_nothing_behind_it_is_taken_for_a_request(
    start_site: StartSite,
) -> None:
    site = await with_topic(await start_site())
    reader, writer = await site.connect()
    lengths = ("Content-Type: text/plain", "Content-Length: 1", "Transfer-Encoding: chunked")
    writer.write(head(RECORDS, *lengths) + b"1\r\nx\r\n0\r\n\r\n" + head(RECORDS, method="GET"))
    status, problem = await answer_of(reader)
    assert (status, problem["title"]) == (400, "AmbiguousLength")
    assert await ended(reader)
    assert await stored(site) == []


async def test_uploads_and_bodies_that_are_not_complete_are_answered_when_the_agent_stops(
    start_site: StartSite, caplog: pytest.LogCaptureFixture
) -> None:
    site = await with_topic(await start_site(), 1)
    reader, writer = await site.connect()
    writer.write(head(RECORDS, "Content-Type: application/x-ndjson", "Transfer-Encoding: chunked"))
    writer.write(b'c\r\n{"value":1}\n\r\n')
    await site.until(partial(has_stored, site, 1))
    body_reader, body_writer = await site.connect()
    body_writer.write(head(RECORDS, "Content-Type: application/json", "Content-Length: 100") + b"{")
    await site.until(partial(_is_busy, site, 3))
    site.agent.stop()
    status, summary = await answer_of(reader)
    assert (status, summary["records"], summary["complete"]) == (200, 1, False)
    assert "the agent is stopping" in summary["errors"][0]["reason"]
    status, problem = await answer_of(body_reader)
    assert (status, problem["title"]) == (503, "Stopping")
    assert await ended(reader)
    assert "Traceback" not in caplog.text


async def _is_busy(site: Site, requests: int) -> bool:
    return await site.metric("streamhouse_http_requests_active") == requests


async def test_a_request_that_does_not_end_is_answered_when_the_agent_has_waited_for_it(
    start_site: StartSite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "GRACE_S", 0)
    site = await start_site()
    entered = asyncio.Event()

    async def never(*_: Any, **__: Any) -> None:
        entered.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(site.agent.broker.pipelines, "all", never)
    reader, writer = await site.connect()
    writer.write(head("/v1/pipelines", method="GET"))
    async with asyncio.timeout(10):
        await entered.wait()
    site.agent.stop()
    status, problem = await answer_of(reader)
    assert (status, problem["title"]) == (503, "Stopping")
    assert await ended(reader)
    assert [each.getMessage() for each in caplog.records if each.exc_info] == []
