"""Errors on HTTP: one table from the error tree to status codes, and problem details (RFC 9457) as bodies.

Data path   errors raised by routes -> **errors** -> application/problem+json
Owns        status codes; errors of requests that never reach the broker (`Refusal` and its subclasses)
Leaves      error texts to the code that raises

400 is for requests that don't match the OpenAPI document, 422 for requests that match and still can't be accepted.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from streamhouse import errors
from streamhouse.model.tenant import without_tenant
from streamhouse.telemetry import request_id

log = logging.getLogger(__name__)

STATUS: Final[Mapping[type[errors.StreamhouseError], int]] = {
    # base
    errors.Retriable: 503,
    errors.Overloaded: 429,
    errors.TooFast: 429,
    errors.Unavailable: 503,
    errors.DataKeyUnavailable: 503,
    errors.Stopping: 503,
    errors.Rejected: 422,
    errors.Misconfigured: 500,
    errors.NotUpYet: 500,
    errors.ChildFailed: 500,
    errors.Internal: 500,
    errors.CorruptObject: 500,
    errors.DamagedRecords: 500,
    errors.MissingRecords: 500,
    # topics
    errors.UnknownTopic: 404,
    errors.UnknownTopicId: 404,
    errors.TopicExists: 409,
    errors.InvalidTopicName: 422,
    errors.InvalidPartitions: 422,
    errors.InvalidReplication: 422,
    errors.InvalidAssignment: 422,
    errors.InvalidConfig: 422,
    errors.PolicyViolation: 422,
    # records
    errors.OffsetOutOfRange: 416,
    errors.DataLost: 410,
    errors.CorruptBatch: 422,
    errors.UnsupportedFormat: 422,
    errors.BadRecords: 422,
    errors.InvalidRecord: 422,
    errors.BatchTooLarge: 422,
    errors.InvalidTimestamp: 422,
    errors.RecordTooLarge: 413,
    errors.UnsupportedCompression: 422,
    errors.OutOfOrderSequence: 422,
    errors.AbortedSequence: 422,
    errors.DuplicateSequence: 422,
    errors.IdempotencyKeyReused: 409,
    errors.StaleProducerEpoch: 422,
    errors.UnknownCommit: 404,
    errors.StaleCommit: 409,
    errors.CommitRefused: 422,
    errors.RunsChanged: 409,
    errors.CannotSign: 422,
    # leases
    errors.LeaseLost: 503,
    errors.LeaseHeld: 503,
    errors.NotLeader: 503,
    errors.PredecessorRefused: 503,
    errors.SessionLost: 503,
    errors.AppendFailed: 503,
    errors.SessionSealed: 503,
    errors.NotReserved: 503,
    errors.PartitionHeld: 503,
    errors.UnknownAgent: 404,
    errors.UnknownDamagedLog: 404,
    errors.FencedLeaderEpoch: 422,
    errors.UnknownLeaderEpoch: 422,
    # groups
    errors.NotCoordinator: 503,
    errors.CoordinatorLoading: 503,
    errors.CoordinatorUnavailable: 503,
    errors.GroupIdInvalid: 422,
    errors.GroupNotFound: 404,
    errors.MemberIdRequired: 422,
    errors.UnknownMember: 422,
    errors.IllegalGeneration: 422,
    errors.RebalanceInProgress: 409,
    errors.FencedInstance: 422,
    errors.InconsistentProtocol: 422,
    errors.InvalidSessionTimeout: 422,
    errors.GroupFull: 422,
    errors.GroupDataTooLarge: 422,
    errors.NonEmptyGroup: 409,
    errors.GroupSubscribed: 422,
    errors.OffsetMetadataTooLarge: 422,
    # transactions
    errors.TransactionUnavailable: 503,
    errors.ConcurrentTransactions: 503,
    errors.UnstableOffsets: 503,
    errors.InvalidTransactionState: 409,
    errors.TransactionAbortable: 409,
    errors.ProducerFenced: 409,
    errors.UnknownProducerId: 404,
    errors.InvalidTransactionTimeout: 422,
    errors.TransactionalIdInvalid: 422,
    errors.TransactionalIdNotFound: 404,
    errors.TransactionTooLarge: 422,
    errors.MarkerFenced: 409,
    # schemas
    errors.InvalidSchema: 422,
    errors.InvalidRecordValue: 422,
    errors.RegistryRefusal: 422,
    errors.UnknownSubject: 404,
    errors.UnknownVersion: 404,
    errors.UnknownSchema: 404,
    errors.SubjectSoftDeleted: 422,
    errors.SubjectNotSoftDeleted: 422,
    errors.VersionSoftDeleted: 422,
    errors.VersionNotSoftDeleted: 422,
    errors.ReferenceExists: 422,
    errors.NotConfigured: 422,
    errors.NoMode: 422,
    errors.ModeRefused: 422,
    errors.SchemaIdTaken: 422,
    errors.InvalidSubject: 422,
    errors.IncompatibleSchema: 409,
    errors.SchemaLimit: 422,
    # pipelines
    errors.UnknownTable: 404,
    errors.UnknownPipeline: 404,
    errors.UnknownView: 404,
    errors.UnknownViewRow: 404,
    errors.NameTaken: 409,
    errors.AnotherTable: 409,
    errors.InvalidDefinition: 422,
    errors.PipelineLimit: 422,
    errors.PlaceLost: 409,
    errors.PipelineMoved: 409,
    errors.ViewRefused: 409,
    errors.UnknownQuery: 404,
    errors.NoWorker: 503,
    # security
    errors.NotAuthenticated: 401,
    errors.AccessDenied: 403,
    errors.TopicAccessDenied: 403,
    errors.GroupAccessDenied: 403,
    errors.TransactionalIdAccessDenied: 403,
    errors.DelegationTokenAccessDenied: 403,
    errors.InvalidAcl: 422,
    errors.InvalidCredentials: 422,
    errors.UnknownUser: 404,
    errors.UserExists: 409,
    errors.UnknownKey: 404,
    errors.SecurityLimit: 422,
    errors.SecurityDisabled: 409,
    errors.TooManyLogins: 503,
    errors.QuotaExceeded: 429,
    # queries
    errors.BadSql: 400,
    errors.QueryFailed: 422,
    errors.QueryCancelled: 409,
    errors.QueryTimedOut: 504,
    errors.TooManyQueries: 429,
    # sql
    errors.StatementError: 400,
    errors.CheckpointLost: 409,
    errors.CheckpointMismatch: 409,
}

PROBLEM_JSON: Final = "application/problem+json"
RETRY_AFTER_S: Final = 1
MAX_FIELD_ERRORS: Final = 100
"""Field errors in one response."""


class FieldError(msgspec.Struct, frozen=True, kw_only=True):
    """An error in one field of a request; `path` begins with `$`, as in `$.records[3].value`."""

    path: str
    reason: str


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a request was rejected or failed (RFC 9457); `errors` lists the wrong fields of the request,
    `request_id` finds it in the agent's log."""

    type: str
    title: str
    status: int
    detail: str
    errors: Sequence[FieldError] = ()
    request_id: str = ""


# --- requests that never reach the broker


class Refusal(errors.Rejected):
    """The request is invalid or not allowed."""

    status: int = 400

    def __init__(
        self, text: str, *, field_errors: Sequence[FieldError] = (), headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(text)
        self.field_errors = field_errors[:MAX_FIELD_ERRORS]
        self.headers = headers


class Malformed(Refusal):
    """A parameter, a header or the body doesn't match the OpenAPI document."""


class Unprocessable(Refusal):
    """The request matches the OpenAPI document, but its content can't be accepted."""

    status = 422


class ForeignOrigin(Refusal):
    """The request comes from a page of another site, or names a host that isn't this agent."""

    status = 403


class AmbiguousLength(Refusal):
    """Two headers give the length of the body. The connection is closed: the start of the next request is unknown."""

    status = 400

    def __init__(self, text: str) -> None:
        super().__init__(text, headers={"connection": "close"})


class MethodNotAllowed(Refusal):
    status = 405


class NotAcceptable(Refusal):
    """None of the media types that the client accepts can be served."""

    status = 406


class BodyTimeout(Refusal):
    """The body arrived too slowly."""

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


# --- responses


def status_of(error: errors.StreamhouseError) -> int:
    if isinstance(error, Refusal):
        return error.status
    return next(STATUS[cls] for cls in type(error).__mro__ if cls in STATUS)


def problem_of(error: errors.StreamhouseError) -> Problem:
    name = type(error).__name__
    field_errors = error.field_errors if isinstance(error, Refusal) else ()
    return _in_tenant(
        Problem(
            type=f"urn:streamhouse:error:{name}",
            title=name,
            status=status_of(error),
            detail=str(error),
            errors=field_errors,
        )
    )


TENANT: Final = ContextVar("tenant", default="")
"""The tenant of the request's caller; errors use its names."""


def _in_tenant(problem: Problem) -> Problem:
    if not (tenant := TENANT.get()):
        return problem
    return msgspec.structs.replace(
        problem,
        detail=without_tenant(tenant, problem.detail),
        errors=[msgspec.structs.replace(each, reason=without_tenant(tenant, each.reason)) for each in problem.errors],
    )


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    problem = _in_tenant(problem)
    if not problem.request_id:
        problem = msgspec.structs.replace(problem, request_id=request_id.get())
    return Response(msgspec.json.encode(problem), status_code=problem.status, media_type=PROBLEM_JSON, headers=headers)


def error_response(error: errors.StreamhouseError) -> Response:
    return problem_response(problem_of(error), headers_of_error(error))


def headers_of_error(error: errors.StreamhouseError) -> Mapping[str, str] | None:
    if isinstance(error, Refusal):
        return error.headers
    if isinstance(error, errors.Overloaded | errors.TooFast | errors.TooManyQueries | errors.QuotaExceeded):
        return {"retry-after": str(max(1, math.ceil(error.retry_after_s)))}
    return {"retry-after": str(RETRY_AFTER_S)} if isinstance(error, errors.Retriable) else None


class ResponseCutError(Exception):
    """A response has begun and can't be completed. Its connection is closed: the client sees that it isn't whole."""


async def on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, errors.StreamhouseError)
    return error_response(error)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Errors of the router: unknown paths and methods."""
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    detail = f"{phrase.lower()}; method={request.method[:20]} path={request.url.path[:200]!r}"
    problem = Problem(type="about:blank", title=phrase, status=error.status_code, detail=detail)
    return problem_response(problem, error.headers)


async def on_defect(request: Request, error: Exception) -> Response:
    """Unexpected errors: the details go to the log only, not to the client."""
    log.error("request failed unexpectedly", extra={"path": request.url.path[:200]}, exc_info=error)
    problem = Problem(type="about:blank", title="Internal Server Error", status=500, detail="the agent has a defect")
    return problem_response(problem)
