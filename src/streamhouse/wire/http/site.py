"""Site: the documentation as HTML pages, if the package contains them.

Data path   openapi -> **site** -> files of the package
Owns        which files may be read, their content types and content security policy, the 404 page
Leaves      building the pages to `make docs`

The files are listed once, at the start. A request is looked up in that list and never becomes a path of the file
system, so `..`, absolute paths, encoded slashes and links lead nowhere.
"""

import asyncio
import base64
import hashlib
import html
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from streamhouse.wire.http.errors import MethodNotAllowed, Problem, problem_response

PACKAGED: Final = Path(__file__).parent / "site"
INDEX: Final = "index.html"
ALLOWED: Final = "GET, HEAD"
CONTENT_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}
"""Content types of the files that are served, by extension."""
MAX_FILE_BYTES: Final = 16 * 1024 * 1024
POLICY: Final = (
    "default-src 'none'; script-src 'self'{scripts}; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
    "img-src 'self' data:; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
NOT_BUILT: Final = "this agent's package has no documentation; `make docs` in a checkout builds it"
NO_SUCH_PAGE: Final = "there is no such page in the documentation"

_INLINE_SCRIPT: Final = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
_NOT_FOUND_PAGE: Final = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Not found · StreamHouse</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.6 system-ui, sans-serif; max-width: 38rem; margin: 15vh auto; padding: 0 1.5rem; }}
</style></head>
<body><h1>No page here</h1><p>{reason}.</p><p>{links}</p></body>
</html>
"""
_HOME_LINK: Final = '<a href="/docs/">Documentation</a> · '
_API_LINK: Final = '<a href="/docs/api">HTTP API of this agent</a>'


class Site:
    """Serves the files below a folder; `name` is a path below it, as a URL has it."""

    path = "/docs/{page}"
    """The metric label of its requests."""

    def __init__(self, folder: Path = PACKAGED) -> None:
        self._files: Mapping[str, Path] = dict(_servable(folder))

    def __repr__(self) -> str:
        return f"<Site files={len(self._files)}>"

    @property
    def is_built(self) -> bool:
        return INDEX in self._files

    async def respond(self, request: Request, name: str) -> Response:
        """The file, or a 404: a page for browsers, problem details for other clients."""
        if (file := self._find(name)) is None:
            return self._not_found(request)
        data = await asyncio.to_thread(file.read_bytes)
        headers = {**_headers(data), "etag": f'"{hashlib.sha256(data).hexdigest()[:32]}"'}
        if request.headers.get("if-none-match") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(data, media_type=CONTENT_TYPES[file.suffix], headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI route of the home page and the pages in folders."""
        request = Request(scope, receive, send)
        if request.method not in ("GET", "HEAD"):
            raise MethodNotAllowed(
                f"method not allowed; method={request.method[:20]} allowed={ALLOWED}", headers={"allow": ALLOWED}
            )
        response = await self.respond(request, request.path_params["page"])
        await response(scope, receive, send)

    def _find(self, name: str) -> Path | None:
        return self._files.get(f"{name}{INDEX}" if not name or name.endswith("/") else name)

    def _not_found(self, request: Request) -> Response:
        reason = NO_SUCH_PAGE if self.is_built else NOT_BUILT
        if "text/html" not in request.headers.get("accept", ""):
            return problem_response(Problem(type="about:blank", title="Not Found", status=404, detail=reason))
        links = (_HOME_LINK if self.is_built else "") + _API_LINK
        page = _NOT_FOUND_PAGE.format(reason=html.escape(reason[0].upper() + reason[1:]), links=links).encode()
        return Response(page, 404, media_type=CONTENT_TYPES[".html"], headers=_headers(page))


def _servable(folder: Path) -> Iterator[tuple[str, Path]]:
    """Regular files below the folder, by URL; symbolic links are left out."""
    for parent, _, names in os.walk(folder):  # doesn't follow links
        for file in (Path(parent) / name for name in names):
            is_regular = file.suffix in CONTENT_TYPES and file.is_file() and not file.is_symlink()
            if is_regular and file.stat().st_size <= MAX_FILE_BYTES:
                yield file.relative_to(folder).as_posix(), file


def _headers(data: bytes) -> dict[str, str]:
    """Headers with a content security policy that allows only the inline scripts of the page, by their hashes."""
    hashes = (base64.b64encode(hashlib.sha256(text).digest()).decode() for text in _INLINE_SCRIPT.findall(data))
    return {
        "content-security-policy": POLICY.format(
            scripts="".join(f" 'sha256-{each}'" for each in dict.fromkeys(hashes))
        ),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }
