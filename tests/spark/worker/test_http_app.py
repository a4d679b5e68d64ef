"""WorkerApp: limits are kept, queries end when they should, and every format has the same rows."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import httpx
import pyarrow as pa
import pytest
import uvicorn

from streamhouse.clock import Ids, SystemClock
from streamhouse.errors import BadSql, Mistake, QueryFailed
from streamhouse.model.table import Column
from streamhouse.spark.worker import http_app
from streamhouse.spark.worker.http_app import WorkerApp
from streamhouse.spark.worker.process import listen
from streamhouse.spark.worker.query_executor import QueryCaller, QueryRequest, QueryResult, SqlLimits
from streamhouse.sql.definitions import PythonPipeline

LIMITS = SqlLimits(concurrency=2, rows=2, max_body_bytes=1000)
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
COLUMNS = (Column(name="id", type="BIGINT"), Column(name="name", type="STRING"))


def batch(*ids: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": each, "name": f"n{each}"} for each in ids], schema=SCHEMA)


class FakeEngine:
    """Responds by the first word of a query."""

    def __init__(self) -> None:
        self.requests: list[QueryRequest] = []
        self.cancelled: list[str] = []
        self.released: list[str] = []
        self.entered = threading.Semaphore(0)
        self.freed = threading.Event()
        self.was_cancelled = threading.Event()
        self.was_released = threading.Event()

    def execute(self, question: QueryRequest, query_id: str) -> QueryResult:
        self.requests.append(question)
        if question.sql == "wait":
            self.entered.release()
            assert self.freed.wait(30)
        if question.sql == "mistake":
            raise BadSql([Mistake(1, 3, "no such column", "look")])
        if question.sql == "fail":
            raise QueryFailed("division by zero")
        if question.sql == "silent":
            return QueryResult(columns=COLUMNS, schema=SCHEMA, batches=self._silent(), is_live=True)
        if question.sql == "live":
            return QueryResult(columns=COLUMNS, schema=SCHEMA, batches=self._live(), is_live=True)
        return QueryResult(
            columns=COLUMNS, schema=SCHEMA, batches=iter([batch(1), batch(2)]), notes=("notes ä",), truncated=True
        )

    def _live(self) -> Iterator[pa.RecordBatch]:
        number = 0
        while not self.was_cancelled.is_set():
            number += 1
            yield batch(number)
            self.was_cancelled.wait(0.01)

    def _silent(self) -> Iterator[pa.RecordBatch]:
        while not self.was_cancelled.is_set():
            self.entered.release()
            yield batch(1).slice(0, 0)
            self.was_cancelled.wait(0.01)

    def cancel(self, query_id: str) -> bool:
        self.cancelled.append(query_id)
        self.freed.set()
        self.was_cancelled.set()
        return True

    def release(self, query_id: str) -> None:
        self.released.append(query_id)
        self.was_released.set()

    def validate(self, text: str, caller: QueryCaller | None) -> list[dict[str, Any]]:
        return [{"kind": "query", "line": 1, "problems": [], "text": text}]

    def validate_python(self, text: str, pipelines: Sequence[PythonPipeline]) -> dict[str, list[dict[str, Any]]]:
        return {each.name: [{"line": each.line, "column": 1, "text": "wrong", "hint": ""}] for each in pipelines}

    def complete(self, caller: QueryCaller | None) -> dict[str, Any]:
        return {"tables": [], "functions": ["abs"]}


class Scene:
    def __init__(self, engine: FakeEngine, serving: WorkerApp, client: httpx.AsyncClient) -> None:
        self.engine, self.serving, self.client = engine, serving, client

    async def ask(self, sql: str, *, accept: str = "application/json", **more: Any) -> httpx.Response:
        return await self.client.post("/v1/sql", json={"sql": sql, **more}, headers={"accept": accept})


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """On a real socket, so that a client can disconnect."""
    engine = FakeEngine()
    serving = WorkerApp(engine, token="own", agents_token="agents", limits=LIMITS, clock=SystemClock(), ids=Ids())
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(serving.app, lifespan="off", log_config=None, ws="none"))
    running = asyncio.create_task(server.serve(sockets=[listener]))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with httpx.AsyncClient(base_url=url, headers={"authorization": "Bearer own"}, timeout=30) as client:
        yield Scene(engine, serving, client)
    engine.freed.set()
    engine.was_cancelled.set()
    serving.close()
    server.should_exit = True
    await running


def test_nothing_that_is_sent_waits_for_an_acknowledgement() -> None:
    with (
        listen("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_rows_come_with_their_columns_and_notes(scene: Scene) -> None:
    response = (await scene.ask("rows", query_id="q1")).json()
    assert response["query_id"] == "q1"
    assert response["columns"] == [{"name": "id", "type": "BIGINT"}, {"name": "name", "type": "STRING"}]
    assert response["rows"] == [{"id": 1, "name": "n1"}, {"id": 2, "name": "n2"}]
    assert (response["truncated"], response["notes"]) == (True, ["notes ä"])


async def test_every_format_has_the_same_rows(scene: Scene) -> None:
    lines = await scene.ask("rows", accept="application/x-ndjson")
    assert [json.loads(line)["id"] for line in lines.text.splitlines()] == [1, 2]
    assert json.loads(lines.headers["streamhouse-notes"]) == ["notes ä"]
    assert lines.headers["streamhouse-truncated"] == "true"
    assert (await scene.ask("rows", accept="text/csv")).text == "id,name\n1,n1\n2,n2\n"
    arrow = await scene.ask("rows", accept="application/vnd.apache.arrow.stream")
    assert pa.ipc.open_stream(arrow.content).read_all().column("id").to_pylist() == [1, 2]
    assert (await scene.ask("rows", accept="image/png")).status_code == 406


async def test_nobody_without_a_token_is_answered(scene: Scene) -> None:
    for wrong in ("Bearer wrong", "own", ""):
        response = await scene.client.get("/health", headers={"authorization": wrong})
        assert response.status_code == 401


async def test_agents_say_for_whom_they_ask_and_nobody_ends_a_query_of_another_user(scene: Scene) -> None:
    def of(name: str) -> dict[str, str]:
        named = {"streamhouse-caller": f"User%3A{name}", "streamhouse-caller-token": f"token of {name}"}
        return {"authorization": "Bearer agents", **named}

    waiting = asyncio.create_task(
        scene.client.post("/v1/sql", json={"sql": "wait", "query_id": "q"}, headers=of("alice"))
    )
    await asyncio.to_thread(scene.engine.entered.acquire)
    assert scene.engine.requests[0].caller == QueryCaller(name="User:alice", token="token of alice")
    assert "token of alice" not in repr(scene.engine.requests[0])
    for headers in (of("bob"), {"authorization": "Bearer own"}):
        assert (await scene.client.delete("/v1/sql/queries/q", headers=headers)).status_code == 404
    assert (await scene.client.post("/v1/sql", json={"sql": "rows", "query_id": "q"}, headers=of("bob"))).is_success
    assert (await scene.client.delete("/v1/sql/queries/q", headers=of("alice"))).status_code == 204
    assert (await waiting).status_code == 409


async def test_a_worker_with_the_secret_asks_agents_for_whom_they_ask(scene: Scene) -> None:
    scene.serving._needs_caller = True
    headers = {"authorization": "Bearer agents", "streamhouse-caller": "User%3Aalice"}
    assert (await scene.client.post("/v1/sql", json={"sql": "rows"}, headers=headers)).status_code == 403
    assert not scene.engine.requests
    assert (await scene.ask("rows")).is_success  # the worker's own user


async def test_a_caller_with_the_agents_token_is_untrusted(scene: Scene) -> None:
    await scene.client.post("/v1/sql", json={"sql": "rows"}, headers={"authorization": "Bearer agents"})
    await scene.ask("rows")
    assert [question.is_untrusted for question in scene.engine.requests] == [True, False]


async def test_mistakes_have_places_and_failures_words(scene: Scene) -> None:
    mistake = await scene.ask("mistake")
    assert mistake.status_code == 400
    assert mistake.json()["problems"] == [{"line": 1, "column": 3, "text": "no such column", "hint": "look"}]
    failure = await scene.ask("fail")
    assert (failure.status_code, failure.json()["detail"]) == (422, "division by zero")


async def test_more_queries_than_allowed_are_refused_and_may_come_again(scene: Scene) -> None:
    waiting = [asyncio.create_task(scene.ask("wait")) for _ in range(LIMITS.concurrency)]
    for _ in waiting:
        assert await asyncio.to_thread(scene.engine.entered.acquire, timeout=10)
    refused = await scene.ask("rows")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    scene.engine.freed.set()
    assert [response.status_code for response in await asyncio.gather(*waiting)] == [200, 200]
    assert (await scene.ask("rows")).status_code == 200


async def test_a_query_ends_when_its_time_is_up(scene: Scene) -> None:
    response = await scene.ask("wait", timeout_s=0.05, query_id="slow")
    assert response.status_code == 504
    assert await asyncio.to_thread(scene.engine.was_released.wait, 10)
    assert "slow" in scene.engine.cancelled


async def test_a_query_can_be_cancelled_by_its_id(scene: Scene) -> None:
    asking = asyncio.create_task(scene.ask("wait", query_id="mine"))
    assert await asyncio.to_thread(scene.engine.entered.acquire, timeout=10)
    assert (await scene.client.delete("/v1/sql/queries/mine")).status_code == 204
    response = await asking
    assert (response.status_code, response.json()["title"]) == (409, "QueryCancelled")
    assert (await scene.client.delete("/v1/sql/queries/mine")).status_code == 404


async def test_a_query_ends_when_its_client_leaves(scene: Scene) -> None:
    asking = asyncio.create_task(scene.ask("wait", query_id="left"))
    assert await asyncio.to_thread(scene.engine.entered.acquire, timeout=10)
    asking.cancel()
    assert await asyncio.to_thread(scene.engine.was_cancelled.wait, 10)
    assert await asyncio.to_thread(scene.engine.was_released.wait, 10)
    assert scene.serving.busy == 0


async def test_a_live_query_goes_on_until_its_reader_leaves(scene: Scene) -> None:
    headers = {"accept": "application/x-ndjson"}
    async with scene.client.stream("POST", "/v1/sql", json={"sql": "live"}, headers=headers) as response:
        assert response.headers["streamhouse-live"] == "true"
        lines = response.aiter_lines()
        assert [json.loads(await anext(lines))["id"] for _ in range(3)] == [1, 2, 3]
        assert scene.serving.idle_s == 0.0
    assert await asyncio.to_thread(scene.engine.was_cancelled.wait, 10)
    assert await asyncio.to_thread(scene.engine.was_released.wait, 10)


async def test_a_live_query_comes_as_lines_where_nothing_else_is_wanted(scene: Scene) -> None:
    """As a whole it would come when its time is up: `curl` would show nothing until then."""
    async with scene.client.stream("POST", "/v1/sql", json={"sql": "live"}) as response:
        assert response.headers["content-type"] == "application/x-ndjson"
        assert json.loads(await anext(response.aiter_lines()))["id"] == 1


@pytest.mark.parametrize("accept", ["application/x-ndjson", "application/vnd.apache.arrow.stream"])
async def test_a_live_query_without_rows_shows_that_it_goes_on(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, accept: str
) -> None:
    monkeypatch.setattr(http_app, "HEARTBEAT_S", 0.0)
    async with scene.client.stream("POST", "/v1/sql", json={"sql": "silent"}, headers={"accept": accept}) as response:
        parts = response.aiter_raw()
        first = [await anext(parts) for _ in range(3)]
    if accept == "application/x-ndjson":
        assert b"".join(first).strip(b"\n") == b""
    else:
        assert all(first)


async def test_a_live_query_in_one_piece_ends_with_its_client(scene: Scene) -> None:
    asking = asyncio.create_task(scene.ask("silent"))
    assert await asyncio.to_thread(scene.engine.entered.acquire, timeout=10)
    asking.cancel()
    assert await asyncio.to_thread(scene.engine.was_cancelled.wait, 10)
    assert await asyncio.to_thread(scene.engine.was_released.wait, 10)


async def test_a_live_query_ends_with_its_rows(scene: Scene) -> None:
    rows = await scene.ask("live", accept="application/x-ndjson", max_rows=3)
    assert len(rows.text.splitlines()) == 3


async def test_a_live_query_in_one_piece_ends_with_its_rows(scene: Scene) -> None:
    response = (await scene.ask("live", max_rows=2)).json()
    assert ([row["id"] for row in response["rows"]], response["truncated"]) == ([1, 2], True)


async def test_a_live_query_ends_when_its_time_is_up(scene: Scene) -> None:
    response = await scene.ask("live", accept="application/x-ndjson", timeout_s=0.1)
    assert response.status_code == 200


async def test_requests_have_a_size_and_a_form(scene: Scene) -> None:
    assert (await scene.ask("x" * 2000)).status_code == 422
    assert (await scene.client.post("/v1/sql", content=b"{")).status_code == 400
    assert (await scene.ask("rows", max_rows=0)).status_code == 422
    assert (await scene.client.post("/v1/sql", json={"sql": "rows", "maxrows": 3})).status_code == 400


async def test_files_are_checked_and_names_shown(scene: Scene) -> None:
    checked = await scene.client.post("/v1/sql/validate", json={"text": "SELECT 1"})
    assert checked.json()["statements"][0]["text"] == "SELECT 1"
    assert (await scene.client.get("/v1/sql/complete")).json()["functions"] == ["abs"]


async def test_python_is_checked_for_the_user_alone(scene: Scene) -> None:
    request = {"text": "", "python": [{"name": "big", "text": "…", "line": 3, "options": {"key": "id"}}]}
    checked = await scene.client.post("/v1/sql/validate", json=request)
    assert checked.json()["python"] == {"big": [{"line": 3, "column": 1, "text": "wrong", "hint": ""}]}
    refused = await scene.client.post("/v1/sql/validate", json=request, headers={"authorization": "Bearer agents"})
    assert refused.status_code == 403


async def test_a_worker_shows_what_it_does(scene: Scene) -> None:
    await scene.ask("rows")
    response = (await scene.client.get("/health")).json()
    assert (response["busy"], response["queries"]) == (0, 1)
