"""Job mutations: one guard of rewriting runs taken out, to see whether the simulator notices.

Owns        how each guard of commits that jobs overtake, of compaction by key and of objects at rest is taken out
Leaves      running seeds until one fails to `test_mutations`
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from streamhouse.broker.maintenance import object_check
from streamhouse.format.compaction import CompactionPolicy, KeyMap, batch_keys
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


def objects_not_looked_at(patch: Patch) -> None:
    async def nothing(*_: object, **__: object) -> Sequence[object]:
        return ()

    patch.setattr(object_check, "find_damaged_objects", nothing)


REWRITING: Final[Mapping[str, Any]] = {
    "jobs": 6,
    "job_trouble": 0.0,
    "calm_between_s": 0.1,
    "restart_fuse": 0.0,
    "groups": (),
    "placers": 0,
    "churns": False,
}


def last_records_of_keys_removed(patch: Patch) -> None:
    add = KeyMap.add

    def too_late(self: Any, batch: Any) -> bool:
        added = add(self, batch)
        if added:
            self.latest.update((key, at + 1) for key, at in batch_keys(batch, limit_bytes=self.limit_bytes).each())
        return added

    patch.setattr(KeyMap, "add", too_late)


def tombstones_removed_at_once(patch: Patch) -> None:
    patch.setattr(CompactionPolicy, "horizon_ms", property(lambda self: 0))


JOB_MUTATIONS: Final[Mapping[str, Mutation]] = {
    "a repeated commit does not know its runs once they were replaced": Mutation(
        breaks=("no end after so many steps", "an offset has two records"),
        apply=replaced_runs_are_taken_for_others,
        profile="team-jobs",
        tweaks=REWRITING,
        is_rare=True,
        first=8,
    ),
    "the last record of a key is removed": Mutation(
        breaks=("the last record of a key is gone",),
        apply=last_records_of_keys_removed,
        profile="calm",
        tweaks={"has_table": True},
    ),
    "tombstones are removed at once": Mutation(
        breaks=("the last record of a key is gone",),
        apply=tombstones_removed_at_once,
        profile="calm",
        tweaks={"has_table": True},
    ),
    "nobody looks whether objects are there": Mutation(
        breaks=("a missing object was not named",),
        apply=objects_not_looked_at,
        profile="calm",
        tweaks={"is_damaged": True},
    ),
}
