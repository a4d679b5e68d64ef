"""Operations of the HTTP API, each declared once: method, path, parameters, bodies, responses and statuses.

Owns        the declaration, the limits of listings and of small bodies, JSON responses
Leaves      the operations themselves to `routes`, checking requests to `endpoint`, the document to `openapi`
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from streamhouse.model.access import Caller
from streamhouse.model.needs import Needs
from streamhouse.model.tenant import unqualified
from streamhouse.wire.authorization import RequestAccess

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
EVENTS: Final = "text/event-stream"
TEXT: Final = "text/plain"
BYTES: Final = "application/octet-stream"
BATCHES: Final = "application/vnd.streamhouse.batches"

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1
QUERY_PATTERN: Final = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z"
HOLD_PATTERN: Final = r"^[0-9a-f]{32}\Z"
KEY_PATTERN: Final = r"^[0-9a-f]{16}\Z"
TENANT_PATTERN: Final = r"^([a-z0-9-]{1,63}~)?"
TABLE_PATTERN: Final = TENANT_PATTERN + r"[A-Za-z0-9._-]{1,249}\Z"
PIPELINE_PATTERN: Final = TENANT_PATTERN + r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}\Z"
SESSION_PATTERN: Final = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}\Z"
PROCESS_PATTERN: Final = r"^[A-Za-z0-9_][A-Za-z0-9._:@-]{0,199}\Z"


class NoQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No parameters."""


PATH_PARAMETERS: Final[Mapping[str, Any]] = {
    "topic": Annotated[str, Meta(description="a topic's name", min_length=1, max_length=249, examples=["orders"])],
    "partition": Annotated[int, Meta(description="a partition's number, from 0", ge=0, le=MAX_INT, examples=[0])],
    "transactional_id": Annotated[
        str,
        Meta(description="a producer's transactional id", min_length=1, max_length=1000, examples=["payments-1"]),
    ],
    "group": Annotated[
        str, Meta(description="a consumer group's name", min_length=1, max_length=1000, examples=["billing"])
    ],
    "node": Annotated[int, Meta(description="an agent's number", ge=0, le=MAX_INT, examples=[1])],
    "session": Annotated[str, Meta(description="a session's id", pattern=SESSION_PATTERN, examples=["s-" + "0" * 32])],
    "query": Annotated[str, Meta(description="a query's id, a UUID in lower case", pattern=QUERY_PATTERN)],
    "hold": Annotated[str, Meta(description="a hold's id, 32 hex digits", pattern=HOLD_PATTERN)],
    "table": Annotated[str, Meta(description="a table's name", pattern=TABLE_PATTERN, examples=["orders"])],
    "pipeline": Annotated[str, Meta(description="a pipeline's name", pattern=PIPELINE_PATTERN, examples=["revenue"])],
    "view": Annotated[str, Meta(description="a view's name", pattern=PIPELINE_PATTERN, examples=["totals"])],
    "supervisor": Annotated[str, Meta(description="a supervisor's id", pattern=PROCESS_PATTERN, examples=["s-1"])],
    "user": Annotated[str, Meta(description="a user's name", min_length=1, max_length=200, examples=["alice"])],
    "key": Annotated[str, Meta(description="an API key's id", pattern=KEY_PATTERN, examples=["0" * 16])],
    "role": Annotated[str, Meta(description="a role's name", min_length=1, max_length=1000, examples=["reader"])],
    "worker": Annotated[str, Meta(description="a SQL worker's id", pattern=PROCESS_PATTERN, examples=["w-1"])],
    "sql_query": Annotated[str, Meta(description="a question's id, as its answer has it", pattern=PROCESS_PATTERN)],
    "name": Annotated[str, Meta(description="a file's name", min_length=1, max_length=100, examples=["docs.js"])],
}
"""Types of path parameters, by name."""

Q = TypeVar("Q", bound=msgspec.Struct)
B = TypeVar("B")


@dataclass(slots=True, kw_only=True)
class Call(Generic[Q, B]):
    """A checked request. Without a JSON body `body` is None, and the handler reads the request itself."""

    request: Request
    query: Q
    body: B
    path: Mapping[str, Any]
    media_type: str
    accepted: str
    """The operation's media type that the client prefers."""
    access: RequestAccess
    """The rights of the caller."""

    @property
    def caller(self) -> Caller:
        return self.access.caller

    def shown(self, name: str) -> str:
        """A name as the caller knows it."""
        return (unqualified(self.caller.tenant, name) or "") if self.caller.tenant else name

    @property
    def topic(self) -> str:
        return str(self.path["topic"])

    @property
    def partition(self) -> int:
        return int(self.path["partition"])

    def header(self, name: str) -> str | None:
        return self.request.headers.get(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """A body that is not JSON: its type, description and example."""

    type: str
    about: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A header that an operation reads."""

    name: str
    about: str
    max_chars: int
    pattern: str = r"^[\x21-\x7E]+$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[Q, B]):
    """`problems` are its error statuses, besides those that every operation has."""

    method: str
    path: str
    handler: Callable[[Call[Q, B]], Awaitable[Response]]
    needs: Needs
    summary: str
    tag: str
    about: str = ""
    query: type[Q]
    body: type[B] | None = None
    other_bodies: Sequence[Media] = ()
    max_body_bytes: int | None = None
    """None: the limit of the settings."""
    headers: Sequence[Header] = ()
    status: int = 200
    response: type[msgspec.Struct] | None = None
    also_response: type[msgspec.Struct] | None = None
    """Alternatives to JSON."""
    other_responses: Sequence[Media] = ()
    other_statuses: Mapping[int, type[msgspec.Struct] | None] = field(default_factory=dict)
    """None: the response has no body."""
    response_headers: Mapping[str, str] = field(default_factory=dict)
    problems: Sequence[int] = ()

    @property
    def name(self) -> str:
        """The operation's id in the OpenAPI document: the name of the handler."""
        return self.handler.__name__

    @property
    def is_stated(self) -> bool:
        """Whether it has a request body."""
        return self.body is not None or bool(self.other_bodies)

    @property
    def body_types(self) -> list[str]:
        return ([JSON] if self.body is not None else []) + [media.type for media in self.other_bodies]

    @property
    def response_types(self) -> list[str]:
        return ([JSON] if self.response is not None else []) + [media.type for media in self.other_responses]


DEFAULT_LIMIT: Final = 1000
MAX_LIMIT: Final = 10_000
MAX_BODY_BYTES: Final = 64 * 1024
"""Limit for bodies without records."""

_ENCODER: Final = msgspec.json.Encoder()


def json_response(body: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(_ENCODER.encode(body), status_code=status, media_type=JSON, headers=headers)
