"""Documents: what the API says about itself.

GET /openapi.json    the OpenAPI document, made of the declarations that serve
GET /docs            the same for people, with a form to try each operation; needs nothing from other hosts
"""

from importlib.resources import files
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from streamhouse.wire.http.openapi import make_document
from streamhouse.wire.http.operations import JSON, Call, Media, NoQuery, Operation

TAG: Final = "documents"
PAGES: Final = files("streamhouse.wire.http") / "pages"
TYPES: Final = {"docs.html": "text/html", "docs.css": "text/css", "docs.js": "text/javascript"}
HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}


def operations(others: list[Operation[Any, Any]]) -> list[Operation[Any, Any]]:
    """`others` are all operations that the document is about, besides these."""
    pages = {name: (PAGES / name).read_bytes() for name in TYPES}  # read once, before anything is served

    async def get_openapi(_: Call[NoQuery, None]) -> Response:
        return Response(document, media_type=JSON)

    async def show_docs(_: Call[NoQuery, None]) -> Response:
        return Response(pages["docs.html"], media_type=TYPES["docs.html"], headers=HEADERS)

    async def show_docs_part(call: Call[NoQuery, None]) -> Response:
        name = call.path["name"]
        if name not in pages:
            raise HTTPException(404)
        return Response(pages[name], media_type=TYPES[name], headers=HEADERS)

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
            summary="This document for people, with a form to try each operation",
            tag=TAG,
            query=NoQuery,
            other_answers=[Media(type="text/html", about="a page")],
        ),
        Operation(
            method="GET",
            path="/docs/{name}",
            handler=show_docs_part,
            summary="What the page is made of",
            tag=TAG,
            query=NoQuery,
            other_answers=[Media(type=each, about="a file") for each in TYPES.values()],
            problems=(404,),
        ),
    ]
    document = msgspec.json.encode(make_document([*others, *own]))
    return own
