"""Shares: which pipelines a supervisor keeps, lets go and gets, decided from what one transaction has read.

Data path   a supervisor's heartbeat -> **shares** -> rows
Owns        that pipelines spread evenly over supervisors, and move only when that helps
Leaves      reading the state and writing the verdict, in one transaction, to `transactions.supervisors`
"""

from collections.abc import Sequence
from dataclasses import dataclass

from streamhouse.model.pipeline import (
    Heartbeat,
    KeptPipeline,
    Phase,
    PipelineName,
    Supervisor,
    Wish,
    fair_share,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """`renewed` it runs and owns, those that it should let go among them; `assigned` it should run."""

    renewed: tuple[PipelineName, ...]
    released: tuple[PipelineName, ...]
    taken: tuple[PipelineName, ...]
    assigned: tuple[PipelineName, ...]


def decide_shares(
    heartbeat: Heartbeat, kept: Sequence[KeptPipeline], others: Sequence[Supervisor], *, now_ms: int
) -> Shares:
    """`kept` are all pipelines, with owners whose lease is over; `others` are alive, with what they own."""
    listed = {each.name for each in heartbeat.running}
    mine = [each for each in kept if each.owner is not None and each.owner.supervisor == heartbeat.supervisor]
    renewed = [each for each in mine if each.name in listed]
    released = [each.name for each in mine if each.name not in listed]
    wanted = [each for each in kept if _is_wanted(each)]
    allowed = _allowance(heartbeat, len(wanted), others)
    keeping = sorted(each.name for each in renewed if each.pipeline.wish is Wish.RUN)
    free = sorted(e.name for e in wanted if e.name not in listed and _is_free(e, heartbeat, now_ms))
    surplus = _surplus(len(keeping), allowed, others, all_owned=not free)
    staying = keeping[: len(keeping) - surplus]
    for_me = [name for name in free if not (others and name in released)]  # what it has just let go is for the others
    taken = for_me[: max(0, allowed - len(keeping))]
    return Shares(
        renewed=tuple(each.name for each in renewed),
        released=tuple(released),
        taken=tuple(taken),
        assigned=(*staying, *taken),
    )


def _is_wanted(kept: KeptPipeline) -> bool:
    return kept.pipeline.wish is Wish.RUN and kept.status.phase is not Phase.DONE


def _is_free(kept: KeptPipeline, heartbeat: Heartbeat, now_ms: int) -> bool:
    owner = kept.owner
    return owner is None or owner.expires_at_ms <= now_ms or owner.supervisor == heartbeat.supervisor


def _allowance(heartbeat: Heartbeat, wanted: int, others: Sequence[Supervisor]) -> int:
    """Its fair share, or more where the others have too few slots for the rest."""
    share = fair_share(wanted, len(others) + 1)
    return min(heartbeat.slots, max(share, wanted - sum(other.slots for other in others)))


def _surplus(running: int, allowed: int, others: Sequence[Supervisor], *, all_owned: bool) -> int:
    """How many to let go: those beyond its share that others have room for, or one for who has fewer by two."""
    room = sum(max(0, min(allowed, other.slots) - len(other.pipelines)) for other in others)
    if running > allowed:
        return min(running - allowed, room)
    if not all_owned:
        return 0  # there is something else for whoever has fewer
    idle = [len(other.pipelines) for other in others if len(other.pipelines) < other.slots]
    return 1 if idle and min(idle) + 2 <= running else 0
