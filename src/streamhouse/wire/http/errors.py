"""Errors on HTTP: one table from the error tree to status codes, and problem details (RFC 9457) as bodies.

Data path   whatever a route raises -> **errors** -> application/problem+json
Owns        status codes; what is wrong with a request before the broker sees it (`Refusal` and its kinds)
Leaves      the texts to whoever raises

400 is for a request that isn't as the OpenAPI document says, 422 for one that is, and yet can't be accepted.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from streamhouse import errors

log = logging.getLogger(__name__)

STATUS: Final[Mapping[type[errors.StreamhouseError], int]] = {
    errors.Retriable: 503,
    errors.Overloaded: 429,
    errors.TooFast: 429,
    errors.Rejected: 422,
    errors.UnknownTopic: 404,
    errors.UnknownTopicId: 404,
    errors.UnknownAgent: 404,
    errors.GroupNotFound: 404,
    errors.UnknownSubject: 404,
    errors.UnknownVersion: 404,
    errors.UnknownSchema: 404,
    errors.UnknownCommit: 404,
    errors.UnknownTable: 404,
    errors.UnknownPipeline: 404,
    errors.UnknownView: 404,
    errors.UnknownQuery: 404,
    errors.UnknownViewRow: 404,
    errors.NameTaken: 409,
    errors.PlaceLost: 409,
    errors.PipelineMoved: 409,
    errors.ViewRefused: 409,
    errors.TopicExists: 409,
    errors.StaleCommit: 409,
    errors.IdempotencyKeyReused: 409,
    errors.IncompatibleSchema: 409,
    errors.NonEmptyGroup: 409,
    errors.RebalanceInProgress: 409,
    errors.RecordTooLarge: 413,
    errors.OffsetOutOfRange: 416,
    errors.Misconfigured: 500,
    errors.Internal: 500,
}

PROBLEM_JSON: Final = "application/problem+json"
RETRY_AFTER_S: Final = 1
MAX_FLAWS: Final = 100
"""Places in a body that one answer names."""


class Flaw(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong at one place of a request; `path` begins with `$`, as in `$.records[3].value`."""

    path: str
    reason: str


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a request was refused or failed (RFC 9457); `errors` names the places where a request is wrong."""

    type: str
    title: str
    status: int
    detail: str
    errors: Sequence[Flaw] = ()


# --- what is wrong before the broker sees it


class Refusal(errors.Rejected):
    """The request can't be read, or may not be made."""

    status: int = 400

    def __init__(self, text: str, *, flaws: Sequence[Flaw] = (), headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.flaws = flaws[:MAX_FLAWS]
        self.headers = headers


class Malformed(Refusal):
    """The request isn't as the document says: a parameter, a header or the body."""


class Unprocessable(Refusal):
    """The request is as the document says, and what it carries still can't be taken."""

    status = 422


class ForeignOrigin(Refusal):
    """A page of another site, or a name that isn't ours, stands behind the request."""

    status = 403


class AmbiguousLength(Refusal):
    """Two headers say how long the body is. The connection is closed: nobody knows where the next request begins."""

    status = 400

    def __init__(self, text: str) -> None:
        super().__init__(text, headers={"connection": "close"})


class MethodNotAllowed(Refusal):
    status = 405


class NotAcceptable(Refusal):
    """None of the media types that the client accepts can be served."""

    status = 406


class BodyTimeout(Refusal):
    """The body came too slowly."""

    status = 408


class BodyTooLarge(Refusal):
    status = 413


class UnsupportedMediaType(Refusal):
    status = 415


class TooManyRequests(Refusal):
    """A limit of the HTTP port is reached; the same request may succeed in a moment."""

    status = 429

    def __init__(self, text: str, *, retry_after_s: int = RETRY_AFTER_S) -> None:
        super().__init__(text, headers={"retry-after": str(retry_after_s)})


# --- answers


def status_of(error: errors.StreamhouseError) -> int:
    if isinstance(error, Refusal):
        return error.status
    return next(STATUS[cls] for cls in type(error).__mro__ if cls in STATUS)


def problem_of(error: errors.StreamhouseError) -> Problem:
    name = type(error).__name__
    flaws = error.flaws if isinstance(error, Refusal) else ()
    return Problem(
        type=f"urn:streamhouse:error:{name}", title=name, status=status_of(error), detail=str(error), errors=flaws
    )


def answer_problem(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(problem), status_code=problem.status, media_type=PROBLEM_JSON, headers=headers)


def answer_error(error: errors.StreamhouseError) -> Response:
    return answer_problem(problem_of(error), headers_of_error(error))


def headers_of_error(error: errors.StreamhouseError) -> Mapping[str, str] | None:
    if isinstance(error, Refusal):
        return error.headers
    if isinstance(error, errors.Overloaded | errors.TooFast):
        return {"retry-after": str(max(1, math.ceil(error.retry_after_s)))}
    return {"retry-after": str(RETRY_AFTER_S)} if isinstance(error, errors.Retriable) else None


async def on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, errors.StreamhouseError)
    return answer_error(error)


async def on_http_error(request: Request, error: Exception) -> Response:
    """What the router refuses by itself: paths and methods that there aren't."""
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    detail = f"{phrase.lower()}; method={request.method[:20]} path={request.url.path[:200]!r}"
    told = Problem(type="about:blank", title=phrase, status=error.status_code, detail=detail)
    return answer_problem(told, error.headers)


async def on_defect(request: Request, error: Exception) -> Response:
    """What nobody expected: the log has it, the client learns nothing about our insides."""
    log.error("request failed unexpectedly", extra={"path": request.url.path[:200]}, exc_info=error)
    told = Problem(type="about:blank", title="Internal Server Error", status=500, detail="the agent has a defect")
    return answer_problem(told)
