"""The names that SQL knows (definitions, topics, views), and the rows of materialized views.

Data path   wire -> **tables and views** -> metadata store, topic catalog
Owns        the table of a name, that names are unique; limits of rows, keys and pages; a view's freshness
Leaves      SQL texts to `sql`, reading and writing rows of tables to `spark.connectors`; that a batch changes a view
            once, and only by its owner, to the metadata store
"""

import asyncio
import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from streamhouse.broker.catalog.topic_catalog import TopicCatalog
from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.pipelines.table_definitions import check_definition, check_location, has_same_location
from streamhouse.errors import (
    AnotherTable,
    InvalidDefinition,
    NameTaken,
    PipelineLimit,
    Rejected,
    UnknownTable,
    UnknownView,
    UnknownViewRow,
)
from streamhouse.format.metadata_values import parse_view_lookup_key, view_lookup_key
from streamhouse.model.group import OFFSETS_TOPIC
from streamhouse.model.pipeline import Kind, PipelineName, StoredPipeline, ViewPage, ViewPart, ViewRow, ViewState
from streamhouse.model.table import LAKE, Column, Connector, Table
from streamhouse.sql.lake_tables import table_differences


class Tables:
    def __init__(self, dependencies: Dependencies, *, catalog: TopicCatalog) -> None:
        self._metadata = dependencies.metadata
        self._settings = dependencies.settings.tables
        self._catalog = catalog
        self._store_url = dependencies.store_url

    async def all(self) -> Sequence[Table]:
        """Definitions, then topics without one, then views; each by name."""
        defined = await self._metadata.tables()
        taken = {table.name for table in defined} | {OFFSETS_TOPIC}
        topics = sorted(topic.name for topic in await self._catalog.all() if topic.name not in taken)
        views = [view_table(each) for each in await self._metadata.pipelines() if _is_view(each)]
        taken.update(topics)
        return [*defined, *map(_topic_table, topics), *(view for view in views if view.name not in taken)]

    async def find(self, name: str) -> Table:
        """The table of this name: a definition, a topic or a view; raises `UnknownTable`."""
        if (defined := await self._metadata.find_table(name)) is not None:
            return defined
        if name != OFFSETS_TOPIC and await self._catalog.find_if_any(name) is not None:
            return _topic_table(name)
        stored = await self._metadata.find_pipeline(PipelineName(name))
        if stored is None or not _is_view(stored):
            raise UnknownTable(name)
        return view_table(stored)

    async def put(self, table: Table) -> bool:
        """Store a definition; False if it is unchanged.

        Raises `NameTaken`, `InvalidDefinition`, and `AnotherTable` if existing files don't fit it.
        """
        check_definition(table, limit=self._settings.max_definition_bytes)
        before = await self._metadata.find_table(table.name)
        if before is None or not has_same_location(before, table):
            check_location(table, allowed=self._settings.files_under, store=self._store_url)
        stored = await self._metadata.find_pipeline(PipelineName(table.name))
        if stored is not None and _is_view(stored):
            raise NameTaken(table.name, by="a materialized view")
        await self._check_same(before, table)
        return await self._metadata.put_table(table, max_tables=self._settings.max_tables)

    async def _check_same(self, before: Table | None, table: Table) -> None:
        if before is None or before.connector not in LAKE:
            return
        definitions = [each.pipeline.definition for each in await self._metadata.pipelines()]
        keys = [each.key for each in definitions if each.target == table.name]
        if differences := table_differences(before, table, keys):
            raise AnotherTable(table.name, differences)

    async def drop(self, name: str) -> None:
        """Delete a definition; a topic of its name stays. Raises `UnknownTable`."""
        if not await self._metadata.drop_table(name):
            raise UnknownTable(name)


def _is_view(stored: StoredPipeline) -> bool:
    return stored.pipeline.definition.kind is Kind.VIEW


def _topic_table(name: str) -> Table:
    return Table(name=name, connector=Connector.TOPIC)


def view_table(stored: StoredPipeline) -> Table:
    definition = stored.pipeline.definition
    return Table(
        name=definition.name,
        connector=Connector.VIEW,
        columns=definition.columns,
        key=definition.key,
        text=definition.text,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A view, and the pipeline that maintains it."""

    kept: StoredPipeline
    state: ViewState

    @property
    def key(self) -> tuple[str, ...]:
        """Names of the key's columns, as its pipeline reported them, else as defined."""
        return self.state.key or self.kept.pipeline.definition.key

    @property
    def columns(self) -> tuple[Column, ...] | None:
        return self.state.columns if self.state.columns is not None else self.kept.pipeline.definition.columns


class Views:
    def __init__(self, dependencies: Dependencies) -> None:
        self._metadata = dependencies.metadata
        self._settings = dependencies.settings.views

    async def all(self) -> Sequence[View]:
        states = {state.name: state for state in await self._metadata.views()}
        return [
            View(kept=stored, state=states.get(stored.name, ViewState(name=stored.name)))
            for stored in await self._metadata.pipelines()
            if stored.pipeline.definition.kind is Kind.VIEW
        ]

    async def find(self, name: str) -> View:
        """Raises `UnknownView`."""
        stored = await self._metadata.find_pipeline(PipelineName(name))
        if stored is None or stored.pipeline.definition.kind is not Kind.VIEW:
            raise UnknownView(name)
        return View(kept=stored, state=await self._metadata.find_view(name) or ViewState(name=name))

    async def row(self, view: View, key: Mapping[str, str]) -> ViewRow:
        """The row whose key's columns have these values, as texts; raises `UnknownViewRow`."""
        texts = [key[column] for column in view.key]
        kinds = {column.name: column.type for column in view.columns or ()}
        lookup_key = parse_view_lookup_key(texts, [kinds.get(column) for column in view.key])
        row = await self._metadata.find_view_row(view.kept.name, lookup_key)
        if row is None:
            raise UnknownViewRow(view.kept.name, key=",".join(texts)[:200])
        return row

    async def page(self, view: View, *, cursor: str | None, limit: int | None) -> ViewPage:
        """Rows in the order of their keys, from where an earlier page ended."""
        rows = min(limit or self._settings.page_rows, self._settings.page_rows)
        after = None if cursor is None else _decode_cursor(cursor)
        page = await self._metadata.view_rows(
            view.kept.name, cursor=after, limit=rows, max_bytes=self._settings.page_bytes
        )
        return replace(page, cursor=None if page.cursor is None else _encode_cursor(page.cursor))

    async def change(self, part: ViewPart) -> ViewState:
        """A supervisor's part of a batch. Raises `PipelineMoved`, `ViewRefused`, `PipelineLimit`, `UnknownView`."""
        view = await self.find(part.fence.pipeline)
        await asyncio.to_thread(self._check, part, len(part.key or view.key))
        return await self._metadata.change_view(part, max_rows=self._settings.max_rows)

    def _check(self, part: ViewPart, columns: int) -> None:
        """Raise for invalid changes of a view."""
        limits, name = self._settings, part.fence.pipeline
        if not 0 <= part.part < part.parts:
            raise InvalidDefinition(
                f"the part number must be below the number of parts; view={name} part={part.part} parts={part.parts}"
            )
        if len(part.upserts) + len(part.deletes) > limits.max_part_rows:
            raise PipelineLimit(f"rows of a part of {name}", limit=limits.max_part_rows, setting="views.max_part_rows")
        for key in (*(each.key for each in part.upserts), *part.deletes):
            if columns and len(key) != columns:
                raise InvalidDefinition(f"a key has a value for each column; view={name} columns={columns}")
            if len(view_lookup_key(key)) > limits.max_key_bytes:
                raise PipelineLimit(
                    f"bytes of a key of {name}", limit=limits.max_key_bytes, setting="views.max_key_bytes"
                )
        for each in part.upserts:
            if len(json.dumps(dict(each.row), ensure_ascii=False).encode()) > limits.max_row_bytes:
                raise PipelineLimit(
                    f"bytes of a row of {name}", limit=limits.max_row_bytes, setting="views.max_row_bytes"
                )


def _encode_cursor(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def _decode_cursor(cursor: str) -> str:
    try:
        return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, ValueError):
        raise Rejected("invalid cursor; use one from an earlier page") from None
