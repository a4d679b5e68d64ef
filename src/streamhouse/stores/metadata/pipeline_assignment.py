"""Pipeline assignment: which pipelines a supervisor keeps, releases and gets, decided from what one transaction has
read.

Data path   a supervisor's heartbeat -> **pipeline_assignment** -> rows
Owns        an even distribution over supervisors with few moves
Leaves      reading the state and writing the assignment, in one transaction, to `procedures.pipelines`
"""

from collections.abc import Sequence
from dataclasses import dataclass

from streamhouse.model.pipeline import (
    DesiredState,
    Heartbeat,
    Phase,
    PipelineName,
    StoredPipeline,
    Supervisor,
    fair_share,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """`renewed`: pipelines that it runs and owns, including those to release; `assigned`: pipelines that it should
    run."""

    renewed: tuple[PipelineName, ...]
    released: tuple[PipelineName, ...]
    taken: tuple[PipelineName, ...]
    assigned: tuple[PipelineName, ...]


def assign_pipelines(
    heartbeat: Heartbeat, kept: Sequence[StoredPipeline], others: Sequence[Supervisor], *, now_ms: int
) -> Assignment:
    """`kept` are all pipelines, including owners with expired leases; `others` are the other live supervisors."""
    listed = {each.name for each in heartbeat.running}
    mine = [each for each in kept if each.owner is not None and each.owner.supervisor == heartbeat.supervisor]
    renewed = [each for each in mine if each.name in listed]
    released = [each.name for each in mine if each.name not in listed]
    requested = [each for each in kept if _should_run(each)]
    level = _level(len(requested), [heartbeat.slots, *(other.slots for other in others)])
    allowed = min(level, heartbeat.slots)
    keeping = sorted(each.name for each in renewed if _should_run(each))
    done = sorted(each.name for each in renewed if each.pipeline.wish is DesiredState.RUN and not _should_run(each))
    free = sorted(e.name for e in requested if e.name not in listed and _is_free(e, heartbeat, now_ms))
    surplus = _surplus(len(keeping), allowed, level, _loads(others, requested), all_owned=not free)
    staying = keeping[: len(keeping) - surplus]
    for_me = [name for name in free if not (others and name in released)]  # what it has just released is for the others
    taken = for_me[: max(0, allowed - len(keeping))]
    return Assignment(
        renewed=tuple(each.name for each in renewed),
        released=tuple(released),
        taken=tuple(taken),
        assigned=(*done, *staying, *taken),  # finished pipelines need no slot
    )


def _should_run(pipeline: StoredPipeline) -> bool:
    return pipeline.pipeline.wish is DesiredState.RUN and pipeline.status.phase is not Phase.DONE


def _is_free(pipeline: StoredPipeline, heartbeat: Heartbeat, now_ms: int) -> bool:
    owner = pipeline.owner
    return owner is None or owner.expires_at_ms <= now_ms or owner.supervisor == heartbeat.supervisor


def _level(requested: int, slots: Sequence[int]) -> int:
    """The maximum per supervisor within its slots: the fair share, or more if others have too few slots for theirs."""
    level = fair_share(requested, len(slots))
    while level < max(slots) and (left := requested - sum(min(level, each) for each in slots)) > 0:
        level += fair_share(left, len(slots))
    return level


def _loads(others: Sequence[Supervisor], requested: Sequence[StoredPipeline]) -> list[tuple[int, int]]:
    """Number of pipelines and slots of the others."""
    names = {each.name for each in requested}
    return [(len(names.intersection(other.pipelines)), other.slots) for other in others]


def _surplus(running: int, allowed: int, level: int, others: Sequence[tuple[int, int]], *, all_owned: bool) -> int:
    """How many to release: those above its share for which others have slots, or one for a supervisor with at least two
    fewer."""
    room = sum(max(0, min(level, slots) - load) for load, slots in others)
    if running > allowed:
        return min(running - allowed, room)
    if not all_owned:
        return 0  # there are unassigned pipelines for supervisors with fewer
    idle = [load for load, slots in others if load < slots]
    return 1 if idle and min(idle) + 2 <= running else 0
