"""Jobs: a pipeline as its runner needs it, from what agents tell of it.

Data path   GET /v1/pipelines/NAME, a heartbeat's answer -> **jobs** -> building
Owns        which of it matters to somebody who runs it, and what of it a query can't change while it runs
Leaves      the meaning of the text to `building`
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamhouse.format.statement_options import PipelineOptions, pipeline_options
from streamhouse.model.pipeline import GENERATION, Kind, Shape, Wish


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """`last_batch`: the micro-batch that this generation was last heard of at, wherever it ran.

    `late_rows`: how many rows of this generation a watermark has left out so far. `lineage` names the pipeline through
    all of its generations: a restart keeps it, a pipeline that is dropped and created again has another one.
    """

    name: str
    epoch: int
    kind: Kind
    text: str
    target: str
    query_id: str
    revision: int
    generation: int
    wish: Wish = Wish.RUN
    restarts: int = 0
    key: tuple[str, ...] = ()
    given: Mapping[str, str] = field(default_factory=dict)
    starting: str | None = None
    shape: Shape | None = None
    last_batch: int | None = None
    late_rows: int = 0
    lineage: str = ""

    @property
    def options(self) -> PipelineOptions:
        return pipeline_options(self.given)

    @property
    def is_alone(self) -> bool:
        """Whether it has a Spark of its own; a value that can't be is told when it starts."""
        return self.given.get("isolation", "").strip().lower() == "own"

    @property
    def version(self) -> tuple[int, int, int]:
        """What a run is a run of: another one means another run."""
        return self.generation, self.revision, self.restarts

    @property
    def has_run(self) -> bool:
        """Then there must be a checkpoint."""
        return self.last_batch is not None

    @property
    def begins_at(self) -> str:
        return self.starting or self.options.starting


def job_of(told: Mapping[str, Any], *, epoch: int) -> Job:
    """`told` is a pipeline as agents show it."""
    status = told.get("status") or {}
    shape = told.get("shape")
    is_its_own = (status.get("progress") or {}).get(GENERATION) == told["generation"]
    return Job(
        name=told["name"],
        epoch=epoch,
        kind=Kind(told["kind"]),
        text=told["text"],
        target=told.get("target") or told["name"],
        query_id=told["query_id"],
        revision=told["revision"],
        generation=told["generation"],
        wish=Wish(told.get("wish", Wish.RUN)),
        restarts=told.get("restarts", 0),
        key=tuple(told.get("key") or ()),
        given=dict(told.get("options") or {}),
        starting=told.get("starting"),
        shape=None if shape is None else Shape(**{name: _frozen(value) for name, value in shape.items()}),
        last_batch=status.get("batch_id") if is_its_own else None,
        late_rows=(status.get("late_rows") or 0) if is_its_own else 0,
        lineage=f"{told['name']}@{told['created_at_ms']}" if "created_at_ms" in told else "",
    )


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
