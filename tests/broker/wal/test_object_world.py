"""The object WAL's protocol under seeds: nothing acknowledged is lost; and each guard, taken out, is missed."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from streamhouse.broker.wal.object_cleanup import RetainedObjects
from streamhouse.broker.wal.object_recovery import ObjectWalReader
from streamhouse.broker.wal.object_upload import Uploader
from streamhouse.broker.wal.object_wal import ObjectWal
from streamhouse.model.names import PartitionId
from tests.broker.wal.object_world import LossyWorld, StormyBucket, World
from tests.simulation.loop import Violation
from tests.support.depth import scaled

SEEDS = scaled(quick=60, nightly=600)


def test_whatever_is_acknowledged_is_flushed_or_recovered() -> None:
    acked = sum(World(seed).run() for seed in range(SEEDS))
    assert acked > SEEDS * 20  # else nothing was tried


def test_a_seed_replays() -> None:
    first, second = World(5), World(5)
    assert first.run() == second.run()
    assert first.loop.digest == second.loop.digest


def test_an_object_that_the_bucket_loses_costs_what_stood_in_it_and_nothing_else() -> None:
    worlds = [LossyWorld(seed) for seed in range(SEEDS)]
    for world in worlds:
        world.run()
    assert sum(world.noticed for world in worlds) > SEEDS // 4  # else nothing was tried


def test_a_gap_that_is_taken_for_the_end_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(self: ObjectWalReader, sequence: int) -> bool:
        return False

    monkeypatch.setattr(ObjectWalReader, "_was_durable", never)
    with pytest.raises(Violation, match=r"not noticed|lost"):
        sum(LossyWorld(seed).run() for seed in range(SEEDS))


# --- guards


def without_seals(patch: pytest.MonkeyPatch) -> None:
    async def no_seal(self: ObjectWalReader, sequence: int) -> None:
        return None

    patch.setattr(ObjectWalReader, "_seal", no_seal)
    patch.setattr(World, "_check", _check_records_only(World._check))


def _check_records_only(check: Any) -> Any:
    """Losing the seal shall be noticed by what is lost, not by looking for the seal."""

    def checked(self: World) -> None:
        try:
            check(self)
        except Violation as violation:
            if "the seal is gone" not in str(violation):
                raise

    return checked


def with_overwriting_puts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StormyBucket, "may_overwrite", True)


def with_acks_out_of_order(patch: pytest.MonkeyPatch) -> None:
    def acknowledge(self: ObjectWal) -> None:
        for window in [window for window in self._unacknowledged if window.sequence in self._landed]:
            self._unacknowledged.remove(window)
            self._landed.remove(window.sequence)
            self._pending_bytes -= window.append_bytes
            window.commit.set_result(None)

    patch.setattr(ObjectWal, "_acknowledge", acknowledge)


def with_any_object_taken_for_ours(patch: pytest.MonkeyPatch) -> None:
    async def is_ours(self: Uploader, *_: object) -> bool:
        return True

    patch.setattr(Uploader, "_is_ours", is_ours)


def with_objects_deleted_before_the_mark_is_stored(patch: pytest.MonkeyPatch) -> None:
    truncate = ObjectWal.truncate

    async def eager(self: ObjectWal, flushed: Mapping[PartitionId, int]) -> None:
        await truncate(self, flushed)
        await self.delete_below(self.first_retained)

    patch.setattr(ObjectWal, "truncate", eager)


def with_a_mark_past_what_is_not_flushed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RetainedObjects, "first_retained", property(lambda self: self.durable_below))


def with_seals_removed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("streamhouse.broker.wal.object_recovery.SEAL_BYTES", 0)
    patch.setattr(World, "_check", _check_records_only(World._check))


GUARDS = [
    without_seals,
    with_overwriting_puts,
    with_acks_out_of_order,
    with_any_object_taken_for_ours,
    with_objects_deleted_before_the_mark_is_stored,
    with_a_mark_past_what_is_not_flushed,
    with_seals_removed,
]


@pytest.mark.parametrize("remove", GUARDS, ids=lambda remove: remove.__name__)
def test_a_guard_that_is_taken_out_is_missed(remove: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    remove(monkeypatch)
    missed = []
    for seed in range(SEEDS):
        try:
            World(seed).run()
        except (Violation, AssertionError, asyncio.InvalidStateError) as violation:
            missed.append(f"seed={seed} {violation}")
            break
    assert missed, f"{remove.__name__} went unnoticed in {SEEDS} seeds"
