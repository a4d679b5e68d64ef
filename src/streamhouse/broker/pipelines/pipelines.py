"""Pipelines: definitions are kept, changed, paused, restarted and dropped.

Data path   wire -> **pipelines** -> metadata store
Owns        that a change is decided by what is there when it is made; limits of definitions
Leaves      deciding to `changes`, owners to `supervision`, running to `spark.pipelines`
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from streamhouse.broker.catalogue import Catalogue
from streamhouse.broker.doors import Doors
from streamhouse.broker.pipelines.changes import Outcome, Wanted, check_starting, decide_definition, decide_restart
from streamhouse.broker.table_definitions import check_types
from streamhouse.errors import AnotherTable, InvalidDefinition, NameTaken, Unavailable, UnknownPipeline
from streamhouse.format.lake_tables import writer_differences
from streamhouse.model.pipeline import Definition, Event, KeptPipeline, Kind, Pipeline, PipelineName, Wish

TRIES: Final = 10
"""How often a change is decided anew because somebody else was quicker."""


class Pipelines:
    def __init__(self, doors: Doors, *, catalogue: Catalogue) -> None:
        self._metadata = doors.metadata
        self._settings = doors.settings.pipelines
        self._ids = doors.ids
        self._catalogue = catalogue

    async def all(self) -> Sequence[KeptPipeline]:
        return await self._metadata.pipelines()

    async def find(self, name: PipelineName) -> KeptPipeline:
        """Raises `UnknownPipeline`."""
        found = await self._metadata.find_pipeline(name)
        if found is None:
            raise UnknownPipeline(name)
        return found

    async def put(self, wanted: Wanted) -> tuple[Outcome, KeptPipeline]:
        """Keep a definition. Raises `PlaceLost`, `NameTaken`, `InvalidDefinition`, `AnotherTable`, `PipelineLimit`."""
        self._check(wanted)
        name, query_id = wanted.definition.name, str(self._ids.uuid())
        await self._check_name(wanted.definition)
        for _ in range(TRIES):
            found = await self._metadata.find_pipeline(name)
            before = None if found is None else found.pipeline
            await self._check_target(before, wanted.definition)
            has_run = found is not None and found.has_run
            outcome, after = decide_definition(before, wanted, query_id=query_id, has_run=has_run)
            if after == before or await self._write(after, before):
                return outcome, await self.find(name)
        raise _contended(name)

    async def pause(self, name: PipelineName) -> KeptPipeline:
        return await self._change(name, lambda before: replace(before, wish=Wish.PAUSE))

    async def resume(self, name: PipelineName) -> KeptPipeline:
        return await self._change(name, lambda before: replace(before, wish=Wish.RUN))

    async def restart(self, name: PipelineName, starting: str | None) -> KeptPipeline:
        """Begin anew at a place, or without one go on at the same place, as if it had not failed."""
        if starting is not None:
            check_starting(starting)
        query_id = str(self._ids.uuid())
        return await self._change(name, lambda before: decide_restart(before, starting, query_id=query_id))

    async def drop(self, name: PipelineName) -> None:
        if not await self._metadata.drop_pipeline(name):
            raise UnknownPipeline(name)

    async def events(self, name: PipelineName, limit: int) -> Sequence[Event]:
        await self.find(name)
        return await self._metadata.pipeline_events(name, min(limit, self._settings.max_events))

    async def _change(self, name: PipelineName, changed: Callable[[Pipeline], Pipeline]) -> KeptPipeline:
        for _ in range(TRIES):
            found = await self.find(name)
            after = changed(found.pipeline)
            if after == found.pipeline:
                return found
            if await self._write(after, found.pipeline):
                return await self.find(name)
        raise _contended(name)

    async def _write(self, after: Pipeline, before: Pipeline | None) -> bool:
        return await self._metadata.put_pipeline(after, expected=before, max_pipelines=self._settings.max_pipelines)

    def _check(self, wanted: Wanted) -> None:
        definition, limit = wanted.definition, self._settings.max_definition_bytes
        if definition.kind is Kind.PYTHON and not self._settings.allow_python:
            raise InvalidDefinition(
                f"pipelines in Python are not taken; name={definition.name} do=write it in SQL, or let the agents'"
                " operator set pipelines.allow_python=true: then whoever reaches their HTTP listener can run programs"
                " on the machines of supervisors"
            )
        if wanted.starting is not None:
            check_starting(wanted.starting)
        check_types(definition.name, definition.columns)
        texts = [definition.text, definition.target, *definition.key, *definition.options, *definition.options.values()]
        texts += [text for column in definition.columns or () for text in (column.name, column.type)]
        if definition.shape is not None:
            shape = definition.shape
            texts += [*shape.streams, *shape.state, shape.target, *shape.tables, *shape.query, shape.signature]
        if sum(len(text.encode()) for text in texts) > limit:
            raise InvalidDefinition(
                f"a definition is too large; name={definition.name} limit_bytes={limit} "
                "setting=pipelines.max_definition_bytes"
            )

    async def _check_name(self, definition: Definition) -> None:
        """The name of a view is one that SQL knows."""
        if definition.kind is Kind.VIEW:
            if await self._metadata.find_table(definition.name) is not None:
                raise NameTaken(definition.name, by="a table")
            if await self._catalogue.find_if_any(definition.name) is not None:
                raise NameTaken(definition.name, by="a topic")

    async def _check_target(self, before: Pipeline | None, wanted: Definition) -> None:
        """Rows of a lake table that were found by one key can't be found by another."""
        if before is None or before.definition.target != wanted.target or before.definition.key == wanted.key:
            return
        target = await self._metadata.find_table(wanted.target)
        if found := writer_differences(target, before.definition.key, wanted.key):
            raise AnotherTable(wanted.target, found)


def _contended(name: str) -> Unavailable:
    return Unavailable(f"a pipeline is being changed by many at once; name={name} tries={TRIES}")
