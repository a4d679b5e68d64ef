"""Job mutations: one guard of replacing runs from outside taken out, to see whether the simulator notices.

Owns        how each guard of commits that jobs overtake is taken out
Leaves      running seeds until one fails to `test_mutations`
"""

from collections.abc import Mapping
from typing import Any, Final

from streamhouse.model.segment import Run
from streamhouse.stores.metadata.engine import Transaction
from streamhouse.stores.metadata.procedures import segments

from .mutation import Mutation, Patch
from .team_mutations import refused_runs_dropped


def replaced_runs_are_taken_for_others(patch: Patch) -> None:
    async def never(tx: Transaction, run: Run) -> bool:
        return False

    patch.setattr(segments, "_was_replaced", never)
    refused_runs_dropped(patch)


REWRITING: Final[Mapping[str, Any]] = {
    "jobs": 6,
    "job_trouble": 0.0,
    "calm_between_s": 0.1,
    "restart_fuse": 0.0,
    "groups": (),
    "placers": 0,
    "churns": False,
}

JOB_MUTATIONS: Final[Mapping[str, Mutation]] = {
    "a repeated commit does not know its runs once they were replaced": Mutation(
        breaks=("no end after so many steps",),
        apply=replaced_runs_are_taken_for_others,
        profile="team-jobs",
        tweaks=REWRITING,
        is_rare=True,
        first=8,
    ),
}
