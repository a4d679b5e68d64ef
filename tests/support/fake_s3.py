"""A scripted S3 server: a bucket in memory behind a real socket, that does to its clients what a network can do.

    async with FakeS3() as server:
        server.script("PUT", "lose")            # the next PUT is done, and its reply lost
        store = open_object_store("s3://bucket", …, environ=server.environment)

Steps, each for one request: `ok`; `drop` (the connection breaks before anything is done), `lose` (after it is done);
`hang` (no answer until the server ends); `late` (no answer, and done when the test calls `land`); `truncate` (half of
the body); `short` (half of it, with a length that hides it); `whole` (a range was asked for, and all is sent);
`minus-one` (nothing is sent, as a range that can't be read); a number (that status, and nothing is done) or
`409-stored` (that status, and somebody else's object is there now).
"""

import asyncio
import email.utils
from collections import defaultdict, deque
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

CODES: Final = {
    301: "PermanentRedirect",
    400: "AuthorizationHeaderMalformed",
    403: "AccessDenied",
    404: "NoSuchKey",
    409: "ConditionalRequestConflict",
    412: "PreconditionFailed",
    416: "InvalidRange",
    429: "TooManyRequests",
    500: "InternalError",
    501: "NotImplemented",
    503: "SlowDown",
}
_DATE: Final = email.utils.formatdate(1_700_000_000, usegmt=True)
PAGE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    key: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes
    at_s: float


@dataclass(slots=True, kw_only=True)
class Reply:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class FakeS3:
    """No signatures are checked. `honours_create_only=False` is a store that lies. Google's words will do, too."""

    def __init__(self, *, honours_create_only: bool = True, code: str | None = None, extra: str = "") -> None:
        self.objects: dict[str, bytes] = {}
        self.requests: list[Request] = []
        self.code = code  # of scripted failures, instead of the usual one of their status
        self.extra = extra  # further XML in them
        self.always: str | None = None  # a step for every request that has none of its own
        self._honours_create_only = honours_create_only
        self._steps: dict[str, deque[str]] = defaultdict(deque)
        self._late: list[Request] = []
        self._over = asyncio.Event()
        self._arrived = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        assert self._server is not None
        self._server.close()
        while self._writers:
            for writer in self._writers:
                writer.close()
            await asyncio.sleep(0)
        await self._server.wait_closed()

    @property
    def endpoint(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": "AKIAFAKE",
            "AWS_SECRET_ACCESS_KEY": "top-secret-key",
            "AWS_SESSION_TOKEN": "top-secret-token",
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
        }

    def script(self, method: str, *steps: str) -> None:
        self._steps[method] += steps

    def land(self) -> None:
        """What was late arrives."""
        for request in self._late:
            self._do(request)
        self._late.clear()

    async def received(self, count: int) -> None:
        """Return when so many requests have come."""
        while len(self.requests) < count:
            self._arrived.clear()
            await self._arrived.wait()

    def count(self, method: str) -> int:
        return sum(request.method == method for request in self.requests)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while (request := await _read(reader)) is not None and await self._answer(request, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            self._writers.discard(writer)

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection goes on."""
        self.requests.append(request)
        self._arrived.set()
        steps = self._steps[request.method]
        step = steps.popleft() if steps else self.always or "ok"
        match step:
            case "drop":
                return False
            case "hang" | "late":
                if step == "late":
                    self._late.append(request)
                await self._over.wait()
                return False
            case "lose":
                self._do(request)
                return False
            case "409-stored":
                self.objects.setdefault(request.key, b"somebody else's")
                reply = self._failure(409, request)
            case "whole":
                reply = Reply(headers={"etag": '"x"'}, body=self.objects[request.key])
            case "minus-one":
                reply = Reply(status=206, headers={"etag": '"x"', "content-range": "bytes 0--1/0"})
            case "ok" | "truncate" | "short":
                reply = self._do(request)
            case status:
                reply = self._failure(int(status), request)
        return await self._send(reply, request, step, writer)

    async def _send(self, reply: Reply, request: Request, step: str, writer: asyncio.StreamWriter) -> bool:
        body = reply.body[: len(reply.body) // 2] if step in ("truncate", "short") else reply.body
        length = len(body) if step == "short" else len(reply.body)
        headers = {"content-length": str(length), "last-modified": _DATE} | reply.headers
        lines = [f"HTTP/1.1 {reply.status} X", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        writer.write("\r\n".join(lines).encode() + (b"" if request.method == "HEAD" else body))
        await writer.drain()
        return step != "truncate"

    def _failure(self, status: int, request: Request) -> Reply:
        code = self.code or CODES.get(status, "Unknown")
        text = f"<Error><Code>{code}</Code><Message>as scripted</Message>{self.extra}</Error>"
        return Reply(status=status, body=b"" if request.method == "HEAD" else text.encode())

    def _do(self, request: Request) -> Reply:
        match request.method:
            case "PUT":
                return self._put(request)
            case "DELETE":
                self.objects.pop(request.key, None)
                return Reply(status=204)
            case "GET" if "list-type" in request.query:
                return self._list(request.query)
            case _:
                return self._get(request)

    def _put(self, request: Request) -> Reply:
        query = request.headers.get("if-none-match") == "*" or request.headers.get("x-goog-if-generation-match") == "0"
        if query and self._honours_create_only and request.key in self.objects:
            return self._failure(412, request)
        self.objects[request.key] = request.body
        return Reply(headers={"etag": f'"{len(request.body)}"'})

    def _get(self, request: Request) -> Reply:
        whole = self.objects.get(request.key)
        if whole is None:
            return self._failure(404, request)
        headers = {"etag": f'"{len(whole)}"'}
        expected = request.headers.get("range")
        if expected is None:
            return Reply(headers=headers, body=whole)
        first, _, last = expected.removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, len(whole) - int(last))
        end = min(len(whole), int(last) + 1) if first and last else len(whole)
        if start >= len(whole):
            return self._failure(416, request)
        headers["content-range"] = f"bytes {start}-{end - 1}/{len(whole)}"
        return Reply(status=206, headers=headers, body=whole[start:end])

    def _list(self, query: dict[str, list[str]]) -> Reply:
        prefix = query.get("prefix", [""])[0]
        after = query.get("continuation-token", query.get("start-after", [""]))[0]
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        page, more = keys[:PAGE], len(keys) > PAGE
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2023-11-14T22:13:20.000Z</LastModified>"
            f'<ETag>"x"</ETag><Size>{len(self.objects[key])}</Size></Contents>'
            for key in page
        )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        text = f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{rows}</ListBucketResult>"
        return Reply(body=text.encode())


async def _read(reader: asyncio.StreamReader) -> Request | None:
    head = await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b""
    if not head:
        return None
    first, *rest = head.decode().rstrip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    parts = urlsplit(target)
    key = unquote(parts.path).removeprefix("/").partition("/")[2]
    query = parse_qs(parts.query, keep_blank_values=True)
    at_s = asyncio.get_running_loop().time()
    return Request(method=method, key=key, query=query, headers=headers, body=body, at_s=at_s)
