"""Placing mutations: one guard of placing taken out, to see whether the simulator notices.

Owns        how each guard of holds, gates and commits is taken out
Leaves      running seeds until one fails to `test_mutations`
"""

from collections.abc import Mapping
from typing import Any, Final

from streamhouse.broker.external_commits import partition_freezes
from streamhouse.broker.external_commits.partition_freezes import PartitionFreezes
from streamhouse.broker.partition.backpressure import AppendBarrier
from streamhouse.stores.metadata.engine import Transaction
from streamhouse.stores.metadata.procedures import external_commits
from streamhouse.stores.metadata.rows import commit_of

from .mutation import Mutation, Patch


def unfinished_holds_go_on_under_their_epoch(patch: Patch) -> None:
    async def release(self: PartitionFreezes, hold: Any) -> None:
        self._release(hold)

    patch.setattr(PartitionFreezes, "_expire", release)


def appends_pass_while_a_partition_is_held(patch: Patch) -> None:
    patch.setattr(AppendBarrier, "is_open", property(lambda self: True))


def leaders_go_on_without_what_was_placed(patch: Patch) -> None:
    patch.setattr(partition_freezes, "_continue_after", lambda logs, found: None)


def placed_runs_carry_no_producers(patch: Patch) -> None:
    patch.setattr(external_commits, "_carrying", lambda placement: [])


def repeated_placements_are_not_recognised(patch: Patch) -> None:
    """Not in the transaction; whoever coordinates may still see it before."""

    async def nothing(tx: Transaction, *_: object, **__: object) -> None:
        return None

    async def remember(tx: Transaction, placement: Any, placed: Any, *, now_ms: int) -> Any:
        known = await tx.row(tx.sql.find_commit, {"query": placement.query, "epoch": placement.epoch})
        if known is not None:
            return commit_of(known)
        return await written(tx, placement, placed, now_ms=now_ms)

    written = external_commits._store_commit
    patch.setattr(external_commits, "find_commit", nothing)
    patch.setattr(external_commits, "_reject_known_objects", nothing)
    patch.setattr(external_commits, "_store_commit", remember)


PLACING: Final[Mapping[str, Any]] = {"placers": 2, "placing_loss": 0.2, "groups": ()}

PLACING_MUTATIONS: Final[Mapping[str, Mutation]] = {
    "an unfinished hold goes on under its epoch": Mutation(
        breaks=("a record is lost", "an offset has two records"),
        apply=unfinished_holds_go_on_under_their_epoch,
        profile="team-stores",
        tweaks={**PLACING, "placers": 4, "placing_loss": 0.35},
        is_rare=True,
    ),
    "appends pass while a partition is held": Mutation(
        breaks=("an offset has two records",),
        apply=appends_pass_while_a_partition_is_held,
        profile="team-calm",
        tweaks=PLACING,
    ),
    "a leader goes on without what was placed": Mutation(
        breaks=("an offset has two records",),
        apply=leaders_go_on_without_what_was_placed,
        profile="team-calm",
        tweaks=PLACING,
    ),
    "a placed run carries no producers": Mutation(
        breaks=(
            "a batch stands at two offsets",
            "an object is missing that readers need",
        ),
        apply=placed_runs_carry_no_producers,
        profile="team-moves",
        tweaks={**PLACING, "eager_producers": 2},
    ),
    "a repeated placement is not recognised": Mutation(
        breaks=(
            "an object was deleted that readers need",
            "an object is missing that readers need",
            "a batch stands at two offsets",
        ),
        apply=repeated_placements_are_not_recognised,
        profile="team-stores",
        tweaks=PLACING,
        seeds=400,
        is_rare=True,
    ),
}
