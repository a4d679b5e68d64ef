"""JSON types of pipelines, in requests and responses.

Data path   routes of pipelines, supervisors and views -> **pipeline_types** -> JSON
Owns        conversion in both directions
Leaves      paths to the routes, the meaning to `model.pipeline`
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from streamhouse.broker.pipelines.pipelines import Outcome, PipelineRequest, shown_status
from streamhouse.model.access import Principal
from streamhouse.model.pipeline import (
    Definition,
    DesiredState,
    Event,
    Kind,
    Ownership,
    Phase,
    PipelineName,
    PipelineReport,
    PipelineVersion,
    Shape,
    Status,
    StoredPipeline,
)
from streamhouse.wire.http.elements import Element
from streamhouse.wire.http.operations import MAX_LONG, PIPELINE_PATTERN
from streamhouse.wire.http.routes.tables import Columns, ColumnView, KeyColumns, SqlText, column_views, columns_of

Number = Annotated[int, Meta(ge=0, le=MAX_LONG)]
AnyNumber = Annotated[int, Meta(ge=-MAX_LONG - 1, le=MAX_LONG)]


class ShapeView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Decides whether a changed text can continue from an old checkpoint: the streams it reads and its state, in
    order."""

    streams: list[SqlText] = []
    state: list[SqlText] = []
    target: SqlText = ""


class WantedShape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A shape with the signature of the whole query, which decides whether state and rows are still valid."""

    streams: list[SqlText] = []
    state: list[SqlText] = []
    target: SqlText = ""
    tables: list[SqlText] = []
    query: list[SqlText] = []
    signature: Annotated[str, Meta(max_length=100, pattern=r"^(\w+:\w*)?\Z")] = ""


class PipelineDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The definition of a pipeline. `shape` null: not analysed; `fresh`: it may start over, at `starting`."""

    kind: Kind
    text: SqlText
    options: dict[SqlText, SqlText] = {}
    target: SqlText = ""
    key: KeyColumns = []
    columns: Columns | None = None
    shape: WantedShape | None = None
    starting: SqlText | None = None
    fresh: bool = False


class StatusView(msgspec.Struct, frozen=True, kw_only=True):
    """The last status reported by the owner. Rates are rows per second; `lag_records` is the number of unread records
    in its topics. `late_rows`: rows dropped since the start of the generation because they were later than the
    watermark."""

    phase: Phase = Phase.WAITING
    revision: Number = 0
    batch_id: AnyNumber | None = None
    input_rate: float | None = None
    processed_rate: float | None = None
    rows_in: Number = 0
    rows_out: AnyNumber | None = None
    dead_letters: Number = 0
    late_rows: Number = 0
    batch_ms: AnyNumber | None = None
    lag_records: AnyNumber | None = None
    state_rows: AnyNumber | None = None
    state_bytes: AnyNumber | None = None
    watermark_ms: AnyNumber | None = None
    restarts: Number = 0
    error: str | None = None
    told_at_ms: Number = 0
    progress: dict[str, Any] | None = None


class OwnerView(msgspec.Struct, frozen=True, kw_only=True):
    supervisor: str
    host: str
    epoch: int
    expires_at_ms: int


class PipelineView(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline with its owner and status. `revision` grows with every change, `generation` with every start from a
    new position."""

    name: str
    kind: Kind
    text: str
    options: dict[str, str]
    target: str
    key: list[str]
    columns: list[ColumnView] | None
    shape: ShapeView | None
    revision: int
    generation: int
    query_id: str
    starting: str | None
    wish: DesiredState
    created_at_ms: int
    changed_at_ms: int
    owner: OwnerView | None
    status: StatusView
    runs_as: str | None = None
    """The user with whose rights it runs: the one who created or changed it last."""


class PipelinesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    pipelines: list[PipelineView]


class PutAnswer(msgspec.Struct, frozen=True, kw_only=True):
    outcome: Outcome
    pipeline: PipelineView


class EventView(Element, frozen=True, kw_only=True, forbid_unknown_fields=True):
    at_ms: Number
    level: Annotated[str, Meta(min_length=1, max_length=20, pattern=r"^[a-z]+\Z")]
    text: str


class EventsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Events of a pipeline's log, newest last."""

    events: list[EventView]


class VersionView(msgspec.Struct, frozen=True, kw_only=True):
    """A definition as it was applied. `applied_by` null: before there were logins. A definition that another user
    applied again has the revision of the one before."""

    revision: int
    applied_at_ms: int
    applied_by: str | None
    kind: Kind
    text: str
    options: dict[str, str]
    target: str
    key: list[str]


class VersionsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first."""

    versions: list[VersionView]


class RunningPipeline(Element, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A supervisor's report of a pipeline that it runs under an epoch."""

    name: Annotated[str, Meta(pattern=PIPELINE_PATTERN)]
    epoch: Number
    status: StatusView | None = None
    events: list[EventView] = msgspec.field(default_factory=list)


def requested_pipeline(name: str, body: PipelineDefinition, *, runs_as: Principal) -> PipelineRequest:
    definition = Definition(
        name=PipelineName(name),
        kind=body.kind,
        text=body.text,
        options=body.options,
        target=body.target,
        key=tuple(body.key),
        columns=columns_of(body.columns),
        shape=None if body.shape is None else _shape_of(body.shape),
        runs_as=runs_as,
    )
    return PipelineRequest(definition=definition, starting=body.starting, fresh=body.fresh)


def _shape_of(shape: WantedShape) -> Shape:
    return Shape(
        streams=tuple(shape.streams),
        state=tuple(shape.state),
        target=shape.target,
        tables=tuple(shape.tables),
        query=tuple(shape.query),
        signature=shape.signature,
    )


def running_of(running: RunningPipeline) -> PipelineReport:
    return PipelineReport(
        name=PipelineName(running.name),
        epoch=running.epoch,
        status=None if running.status is None else Status(**msgspec.structs.asdict(running.status)),
        events=tuple(Event(at_ms=each.at_ms, level=each.level, text=each.text) for each in running.events),
    )


def pipeline_view(stored: StoredPipeline) -> PipelineView:
    pipeline, definition = stored.pipeline, stored.pipeline.definition
    return PipelineView(
        name=definition.name,
        kind=definition.kind,
        text=definition.text,
        options=dict(definition.options),
        target=definition.target,
        key=list(definition.key),
        columns=column_views(definition.columns),
        shape=None if definition.shape is None else _shape_view(definition.shape),
        revision=pipeline.revision,
        generation=pipeline.generation,
        query_id=pipeline.query_id,
        starting=pipeline.starting,
        wish=pipeline.wish,
        created_at_ms=pipeline.created_at_ms,
        changed_at_ms=pipeline.changed_at_ms,
        owner=None if stored.owner is None else _owner_view(stored.owner),
        status=status_view(shown_status(stored)),
        runs_as=None if definition.runs_as is None else str(definition.runs_as),
    )


def _shape_view(shape: Shape) -> ShapeView:
    return ShapeView(streams=list(shape.streams), state=list(shape.state), target=shape.target)


def _owner_view(owner: Ownership) -> OwnerView:
    return OwnerView(supervisor=owner.supervisor, host=owner.host, epoch=owner.epoch, expires_at_ms=owner.expires_at_ms)


def status_view(status: Status) -> StatusView:
    fields = {name: getattr(status, name) for name in StatusView.__struct_fields__}
    return StatusView(**fields)


def event_view(event: Event) -> EventView:
    return EventView(at_ms=event.at_ms, level=event.level, text=event.text)


def version_view(version: PipelineVersion) -> VersionView:
    definition = version.definition
    return VersionView(
        revision=version.revision,
        applied_at_ms=version.applied_at_ms,
        applied_by=None if definition.runs_as is None else str(definition.runs_as),
        kind=definition.kind,
        text=definition.text,
        options=dict(definition.options),
        target=definition.target,
        key=list(definition.key),
    )
