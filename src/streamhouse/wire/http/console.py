"""Console: serves the files of the web console, and its page at every URL that the console has.

Data path   app -> **console** -> files of the package
Owns        which files there are, their versioned URLs, compression, caching, the content security policy
Leaves      the files to `streamhouse.console`, their data to the routes of the API

GET /                                     the console for browsers; for programs the root of the schema registry
GET /console/…                            the console; its script reads the rest of the URL
GET /console/files/{version}/{file}       a file; the version is a hash of all files, so responses never change

The files are read once, in a thread, when the first of them is requested. A request is looked up among them and never
becomes a path of the file system. They are the same for everybody and hold no data, so they need no login.
"""

import asyncio
import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from streamhouse.wire.http.errors import MethodNotAllowed, Problem, problem_response
from streamhouse.wire.http.site import ALLOWED, CONTENT_TYPES

PREFIX: Final = "/console"
FILES: Final = f"{PREFIX}/files/"
INDEX: Final = "index.html"
VERSION_MARK: Final = b"{version}"
SERVED: Final = {**CONTENT_TYPES, ".txt": "text/plain; charset=utf-8", ".json": "application/json"}
"""Content types by extension."""
COMPRESSED: Final = frozenset({".html", ".css", ".js", ".svg", ".txt", ".json"})
FOR_EVER: Final = "public, max-age=31536000, immutable"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
NO_SUCH_FILE: Final = "the console has no such file"
HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "vary": "Accept, Accept-Encoding",
}


@dataclass(frozen=True, slots=True)
class _File:
    """A file as it is sent; `packed` is None where compression gains nothing."""

    plain: bytes
    packed: bytes | None
    media_type: str
    etag: str


class Console:
    """An ASGI application."""

    path = "/console/{page}"
    """The metric label of its requests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, _File] | None = None
        self._reading = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Console files={len(self._files or ())}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        if request.method not in ("GET", "HEAD"):
            raise MethodNotAllowed(
                f"method not allowed; method={request.method[:20]} allowed={ALLOWED}", headers={"allow": ALLOWED}
            )
        await (await self._respond(request))(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        files = await self._read()
        path = request.url.path
        is_file = path.startswith(FILES)
        file = files.get(path.removeprefix(FILES).partition("/")[2] if is_file else INDEX)
        if file is None:
            return problem_response(Problem(type="about:blank", title="Not Found", status=404, detail=NO_SUCH_FILE))
        headers = {**HEADERS, "etag": file.etag, "cache-control": FOR_EVER if is_file else "no-cache"}
        if not is_file:
            headers["content-security-policy"] = POLICY
        if request.headers.get("if-none-match") == file.etag:
            return Response(status_code=304, headers=headers)
        if file.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            return Response(file.packed, media_type=file.media_type, headers={**headers, "content-encoding": "gzip"})
        return Response(file.plain, media_type=file.media_type, headers=headers)

    async def _read(self) -> dict[str, _File]:
        if self._files is None:
            async with self._reading:
                if self._files is None:
                    self._files = await asyncio.to_thread(_read_files, self._folder)
        return self._files


class BrowserRoute(Route):
    """A route for browsers that request a page; other requests continue to the next routes."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if (
            scope["type"] == "http"
            and scope["method"] in ("GET", "HEAD")
            and "text/html" in Headers(scope=scope).get("accept", "")
        ):
            return super().matches(scope)
        return Match.NONE, {}


def console_routes(folder: Path | None) -> list[Route]:
    """Without a folder there are none."""
    if folder is None:
        return []
    console = Console(folder)
    return [BrowserRoute("/", console), Route(PREFIX, console), Route(PREFIX + "/{page:path}", console)]


def _read_files(folder: Path) -> dict[str, _File]:
    """All files below the folder, by their paths in URLs; the page names the version of the others."""
    found = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.suffix in SERVED and path.is_file() and not path.is_symlink()
    }
    version = hashlib.sha256(b"".join(name.encode() + data for name, data in found.items())).hexdigest()[:16]
    if INDEX in found:
        found[INDEX] = found[INDEX].replace(VERSION_MARK, version.encode())
    return {name: _file(Path(name).suffix, data) for name, data in found.items()}


def _file(suffix: str, data: bytes) -> _File:
    return _File(
        plain=data,
        packed=gzip.compress(data, mtime=0) if suffix in COMPRESSED else None,
        media_type=SERVED[suffix],
        etag=f'"{hashlib.sha256(data).hexdigest()[:32]}"',
    )
