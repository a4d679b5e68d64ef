"""OpenAPI: the document about the HTTP API, made of the declarations that serve it.

Data path   operations -> **openapi** -> /openapi.json, /docs
Owns        how a declaration is written in OpenAPI 3.1
Leaves      the declarations to the routes, types to msgspec
"""

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from streamhouse import __version__
from streamhouse.wire.http.errors import PROBLEM_JSON, Problem
from streamhouse.wire.http.operations import JSON, PATH_PARAMETERS, Header, Media, Operation

ABOUT: Final = (
    "Topics, records, consumer groups and the cluster, for everything that isn't a Kafka client. "
    "What goes wrong is told as problem details (RFC 9457)."
)
EVERYWHERE: Final = (400, 403, 406, 422, 429, 500, 503)
"""Statuses that every operation may refuse with."""
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
        "components": {"schemas": schemas},
    }


def _types(operations: Iterable[Operation[Any, Any]]) -> list[Any]:
    found: dict[Any, None] = {}
    for each in operations:
        for kind in (each.body, each.answer, each.also_answer, *each.other_statuses.values()):
            if kind is not None:
                found[kind] = None
    return list(found)


def _operation(operation: Operation[Any, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {
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
    if operation.about:
        told["description"] = operation.about
    if operation.is_stated:
        told["requestBody"] = {"required": True, "content": _content(operation.body, operation.other_bodies)}
    return told


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [_parameter("path", name, _schema(PATH_PARAMETERS[name]), required=True) for name in _NAMES.findall(path)]


def _query_parameters(kind: type[msgspec.Struct]) -> list[dict[str, Any]]:
    (_,), components = msgspec.json.schema_components([kind], ref_template=REF)
    told = components[kind.__name__]
    return [
        _parameter("query", name, dict(schema), required=name in told["required"])
        for name, schema in told["properties"].items()
    ]


def _header_parameter(header: Header) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "maxLength": header.max_chars, "pattern": header.pattern}
    return {"in": "header", "name": header.name, "description": header.about, "required": False, "schema": schema}


def _parameter(place: str, name: str, schema: dict[str, Any], *, required: bool) -> dict[str, Any]:
    about = schema.pop("description", "")
    return {"in": place, "name": name, "description": about, "required": required, "schema": schema}


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
    if content := _content(operation.answer, operation.other_answers):
        good["content"] = content
    if operation.also_answer is not None:
        content[JSON]["schema"] = {"anyOf": [content[JSON]["schema"], _reference(operation.also_answer)]}
    if operation.answer_headers:
        good["headers"] = {
            name: {"description": about, "schema": {"type": "string"}}
            for name, about in operation.answer_headers.items()
        }
    told = {str(operation.status): good}
    for status, kind in operation.other_statuses.items():
        told[str(status)] = {"description": HTTPStatus(status).phrase, "content": _content(kind, ())}
    for status in sorted({*EVERYWHERE, *operation.problems, *(WITH_BODY if operation.is_stated else ())}):
        refusal = told.setdefault(str(status), {"description": HTTPStatus(status).phrase, "content": {}})
        refusal["content"][PROBLEM_JSON] = {"schema": _reference(Problem)}
    return told
