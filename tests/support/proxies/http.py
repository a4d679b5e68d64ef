"""A server of HTTP/1.1 on loopback that stands before another one: tests look at what passes, or change its language.

    async with Recorder(server.port) as front:
        ...                             # clients use front.endpoint
        front.requests                  # what they asked, in the order in which it came

A subclass of `HttpFront` says what is answered, usually after it has asked the server behind. When that one is away,
the client's connection ends without an answer. With `tls` the front speaks https, and plain http behind.
"""

import asyncio
import ssl
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Self
from urllib.parse import parse_qsl, unquote, urlsplit

LIMIT_BYTES = 1 << 20
_NO_BODY = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes = b""

    @property
    def path(self) -> str:
        return unquote(urlsplit(self.target).path)

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """`length` is told instead of the body's: an answer to HEAD has none. One that `ends` is the last of its
    connection: with a length that is more than the body's, it was cut short."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    length: int | None = None
    ends: bool = False


class HttpFront:
    """Serves until it is left; one connection behind per request."""

    def __init__(self, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        self._behind = port
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", 0, limit=LIMIT_BYTES, ssl=self._tls, backlog=1024
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        await asyncio.sleep(0)  # sockets that were given up are closed in the loop's next round

    @property
    def host(self) -> str:
        """`127.0.0.1:port`"""
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def endpoint(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self.host}"

    async def answer(self, request: Request) -> Reply:
        raise NotImplementedError

    async def pass_on(self, request: Request) -> Reply:
        """What the server behind says to it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._behind, limit=LIMIT_BYTES)
        try:
            lines = [f"{request.method} {request.target} HTTP/1.1", *_lines(request.headers)]
            writer.writelines([_head(lines), request.body])
            await writer.drain()
            return await _read_reply(reader, request.method)
        finally:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            while (request := await _read_request(reader)) is not None:
                reply = await self.answer(request)
                await _send(writer, reply, request.method)
                if reply.ends:
                    return
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # one side is away, or the test is over
        finally:
            writer.transport.abort()


class Recorder(HttpFront):
    """Changes nothing, and remembers what was asked."""

    def __init__(self, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(port, tls=tls)
        self.requests: list[Request] = []

    async def answer(self, request: Request) -> Reply:
        self.requests.append(request)
        return await self.pass_on(request)


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    head = await _read_head(reader)
    if head is None:
        return None
    first, headers = head
    method, target, _ = first.split(" ")
    return Request(method=method, target=target, headers=headers, body=await _read_body(reader, headers))


async def _read_reply(reader: asyncio.StreamReader, method: str) -> Reply:
    head = await _read_head(reader)
    if head is None:
        raise ConnectionResetError("the server behind ended without an answer")
    first, headers = head
    status = int(first.split(" ")[1])
    if method == "HEAD" or status in _NO_BODY:
        return Reply(status=status, headers=headers, length=int(headers.get("content-length", 0)))
    return Reply(status=status, headers=headers, body=await _read_body(reader, headers))


async def _read_head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]] | None:
    """The first line, and the headers by their names in lower case."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as ended:
        if ended.partial:
            raise
        return None
    first, *rest = head.decode("latin-1").rstrip().split("\r\n")
    named = (line.partition(":") for line in rest)
    return first, {name.strip().lower(): value.strip() for name, _, value in named}


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length", 0)))
    pieces = []
    while size := int((await reader.readline()).partition(b";")[0], 16):
        pieces.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readline()
    return b"".join(pieces)


async def _send(writer: asyncio.StreamWriter, reply: Reply, method: str) -> None:
    length = len(reply.body) if reply.length is None else reply.length
    headers = {name: value for name, value in reply.headers.items() if name not in ("transfer-encoding", "connection")}
    if reply.status not in _NO_BODY:
        headers["content-length"] = str(length)
    first = f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}"
    writer.writelines([_head([first, *_lines(headers)]), b"" if method == "HEAD" else reply.body])
    await writer.drain()


def _lines(headers: dict[str, str]) -> list[str]:
    return [f"{name}: {value}" for name, value in headers.items()]


def _head(lines: list[str]) -> bytes:
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
