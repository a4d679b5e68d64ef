"""Views: rows that pipelines maintain, looked up by key.

GET  /v1/views                          all, with their freshness
GET  /v1/views/{view}
GET  /v1/views/{view}/rows?id=7         the row of a key: a parameter for each of its columns
GET  /v1/views/{view}/rows?limit=100    all rows, in the order of their keys, page by page
POST /v1/views/{view}/rows              a part of a batch, from the supervisor that runs the view
"""

import asyncio
from datetime import UTC, datetime
from itertools import starmap
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.broker.pipelines.pipelines import shown_status
from streamhouse.broker.pipelines.tables_and_views import View
from streamhouse.errors import InvalidDefinition
from streamhouse.model.access import SUPERVISOR, ResourceType
from streamhouse.model.access import Operation as AclOperation
from streamhouse.model.needs import all_of, lists, need, needs
from streamhouse.model.pipeline import Fence, PipelineName, ViewPart, ViewRow, ViewState
from streamhouse.model.replay import MAX_COVERS
from streamhouse.wire.http.elements import Element
from streamhouse.wire.http.endpoint import decode_json
from streamhouse.wire.http.errors import FieldError, Malformed
from streamhouse.wire.http.operations import MAX_INT, MAX_LIMIT, QUERY_PATTERN, Call, NoQuery, Operation, json_response
from streamhouse.wire.http.routes.pipeline_access import require_pipeline, require_shown
from streamhouse.wire.http.routes.pipeline_types import Number, StatusView, status_view
from streamhouse.wire.http.routes.tables import Columns, ColumnView, KeyColumns, column_views, columns_of

TAG: Final = "views"
PAGING: Final = ("limit", "cursor")
VERSION_PATTERN: Final = r"^[to]([0-9A-F]{48}){1,32}\Z"
Key = Annotated[list[Any], Meta(min_length=1, max_length=100)]


class ViewView(msgspec.Struct, frozen=True, kw_only=True):
    """`fresh_at_ms`: the time up to which the view is current; null before its first batch. `whole`: no part of its
    last batch is missing. `query`: the id of the query that wrote its rows; another one begins with an empty view."""

    name: str
    columns: list[ColumnView] | None
    key: list[str]
    rows: int
    fresh_at_ms: int | None
    lag_records: int | None
    batch: int | None
    whole: bool
    query: str
    status: StatusView


class ViewsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    views: list[ViewView]


class RowAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The row of a key."""

    row: dict[str, Any]
    fresh_at_ms: int | None


class RowsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Rows in key order; `cursor` is for the next page, null at the end."""

    rows: list[dict[str, Any]]
    cursor: str | None
    fresh_at_ms: int | None


class RowsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Paging; the columns of a key are parameters as well, each under its name."""

    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT, description="rows in a page, at most")] | None = None
    cursor: Annotated[str, Meta(max_length=10_000, description="where an earlier page ended")] | None = None


class Upsert(Element, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`version`: the position of the record that the row was made of; a version older than the stored row's is
    ignored."""

    key: Key
    row: Annotated[Raw, Meta(extra_json_schema={"type": "object"})]
    version: Annotated[str, Meta(pattern=VERSION_PATTERN)] | None = None


class PartRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a micro-batch from the owner of the view under `epoch`. `key` and `columns` name the columns of rows.
    `covers`: the input of the batch; a batch with the same number and another input is rejected."""

    epoch: Number
    query: Annotated[str, Meta(pattern=QUERY_PATTERN)]
    batch: Number
    part: Annotated[int, Meta(ge=0, le=MAX_INT)] = 0
    parts: Annotated[int, Meta(ge=1, le=MAX_INT)] = 1
    upserts: list[Upsert] = []
    deletes: list[Key] = []
    fresh_at_ms: Number
    complete: bool = False
    key: KeyColumns = []
    columns: Columns | None = None
    covers: Annotated[str, Meta(max_length=MAX_COVERS)] | None = None


class PartAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The view after the change."""

    rows: int
    batch: int
    whole: bool


def operations(broker: Broker) -> list[Operation[Any, Any]]:
    views = broker.views

    def shows(call: Call[NoQuery, None], view: View) -> bool:
        return call.access.allows(AclOperation.DESCRIBE, ResourceType.VIEW, view.kept.name)

    async def list_views(call: Call[NoQuery, None]) -> Response:
        return json_response(ViewsAnswer(views=[_view(each) for each in await views.all() if shows(call, each)]))

    async def get_view(call: Call[NoQuery, None]) -> Response:
        name = _name(call)
        await require_shown(broker, call.access, ResourceType.VIEW, name)
        return json_response(_view(await views.find(name)))

    async def view_rows(call: Call[RowsQuery, None]) -> Response:
        view = await views.find(_name(call))
        fresh_at_ms = _fresh_at_ms(view.state)
        if key := _key(view, dict(call.request.query_params)):
            row = await views.row(view, key)
            return json_response(RowAnswer(row=dict(row.row), fresh_at_ms=fresh_at_ms))
        page = await views.page(view, cursor=call.query.cursor, limit=call.query.limit)
        rows = [dict(each.row) for each in page.rows]
        return json_response(RowsAnswer(rows=rows, cursor=page.cursor, fresh_at_ms=fresh_at_ms))

    async def change_view_rows(call: Call[NoQuery, PartRequest]) -> Response:
        if call.caller.principal.kind != SUPERVISOR:
            await require_pipeline(broker, call.access, _name(call))
        state = await views.change(await asyncio.to_thread(_part, _name(call), call.body))
        return json_response(PartAnswer(rows=state.rows, batch=state.batch, whole=state.is_whole))

    return [
        Operation(
            method="GET",
            path="/v1/views",
            handler=list_views,
            needs=lists(AclOperation.DESCRIBE, ResourceType.VIEW),
            summary="List materialized views with their freshness",
            tag=TAG,
            query=NoQuery,
            response=ViewsAnswer,
        ),
        Operation(
            method="GET",
            path="/v1/views/{view}",
            handler=get_view,
            needs=all_of(need((AclOperation.DESCRIBE, ResourceType.VIEW)), about="or being the owner of the pipeline"),
            summary="Describe a view",
            tag=TAG,
            query=NoQuery,
            response=ViewView,
            problems=(404,),
        ),
        Operation(
            method="GET",
            path="/v1/views/{view}/rows",
            handler=view_rows,
            needs=needs(AclOperation.READ, ResourceType.VIEW, "view"),
            summary="The row of a key, or a page of all rows",
            about="A parameter for each column of the key (`?id=7`) finds one row; none of them: pages.",
            tag=TAG,
            query=RowsQuery,
            response=RowsAnswer,
            also_response=RowAnswer,
            problems=(404,),
        ),
        Operation(
            method="POST",
            path="/v1/views/{view}/rows",
            handler=change_view_rows,
            needs=all_of(
                need((AclOperation.ALTER, ResourceType.PIPELINE), processes=(SUPERVISOR,)),
                about="or being the owner of the pipeline",
            ),
            summary="Apply a part of a batch, from the view's supervisor",
            about="A batch that is wholly there is passed over, or refused where it covers something else; who lost the"
            " view is refused.",
            tag=TAG,
            query=NoQuery,
            body=PartRequest,
            max_body_bytes=broker.settings.views.max_part_bytes,
            response=PartAnswer,
            problems=(404, 409),
        ),
    ]


def _name(call: Call[Any, Any]) -> str:
    return str(call.path["view"])


def _fresh_at_ms(state: ViewState) -> int | None:
    return None if state.batch < 0 else state.fresh_at_ms


def _view(view: View) -> ViewView:
    status = shown_status(view.kept)
    return ViewView(
        name=view.kept.name,
        columns=column_views(view.columns),
        key=list(view.key),
        rows=view.state.rows,
        fresh_at_ms=_fresh_at_ms(view.state),
        lag_records=status.lag_records,
        batch=None if view.state.batch < 0 else view.state.batch,
        whole=view.state.is_whole,
        query=view.state.query,
        status=status_view(status),
    )


def _key(view: View, values: dict[str, str]) -> dict[str, str]:
    """The values of the key columns among the parameters: all of them or none."""
    key = {column: values[column] for column in view.key if column in values}
    odd = [name for name in values if name not in view.key and name not in PAGING]
    if odd:
        raise _wrong(f"no column of the key; name={odd[0][:100]!r} key={','.join(view.key)[:200]}", odd[0])
    missing = [column for column in view.key if column not in key]
    if key and missing:
        raise _wrong(f"all columns of the key are needed; missing={','.join(missing)[:200]}", *missing)
    times = {column.name for column in view.columns or () if column.type.lower() == "timestamp"}
    return {name: _moment(text) if name in times else text for name, text in key.items()}


def _moment(text: str) -> str:
    """A time in the form that views store, in UTC without trailing zeros; other texts are unchanged."""
    try:
        moment = datetime.fromisoformat(text)
        utc = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return text
    text = utc.replace(tzinfo=None).isoformat()
    return (text.rstrip("0") if "." in text else text) + "Z"


def _wrong(text: str, *names: str) -> Malformed:
    return Malformed(text, field_errors=[FieldError(path=f"$.{name[:100]}", reason=text) for name in names])


def _part(name: str, request: PartRequest) -> ViewPart:
    if request.part >= request.parts:
        raise InvalidDefinition(
            f"the part number must be below the number of parts; part={request.part} parts={request.parts}"
        )
    return ViewPart(
        fence=Fence(pipeline=PipelineName(name), epoch=request.epoch),
        query=request.query,
        batch=request.batch,
        part=request.part,
        parts=request.parts,
        upserts=tuple(starmap(_upsert, enumerate(request.upserts))),
        deletes=tuple(map(tuple, request.deletes)),
        fresh_at_ms=request.fresh_at_ms,
        complete=request.complete,
        key=tuple(request.key),
        columns=columns_of(request.columns),
        covers=request.covers,
    )


def _upsert(number: int, upsert: Upsert) -> ViewRow:
    row = decode_json(bytes(upsert.row), dict[str, Any], at=f"$.upserts[{number}].row")
    return ViewRow(key=tuple(upsert.key), row=row, version=upsert.version)
