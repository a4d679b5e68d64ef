"""A pipeline as its runner needs it, and the messages between supervisor and runner, one line of JSON each.

Data path   supervisor -> commands -> the runner's stdin; the runner's stdout -> events -> supervisor
Owns        PipelineJob; commands and events, and their text
Leaves      the meaning of a definition to `query_builder`, reactions to `supervisor` and `runner`

A run is one start of one pipeline. Events of an ended run have no meaning for the next.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import msgspec

from streamhouse.model.pipeline import GENERATION, DesiredState, Kind, Shape
from streamhouse.sql.options import PipelineOptions, pipeline_options


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineJob:
    """`last_batch`: the last micro-batch of this generation that was reported, by any runner.

    `late_rows`: how many rows of this generation a watermark has left out so far. `lineage` is the pipeline's name and
    its cluster's id: a restart keeps it, and so does a pipeline that is dropped and created again.
    """

    name: str
    epoch: int
    kind: Kind
    text: str
    target: str
    query_id: str
    revision: int
    generation: int
    wish: DesiredState = DesiredState.RUN
    restarts: int = 0
    key: tuple[str, ...] = ()
    given: Mapping[str, str] = field(default_factory=dict)
    starting: str | None = None
    shape: Shape | None = None
    last_batch: int | None = None
    late_rows: int = 0
    lineage: str = ""
    refusal: str = ""
    """Why it may not run; empty: it may run."""
    runs_as: str = ""
    """The user with whose rights it reads and writes; empty: there are no logins, or it has no owner."""

    @property
    def options(self) -> PipelineOptions:
        return pipeline_options(self.given)

    @property
    def is_alone(self) -> bool:
        """Whether it has a Spark of its own; an invalid value is reported when it starts."""
        return self.given.get("isolation", "").strip().lower() == "own"

    @property
    def version(self) -> tuple[int, int, int, str, str]:
        """The version of the definition that a run executes, and for whom: a new one needs a new run."""
        return self.generation, self.revision, self.restarts, self.refusal, self.runs_as

    @property
    def has_run(self) -> bool:
        """Whether it has a checkpoint."""
        return self.last_batch is not None

    @property
    def starting_position(self) -> str:
        return self.starting or self.options.starting


def pipeline_job(pipeline: Mapping[str, Any], *, epoch: int, lineage: str = "", refusal: str = "") -> PipelineJob:
    """`pipeline` is the JSON object of an agent's response."""
    status = pipeline.get("status") or {}
    shape = pipeline.get("shape")
    is_its_own = (status.get("progress") or {}).get(GENERATION) == pipeline["generation"]
    return PipelineJob(
        name=pipeline["name"],
        epoch=epoch,
        kind=Kind(pipeline["kind"]),
        text=pipeline["text"],
        target=pipeline.get("target") or pipeline["name"],
        query_id=pipeline["query_id"],
        revision=pipeline["revision"],
        generation=pipeline["generation"],
        wish=DesiredState(pipeline.get("wish", DesiredState.RUN)),
        restarts=pipeline.get("restarts", 0),
        key=tuple(pipeline.get("key") or ()),
        given=dict(pipeline.get("options") or {}),
        starting=pipeline.get("starting"),
        shape=None if shape is None else Shape(**{name: _frozen(value) for name, value in shape.items()}),
        last_batch=status.get("batch_id") if is_its_own else None,
        late_rows=(status.get("late_rows") or 0) if is_its_own else 0,
        lineage=lineage,
        refusal=refusal,
        runs_as=pipeline.get("runs_as") or "",
    )


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class Start(msgspec.Struct, frozen=True, kw_only=True, tag="start", tag_field="do"):
    """`pipeline` is the JSON object of an agent's response. `token`: it runs as its owner; empty: there are no
    logins."""

    run: int
    epoch: int
    lineage: str
    pipeline: dict[str, Any]
    token: str = ""

    def __repr__(self) -> str:
        return f"Start(run={self.run}, epoch={self.epoch}, lineage={self.lineage!r})"  # never the token


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag="stop", tag_field="do"):
    run: int


class Renewed(msgspec.Struct, frozen=True, kw_only=True, tag="renewed", tag_field="do"):
    """Until when runs may continue, by the machine's monotonic clock; None: there are none. `tokens`: newer ones."""

    deadline: float | None
    tokens: dict[int, str] = {}

    def __repr__(self) -> str:
        return f"Renewed(deadline={self.deadline})"  # never the tokens


class Exit(msgspec.Struct, frozen=True, kw_only=True, tag="exit", tag_field="do"):
    """Stop everything, then end."""


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready", tag_field="event"):
    """Spark has started."""

    jvm_pid: int
    spark: str


class Started(msgspec.Struct, frozen=True, kw_only=True, tag="begun", tag_field="event"):
    """Each of its queries has done a micro-batch, or had nothing to read."""

    run: int


class Metrics(msgspec.Struct, frozen=True, kw_only=True, tag="figures", tag_field="event"):
    """Fields of a status, those that are known."""

    run: int
    figures: dict[str, Any]


class LogLine(msgspec.Struct, frozen=True, kw_only=True, tag="line", tag_field="event"):
    """Something to read in the pipeline's log."""

    run: int
    text: str
    level: str = "info"


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended", tag_field="event"):
    """`can_retry`: trying again may help."""

    run: int
    how: Literal["stopped", "done", "failed"]
    error: str | None = None
    can_retry: bool = True


Command: TypeAlias = Start | Stop | Renewed | Exit
Event: TypeAlias = Ready | Started | Metrics | LogLine | Ended

_COMMANDS: Final[msgspec.json.Decoder[Command]] = msgspec.json.Decoder(Command)
_EVENTS: Final[msgspec.json.Decoder[Event]] = msgspec.json.Decoder(Event)


def encode_message(message: Command | Event) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def read_command(line: bytes) -> Command:
    return _COMMANDS.decode(line)


def read_event(line: bytes) -> Event:
    return _EVENTS.decode(line)
