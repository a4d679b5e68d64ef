"""OpenAPI: the document of the HTTP API, generated from the declared operations.

Data path   operations -> **openapi** -> /openapi.json, /docs
Owns        the mapping of declarations to OpenAPI 3.1
Leaves      the declarations to the routes, types to msgspec

Routes:

GET /openapi.json    the OpenAPI document
GET /docs            the documentation, if the package contains it; otherwise the page of the API
GET /docs/api        the API as a page, with a form to try each operation
GET /docs/…          the pages of the documentation

No page loads anything from other hosts.
"""

import asyncio
import re
from collections.abc import Iterable, Sequence
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import RedirectResponse, Response

from streamhouse import __version__
from streamhouse.model.needs import LOGGED_IN, OPEN, Needs
from streamhouse.wire.http.errors import PROBLEM_JSON, Problem
from streamhouse.wire.http.operations import JSON, PATH_PARAMETERS, Call, Header, Media, NoQuery, Operation
from streamhouse.wire.http.site import CONTENT_TYPES, Site

ABOUT: Final = (
    "Topics, records, consumer groups and the cluster, for everything that isn't a Kafka client. "
    "Errors are problem details (RFC 9457)."
)
SECURITY_SCHEMES: Final = {
    "password": {"type": "http", "scheme": "basic", "description": "a user's name and password"},
    "token": {"type": "http", "scheme": "bearer", "description": "an API key, or a token of the issuer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "an API key"},
}
"""How clients log in, on listeners that require it."""
EVERYWHERE: Final = (400, 403, 406, 422, 429, 500, 503)
"""Error statuses of every operation."""
WITH_BODY: Final = (408, 413, 415)
REF: Final = "#/components/schemas/{name}"

_NAMES: Final = re.compile(r"{(\w+)(?::\w+)?}")


def make_document(operations: Sequence[Operation[Any, Any]]) -> dict[str, Any]:
    types = _types(operations)
    _, schemas = msgspec.json.schema_components([Problem, *types], ref_template=REF)
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        path = _NAMES.sub(r"{\1}", each.path)
        paths.setdefault(path, {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {"title": "StreamHouse", "version": __version__, "description": ABOUT},
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(each.tag for each in operations)],
        "paths": paths,
        "security": [{name: []} for name in SECURITY_SCHEMES],
        "components": {"schemas": schemas, "securitySchemes": SECURITY_SCHEMES},
    }


def _types(operations: Iterable[Operation[Any, Any]]) -> list[Any]:
    types: dict[Any, None] = {}
    for each in operations:
        for kind in (each.body, each.response, each.also_response, *each.other_statuses.values()):
            if kind is not None:
                types[kind] = None
    return list(types)


def _operation(operation: Operation[Any, Any]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [
            *_path_parameters(operation.path),
            *_query_parameters(operation.query),
            *map(_header_parameter, operation.headers),
        ],
        "responses": _responses(operation),
    }
    if about := " ".join(filter(None, (operation.about, needs_text(operation.needs)))):
        document["description"] = about
    if operation.needs.is_open:
        document["security"] = []
    if operation.is_stated:
        document["requestBody"] = {"required": True, "content": _content(operation.body, operation.other_bodies)}
    return document


def needs_text(needs: Needs) -> str:
    """The rights that an operation needs, as a sentence."""
    return "" if needs in (OPEN, LOGGED_IN) else f"Needs: {needs}."


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [_parameter("path", name, _schema(PATH_PARAMETERS[name]), required=True) for name in _NAMES.findall(path)]


def _query_parameters(kind: type[msgspec.Struct]) -> list[dict[str, Any]]:
    (_,), components = msgspec.json.schema_components([kind], ref_template=REF)
    parameters = components[kind.__name__]
    return [
        _parameter("query", name, dict(schema), required=name in parameters["required"])
        for name, schema in parameters["properties"].items()
    ]


def _header_parameter(header: Header) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "maxLength": header.max_chars, "pattern": header.pattern}
    return {"in": "header", "name": header.name, "description": header.about, "required": False, "schema": schema}


def _parameter(location: str, name: str, schema: dict[str, Any], *, required: bool) -> dict[str, Any]:
    about = schema.pop("description", "")
    return {"in": location, "name": name, "description": about, "required": required, "schema": schema}


def _schema(kind: Any) -> dict[str, Any]:
    return msgspec.json.schema(kind)


def _reference(kind: Any) -> dict[str, Any]:
    return {"$ref": REF.format(name=kind.__name__)}


def _content(kind: Any, others: Iterable[Media]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if kind is not None:
        content[JSON] = {"schema": _reference(kind)}
    for media in others:
        content[media.type] = {"schema": {**media.schema, "description": media.about}}
    return content


def _responses(operation: Operation[Any, Any]) -> dict[str, Any]:
    good: dict[str, Any] = {"description": HTTPStatus(operation.status).phrase}
    if content := _content(operation.response, operation.other_responses):
        good["content"] = content
    if operation.also_response is not None:
        content[JSON]["schema"] = {"anyOf": [content[JSON]["schema"], _reference(operation.also_response)]}
    if operation.response_headers:
        good["headers"] = {
            name: {"description": about, "schema": {"type": "string"}}
            for name, about in operation.response_headers.items()
        }
    responses = {str(operation.status): good}
    for status, kind in operation.other_statuses.items():
        responses[str(status)] = {"description": HTTPStatus(status).phrase, "content": _content(kind, ())}
    login = () if operation.needs.is_open else (401,)
    for status in sorted({*EVERYWHERE, *login, *operation.problems, *(WITH_BODY if operation.is_stated else ())}):
        refusal = responses.setdefault(str(status), {"description": HTTPStatus(status).phrase, "content": {}})
        refusal["content"][PROBLEM_JSON] = {"schema": _reference(Problem)}
    return responses


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
    """Parameters that the pages' scripts read."""

    q: Annotated[str, Meta(description="what to search for", max_length=1000)] = ""


def operations(others: list[Operation[Any, Any]], site: Site) -> list[Operation[Any, Any]]:
    """`others` are all other operations of the document."""
    pages = {name: (PAGES / name).read_bytes() for name in TYPES}  # read once, at the start

    @cache
    def document() -> bytes:
        """Created with the first request for it: that takes longer than the rest of an HTTP port's start."""
        return msgspec.json.encode(make_document(described))

    async def get_openapi(_: Call[NoQuery, None]) -> Response:
        return Response(await asyncio.to_thread(document), media_type=JSON)

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
            needs=LOGGED_IN,
            summary="This document",
            tag=TAG,
            query=NoQuery,
            other_responses=[Media(type=JSON, about="OpenAPI 3.1", schema={"type": "object"})],
        ),
        Operation(
            method="GET",
            path="/docs",
            handler=show_docs,
            needs=LOGGED_IN,
            summary="The documentation",
            about="Without the documentation in the package: the page about this API, which is always at `/docs/api`.",
            tag=TAG,
            query=NoQuery,
            other_responses=[Media(type="text/html", about="a page")],
            other_statuses={307: None},
        ),
        Operation(
            method="GET",
            path="/docs/{name}",
            handler=show_docs_part,
            needs=LOGGED_IN,
            summary="A page of the documentation, or a file of one",
            about="`api` is this document for people, with a form to try each operation.",
            tag=TAG,
            query=DocsQuery,
            other_responses=[Media(type=each.partition(";")[0], about="a file") for each in CONTENT_TYPES.values()],
            problems=(404,),
        ),
    ]
    described = [*others, *own]
    return own
