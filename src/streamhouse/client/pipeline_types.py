"""Types that the client returns for pipelines, views and SQL."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from streamhouse.model.pipeline import DesiredState, Event, Kind, Shape, Status
from streamhouse.model.table import Column


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The supervisor that runs a pipeline, until its lease is over."""

    supervisor: str
    host: str
    epoch: int
    expires_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineInfo:
    """A pipeline with its owner and status. `revision` grows with every change, `generation` with every restart without
    state."""

    name: str
    kind: Kind
    text: str
    options: dict[str, str]
    target: str
    key: tuple[str, ...]
    columns: tuple[Column, ...] | None
    shape: Shape | None
    revision: int
    generation: int
    query_id: str
    starting: str | None
    wish: DesiredState
    created_at_ms: int
    changed_at_ms: int
    owner: Owner | None
    status: Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    outcome: Literal["created", "changed", "unchanged"]
    pipeline: PipelineInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorInfo:
    id: str
    host: str
    slots: int
    expires_at_ms: int
    pipelines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewInfo:
    """`fresh_at_ms`: the view reflects all records up to this time; None before its first batch."""

    name: str
    columns: tuple[Column, ...] | None
    key: tuple[str, ...]
    rows: int
    fresh_at_ms: int | None
    lag_records: int | None
    batch: int | None
    status: Status


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewRows:
    """A page of a view; `cursor` leads to the next page, None on the last."""

    rows: list[dict[str, Any]]
    cursor: str | None
    fresh_at_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRow:
    row: dict[str, Any]
    fresh_at_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The result of a query; `truncated`: there were more rows."""

    query_id: str
    columns: tuple[Column, ...]
    rows: list[dict[str, Any]]
    truncated: bool
    elapsed_ms: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    id: str
    address: str
    busy: int
    expires_at_ms: int


Events = list[Event]
Supervisors = list[SupervisorInfo]
Page = list[dict[str, Any]]
Checked = list[Mapping[str, Any]]
"""The validation result of every statement."""
