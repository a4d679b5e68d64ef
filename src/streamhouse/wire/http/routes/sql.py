"""SQL: queries are forwarded to a SQL worker, which runs Spark; workers send heartbeats.

POST   /v1/sql                              {"sql": "SELECT …", "max_rows": 100, "timeout_s": 30}: rows
POST   /v1/sql/validate                     {"text": "CREATE PIPELINE …"}: every statement, with its errors and
       positions
GET    /v1/sql/complete                     names of tables, columns and functions
DELETE /v1/sql/queries/{sql_query}          cancel a query
GET    /v1/sql/workers                      live workers
POST   /v1/sql/workers/{worker}/heartbeat   {"address": "10.0.0.7:8090", "token": …, "busy": 0}, every few seconds
DELETE /v1/sql/workers/{worker}             deregister a worker
"""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.config.exposure import http_listeners
from streamhouse.config.fields import is_loopback, parse_address
from streamhouse.model.access import WORKER, ResourceType
from streamhouse.model.access import Operation as AclOperation
from streamhouse.model.needs import needs, processes_only
from streamhouse.model.pipeline import SqlWorker, WorkerId
from streamhouse.wire.http.errors import Unprocessable
from streamhouse.wire.http.operations import (
    MAX_BODY_BYTES,
    MAX_INT,
    MAX_LONG,
    NDJSON,
    PROCESS_PATTERN,
    Call,
    Media,
    NoQuery,
    Operation,
    json_response,
)
from streamhouse.wire.http.routes.pipeline_access import require_delegation
from streamhouse.wire.http.routes.tables import ColumnView
from streamhouse.wire.http.sql_proxy import SqlProxy

TAG: Final = "sql"
CALLERS_RIGHTS: Final = "a SQL worker reads, lists and changes with the rights of the caller"
SQL_NEEDS: Final = needs(AclOperation.RUN_SQL, ResourceType.CLUSTER, about=CALLERS_RIGHTS)
CSV: Final = "text/csv"
ARROW: Final = "application/vnd.apache.arrow.stream"
FORMATS: Final = (
    Media(type=NDJSON, about="one object per row and line; the only one for a live tail"),
    Media(type=CSV, about="with a line of names"),
    Media(type=ARROW, about="an Arrow stream"),
)
HEADERS: Final = {
    "streamhouse-query-id": "the question's id, where rows come as a stream",
    "streamhouse-truncated": "whether there were more rows",
}
FAILED: Final = (404, 409, 504)


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`starting` is the start position of a live tail; `query_id` is chosen by the client, for cancelling the query.
    With `read_only`, a statement that would change something is rejected."""

    sql: Annotated[str, Meta(min_length=1)]
    max_rows: Annotated[int, Meta(ge=1, le=MAX_LONG)] | None = None
    timeout_s: Annotated[float, Meta(gt=0, le=MAX_INT)] | None = None
    starting: str = "latest"
    query_id: Annotated[str, Meta(pattern=PROCESS_PATTERN)] | None = None
    read_only: bool = False


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    query_id: str
    columns: list[ColumnView]
    rows: list[dict[str, Any]]
    truncated: bool
    elapsed_ms: float
    notes: list[str] = []


class Text(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    text: str


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """Every statement of the text, with its errors."""

    statements: list[dict[str, Any]]


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """Completions."""


class WorkerBeat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The address of a worker, with https:// where it has TLS, and the token that requests to it must have."""

    address: Annotated[str, Meta(pattern=r"^(https://)?([A-Za-z0-9.-]{1,253}|\[[0-9a-fA-F:.]{2,45}\]):[0-9]{1,5}\Z")]
    token: Annotated[str, Meta(min_length=1, max_length=500, pattern=r"^[\x21-\x7E]+\Z")]
    busy: Annotated[int, Meta(ge=0, le=MAX_INT)] = 0


class BeatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    ttl_s: float


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    address: str
    busy: int
    expires_at_ms: int


class WorkersAnswer(msgspec.Struct, frozen=True, kw_only=True):
    workers: list[WorkerView]


class SqlCalls:
    """Operations that are forwarded to SQL workers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._settings = broker.settings.sql
        self._proxy = SqlProxy(self._settings, broker.sql, broker.security.tokens, ca=broker.settings.security.tls_ca)

    async def ask_sql(self, call: Call[NoQuery, Question]) -> Response:
        require_delegation(self._broker, call.access)
        request = msgspec.structs.asdict(call.body)
        request["max_rows"] = min(call.body.max_rows or self._settings.rows, self._settings.max_rows)
        request["timeout_s"] = min(call.body.timeout_s or self._settings.timeout_s, self._settings.timeout_s)
        if not call.body.read_only:
            del request["read_only"]  # workers of earlier versions reject the field
        body = msgspec.json.encode({name: value for name, value in request.items() if value is not None})
        return await self._proxy.ask(call.request, "/v1/sql", body, caller=call.caller, timeout_s=request["timeout_s"])

    async def validate_sql(self, call: Call[NoQuery, Text]) -> Response:
        require_delegation(self._broker, call.access)
        body = msgspec.json.encode(call.body)
        timeout_s = self._settings.timeout_s
        return await self._proxy.ask(call.request, "/v1/sql/validate", body, caller=call.caller, timeout_s=timeout_s)

    async def complete_sql(self, call: Call[NoQuery, None]) -> Response:
        require_delegation(self._broker, call.access)
        timeout_s = self._settings.timeout_s
        return await self._proxy.ask(call.request, "/v1/sql/complete", None, caller=call.caller, timeout_s=timeout_s)

    async def cancel_sql(self, call: Call[NoQuery, None]) -> Response:
        await self._proxy.cancel(str(call.path["sql_query"]), caller=call.caller)
        return Response(status_code=204)


def operations(broker: Broker) -> list[Operation[Any, Any]]:
    calls, settings = SqlCalls(broker), broker.settings.sql
    return [
        Operation(
            method="POST",
            path="/v1/sql",
            handler=calls.ask_sql,
            needs=SQL_NEEDS,
            summary="Run a SQL query",
            about="Passed to a SQL worker. `FROM STREAM(t)` is a live tail: rows as lines, until the client leaves.",
            tag=TAG,
            query=NoQuery,
            body=Question,
            max_body_bytes=settings.max_body_bytes,
            response=Rows,
            other_responses=FORMATS,
            response_headers=HEADERS,
            problems=FAILED,
        ),
        Operation(
            method="POST",
            path="/v1/sql/validate",
            handler=calls.validate_sql,
            needs=SQL_NEEDS,
            summary="Validate SQL statements",
            about="Says which column, topic or function is wrong, with line and column.",
            tag=TAG,
            query=NoQuery,
            body=Text,
            max_body_bytes=settings.max_body_bytes,
            response=Checked,
            problems=FAILED,
        ),
        Operation(
            method="GET",
            path="/v1/sql/complete",
            handler=calls.complete_sql,
            needs=SQL_NEEDS,
            summary="Completions: tables, columns, functions",
            tag=TAG,
            query=NoQuery,
            response=Words,
            problems=FAILED,
        ),
        Operation(
            method="DELETE",
            path="/v1/sql/queries/{sql_query}",
            handler=calls.cancel_sql,
            needs=SQL_NEEDS,
            summary="Cancel a query",
            tag=TAG,
            query=NoQuery,
            status=204,
            problems=(404,),
        ),
        *_workers(broker),
    ]


def _workers(broker: Broker) -> list[Operation[Any, Any]]:
    async def list_sql_workers(call: Call[NoQuery, None]) -> Response:
        return json_response(WorkersAnswer(workers=[_view(each) for each in await broker.sql.all()]))

    async def beat_sql_worker(call: Call[NoQuery, WorkerBeat]) -> Response:
        body = call.body
        _check_address(broker, body.address)
        await broker.sql.beat(SqlWorker(worker=_id(call), address=body.address, token=body.token, busy=body.busy))
        return json_response(BeatAnswer(ttl_s=broker.sql.ttl_s))

    async def drop_sql_worker(call: Call[NoQuery, None]) -> Response:
        await broker.sql.drop(_id(call))
        return Response(status_code=204)

    return [
        Operation(
            method="GET",
            path="/v1/sql/workers",
            handler=list_sql_workers,
            needs=needs(AclOperation.DESCRIBE, ResourceType.CLUSTER),
            summary="List live SQL workers",
            tag=TAG,
            query=NoQuery,
            response=WorkersAnswer,
        ),
        Operation(
            method="POST",
            path="/v1/sql/workers/{worker}/heartbeat",
            handler=beat_sql_worker,
            needs=processes_only(WORKER),
            summary="Heartbeat of a SQL worker",
            tag=TAG,
            query=NoQuery,
            body=WorkerBeat,
            max_body_bytes=MAX_BODY_BYTES,
            response=BeatAnswer,
        ),
        Operation(
            method="DELETE",
            path="/v1/sql/workers/{worker}",
            handler=drop_sql_worker,
            needs=processes_only(WORKER),
            summary="Remove a SQL worker",
            tag=TAG,
            query=NoQuery,
            status=204,
        ),
    ]


def _check_address(broker: Broker, address: str) -> None:
    """Raise `Unprocessable` for a worker to which users' tokens would be sent without encryption."""
    scheme, _, rest = address.rpartition("://")
    has_tls = http_listeners(broker.settings)[0].protocol.has_tls
    if scheme and not broker.settings.security.tls_ca:
        raise Unprocessable("agents need security.tls_ca, the authority of SQL workers' certificates")
    if has_tls and not scheme and not is_loopback(parse_address(rest).host):
        raise Unprocessable(
            "a SQL worker on another machine needs TLS, as the agents have it: set security.tls_certificate and"
            " security.tls_key for `streamhouse sql serve`, too"
        )


def _id(call: Call[Any, Any]) -> WorkerId:
    return WorkerId(str(call.path["worker"]))


def _view(worker: SqlWorker) -> WorkerView:
    return WorkerView(id=worker.worker, address=worker.address, busy=worker.busy, expires_at_ms=worker.expires_at_ms)
