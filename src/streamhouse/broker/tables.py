"""Tables: the names that SQL knows: definitions, topics, views.

Data path   wire -> **tables** -> metadata store, catalogue
Owns        which of them a name means; that one name means one thing, and a lake table stays the one it is
Leaves      definitions as text to `format.statements`, rows to `spark.connectors`
"""

from collections.abc import Sequence
from typing import Final

from streamhouse.errors import AnotherTable, InvalidDefinition, NameTaken, UnknownTable
from streamhouse.format.column_types import is_one_type
from streamhouse.format.lake_tables import table_differences
from streamhouse.model.group import OFFSETS_TOPIC
from streamhouse.model.pipeline import KeptPipeline, Kind, PipelineName
from streamhouse.model.table import CONNECTION, LAKE, Connector, Table, is_under
from streamhouse.model.table_settings import a_location, lake_folder

from .catalogue import Catalogue
from .doors import Doors

_PLACES: Final = {Connector.FILES: "path", **dict.fromkeys(LAKE, "location")}
"""The option that says where a table's rows are."""


class Tables:
    def __init__(self, doors: Doors, *, catalogue: Catalogue) -> None:
        self._metadata = doors.metadata
        self._settings = doors.settings.tables
        self._catalogue = catalogue
        self._store_url = doors.store_url

    async def all(self) -> Sequence[Table]:
        """Definitions, then topics without one, then views; each by name."""
        defined = await self._metadata.tables()
        taken = {table.name for table in defined} | {OFFSETS_TOPIC}
        topics = sorted(topic.name for topic in await self._catalogue.all() if topic.name not in taken)
        views = [view_table(each) for each in await self._metadata.pipelines() if _is_view(each)]
        taken.update(topics)
        return [*defined, *map(_topic_table, topics), *(view for view in views if view.name not in taken)]

    async def find(self, name: str) -> Table:
        """What a name means; raises `UnknownTable`."""
        if (defined := await self._metadata.find_table(name)) is not None:
            return defined
        if name != OFFSETS_TOPIC and await self._catalogue.find_if_any(name) is not None:
            return _topic_table(name)
        kept = await self._metadata.find_pipeline(PipelineName(name))
        if kept is None or not _is_view(kept):
            raise UnknownTable(name)
        return view_table(kept)

    async def put(self, table: Table) -> bool:
        """Keep a definition; False when it was there already.

        Raises `NameTaken`, `InvalidDefinition`, and `AnotherTable` where files that are there would have to be others.
        """
        _check(table, limit=self._settings.max_definition_bytes)
        before = await self._metadata.find_table(table.name)
        if before is None or not _is_where_it_was(before, table):
            _check_place(table, allowed=self._settings.files_under, store=self._store_url)
        kept = await self._metadata.find_pipeline(PipelineName(table.name))
        if kept is not None and _is_view(kept):
            raise NameTaken(table.name, by="a materialized view")
        await self._check_same(before, table)
        return await self._metadata.put_table(table, max_tables=self._settings.max_tables)

    async def _check_same(self, before: Table | None, table: Table) -> None:
        if before is None or before.connector not in LAKE:
            return
        definitions = [each.pipeline.definition for each in await self._metadata.pipelines()]
        keys = [each.key for each in definitions if each.target == table.name]
        if found := table_differences(before, table, keys):
            raise AnotherTable(table.name, found)

    async def drop(self, name: str) -> None:
        """A definition goes; a topic of its name stays. Raises `UnknownTable`."""
        if not await self._metadata.drop_table(name):
            raise UnknownTable(name)


def _is_view(kept: KeptPipeline) -> bool:
    return kept.pipeline.definition.kind is Kind.VIEW


def _topic_table(name: str) -> Table:
    return Table(name=name, connector=Connector.TOPIC)


def view_table(kept: KeptPipeline) -> Table:
    definition = kept.pipeline.definition
    return Table(
        name=definition.name,
        connector=Connector.VIEW,
        columns=definition.columns,
        key=definition.key,
        text=definition.text,
    )


def _is_where_it_was(before: Table, table: Table) -> bool:
    """A lake table that is there stays, whatever has become of the setting."""
    return before.connector in LAKE and before.options.get("location") == table.options.get("location")


def _check_place(table: Table, *, allowed: str, store: str) -> None:
    """What SQL workers and supervisors can reach is for everybody only where an operator said so.

    Lake tables may also lie where they lie by themselves: in the folder for them of the agents' store.
    """
    option = _PLACES.get(table.connector)
    if option is None or (option == "location" and option not in table.options):  # a catalog knows where
        return
    roots = [root.strip() for root in allowed.split(",") if root.strip()]
    given = table.options.get(option, "")
    place = given
    if option == "location":
        lake = lake_folder(store)
        roots = ([lake] if lake else []) + [_lake_place(root) for root in roots]
        place = _lake_place(given)
    if not any(is_under(place, root) for root in roots):
        raise InvalidDefinition(
            f"tables may not lie there; table={table.name} {option}={given[:200]} "
            f"allowed={', '.join(roots) or 'nowhere'} "
            "do=let the agents' operator set tables.files_under to a folder above it"
        )


def _lake_place(location: str) -> str:
    """As whoever opens the table will understand it; `s3a://` is what files call buckets."""
    try:
        return a_location("s3://" + location.removeprefix("s3a://") if location.startswith("s3a://") else location)
    except ValueError:  # nowhere
        return ""


def _check(table: Table, *, limit: int) -> None:
    if table.connector is Connector.VIEW:
        raise InvalidDefinition(f"a view is made by CREATE MATERIALIZED VIEW; name={table.name}")
    names = [column.name for column in table.columns or ()]
    if len(set(names)) < len(names):
        raise InvalidDefinition(f"a column is named twice; table={table.name}")
    connection = table.options.get("connection", "")
    if table.connector is Connector.POSTGRESQL and not CONNECTION.fullmatch(connection):
        raise InvalidDefinition(
            f"a connection is named, not written out; table={table.name}"
            " do=connection=warehouse, with its address in STREAMHOUSE_CONNECTION_WAREHOUSE where Spark runs"
        )
    if wrong := [column for column in table.columns or () if not is_one_type(column.type)]:
        raise InvalidDefinition(
            f"a column has no type of Spark's SQL; table={table.name} column={wrong[0].name[:100]}"
            f" type={wrong[0].type[:100]} do=STRING, BIGINT, DECIMAL(9, 2), ARRAY<…>, STRUCT<a: INT>"
        )
    if table.columns is not None and (odd := [name for name in table.key if name not in names]):
        raise InvalidDefinition(f"a column of the key isn't one of the table; table={table.name} column={odd[0][:100]}")
    texts = [table.text or "", *names, *(column.type for column in table.columns or ()), *table.key]
    size = sum(len(text.encode()) for text in [*texts, *table.options, *table.options.values()])
    if size > limit:
        raise InvalidDefinition(
            f"a definition is too large; table={table.name} limit_bytes={limit} setting=tables.max_definition_bytes"
        )
