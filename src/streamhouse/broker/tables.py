"""Tables: the names that SQL knows: definitions, topics, views.

Data path   wire -> **tables** -> metadata store, catalogue
Owns        which of them a name means; that one name means one thing, and a lake table stays the one it is
Leaves      definitions as text to `format.statements`, rows to `spark.connectors`
"""

from collections.abc import Sequence

from streamhouse.broker.catalogue import Catalogue
from streamhouse.broker.doors import Doors
from streamhouse.broker.table_definitions import check_definition, check_place, is_where_it_was
from streamhouse.errors import AnotherTable, NameTaken, UnknownTable
from streamhouse.format.lake_tables import table_differences
from streamhouse.model.group import OFFSETS_TOPIC
from streamhouse.model.pipeline import KeptPipeline, Kind, PipelineName
from streamhouse.model.table import LAKE, Connector, Table


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
        check_definition(table, limit=self._settings.max_definition_bytes)
        before = await self._metadata.find_table(table.name)
        if before is None or not is_where_it_was(before, table):
            check_place(table, allowed=self._settings.files_under, store=self._store_url)
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
