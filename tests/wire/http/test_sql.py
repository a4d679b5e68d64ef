"""SQL over HTTP: questions are passed to workers, and their answers back."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress

import httpx
import pytest

from streamhouse.broker.broker import Broker
from streamhouse.wire.http import sql_proxy
from tests.broker.support import World
from tests.support.agent import free_port
from tests.wire.http.conftest import Site, StartSite
from tests.wire.http.fake_worker import ANSWER, FakeWorker, fake_worker, proof_of

QUESTION = {"sql": "SELECT 1"}


@pytest.fixture
async def worker() -> AsyncIterator[FakeWorker]:
    async with fake_worker("token-of-w") as worker:
        yield worker


async def beat(http: httpx.AsyncClient, address: str, name: str = "w", busy: int = 0) -> None:
    body = {"address": address, "token": f"token-of-{name}", "busy": busy}
    response = await http.post(f"/v1/sql/workers/{name}/heartbeat", json=body)
    assert (response.status_code, response.json()) == (200, {"ttl_s": 15.0})


async def test_without_a_worker_the_response_says_how_to_start_one(http: httpx.AsyncClient) -> None:
    for response in (
        await http.post("/v1/sql", json=QUESTION),
        await http.post("/v1/sql/validate", json={"text": "SELECT 1"}),
        await http.delete("/v1/sql/queries/q1"),
    ):
        assert response.status_code == 503
        assert response.json()["title"] == "NoWorker"
        assert "start one: streamhouse sql serve" in response.json()["detail"]


async def test_workers_are_listed_without_their_tokens(http: httpx.AsyncClient, world: World) -> None:
    await beat(http, "127.0.0.1:4000")
    response = await http.get("/v1/sql/workers")
    assert "token" not in response.text
    [result] = response.json()["workers"]
    assert (result["id"], result["address"], result["busy"]) == ("w", "127.0.0.1:4000", 0)
    await beat(http, "[::1]:4000", "v")
    assert (await http.delete("/v1/sql/workers/v")).status_code == 204
    await world.clock.advance(15.0)
    assert (await http.get("/v1/sql/workers")).json() == {"workers": []}


@pytest.mark.parametrize("address", ["", "host", "host:", "a b:1", "host:1/path", "user@host:1", "host:1\n"])
async def test_an_address_is_a_host_and_a_port(http: httpx.AsyncClient, address: str) -> None:
    body = {"address": address, "token": "t", "busy": 0}
    assert (await http.post("/v1/sql/workers/w/heartbeat", json=body)).status_code == 400


async def test_a_request_is_passed_on_within_the_limits(http: httpx.AsyncClient, worker: FakeWorker) -> None:
    await beat(http, worker.address)
    assert (await http.post("/v1/sql", json=QUESTION)).json() == ANSWER
    await http.post("/v1/sql", json={**QUESTION, "max_rows": 10**9, "timeout_s": 10**6, "query_id": "mine"})
    await http.post("/v1/sql", json={**QUESTION, "max_rows": 5, "timeout_s": 1.5, "starting": "earliest"})
    await http.post("/v1/sql", json={**QUESTION, "max_rows": 5, "timeout_s": 1.5, "read_only": True})
    assert worker.requested == [
        {**QUESTION, "max_rows": 10_000, "timeout_s": 300.0, "starting": "latest"},
        {**QUESTION, "max_rows": 100_000, "timeout_s": 300.0, "starting": "latest", "query_id": "mine"},
        {**QUESTION, "max_rows": 5, "timeout_s": 1.5, "starting": "earliest"},
        {**QUESTION, "max_rows": 5, "timeout_s": 1.5, "starting": "latest", "read_only": True},
    ]
    assert set(worker.tokens) == {"Bearer token-of-w"}
    assert (await http.post("/v1/sql/validate", json={"text": "x"})).json() == {"statements": []}
    assert (await http.get("/v1/sql/complete")).json() == {"tables": ["orders"]}
    assert (await http.delete("/v1/sql/queries/q1")).status_code == 204
    assert (await http.delete("/v1/sql/queries/q2")).status_code == 404


async def test_media_types_headers_and_statuses_are_the_workers(http: httpx.AsyncClient, worker: FakeWorker) -> None:
    await beat(http, worker.address)
    lines = await http.post("/v1/sql", json=QUESTION, headers={"accept": "application/x-ndjson"})
    assert lines.text == '{"id":1}\n{"id":2}\n'
    assert lines.headers["content-type"] == "application/x-ndjson"
    assert lines.headers["streamhouse-query-id"] == "q1"
    assert "x-secret" not in lines.headers
    wrong = await http.post("/v1/sql", json={"sql": "wrong"})
    assert (wrong.status_code, wrong.json()["detail"]) == (400, "no such column")
    assert wrong.headers["content-type"] == "application/problem+json"
    assert (await http.post("/v1/sql", json=QUESTION, headers={"accept": "image/png"})).status_code == 406


async def test_the_least_busy_worker_that_can_be_reached_is_asked(http: httpx.AsyncClient, worker: FakeWorker) -> None:
    await beat(http, f"127.0.0.1:{free_port()}", "a", busy=0)
    await beat(http, worker.address, "w", busy=1)
    assert (await http.post("/v1/sql", json=QUESTION)).status_code == 200
    await http.delete("/v1/sql/workers/w")
    nobody = await http.post("/v1/sql", json=QUESTION)
    assert (nobody.status_code, nobody.json()["title"]) == (503, "NoWorker")


@asynccontextmanager
async def endless_worker(token: str, received: list[bytes]) -> AsyncIterator[str]:
    """The address of a worker that has this token, and sends interim responses without end in place of an answer."""

    serving: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError), closing(writer):
            received.append(await reader.readuntil(b"\r\n\r\n"))
            if result := re.search(rb"nonce=([0-9a-f]+)", received[-1]):
                proof = proof_of(token, result[1].decode())
                writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {len(proof)}\r\n\r\n{proof}".encode())
                received.append(await reader.readuntil(b"\r\n\r\n"))
            while True:
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                await writer.drain()
                await asyncio.sleep(0.01)

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.create_task(serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        async with server, asyncio.timeout(30):
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        await asyncio.gather(*serving)


async def test_nothing_is_sent_to_a_process_that_took_the_address_of_a_dead_worker(http: httpx.AsyncClient) -> None:
    received: list[bytes] = []
    async with endless_worker("another", received) as address:
        await beat(http, address)
        responses = [
            await http.post("/v1/sql", json=QUESTION),
            await http.get("/v1/sql/complete"),
            await http.delete("/v1/sql/queries/q1"),
        ]
    assert [response.status_code for response in responses] == [503, 503, 404]
    assert len(received) == 3
    for head in received:
        assert head.startswith(b"GET /v1/proof?nonce=")
        assert b"authorization" not in head.lower()
        assert b"streamhouse-caller" not in head.lower()


async def test_a_worker_that_never_comes_to_its_response_is_given_up_in_time(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sends something all the time, so that no single read takes long."""
    monkeypatch.setattr(sql_proxy, "GRACE_S", 0.0)
    async with endless_worker("token-of-w", []) as address:
        await beat(http, address)
        response = await http.post("/v1/sql", json={**QUESTION, "timeout_s": 0.2})
    assert (response.status_code, response.json()["title"]) == (504, "QueryTimedOut")
    assert "worker=w timeout_s=0.2" in response.json()["detail"]


async def test_there_is_a_limit_of_requests_at_once(
    http: httpx.AsyncClient, worker: FakeWorker, broker: Broker
) -> None:
    await beat(http, worker.address)
    limit = broker.settings.sql.concurrency
    asking = [asyncio.create_task(http.post("/v1/sql", json={"sql": "wait"})) for _ in range(limit)]
    await worker.until_asked(limit)
    refused = await http.post("/v1/sql", json=QUESTION)
    assert (refused.status_code, "setting=sql.concurrency" in refused.text) == (429, True)
    worker.go.set()
    assert {(await each).status_code for each in asking} == {200}
    assert (await http.post("/v1/sql", json=QUESTION)).status_code == 200


async def test_a_text_that_is_too_large_is_refused(http: httpx.AsyncClient, broker: Broker) -> None:
    text = "x" * broker.settings.sql.max_body_bytes
    assert (await http.post("/v1/sql", json={"sql": text})).status_code == 413


@pytest.fixture
async def site(start_site: StartSite, worker: FakeWorker) -> Site:
    site: Site = await start_site()
    await beat(site.http, worker.address)
    return site


async def test_an_asker_who_leaves_ends_the_question(site: Site, worker: FakeWorker) -> None:
    _, writer = await site.connect()
    body = b'{"sql": "wait"}'
    writer.write(
        b"POST /v1/sql HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        + b"content-length: %d\r\n\r\n" % len(body)
        + body
    )
    async with asyncio.timeout(10):
        await worker.waiting.wait()
        writer.close()
        await worker.left.wait()


async def test_a_response_that_its_worker_breaks_off_is_no_whole_one_and_no_defect(
    site: Site, worker: FakeWorker, caplog: pytest.LogCaptureFixture
) -> None:
    request = site.http.stream("POST", "/v1/sql", json={"sql": "broken"}, headers={"accept": "application/x-ndjson"})
    with pytest.raises(httpx.RemoteProtocolError):
        async with asyncio.timeout(10), request as response:
            assert [line async for line in response.aiter_lines()] == []
    assert "a SQL worker did not complete its response" in caplog.messages
    assert [each.name for each in caplog.records].count("uvicorn.error") == 1  # the worker's own
    assert (await site.http.post("/v1/sql", json=QUESTION)).status_code == 200


async def test_a_live_tail_comes_line_by_line_and_ends_when_its_reader_leaves(site: Site, worker: FakeWorker) -> None:
    request = site.http.stream("POST", "/v1/sql", json={"sql": "live"}, headers={"accept": "application/x-ndjson"})
    async with asyncio.timeout(10):
        async with request as response:
            async for line in response.aiter_lines():
                assert line == '{"id":1}'
                break
        await worker.left.wait()
    async with asyncio.timeout(10):
        assert (await site.http.post("/v1/sql", json=QUESTION)).status_code == 200
