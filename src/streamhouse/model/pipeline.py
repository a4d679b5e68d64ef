"""Pipeline: a continuous query, its status and its owner; views that pipelines maintain; SQL workers.

Owns        the types; whether a changed definition keeps its checkpoint; how many pipelines a supervisor should have
Leaves      definitions as text to `sql.parser`, storing them to `broker.pipelines`, running to `spark.pipelines`

A supervisor owns a pipeline through a lease: holder, epoch and expiry by the metadata store's clock. Its commits to
topics and views are fenced by that epoch. `restart` starts a new generation: a new start position, a new checkpoint and
a new query id.

A batch of a query changes a view in parts, in order, each part in one transaction. A complete batch is applied once; an
incomplete one may be sent again from its first part, split differently: rows are set, not added to.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NewType

from streamhouse.model.access import Principal
from streamhouse.model.table import Column

GENERATION: Final = "generation"
"""The key of the generation in a status' progress."""
VERSIONS: Final = "versions"
"""The key of the newest versions of the lake table that a pipeline writes, in a status' progress."""
SPARK_UI: Final = "ui"
"""The key of the address of Spark's web UI, in a status' progress."""

PipelineName = NewType("PipelineName", str)
SupervisorId = NewType("SupervisorId", str)


class Kind(StrEnum):
    SQL = "sql"
    PYTHON = "python"
    VIEW = "view"


class DesiredState(StrEnum):
    """The desired state of a pipeline."""

    RUN = "run"
    PAUSE = "pause"


class Phase(StrEnum):
    """The phase of a pipeline, as reported by its supervisor."""

    WAITING = "waiting"  # no supervisor has taken it yet
    STARTING = "starting"  # no micro-batch is done yet
    RUNNING = "running"  # one micro-batch is done, or there was nothing to read
    BACKING_OFF = "backing off"  # it failed and will be retried
    FAILED = "failed"  # it will not be retried until it is changed or restarted
    PAUSED = "paused"
    DONE = "done"  # its trigger runs once


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The parts of a query that decide whether a changed text may continue from the old checkpoint: its streams and its
    state, in order.

    `signature` identifies what the state of a pipeline or the rows of a view depend on: a version, a colon and a hash.
    The hash is missing if the query is stateless; the signature is empty if it was never computed. `tables` are the
    locations of the query's tables, `query` is its operators, for error messages.
    """

    streams: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    target: str = ""
    tables: tuple[str, ...] = ()
    query: tuple[str, ...] = ()
    signature: str = ""

    @property
    def version(self) -> str:
        return self.signature.partition(":")[0]

    @property
    def keeps_nothing(self) -> bool:
        return self.signature.endswith(":")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A definition by a user; `shape` is None until Spark has analysed the text.

    The pipeline runs with the permissions of `runs_as`, the user who applied it last. None: it was applied before
    access control existed.
    """

    name: PipelineName
    kind: Kind
    text: str
    options: Mapping[str, str] = field(default_factory=dict)
    target: str = ""
    key: tuple[str, ...] = ()
    columns: tuple[Column, ...] | None = None
    shape: Shape | None = None
    runs_as: Principal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A stored definition. `revision` grows with every change, `generation` with every start from a new position."""

    definition: Definition
    revision: int
    generation: int
    query_id: str
    starting: str | None
    wish: DesiredState
    created_at_ms: int
    changed_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineVersion:
    """A definition as it was applied, by its `runs_as`. `revision` is the pipeline's after that: one that was applied
    unchanged by another user has the same."""

    definition: Definition
    revision: int
    applied_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineLimits:
    """`max_versions`: versions that are kept of each pipeline."""

    max_pipelines: int
    max_versions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """The lease of a pipeline. `epoch` is unique over all owners and pipelines."""

    supervisor: SupervisorId
    epoch: int
    expires_at_ms: int
    host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """The ownership under which something is committed."""

    pipeline: PipelineName
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The last status reported by the owner. Rates are rows per second; `lag_records` is the number of unread records.
    `late_rows`: rows later than the watermark since the start of the generation."""

    phase: Phase = Phase.WAITING
    revision: int = 0
    batch_id: int | None = None
    input_rate: float | None = None
    processed_rate: float | None = None
    rows_in: int = 0
    rows_out: int | None = None
    dead_letters: int = 0
    late_rows: int = 0
    batch_ms: int | None = None
    lag_records: int | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    watermark_ms: int | None = None
    restarts: int = 0
    error: str | None = None
    told_at_ms: int = 0
    progress: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPipeline:
    """A pipeline, its owner, and its last status."""

    pipeline: Pipeline
    owner: Ownership | None
    status: Status

    @property
    def name(self) -> PipelineName:
        return self.pipeline.definition.name

    @property
    def has_run(self) -> bool:
        """Whether this generation has reported a micro-batch."""
        generation = (self.status.progress or {}).get(GENERATION, self.pipeline.generation)
        return self.status.batch_id is not None and generation == self.pipeline.generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of a pipeline's log."""

    at_ms: int
    level: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineReport:
    """A supervisor's report of a pipeline that it runs under an epoch. `status` None: unchanged."""

    name: PipelineName
    epoch: int
    status: Status | None = None
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    supervisor: SupervisorId
    host: str
    slots: int
    running: tuple[PipelineReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervisor:
    """A live supervisor; `pipelines` are those that it owns."""

    supervisor: SupervisorId
    host: str
    slots: int
    expires_at_ms: int
    pipelines: tuple[PipelineName, ...] = ()


PHASES: Final = 3
"""Maximum operators of a query in a reason."""


def resume_conflict(old: Shape | None, new: Shape | None, *, is_same_text: bool = False) -> str | None:
    """The reason why a changed definition can't continue from the old position, or None.

    With `is_same_text` (equal apart from comments and layout) the query is the same, even if its signature can't be
    compared or columns of its tables have changed."""
    if old is None or new is None:
        return None
    if old.streams != new.streams:
        return f"it reads other streams; was={', '.join(old.streams)} is={', '.join(new.streams)}"
    if old.state != new.state and (old.signature != new.signature or not new.signature):
        return f"it keeps other state; was={'; '.join(old.state) or 'none'} is={'; '.join(new.state) or 'none'}"
    if old.target != new.target:
        return f"it writes elsewhere; was={old.target} is={new.target}"
    if not new.signature:
        return None
    return moved_tables(old, new) or (None if is_same_text else _another_query(old, new))


def moved_tables(old: Shape, new: Shape) -> str | None:
    """The tables of the query whose location has changed, or None."""
    if old.version != new.version or old.tables == new.tables:
        return None
    return f"it reads other tables; was={', '.join(old.tables) or 'none'} is={', '.join(new.tables) or 'none'}"


def _another_query(old: Shape, new: Shape) -> str | None:
    if old.signature == new.signature:
        return None
    if old.version != new.version:
        if new.keeps_nothing:
            return None
        return (
            "it was applied by another version of StreamHouse, so the two queries can't be compared; apply the earlier"
            " text once more before changing it"
        )
    was, now = _only_in(old.query, new.query), _only_in(new.query, old.query)
    return f"it is another query; was={was} is={now}"


def _only_in(lines: Sequence[str], others: Sequence[str]) -> str:
    missing = [line for line in lines if line not in others]
    return "; ".join(missing[:PHASES]) or "the same operators"


def fair_share(pipelines: int, supervisors: int) -> int:
    """The number of pipelines that each supervisor should run."""
    return -(-pipelines // max(1, supervisors))


ViewKey = tuple[Any, ...]
"""JSON values of the key's columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewRow:
    """`version` identifies the input records, so that an older row never replaces a newer one of its key.

    It is `t` or `o`, then for each record, newest first, 16 hex digits of its timestamp, 8 of its partition, 16 of its
    offset and 8 of its topic; at the end 48 digits that tell rows of the same records apart. Versions are compared as
    text. Of two that begin with `o` and have the same partition, the one with the greater offset is newer, and gets
    the later timestamp of both. None: the last row written wins. Rows that are read have none.
    """

    key: ViewKey
    row: Mapping[str, Any]
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewPart:
    """With `complete`, the batch is the whole view: its last part deletes the rows that are not in it. `covers` is the
    input of the batch (`model.replay`)."""

    fence: Fence
    query: str
    batch: int
    part: int
    parts: int
    upserts: tuple[ViewRow, ...]
    deletes: tuple[ViewKey, ...]
    fresh_at_ms: int
    complete: bool = False
    key: tuple[str, ...] = ()
    columns: tuple[Column, ...] | None = None
    covers: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewState:
    """The state of a view besides its rows: `parts_done` of the `parts` of `batch` are applied. A batch of -1: none
    yet."""

    name: str
    query: str = ""
    batch: int = -1
    parts: int = 1
    parts_done: int = 1
    rows: int = 0
    fresh_at_ms: int = 0
    key: tuple[str, ...] = ()
    columns: tuple[Column, ...] | None = None
    covers: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the last batch is applied completely."""
        return self.parts_done >= self.parts


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewPage:
    """Rows in key order; `cursor` is the start of the next page, None at the end."""

    rows: tuple[ViewRow, ...]
    cursor: str | None


WorkerId = NewType("WorkerId", str)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlWorker:
    """A SQL worker; requests to it need `token`; `busy` is its number of running queries."""

    worker: WorkerId
    address: str
    token: str
    busy: int
    expires_at_ms: int = 0

    def __repr__(self) -> str:
        return f"<SqlWorker {self.worker} address={self.address} busy={self.busy}>"


CALLER_HEADER: Final = "streamhouse-caller"
"""The principal on whose behalf an agent sends a query to a SQL worker, percent-encoded."""
CALLER_TOKEN_HEADER: Final = "streamhouse-caller-token"
"""A token with which the worker acts as that principal, valid for the query's timeout."""
PROOF_PATH: Final = "/v1/proof"


def worker_proof(token: str, nonce: str) -> str:
    """What only a process that has the worker's token can answer: agents request it before they send anything else,
    because another process may listen at the address of a worker that has died."""
    return hmac.digest(token.encode(), f"streamhouse sql worker {nonce}".encode(), hashlib.sha256).hex()
