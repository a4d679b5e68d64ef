"""HTTP app: the HTTP interface of a SQL worker: queries in, rows out, limits, cancellation.

Data path   shell, agents -> **http_app** -> query_executor (in threads) -> rows in the requested format
Owns        routes, tokens, statuses; admission; ending queries by timeout, by DELETE, or when the client disconnects
Leaves      SQL to `query_executor`, formats to `result_formats`, the process to `process`

POST   /v1/sql                 {"sql", "max_rows", "timeout_s", "starting", "query_id"}: rows
POST   /v1/sql/validate        {"text", "python"}: every statement of a file, with its errors; `python`:
                               pipelines in Python, called with empty tables; only with the user's own token
GET    /v1/sql/complete        names of tables, columns and functions
DELETE /v1/sql/queries/{id}    end a query
GET    /health                 status and running queries
GET    /v1/proof               ?nonce=…: proof that this is the worker, for agents; the only route without a token

Two tokens: the user's own, which may do whatever Spark's SQL can, and that of agents, whose callers are untrusted
(`untrusted_sql`). Agents of a cluster with logins say who the caller is, and with what token the worker is to read for
him; no user can cancel or list the queries of another user.
"""

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from streamhouse.clock import Clock, Ids
from streamhouse.errors import (
    BadSql,
    Misconfigured,
    Mistake,
    QueryCancelled,
    QueryTimedOut,
    Rejected,
    Retriable,
    StreamhouseError,
    TooManyQueries,
)
from streamhouse.model.pipeline import CALLER_HEADER, CALLER_TOKEN_HEADER, PROOF_PATH, worker_proof
from streamhouse.spark.worker.query_executor import QueryCaller, QueryRequest, QueryResult, SqlLimits
from streamhouse.spark.worker.result_formats import (
    ARROW,
    CSV,
    JSON,
    NDJSON,
    arrow_stream,
    choose_format,
    csv_head,
    csv_of,
    json_of,
    ndjson_of,
    rows_of,
)
from streamhouse.sql.definitions import PythonPipeline

log = logging.getLogger(__name__)
T = TypeVar("T")

PROBLEM_JSON: Final = "application/problem+json"
RETRY_AFTER_S: Final = 1.0
CANCEL_THREADS: Final = 4
HEARTBEAT_S: Final = 10.0
"""The longest silence of a live query."""
MAX_NOTES_CHARS: Final = 4000
STATUS: Final[dict[type[StreamhouseError], int]] = {
    TooManyQueries: 429,
    QueryTimedOut: 504,
    QueryCancelled: 409,
    BadSql: 400,
    Retriable: 503,
    Rejected: 422,
    Misconfigured: 500,
}


class Engine(Protocol):
    """Runs queries; every call blocks."""

    def execute(self, request: QueryRequest, query_id: str) -> QueryResult: ...
    def cancel(self, query_id: str) -> bool: ...
    def release(self, query_id: str) -> None: ...
    def validate(self, text: str, caller: QueryCaller | None) -> list[dict[str, Any]]: ...
    def validate_python(self, text: str, pipelines: Sequence[PythonPipeline]) -> dict[str, list[dict[str, Any]]]: ...
    def complete(self, caller: QueryCaller | None) -> dict[str, Any]: ...


class _SqlBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    sql: str
    max_rows: int | None = None
    timeout_s: float | None = None
    starting: str = "latest"
    query_id: str | None = None
    read_only: bool = False


class _ValidateBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    text: str
    python: list[PythonPipeline] = []


class RunningQuery:
    """A running query; `end` takes the reason. `key` is its id among those of all callers."""

    def __init__(self, query_id: str, key: str, *, ends_at: float | None) -> None:
        self.id, self.key, self.ends_at = query_id, key, ends_at
        self.ended = asyncio.Event()
        self.why: StreamhouseError | None = None

    def __repr__(self) -> str:
        return f"<Query {self.id} ended={self.ended.is_set()}>"

    def end(self, why: StreamhouseError) -> None:
        self.why = self.why or why
        self.ended.set()


class WorkerApp:
    """The routes and what they share. `token` is the user's, `agents_token` the agents'.

    `needs_caller`: agents must name the user for whom they send a query, with a token of that user.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        token: str,
        agents_token: str,
        limits: SqlLimits,
        clock: Clock,
        ids: Ids,
        needs_caller: bool = False,
    ) -> None:
        self._engine, self._limits, self._clock, self._ids = engine, limits, clock, ids
        self._token, self._agents_token, self._needs_caller = token, agents_token, needs_caller
        self._queries: dict[str, RunningQuery] = {}
        self._threads = ThreadPoolExecutor(limits.concurrency, thread_name_prefix="query")
        self._enders = ThreadPoolExecutor(CANCEL_THREADS, thread_name_prefix="cancel")
        self._born = self._last_request_at = clock.monotonic()
        self._answered = 0
        self.app = Starlette(
            routes=[
                Route("/v1/sql", self._guarded(self._sql), methods=["POST"]),
                Route("/v1/sql/validate", self._guarded(self._validate), methods=["POST"]),
                Route("/v1/sql/complete", self._guarded(self._complete), methods=["GET"]),
                Route("/v1/sql/queries/{query_id}", self._guarded(self._cancel), methods=["DELETE"]),
                Route("/health", self._guarded(self._health), methods=["GET"]),
                Route(PROOF_PATH, self._proof, methods=["GET"]),
            ]
        )

    def __repr__(self) -> str:
        return f"<WorkerApp queries={sorted(self._queries)} answered={self._answered}>"

    @property
    def busy(self) -> int:
        return len(self._queries)

    @property
    def idle_s(self) -> float:
        """Seconds since the last request; 0 while a query runs."""
        return 0.0 if self._queries else self._clock.monotonic() - self._last_request_at

    def close(self) -> None:
        """End every query; threads that don't end are left behind."""
        for query in list(self._queries.values()):
            query.end(QueryCancelled("the SQL worker stops"))
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._enders.shutdown(wait=False)

    # --- routes

    async def _sql(self, request: Request, caller: QueryCaller | None) -> Response:
        body = await self._decoded(request, _SqlBody)
        accept = request.headers.get("accept")
        if choose_format(accept) is None:
            return _problem(406, "NotAcceptable", "none of the accepted media types can be had")
        query_request = QueryRequest(
            sql=body.sql,
            max_rows=self._rows(body.max_rows),
            starting=body.starting,
            caller=caller,
            read_only=body.read_only,
        )
        query, began = self._admitted(body, caller), self._clock.monotonic()
        try:
            reply = await self._run(query, request, lambda: self._engine.execute(query_request, query.key))
            if reply.is_live and body.timeout_s is None:
                query.ends_at = began + self._limits.max_timeout_s
            media = choose_format(accept, is_live=reply.is_live) or JSON
            if media == JSON:
                return await self._whole(query, request, reply, query_request, began)
        except BaseException as error:
            self._over(query, error)
            raise
        return self._streamed(query, reply, query_request, media)

    async def _validate(self, request: Request, caller: QueryCaller | None) -> Response:
        body = await self._decoded(request, _ValidateBody)
        if body.python and caller is not None:
            return _problem(403, "Forbidden", "code in Python isn't run for callers of agents")
        query = self._admitted(_SqlBody(sql=""), caller)
        try:
            checked = await self._run(query, request, lambda: self._engine.validate(body.text, caller))
            in_python: dict[str, list[dict[str, Any]]] = {}
            if body.python:
                in_python = await self._run(
                    query, request, lambda: self._engine.validate_python(body.text, body.python)
                )
        finally:
            self._over(query, None)
        return Response(json_of({"statements": checked, "python": in_python}), media_type=JSON)

    async def _complete(self, request: Request, caller: QueryCaller | None) -> Response:
        query = self._admitted(_SqlBody(sql=""), caller)
        try:
            words = await self._run(query, request, lambda: self._engine.complete(caller))
        finally:
            self._over(query, None)
        return Response(json_of(words), media_type=JSON)

    async def _cancel(self, request: Request, caller: QueryCaller | None) -> Response:
        query = self._queries.get(_key(request.path_params["query_id"], caller))
        if query is None:
            return _problem(404, "UnknownQuery", "no such query runs")
        query.end(QueryCancelled("cancelled"))
        return Response(status_code=204)

    async def _health(self, request: Request, caller: QueryCaller | None) -> Response:
        up_s = self._clock.monotonic() - self._born
        status = {"busy": self.busy, "queries": self._answered, "idle_s": round(self.idle_s, 1), "up_s": round(up_s, 1)}
        return Response(json_of(status), media_type=JSON)

    async def _proof(self, request: Request) -> Response:
        return Response(worker_proof(self._agents_token, request.query_params.get("nonce", "")))

    # --- a query's life

    def _admitted(self, body: _SqlBody, caller: QueryCaller | None) -> RunningQuery:
        limit = self._limits.concurrency
        if len(self._queries) >= limit:
            raise TooManyQueries(limit=limit, retry_after_s=RETRY_AFTER_S)
        timeout_s = min(body.timeout_s or self._limits.timeout_s, self._limits.max_timeout_s)
        query_id = body.query_id or self._ids.token()
        key = _key(query_id, caller)
        if key in self._queries:
            raise Rejected(f"a query with this id runs; query_id={query_id[:64]}")
        query = RunningQuery(query_id, key, ends_at=self._clock.monotonic() + timeout_s)
        self._queries[key] = query
        return query

    async def _run(self, query: RunningQuery, request: Request, work: Callable[[], T]) -> T:
        """The result of the work. It is ended on timeout, on cancellation, or when the client disconnects."""
        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        gone = asyncio.create_task(_disconnected(request), name=f"disconnect-{query.id}")
        ended = asyncio.create_task(query.ended.wait(), name=f"end-{query.id}")
        try:
            waited_for: set[asyncio.Future[Any]] = {running, gone, ended}
            done, _ = await asyncio.wait(waited_for, timeout=self._left_s(query), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            ended.cancel()
        if running in done:
            return await running
        running.add_done_callback(_log_late_failure)
        if gone in done:
            query.end(QueryCancelled("the client disconnected"))
        elif not query.ended.is_set():
            query.end(QueryTimedOut("the query took too long; do=query less, or raise timeout_s"))
        self._end(query)
        assert query.why is not None
        raise query.why

    def _left_s(self, query: RunningQuery) -> float | None:
        return None if query.ends_at is None else max(0.0, query.ends_at - self._clock.monotonic())

    def _end(self, query: RunningQuery) -> None:
        self._later(self._engine.cancel, query.key)

    def _later(self, work: Callable[[str], object], query_id: str) -> None:
        """Off the event loop: Spark may take its time. A worker that stops has ended everything already."""
        with suppress(RuntimeError):
            self._enders.submit(work, query_id)

    def _over(self, query: RunningQuery, error: BaseException | None) -> None:
        if self._queries.pop(query.key, None) is None:
            return
        self._last_request_at = self._clock.monotonic()
        self._answered += 1
        if error is not None:
            self._end(query)
        self._later(self._engine.release, query.key)

    def _rows(self, max_rows: int | None) -> int | None:
        if max_rows is not None and max_rows <= 0:
            raise Rejected(f"max_rows is a positive number; max_rows={max_rows}")
        return max_rows

    # --- responses

    async def _whole(
        self, query: RunningQuery, request: Request, reply: QueryResult, query_request: QueryRequest, began: float
    ) -> Response:
        rows: list[dict[str, Any]] = []
        truncated = reply.truncated
        limit = query_request.max_rows or self._limits.rows
        async for batch in self._batches(query, reply):
            if await request.is_disconnected():
                raise QueryCancelled("the client disconnected")
            rows += rows_of(batch)
            if len(rows) >= limit and reply.is_live:
                rows, truncated = rows[:limit], True
                break
        elapsed_ms = round((self._clock.monotonic() - began) * 1000)
        self._over(query, None)
        content = {
            "query_id": query.id,
            "columns": [{"name": each.name, "type": each.type} for each in reply.columns],
            "rows": rows,
            "truncated": truncated,
            "elapsed_ms": elapsed_ms,
            "notes": list(reply.notes),
        }
        return Response(json_of(content), media_type=JSON)

    def _streamed(self, query: RunningQuery, reply: QueryResult, query_request: QueryRequest, media: str) -> Response:
        headers = {
            "streamhouse-query-id": query.id,
            "streamhouse-truncated": "true" if reply.truncated else "false",
            "streamhouse-live": "true" if reply.is_live else "false",
            "streamhouse-columns": _ascii([[each.name, each.type] for each in reply.columns]),
            "streamhouse-notes": _ascii(list(reply.notes)),
        }
        return StreamingResponse(self._parts(query, reply, query_request, media), media_type=media, headers=headers)

    async def _parts(
        self, query: RunningQuery, reply: QueryResult, query_request: QueryRequest, media: str
    ) -> AsyncIterator[bytes]:
        """The body, part by part. It ends, with the query, when the client disconnects."""
        error: BaseException | None = None
        try:
            writer = _Writer(media, reply.schema)
            yield writer.head()
            left, sent_at = query_request.max_rows or self._limits.max_rows, self._clock.monotonic()
            async for batch in self._batches(query, reply):
                if batch.num_rows:
                    yield writer.part(batch.slice(0, left))
                    left -= min(left, batch.num_rows)
                elif self._clock.monotonic() - sent_at >= HEARTBEAT_S:
                    yield writer.heartbeat(batch)
                else:
                    continue
                sent_at = self._clock.monotonic()
                if left == 0:
                    break
            yield writer.foot()
        except BaseException as failure:
            error = failure
            raise
        finally:
            self._over(query, error if error is not None or not reply.is_live else QueryCancelled("done"))

    async def _batches(self, query: RunningQuery, reply: QueryResult) -> AsyncIterator[pa.RecordBatch]:
        """A live query's end by time is its usual end."""
        if not reply.is_live:
            for batch in reply.batches:
                yield batch
            return
        loop = asyncio.get_running_loop()
        while not query.ended.is_set() and self._left_s(query) != 0.0:
            batch = await loop.run_in_executor(self._threads, next, reply.batches, None)
            if batch is None:
                return
            yield batch

    # --- routes

    def _guarded(self, route: Callable[[Request, QueryCaller | None], Any]) -> Callable[[Request], Any]:
        async def handle(request: Request) -> Response:
            is_own, is_agent = self._has_token(request, self._token), self._has_token(request, self._agents_token)
            if not is_own and not is_agent:
                return _problem(401, "Unauthorized", "the token is missing or wrong")
            caller = _caller_of(request) if is_agent else None
            if caller is not None and self._needs_caller and not caller.token:
                return _problem(
                    403, "Forbidden", "the agent doesn't name the user of the query; do=give agents the secret"
                )
            try:
                response: Response = await route(request, caller)
            except ClientDisconnect:
                return Response(status_code=400)
            except StreamhouseError as error:
                return _answered(error)
            except Exception as error:
                log.exception("unexpected error")
                return _problem(500, type(error).__name__, " ".join(str(error).split())[:500])
            return response

        return handle

    @staticmethod
    def _has_token(request: Request, token: str) -> bool:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.encode(), token.encode())

    async def _decoded(self, request: Request, kind: type[T]) -> T:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > self._limits.max_body_bytes:
                raise Rejected(f"the request is too long; limit_bytes={self._limits.max_body_bytes}")
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.DecodeError as error:
            raise BadSql([Mistake(0, 0, f"the body can't be read: {error}")]) from None


def _caller_of(request: Request) -> QueryCaller:
    return QueryCaller(
        name=unquote(request.headers.get(CALLER_HEADER, "")), token=request.headers.get(CALLER_TOKEN_HEADER, "")
    )


def _key(query_id: str, caller: QueryCaller | None) -> str:
    return query_id if caller is None else f"{caller.name}/{query_id}"


class _Writer:
    """A format's parts."""

    def __init__(self, media: str, schema: pa.Schema) -> None:
        self._media, self._schema = media, schema
        self._waiting: list[pa.RecordBatch] = []
        self._stream = arrow_stream(schema, iter(self._next, None))

    def _next(self) -> pa.RecordBatch | None:
        return self._waiting.pop() if self._waiting else None

    def head(self) -> bytes:
        return csv_head(self._schema.names) if self._media == CSV else b""

    def part(self, batch: pa.RecordBatch) -> bytes:
        if self._media == NDJSON:
            return ndjson_of(batch)
        if self._media == CSV:
            return csv_of(batch)
        self._waiting.append(batch)
        return next(self._stream)

    def heartbeat(self, empty: pa.RecordBatch) -> bytes:
        """Shows that a query without rows continues: an empty line, an empty batch; nothing in CSV, which has
        neither."""
        return self.part(empty) if self._media == ARROW else b"\n" if self._media == NDJSON else b""

    def foot(self) -> bytes:
        return b"".join(self._stream) if self._media == ARROW else b""


async def _disconnected(request: Request) -> None:
    """Return when the client has disconnected; the body was read before."""
    with suppress(RuntimeError):
        while (await request.receive())["type"] != "http.disconnect":
            pass


def _log_late_failure(running: "asyncio.Future[Any]") -> None:
    """Consume the result of a query whose client is gone."""
    if not running.cancelled() and running.exception() is not None:
        log.debug("an ended query failed", exc_info=running.exception())


def _answered(error: StreamhouseError) -> Response:
    status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 500)
    mistakes = [each._asdict() for each in error.mistakes] if isinstance(error, BadSql) else None
    headers = {"retry-after": "1"} if status in (429, 503) else {}
    return _problem(status, type(error).__name__, str(error), mistakes=mistakes, headers=headers)


def _problem(
    status: int,
    title: str,
    detail: str,
    *,
    mistakes: list[dict[str, Any]] | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """Problem details, RFC 9457, as agents give them; `problems` has the positions in the text."""
    problem: dict[str, Any] = {
        "type": f"urn:streamhouse:error:{title}",
        "title": title,
        "status": status,
        "detail": detail,
    }
    if mistakes is not None:
        problem["problems"] = mistakes
    return Response(json_of(problem), status_code=status, media_type=PROBLEM_JSON, headers=headers)


def _ascii(value: object) -> str:
    """JSON for a header."""
    text = json_of(value).decode()
    return "".join(sign if " " <= sign <= "~" else _escaped(sign) for sign in text)[:MAX_NOTES_CHARS]


def _escaped(sign: str) -> str:
    units = sign.encode("utf-16-be")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))
