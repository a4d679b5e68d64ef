"""Errors on HTTP: one table from the error tree to status codes, and problem details (RFC 9457) as bodies."""

from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from streamhouse import errors

STATUS: Final[Mapping[type[errors.StreamhouseError], int]] = {
    errors.Retriable: 503,
    errors.Overloaded: 429,
    errors.Rejected: 400,
    errors.UnknownTopic: 404,
    errors.UnknownTopicId: 404,
    errors.UnknownAgent: 404,
    errors.TopicExists: 409,
    errors.RecordTooLarge: 413,
    errors.Misconfigured: 500,
    errors.Internal: 500,
}


def status_of(error: errors.StreamhouseError) -> int:
    return next(STATUS[cls] for cls in type(error).__mro__ if cls in STATUS)


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    title: str
    status: int
    detail: str


def problem(status: int, *, title: str, detail: str) -> Response:
    body = Problem(type="about:blank", title=title, status=status, detail=detail)
    return Response(msgspec.json.encode(body), status_code=status, media_type="application/problem+json")


async def on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, errors.StreamhouseError)
    return problem(status_of(error), title=type(error).__name__, detail=str(error))
