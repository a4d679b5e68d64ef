"""A SQL worker without a Spark: it answers what a test wants, on a real port."""

import asyncio
import hmac
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

ANSWER = {
    "query_id": "q1",
    "columns": [{"name": "id", "type": "INT"}],
    "rows": [{"id": 1}],
    "truncated": False,
    "elapsed_ms": 1,
    "notes": [],
}


def proof_of(token: str, nonce: str) -> str:
    return hmac.new(token.encode(), f"streamhouse sql worker {nonce}".encode(), "sha256").hexdigest()


class FakeWorker:
    """`asked` is what it was asked. A question that begins with `wait` is answered when `go` is set, `live` never
    ends, and one that begins with `wrong` is refused."""

    def __init__(self, token: str = "t") -> None:
        self.port = 0
        self.token = token
        self.requested: list[dict[str, Any]] = []
        self.tokens: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.waiting = asyncio.Event()
        self._changed = asyncio.Condition()
        self.go = asyncio.Event()
        self.left = asyncio.Event()
        self.app = Starlette(
            routes=[
                Route("/v1/proof", self.proof),
                Route("/v1/sql", self.sql, methods=["POST"]),
                Route("/v1/sql/validate", self.validate, methods=["POST"]),
                Route("/v1/sql/complete", self.complete),
                Route("/v1/sql/queries/{query_id}", self.cancel, methods=["DELETE"]),
            ]
        )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def until_asked(self, count: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.requested) >= count)

    async def proof(self, request: Request) -> Response:
        return Response(proof_of(self.token, request.query_params["nonce"]))

    async def sql(self, request: Request) -> Response:
        response = json.loads(await request.body())
        self.requested.append(response)
        async with self._changed:
            self._changed.notify_all()
        self.tokens.append(request.headers["authorization"])
        self.headers.append(dict(request.headers))
        if response["sql"].startswith("wait"):
            self.waiting.set()
            await self._until_gone(request)
        if response["sql"].startswith("wrong"):
            problem = {"type": "urn:x", "title": "BadSql", "status": 400, "detail": "no such column"}
            return JSONResponse(problem, status_code=400, media_type="application/problem+json")
        if request.headers["accept"] == "application/x-ndjson":
            kinds = {"live": self._live, "broken": self._broken}
            lines = kinds.get(response["sql"], self._lines)()
            headers = {"streamhouse-query-id": "q1", "x-secret": "mine"}
            return StreamingResponse(lines, media_type="application/x-ndjson", headers=headers)
        return JSONResponse(ANSWER)

    async def validate(self, request: Request) -> Response:
        self.requested.append(json.loads(await request.body()))
        return JSONResponse({"statements": []})

    async def complete(self, request: Request) -> Response:
        return JSONResponse({"tables": ["orders"]})

    async def cancel(self, request: Request) -> Response:
        return Response(status_code=204 if request.path_params["query_id"] == "q1" else 404)

    async def _until_gone(self, request: Request) -> None:
        gone = asyncio.ensure_future(request.receive())
        going = asyncio.ensure_future(self.go.wait())
        await asyncio.wait({gone, going}, return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            self.left.set()
        gone.cancel()
        going.cancel()

    async def _lines(self) -> AsyncIterator[bytes]:
        yield b'{"id":1}\n'
        yield b'{"id":2}\n'

    async def _broken(self) -> AsyncIterator[bytes]:
        yield b'{"id":1}\n'
        raise ConnectionError("the right to read has ended")

    async def _live(self) -> AsyncIterator[bytes]:
        try:
            yield b'{"id":1}\n'
            await self.go.wait()
        finally:
            self.left.set()


@asynccontextmanager
async def fake_worker(token: str = "t") -> AsyncIterator[FakeWorker]:
    worker = FakeWorker(token)
    listener = socket.create_server(("127.0.0.1", 0))
    worker.port = listener.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(worker.app, log_config=None, lifespan="off"))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield worker
    finally:
        worker.go.set()
        server.should_exit = True
        await serving
