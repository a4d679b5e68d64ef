"""Tables of SQL.

GET    /v1/tables             defined tables, then topics without a definition, then views
GET    /v1/tables/{table}     one table
PUT    /v1/tables/{table}     {"connector": "topic", "columns": [{"name": "id", "type": "BIGINT"}], "options": {…}}
DELETE /v1/tables/{table}     delete the definition; a topic of this name is kept
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.errors import AccessDenied
from streamhouse.model.access import Operation as AclOperation
from streamhouse.model.access import ResourceType
from streamhouse.model.needs import Needs, Right, needs
from streamhouse.model.table import Column, Connector, Table
from streamhouse.wire.authorization import RequestAccess
from streamhouse.wire.http.elements import Element
from streamhouse.wire.http.operations import Call, NoQuery, Operation, json_response
from streamhouse.wire.http.routes.pipeline_access import require_own_name

TAG: Final = "tables"
WITHOUT_DEFINITION: Final = "on the topic or the view, where the name has no definition"
KINDS: Final = (ResourceType.TABLE, ResourceType.TOPIC, ResourceType.VIEW)
OF_TENANTS: Final = (Connector.TOPIC, Connector.CONSOLE, Connector.VIEW)
"""Tables of others are on disks, in buckets or databases where names of tenants mean nothing."""
MAX_COLUMNS: Final = 10_000
ColumnName = Annotated[str, Meta(min_length=1, max_length=1000, pattern=r"^[^\x00]*\Z")]
SqlText = Annotated[str, Meta(pattern=r"^[^\x00]*\Z")]


class ColumnView(Element, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`type` is a type of Spark's SQL: `BIGINT`, `STRUCT<id: INT>`."""

    name: ColumnName
    type: SqlText


Columns = Annotated[list[ColumnView], Meta(max_length=MAX_COLUMNS)]
KeyColumns = Annotated[list[ColumnName], Meta(max_length=MAX_COLUMNS)]


class TableView(msgspec.Struct, frozen=True, kw_only=True):
    """`columns` null: inferred when the table is read; `text` is the statement that created it, if any."""

    name: str
    connector: Connector
    columns: list[ColumnView] | None
    key: list[str]
    options: dict[str, str]
    text: str | None


class TablesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    tables: list[TableView]


class TableDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The definition of a table. It never contains credentials of another system, only the name of a connection."""

    connector: Connector
    columns: Columns | None = None
    key: KeyColumns = []
    options: dict[SqlText, SqlText] = {}
    text: SqlText | None = None


def columns_of(columns: Sequence[ColumnView] | None) -> tuple[Column, ...] | None:
    return None if columns is None else tuple(Column(name=each.name, type=each.type) for each in columns)


def column_views(columns: Sequence[Column] | None) -> list[ColumnView] | None:
    return None if columns is None else [ColumnView(name=each.name, type=each.type) for each in columns]


def operations(broker: Broker) -> list[Operation[Any, Any]]:
    async def list_tables(call: Call[NoQuery, None]) -> Response:
        tables = [each for each in await broker.tables.all() if _shows(call.access, each)]
        return json_response(TablesAnswer(tables=[_view(table) for table in tables]))

    async def get_table(call: Call[NoQuery, None]) -> Response:
        name, access = _name(call), call.access
        if not any(access.allows(AclOperation.DESCRIBE, kind, name) for kind in KINDS):
            access.require(AclOperation.DESCRIBE, ResourceType.TABLE, name)
        table = await broker.tables.find(name)
        access.require(AclOperation.DESCRIBE, _kind(table), name)
        return json_response(_view(table))

    async def put_table(call: Call[NoQuery, TableDefinition]) -> Response:
        body = call.body
        require_own_name(call, _name(call))
        if call.caller.tenant and body.connector not in OF_TENANTS:
            raise AccessDenied(
                call.caller.principal, operation=f"create-{body.connector}", resource_type="table", name=_name(call)
            )
        table = Table(
            name=_name(call),
            connector=body.connector,
            columns=columns_of(body.columns),
            key=tuple(body.key),
            options=body.options,
            text=body.text,
        )
        await broker.tables.put(table)
        return json_response(_view(table))

    async def delete_table(call: Call[NoQuery, None]) -> Response:
        await broker.tables.drop(_name(call))
        return Response(status_code=204)

    return [
        Operation(
            method="GET",
            path="/v1/tables",
            handler=list_tables,
            needs=Needs(
                lists=(
                    Right(AclOperation.DESCRIBE, ResourceType.TABLE),
                    Right(AclOperation.DESCRIBE, ResourceType.TOPIC),
                    Right(AclOperation.DESCRIBE, ResourceType.VIEW),
                ),
                about="definitions, topics without one, views",
            ),
            summary="List SQL tables",
            about="Definitions, then topics without one, then materialized views.",
            tag=TAG,
            query=NoQuery,
            response=TablesAnswer,
        ),
        Operation(
            method="GET",
            path="/v1/tables/{table}",
            handler=get_table,
            needs=needs(
                AclOperation.DESCRIBE,
                ResourceType.TABLE,
                about=WITHOUT_DEFINITION,
            ),
            summary="The definition of a table",
            tag=TAG,
            query=NoQuery,
            response=TableView,
            problems=(404,),
        ),
        Operation(
            method="PUT",
            path="/v1/tables/{table}",
            handler=put_table,
            needs=needs(AclOperation.CREATE, ResourceType.TABLE, "table"),
            summary="Create or replace a table definition",
            tag=TAG,
            query=NoQuery,
            body=TableDefinition,
            response=TableView,
            problems=(409,),
        ),
        Operation(
            method="DELETE",
            path="/v1/tables/{table}",
            handler=delete_table,
            needs=needs(AclOperation.DELETE, ResourceType.TABLE, "table"),
            summary="Drop a table definition",
            about="The data stays: delete a topic as a topic, and a view as a pipeline.",
            tag=TAG,
            query=NoQuery,
            status=204,
            problems=(404,),
        ),
    ]


def _name(call: Call[Any, Any]) -> str:
    return str(call.path["table"])


def _kind(table: Table) -> ResourceType:
    """What a table is for access control: a definition, or the topic or view that has none."""
    if table.connector is Connector.VIEW:
        return ResourceType.VIEW
    return ResourceType.TOPIC if table == Table(name=table.name, connector=Connector.TOPIC) else ResourceType.TABLE


def _shows(access: RequestAccess, table: Table) -> bool:
    return access.allows(AclOperation.DESCRIBE, _kind(table), table.name)


def _view(table: Table) -> TableView:
    return TableView(
        name=table.name,
        connector=table.connector,
        columns=column_views(table.columns),
        key=list(table.key),
        options=dict(table.options),
        text=table.text,
    )
