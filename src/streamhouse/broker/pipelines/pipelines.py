"""Pipeline definitions: create, change, pause, resume, restart and drop.

Data path   wire -> **pipelines** -> metadata store
Owns        limits of definitions; when a definition counts as unchanged, keeps its position, or starts again
Leaves      which supervisor runs a pipeline to `workers`, running it to `spark.pipelines`

A change is decided by plain functions from what the store holds when it is made.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from streamhouse.broker.catalog.topic_catalog import TopicCatalog
from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.pipelines.table_definitions import check_types
from streamhouse.errors import AnotherTable, InvalidDefinition, NameTaken, PlaceLost, Unavailable, UnknownPipeline
from streamhouse.model.pipeline import (
    Definition,
    DesiredState,
    Event,
    Kind,
    Phase,
    Pipeline,
    PipelineLimits,
    PipelineName,
    PipelineVersion,
    Status,
    StoredPipeline,
    resume_conflict,
)
from streamhouse.sql.lake_tables import writer_differences
from streamhouse.sql.lexer import without_layout


class Outcome(StrEnum):
    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRequest:
    """A new definition; with `fresh` it may start without its checkpoint, at `starting`."""

    definition: Definition
    starting: str | None = None
    fresh: bool = False


def decide_definition(
    before: Pipeline | None, request: PipelineRequest, *, query_id: str, has_run: bool = True
) -> tuple[Outcome, Pipeline]:
    """The pipeline with the new definition; raises `PlaceLost` if it can't continue from its checkpoint.

    A view that has not run has no rows to lose: it starts again, where it was to start.
    """
    if before is None:
        return Outcome.CREATED, _first(request, query_id)
    definition = _with_known(before.definition, request.definition)
    is_same_text = _has_same_text(before.definition, definition)
    lost = resume_conflict(before.definition.shape, definition.shape, is_same_text=is_same_text)
    if lost is None and _is_same(before.definition, definition):
        return Outcome.UNCHANGED, replace(before, definition=definition)
    changed = replace(before, definition=definition, revision=before.revision + 1)
    if request.fresh:
        return Outcome.CHANGED, _restarted(changed, request.starting, query_id)
    if lost is not None and definition.kind is Kind.VIEW and not has_run:
        return Outcome.CHANGED, _restarted(changed, before.starting, query_id)
    if lost is not None:
        raise PlaceLost(definition.name, why=lost)
    return Outcome.CHANGED, changed


def decide_restart(before: Pipeline, starting: str | None, *, query_id: str) -> Pipeline:
    """With `starting`, a new generation from there; without, another attempt from the checkpoint."""
    again = replace(before, revision=before.revision + 1, wish=DesiredState.RUN)
    return again if starting is None else _restarted(again, starting, query_id)


def check_starting(starting: str) -> None:
    """Raise `InvalidDefinition` unless it is `earliest`, `latest`, a time in ISO 8601, or offsets as JSON."""
    if starting in ("earliest", "latest") or _is_time(starting) or _is_offsets(starting):
        return
    raise InvalidDefinition(
        f"invalid starting position; given={starting[:100]!r} "
        'do=use earliest, latest, a time like 2026-01-31T12:00:00Z, or offsets like {"orders": {"0": 12}}'
    )


def shown_status(stored: StoredPipeline) -> Status:
    """The status to show: a pipeline without an owner does not run, whatever its last owner reported."""
    if stored.owner is not None or stored.status.phase is Phase.DONE:
        return stored.status
    phase = Phase.PAUSED if stored.pipeline.wish is DesiredState.PAUSE else Phase.WAITING
    return replace(stored.status, phase=phase, input_rate=None, processed_rate=None)


def _first(request: PipelineRequest, query_id: str) -> Pipeline:
    return Pipeline(
        definition=request.definition,
        revision=1,
        generation=1,
        query_id=query_id,
        starting=request.starting,
        wish=DesiredState.RUN,
        created_at_ms=0,
        changed_at_ms=0,
    )


def _restarted(before: Pipeline, starting: str | None, query_id: str) -> Pipeline:
    return replace(before, generation=before.generation + 1, query_id=query_id, starting=starting)


def _is_same(old: Definition, new: Definition) -> bool:
    """Whether definitions are equal apart from columns and shape, which follow from the text and its sources, and from
    who applies it: the pipeline continues, as a pipeline of who applied it last."""
    return _without_known(old) == _without_known(new)


def _without_known(definition: Definition) -> Definition:
    return replace(definition, columns=None, shape=None, runs_as=None)


def _has_same_text(old: Definition, new: Definition) -> bool:
    """Whether texts are equal apart from comments and layout; in Python the layout counts."""
    if old.text == new.text or Kind.PYTHON in (old.kind, new.kind):
        return old.text == new.text
    return without_layout(old.text) == without_layout(new.text)


def _with_known(old: Definition, new: Definition) -> Definition:
    """Keep the known columns and shape if the new definition has none and is otherwise the same."""
    if not _is_same(old, new):
        return new
    return replace(
        new,
        columns=old.columns if new.columns is None else new.columns,
        shape=old.shape if new.shape is None else new.shape,
    )


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_offsets(text: str) -> bool:
    try:
        topics = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(topics, dict) and all(
        isinstance(offsets, dict) and all(key.isdecimal() and type(at) is int for key, at in offsets.items())
        for offsets in topics.values()
    )


TRIES: Final = 10
"""Attempts of a change that conflicts with concurrent ones."""


class Pipelines:
    def __init__(self, dependencies: Dependencies, *, catalog: TopicCatalog) -> None:
        self._metadata = dependencies.metadata
        self._settings = dependencies.settings.pipelines
        self._ids = dependencies.ids
        self._catalog = catalog

    async def all(self) -> Sequence[StoredPipeline]:
        return await self._metadata.pipelines()

    async def find(self, name: PipelineName) -> StoredPipeline:
        """Raises `UnknownPipeline`."""
        stored = await self._metadata.find_pipeline(name)
        if stored is None:
            raise UnknownPipeline(name)
        return stored

    async def put(self, request: PipelineRequest) -> tuple[Outcome, StoredPipeline]:
        """Create or change a pipeline. Raises `PlaceLost`, `NameTaken`, `InvalidDefinition`, `AnotherTable`,
        `PipelineLimit`."""
        self._check(request)
        name, query_id = request.definition.name, str(self._ids.uuid())
        await self._check_name(request.definition)
        for _ in range(TRIES):
            stored = await self._metadata.find_pipeline(name)
            before = None if stored is None else stored.pipeline
            await self._check_target(before, request.definition)
            has_run = stored is not None and stored.has_run
            outcome, after = decide_definition(before, request, query_id=query_id, has_run=has_run)
            if after == before or await self._write(after, before):
                return outcome, await self.find(name)
        raise _contended(name)

    async def pause(self, name: PipelineName) -> StoredPipeline:
        return await self._change(name, lambda before: replace(before, wish=DesiredState.PAUSE))

    async def resume(self, name: PipelineName) -> StoredPipeline:
        return await self._change(name, lambda before: replace(before, wish=DesiredState.RUN))

    async def restart(self, name: PipelineName, starting: str | None) -> StoredPipeline:
        """Start a new generation at `starting`, or without it continue from the checkpoint, as after no failure."""
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

    async def versions(self, name: PipelineName) -> Sequence[PipelineVersion]:
        """The last definitions that were applied, newest first. Raises `UnknownPipeline`."""
        await self.find(name)
        return await self._metadata.pipeline_versions(name, self._settings.max_versions)

    async def _change(self, name: PipelineName, changed: Callable[[Pipeline], Pipeline]) -> StoredPipeline:
        for _ in range(TRIES):
            stored = await self.find(name)
            after = changed(stored.pipeline)
            if after == stored.pipeline:
                return stored
            if await self._write(after, stored.pipeline):
                return await self.find(name)
        raise _contended(name)

    async def _write(self, after: Pipeline, before: Pipeline | None) -> bool:
        limits = PipelineLimits(max_pipelines=self._settings.max_pipelines, max_versions=self._settings.max_versions)
        return await self._metadata.put_pipeline(after, expected=before, limits=limits)

    def _check(self, request: PipelineRequest) -> None:
        definition, limit = request.definition, self._settings.max_definition_bytes
        if definition.kind is Kind.PYTHON and not self._settings.allow_python:
            raise InvalidDefinition(
                f"pipelines in Python are not taken; name={definition.name} do=write it in SQL, or let the agents'"
                " operator set pipelines.allow_python=true: then every client of their HTTP listener can run programs"
                " on the machines of supervisors"
            )
        if request.starting is not None:
            check_starting(request.starting)
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
        """Raise if a view's name is taken by a table or topic, because views are tables in SQL."""
        if definition.kind is Kind.VIEW:
            if await self._metadata.find_table(definition.name) is not None:
                raise NameTaken(definition.name, by="a table")
            if await self._catalog.find_if_any(definition.name) is not None:
                raise NameTaken(definition.name, by="a topic")

    async def _check_target(self, before: Pipeline | None, definition: Definition) -> None:
        """Raise if the key of a lake table changes: its rows are stored by the old key."""
        if before is None or before.definition.target != definition.target or before.definition.key == definition.key:
            return
        target = await self._metadata.find_table(definition.target)
        if differences := writer_differences(target, before.definition.key, definition.key):
            raise AnotherTable(definition.target, differences)


def _contended(name: str) -> Unavailable:
    return Unavailable(f"the pipeline is being changed concurrently; name={name} tries={TRIES}")
