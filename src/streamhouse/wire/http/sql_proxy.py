"""SQL proxy: forwards SQL queries to a worker, which runs Spark, and streams the response back.

Data path   /v1/sql -> **sql proxy** -> a worker's HTTP port
Owns        the number of concurrent queries and their timeout; the worker's token; a token with which the worker acts
            as the caller; cancelling queries of clients that disconnect
Leaves      the list of workers to `pipelines.workers`, running queries to `spark.query`
Invariant   query and tokens go to a process that has proven that it is the worker: another one may listen at the
            address of a worker that has died
"""

import asyncio
import hmac
import logging
import secrets
import ssl
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final
from urllib.parse import quote

import httpx
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from streamhouse.broker.pipelines.workers import SqlWorkers
from streamhouse.config import SqlSettings
from streamhouse.errors import NoWorker, QueryTimedOut, UnknownQuery
from streamhouse.model.access import Caller
from streamhouse.model.cluster_tokens import ClusterTokens
from streamhouse.model.pipeline import CALLER_HEADER, CALLER_TOKEN_HEADER, PROOF_PATH, SqlWorker, worker_proof
from streamhouse.wire.http.errors import ResponseCutError, TooManyRequests
from streamhouse.wire.http.operations import JSON

log = logging.getLogger(__name__)

PROOF_TIMEOUT_S: Final = 30.0
"""A worker that is there proves it at once; where the machine is busy, in seconds."""
GRACE_S: Final = 5.0
"""Extra time for the response: a worker applies the timeout itself."""
NO_CONTENT: Final = 204
CLIENT_CLOSED: Final = 499
FORWARDED_HEADERS: Final = ("content-type", "retry-after")
FORWARDED_PREFIX: Final = "streamhouse-"


class SqlProxy:
    def __init__(
        self, settings: SqlSettings, workers: SqlWorkers, tokens: ClusterTokens | None, *, ca: str = ""
    ) -> None:
        """`tokens` None: agents have no login, and workers get no user. `ca` signs workers' certificates."""
        self._tls = ssl.create_default_context(cafile=ca) if ca else False  # then no worker has TLS
        self._settings = settings
        self._workers = workers
        self._tokens = tokens
        self._busy = 0

    def __repr__(self) -> str:
        return f"<SqlProxy busy={self._busy}>"

    async def ask(
        self, request: Request, path: str, body: bytes | None, *, caller: Caller, timeout_s: float
    ) -> Response:
        """The streamed response of the least busy worker that can be reached."""
        limit = self._settings.concurrency
        if self._busy >= limit:
            raise TooManyRequests(f"too many concurrent SQL queries; limit={limit} setting=sql.concurrency")
        self._busy += 1
        stack = AsyncExitStack()
        stack.callback(self._done)
        headers = {"accept": request.headers.get("accept", "*/*"), **self._caller_headers(caller, timeout_s)}
        try:
            response = await _unless_disconnected(
                request, self._first_answer(request.method, path, body, headers, timeout_s, stack)
            )
        except BaseException:
            await stack.aclose()
            raise
        if response is None:
            await stack.aclose()
            return Response(status_code=CLIENT_CLOSED)
        return _ProxiedResponse(response, stack, timeout_s=timeout_s + GRACE_S)

    async def cancel(self, query_id: str, *, caller: Caller) -> None:
        """Cancel a query of the caller's at the worker that runs it; raises `UnknownQuery`."""
        workers = await self._workers.in_order()
        path = f"/v1/sql/queries/{query_id}"
        headers = self._caller_headers(caller, self._settings.connect_timeout_s)
        statuses = await asyncio.gather(*(self._cancel_at(worker, path, headers) for worker in workers))
        if NO_CONTENT not in statuses:
            raise UnknownQuery(query_id)

    def _done(self) -> None:
        self._busy -= 1

    def _caller_headers(self, caller: Caller, timeout_s: float) -> dict[str, str]:
        """Who asks, with a token that ends soon after the query has: rules for his host and groups hold for it, too."""
        if self._tokens is None:
            return {}
        token = self._tokens.make(
            caller.principal, groups=caller.groups, host=caller.host, ttl_s=timeout_s + 2 * GRACE_S
        )
        return {CALLER_HEADER: quote(str(caller.principal), safe=""), CALLER_TOKEN_HEADER: token}

    async def _cancel_at(self, worker: SqlWorker, path: str, headers: Mapping[str, str]) -> int:
        async with self._client(self._settings.connect_timeout_s + GRACE_S) as client:
            if not await _is_worker(client, worker):
                return 0
            try:
                return (await client.delete(_url(worker, path), headers={**_headers(worker), **headers})).status_code
            except (httpx.HTTPError, httpx.InvalidURL):
                return 0

    async def _first_answer(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout_s: float,
        stack: AsyncExitStack,
    ) -> httpx.Response:
        client = await stack.enter_async_context(self._client(timeout_s + GRACE_S))
        for worker in await self._workers.in_order():
            if not await _is_worker(client, worker):
                continue  # the worker is dead; try the next one
            sent = {**headers, **_headers(worker), **({} if body is None else {"content-type": JSON})}
            request_to_worker = client.build_request(method, _url(worker, path), content=body, headers=sent)
            try:
                async with asyncio.timeout(timeout_s + GRACE_S):
                    response = await client.send(request_to_worker, stream=True)
            except (TimeoutError, httpx.TimeoutException):
                raise QueryTimedOut(
                    f"the SQL worker did not answer in time; worker={worker.worker} timeout_s={timeout_s:g} "
                    "do=query less, or raise timeout_s, up to sql.timeout_s of the agent"
                ) from None
            except httpx.HTTPError as error:
                raise NoWorker(
                    f"a SQL worker didn't answer; worker={worker.worker} why={type(error).__name__}"
                ) from None
            stack.push_async_callback(response.aclose)
            return response
        raise NoWorker("no SQL worker can be reached; do=start one: streamhouse sql serve")

    def _client(self, timeout_s: float) -> httpx.AsyncClient:
        timeout = httpx.Timeout(timeout_s, connect=self._settings.connect_timeout_s)
        # Proxies of the environment are not used; workers have TLS where agents have it, with the same authority.
        return httpx.AsyncClient(timeout=timeout, trust_env=False, verify=self._tls)


class _ProxiedResponse(StreamingResponse):
    """A worker's response while it is streamed; the worker's request is closed whenever the response ends."""

    def __init__(self, response: httpx.Response, stack: AsyncExitStack, *, timeout_s: float) -> None:
        super().__init__(
            _chunks(response, timeout_s), status_code=response.status_code, headers=_forwarded_headers(response.headers)
        )
        self._stack = stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._stack.aclose()


async def _chunks(response: httpx.Response, timeout_s: float) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + timeout_s
    pieces = response.aiter_raw()
    while True:
        try:
            async with asyncio.timeout_at(ends_at):
                piece = await anext(pieces)
        except StopAsyncIteration:
            return
        except (TimeoutError, httpx.HTTPError) as error:
            log.warning("a SQL worker did not complete its response", extra={"why": str(error) or "timeout"})
            raise ResponseCutError from None
        yield piece


async def _unless_disconnected(request: Request, answering: Awaitable[httpx.Response]) -> httpx.Response | None:
    """The result of `answering`, or None if the client disconnects first; the request body must have been read."""
    response = asyncio.ensure_future(answering)
    gone = asyncio.ensure_future(_disconnected(request))
    waited: set[asyncio.Future[Any]] = {response, gone}
    try:
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        return await response if response.done() else None
    finally:
        for each in waited:
            each.cancel()
        await asyncio.gather(*waited, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _is_worker(client: httpx.AsyncClient, worker: SqlWorker) -> bool:
    """Whether the process at the worker's address has its token."""
    nonce = secrets.token_hex(16)
    expected = worker_proof(worker.token, nonce).encode()
    given = b""
    try:
        async with (
            asyncio.timeout(PROOF_TIMEOUT_S),
            client.stream("GET", _url(worker, PROOF_PATH), params={"nonce": nonce}) as response,
        ):
            async for piece in response.aiter_raw():
                given += piece
                if len(given) > len(expected):
                    return False
    except (TimeoutError, httpx.HTTPError, httpx.InvalidURL):
        return False
    return hmac.compare_digest(given, expected)


def _url(worker: SqlWorker, path: str) -> str:
    return f"{worker.address if '://' in worker.address else f'http://{worker.address}'}{path}"


def _headers(worker: SqlWorker) -> dict[str, str]:
    return {"authorization": f"Bearer {worker.token}", "accept-encoding": "identity"}


def _forwarded_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The worker's headers that are passed on to the client."""
    return {
        name: value
        for name, value in headers.items()
        if name.lower() in FORWARDED_HEADERS or name.lower().startswith(FORWARDED_PREFIX)
    }
