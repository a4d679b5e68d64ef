"""Connection to a SQL worker: send a query, stream its rows.

Data path   sql command, shell -> **worker connection** -> `/v1/sql` of a worker
Owns        finding or starting the worker, again if it has ended; parsing of response headers
Leaves      the worker process to `spark.worker.worker_client`
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import httpx

from streamhouse.cli.sql.query_request import Number, QueryRequest
from streamhouse.client.http import retry_after_s
from streamhouse.clock import SystemClock
from streamhouse.errors import BadSql, Mistake, Rejected, StreamhouseError, Unavailable
from streamhouse.spark.worker.discovery import Worker
from streamhouse.spark.worker.worker_client import authorization, ensure_worker

CONNECT_TIMEOUT_S: Final = 5.0
GRACE_S: Final = 30.0
"""Time to wait for the response header beyond the query timeout."""
USUAL_TIMEOUT_S: Final = 300.0

OnWait = Callable[[float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultHeader:
    """The metadata of a result before its rows: columns with their types, truncation, notes."""

    columns: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    truncated: bool
    is_live: bool


class ResultStream:
    """A result whose rows are still being received."""

    def __init__(self, head: ResultHeader, response: httpx.Response) -> None:
        self.head, self._answer = head, response

    async def rows(self) -> AsyncIterator[dict[str, Any]]:
        """Yield rows; numbers are texts as they were sent. Raises `Unavailable` if the response breaks off."""
        async for line in self._checked_stream(self._answer.aiter_lines()):
            if line:
                yield json.loads(line, parse_float=Number, parse_int=Number)

    async def lines(self) -> AsyncIterator[str]:
        async for line in self._checked_stream(self._answer.aiter_lines()):
            yield line

    async def parts(self) -> AsyncIterator[bytes]:
        async for part in self._checked_stream(self._answer.aiter_bytes()):
            yield part

    async def _checked_stream(self, source: AsyncIterator[Any]) -> AsyncIterator[Any]:
        try:
            async for item in source:
                yield item
        except httpx.TransportError as error:
            raise Unavailable(f"the response broke off; why={str(error) or type(error).__name__}") from None


class WorkerConnection:
    """Use it in `async with`; one query at a time."""

    def __init__(self, agents: str, *, on_wait: OnWait | None = None) -> None:
        self._agents, self._on_wait = agents, on_wait
        self._clock = SystemClock()
        self._worker: Worker | None = None
        timeout = httpx.Timeout(None, connect=CONNECT_TIMEOUT_S)
        self._client = httpx.AsyncClient(timeout=timeout, trust_env=False)

    def __repr__(self) -> str:
        return f"<Link {self._worker!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    @property
    def is_connected(self) -> bool:
        return self._worker is not None

    async def connect(self) -> Worker:
        """Return the worker; starts one if none is running."""
        if self._worker is None:
            self._worker = await ensure_worker(self._agents, on_wait=self._on_wait)
        return self._worker

    @asynccontextmanager
    async def query(self, request: QueryRequest) -> AsyncIterator[ResultStream]:
        """Open the result of a query; leaving the block cancels it. A worker that has ended is started again, once."""
        wait_s = (request.timeout_s or USUAL_TIMEOUT_S) + GRACE_S
        response = await self._send_with_retries("POST", "/v1/sql", wait_s, body=request.body(), accept=request.accept)
        try:
            if response.status_code >= httpx.codes.BAD_REQUEST:
                raise _rejection(response.status_code, await response.aread())
            yield ResultStream(head_of(response.headers), response)
        finally:
            await response.aclose()

    async def complete(self) -> dict[str, Any]:
        """Return the names for completion."""
        response = await self._send_with_retries("GET", "/v1/sql/complete", GRACE_S)
        try:
            content = await response.aread()
        finally:
            await response.aclose()
        if response.status_code >= httpx.codes.BAD_REQUEST:
            raise _rejection(response.status_code, content)
        names: dict[str, Any] = json.loads(content)
        return names

    async def _send_with_retries(
        self, method: str, path: str, wait_s: float, *, body: object = None, accept: str = "application/json"
    ) -> httpx.Response:
        """Retry after 429, with the delay that the worker gives, within `wait_s`."""
        deadline = self._clock.monotonic() + wait_s
        while True:
            response = await self._send(method, path, wait_s, body=body, accept=accept)
            pause_s = retry_after_s(response)
            if not pause_s or self._clock.monotonic() + pause_s > deadline:
                return response
            await response.aclose()
            await self._clock.sleep(pause_s)

    async def _send(
        self, method: str, path: str, wait_s: float, *, body: object = None, accept: str = "application/json"
    ) -> httpx.Response:
        for is_last in (False, True):
            worker = await self.connect()
            request = self._client.build_request(
                method, f"http://{worker.address}{path}", json=body, headers={**authorization(worker), "accept": accept}
            )
            try:
                async with asyncio.timeout(wait_s):
                    response = await self._client.send(request, stream=True)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                self._worker = None  # nothing was sent; connect starts another worker
                if is_last:
                    raise _connection_lost(worker, error) from None
                continue
            except httpx.TransportError as error:
                self._worker = None
                raise _connection_lost(worker, error) from None
            except TimeoutError:
                raise Unavailable(
                    f"the SQL worker doesn't answer; log={worker.log} do=streamhouse sql stop, then try again"
                ) from None
            if response.status_code != httpx.codes.UNAUTHORIZED or is_last:
                return response
            await response.aclose()  # another worker has the port by now
            self._worker = None
        raise AssertionError("unreachable")


def head_of(headers: Mapping[str, str]) -> ResultHeader:
    return ResultHeader(
        columns=tuple((name, kind) for name, kind in json.loads(headers.get("streamhouse-columns") or "[]")),
        notes=tuple(json.loads(headers.get("streamhouse-notes") or "[]")),
        truncated=headers.get("streamhouse-truncated") == "true",
        is_live=headers.get("streamhouse-live") == "true",
    )


def _connection_lost(worker: Worker, error: Exception) -> Unavailable:
    why = str(error) or type(error).__name__
    return Unavailable(f"the SQL worker ended before it answered; why={why} log={worker.log}")


def _rejection(status: int, content: bytes) -> StreamhouseError:
    """Return the error that the worker reports."""
    try:
        response = json.loads(content)
    except ValueError:
        response = {}
    if problems := response.get("problems"):
        return BadSql([Mistake(p["line"], p["column"], p["text"], p.get("hint") or "") for p in problems])
    text = str(response.get("detail") or f"refused; status={status}")
    return Unavailable(text) if status in (429, 503) else Rejected(text)
