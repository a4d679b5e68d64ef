"""Tables: the names that SQL knows: definitions, topics, views.

Data path   wire -> **tables** -> metadata store, catalogue
Owns        which of them a name means; that one name means one thing, and a lake table stays the one it is
Leaves      definitions as text to `format.statements`, rows to `spark.connectors`
"""

from collections.abc import Sequence

from streamhouse.errors import AnotherTable, InvalidDefinition, NameTaken, UnknownTable
from streamhouse.format.lake_tables import table_differences
from streamhouse.model.group import OFFSETS_TOPIC
from streamhouse.model.pipeline import KeptPipeline, Kind, PipelineName
from streamhouse.model.table import LAKE, Connector, Table, is_under

from .catalogue import Catalogue
from .doors import Doors


class Tables:
    def __init__(self, doors: Doors, *, catalogue: Catalogue) -> None:
        self._metadata = doors.metadata
        self._settings = doors.settings.tables
        self._catalogue = catalogue

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
        _check_path(table, allowed=self._settings.files_under)
        kept = await self._metadata.find_pipeline(PipelineName(table.name))
        if kept is not None and _is_view(kept):
            raise NameTaken(table.name, by="a materialized view")
        await self._check_same(table)
        return await self._metadata.put_table(table, max_tables=self._settings.max_tables)

    async def _check_same(self, table: Table) -> None:
        before = await self._metadata.find_table(table.name)
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


def _check_path(table: Table, *, allowed: str) -> None:
    """Files that SQL workers and supervisors can reach are for those that an operator named to be read by everybody."""
    if table.connector is not Connector.FILES:
        return
    roots = [root.strip() for root in allowed.split(",") if root.strip()]
    if not any(is_under(table.options.get("path", ""), root) for root in roots):
        raise InvalidDefinition(
            f"tables of files may not lie there; table={table.name} path={table.options.get('path', '')[:200]} "
            f"allowed={', '.join(roots) or 'nowhere'} "
            "do=let the agents' operator set tables.files_under to a folder above it"
        )


def _check(table: Table, *, limit: int) -> None:
    if table.connector is Connector.VIEW:
        raise InvalidDefinition(f"a view is made by CREATE MATERIALIZED VIEW; name={table.name}")
    names = [column.name for column in table.columns or ()]
    if len(set(names)) < len(names):
        raise InvalidDefinition(f"a column is named twice; table={table.name}")
    if table.columns is not None and (odd := [name for name in table.key if name not in names]):
        raise InvalidDefinition(f"a column of the key isn't one of the table; table={table.name} column={odd[0][:100]}")
    texts = [table.text or "", *names, *(column.type for column in table.columns or ()), *table.key]
    size = sum(len(text.encode()) for text in [*texts, *table.options, *table.options.values()])
    if size > limit:
        raise InvalidDefinition(
            f"a definition is too large; table={table.name} limit_bytes={limit} setting=tables.max_definition_bytes"
        )
