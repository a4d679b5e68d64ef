"""Documents: what the API says about itself.

GET /openapi.json    the OpenAPI document, made of the declarations that serve
GET /docs            the documentation, where the package has it; else the page about the API
GET /docs/api        the OpenAPI document for people, with a form to try each operation
GET /docs/…          the pages of the documentation

No page needs anything from other hosts.
"""

from importlib.resources import files
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import RedirectResponse, Response

from streamhouse.wire.http.openapi import make_document
from streamhouse.wire.http.operations import JSON, Call, Media, NoQuery, Operation
from streamhouse.wire.http.site import CONTENT_TYPES, Site

TAG: Final = "documents"
PAGES: Final = files("streamhouse.wire.http") / "pages"
API_PAGE: Final = "docs.html"
API_URL_NAME: Final = "api"
TYPES: Final = {"docs.html": "text/html", "docs.css": "text/css", "docs.js": "text/javascript"}
HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}


class DocsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters that the scripts of the pages read."""

    q: Annotated[str, Meta(description="what to search for", max_length=1000)] = ""


def operations(others: list[Operation[Any, Any]], site: Site) -> list[Operation[Any, Any]]:
    """`others` are all operations that the document is about, besides these."""
    pages = {name: (PAGES / name).read_bytes() for name in TYPES}  # read once, before anything is served

    async def get_openapi(_: Call[NoQuery, None]) -> Response:
        return Response(document, media_type=JSON)

    def api_part(name: str) -> Response:
        return Response(pages[name], media_type=TYPES[name], headers=HEADERS)

    async def show_docs(_: Call[NoQuery, None]) -> Response:
        return RedirectResponse("docs/", 307) if site.is_built else api_part(API_PAGE)

    async def show_docs_part(call: Call[DocsQuery, None]) -> Response:
        name = API_PAGE if call.path["name"] == API_URL_NAME else call.path["name"]
        return api_part(name) if name in pages else await site.respond(call.request, name)

    own: list[Operation[Any, Any]] = [
        Operation(
            method="GET",
            path="/openapi.json",
            handler=get_openapi,
            summary="This document",
            tag=TAG,
            query=NoQuery,
            other_answers=[Media(type=JSON, about="OpenAPI 3.1", schema={"type": "object"})],
        ),
        Operation(
            method="GET",
            path="/docs",
            handler=show_docs,
            summary="The documentation",
            about="Without the documentation in the package: the page about this API, which is always at `/docs/api`.",
            tag=TAG,
            query=NoQuery,
            other_answers=[Media(type="text/html", about="a page")],
            other_statuses={307: None},
        ),
        Operation(
            method="GET",
            path="/docs/{name}",
            handler=show_docs_part,
            summary="A page of the documentation, or a file of one",
            about="`api` is this document for people, with a form to try each operation.",
            tag=TAG,
            query=DocsQuery,
            other_answers=[Media(type=each.partition(";")[0], about="a file") for each in CONTENT_TYPES.values()],
            problems=(404,),
        ),
    ]
    document = msgspec.json.encode(make_document([*others, *own]))
    return own
