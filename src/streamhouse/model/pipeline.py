"""Pipeline: a continuous query, its status and its owner; views that pipelines maintain; SQL workers.

Owns        the types; whether a changed definition keeps its checkpoint; how many pipelines a supervisor should have
Leaves      definitions as text to `sql.parser`, storing them to `broker.pipelines`, running to `spark.pipelines`

A supervisor owns a pipeline through a lease: holder, epoch and expiry by the metadata store's clock. Its commits to
topics and views are fenced by that epoch. `restart` starts a new generation: a new start position, a new checkpoint and
a new query id.

A batch of a query changes a view in parts, in order, each part in one transaction. A complete batch is applied once; an
incomplete one may be sent again from its first part, split differently: rows are set, not added to.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NewType

from streamhouse.model.table import Column

GENERATION: Final = "generation"
"""In a status' progress: of which beginning it tells."""

PipelineName = NewType("PipelineName", str)
SupervisorId = NewType("SupervisorId", str)


class Kind(StrEnum):
    SQL = "sql"
    PYTHON = "python"
    VIEW = "view"


class DesiredState(StrEnum):
    """What its owner was told to do with it."""

    RUN = "run"
    PAUSE = "pause"


class Phase(StrEnum):
    """What it does, as its supervisor says."""

    WAITING = "waiting"  # nobody has taken it yet
    STARTING = "starting"  # no micro-batch is done yet
    RUNNING = "running"  # one micro-batch is done, or there was nothing to read
    BACKING_OFF = "backing off"  # it failed and will be tried again
    FAILED = "failed"  # it will not be tried again until it is changed or restarted
    PAUSED = "paused"
    DONE = "done"  # its trigger asked for one round


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What decides whether a changed text may go on from an old checkpoint: streams read, and state kept, in order.

    `signature` is of all that decides what is kept: the state of a pipeline, the rows of a view. It has a version, a
    colon, and nothing more where nothing is kept; it is empty where nobody has made one. `tables` are the places that
    names of the query stand for, `query` is its operators for people to read.
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
    """What a user says; `shape` is None until somebody with a Spark has looked at the text."""

    name: PipelineName
    kind: Kind
    text: str
    options: Mapping[str, str] = field(default_factory=dict)
    target: str = ""
    key: tuple[str, ...] = ()
    columns: tuple[Column, ...] | None = None
    shape: Shape | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A definition as it is kept. `revision` grows with every change of it, `generation` with every new beginning."""

    definition: Definition
    revision: int
    generation: int
    query_id: str
    starting: str | None
    wish: DesiredState
    created_at_ms: int
    changed_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """A lease. `epoch` names one time of one owner: it never comes back, not for another pipeline either."""

    supervisor: SupervisorId
    epoch: int
    expires_at_ms: int
    host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """Under which ownership something is committed."""

    pipeline: PipelineName
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What the owner last told. Rates are rows per second; `lag_records` is what its topics hold beyond it.

    `late_rows`: rows that came later than a watermark allows, since the generation began.
    """

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
    """A pipeline, who runs it now, and what was last told of it."""

    pipeline: Pipeline
    owner: Ownership | None
    status: Status

    @property
    def name(self) -> PipelineName:
        return self.pipeline.definition.name

    @property
    def has_run(self) -> bool:
        """Whether this generation was heard of at a micro-batch."""
        generation = (self.status.progress or {}).get(GENERATION, self.pipeline.generation)
        return self.status.batch_id is not None and generation == self.pipeline.generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A line of a pipeline's log."""

    at_ms: int
    level: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineReport:
    """What a supervisor says of a pipeline that it runs under an epoch. `status` None: nothing new."""

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
    """A supervisor that is alive; `pipelines` are those that it owns."""

    supervisor: SupervisorId
    host: str
    slots: int
    expires_at_ms: int
    pipelines: tuple[PipelineName, ...] = ()


PHASES: Final = 3
"""How many operators of a query a reason shows."""


def loses_place(old: Shape | None, new: Shape | None, *, is_same_text: bool = False) -> str | None:
    """Why a changed definition can't go on where the old one stands, or None.

    `is_same_text`: comments and layout aside. Then the query is the same, also where its signature can't be compared
    or the columns of its tables have changed since.
    """
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
    """Which of the query's names stand for other places than they did, or None."""
    if old.version != new.version or old.tables == new.tables:
        return None
    return f"it reads other places; was={', '.join(old.tables) or 'none'} is={', '.join(new.tables) or 'none'}"


def _another_query(old: Shape, new: Shape) -> str | None:
    if old.signature == new.signature:
        return None
    if old.version != new.version:
        if new.keeps_nothing:
            return None
        return (
            "it was applied by another version of StreamHouse, which can't tell whether the changed query keeps the"
            " same; apply the text as it was once before changing it"
        )
    was, now = _only_in(old.query, new.query), _only_in(new.query, old.query)
    return f"it is another query; was={was} is={now}"


def _only_in(lines: Sequence[str], others: Sequence[str]) -> str:
    missing = [line for line in lines if line not in others]
    return "; ".join(missing[:PHASES]) or "the same operators"


def fair_share(pipelines: int, supervisors: int) -> int:
    """How many pipelines one of so many supervisors should run."""
    return -(-pipelines // max(1, supervisors))


ViewKey = tuple[Any, ...]
"""Values of the key's columns, as JSON has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewRow:
    """`version`: of which record it was made, so that an older row of its key never replaces it.

    `t` or `o`, then for each record 16 hex digits of its time, 8 of its partition, 16 of its offset and 8 of its topic,
    the newest record first. By offset where both begin with `o` and are of one partition, else by all of it. None: the
    row that comes last replaces. Rows that are read have none.
    """

    key: ViewKey
    row: Mapping[str, Any]
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewPart:
    """`complete`: the batch is the whole view; what it doesn't have goes with its last part.

    `covers` is what the batch is made of (`model.replay`).
    """

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
    """What is kept of a view beside its rows; `parts_done` of `parts` of `batch` are in it. A batch of -1: none yet."""

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
        """Whether the last batch is wholly in it."""
        return self.parts_done >= self.parts


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewPage:
    """Rows in the order of their keys; `cursor` is where the next page begins, None at the end."""

    rows: tuple[ViewRow, ...]
    cursor: str | None


WorkerId = NewType("WorkerId", str)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlWorker:
    """`token` is what it wants to be shown; `busy` is how many questions it answers now."""

    worker: WorkerId
    address: str
    token: str
    busy: int
    expires_at_ms: int = 0

    def __repr__(self) -> str:
        return f"<SqlWorker {self.worker} address={self.address} busy={self.busy}>"
