"""Placing: commits of several holders at once, remembered by query and epoch, and what becomes of their objects."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from streamhouse.errors import CheckpointMismatch, CommitRefused, Internal, LeaseLost, StaleCommit
from streamhouse.model.cluster import PartitionState
from streamhouse.model.external_commit import CommittedRange, ExternalCommit, QueryId, StoredCommit
from streamhouse.model.names import PartitionId, SessionId
from streamhouse.model.segment import CarriedProducers, SegmentCommit
from streamhouse.stores.metadata.base import MetadataStore
from tests.contracts.clocks import ManualClock
from tests.contracts.metadata_scene import (
    ALICE,
    BOB,
    ORDERS,
    MetadataScene,
    commit_of,
    lead,
    part,
    publish,
    run_of,
    spans,
    state_of,
)

QUERY = QueryId("q-1")
HELD: Mapping[PartitionId, SessionId] = {part(0): ALICE, part(1): ALICE, part(2): BOB}


def placement(
    *commits: SegmentCommit,
    epoch: int = 1,
    query: QueryId = QUERY,
    progress: str | None = None,
    covers: str | None = None,
) -> ExternalCommit:
    named = {run.partition for commit in commits for run in commit.runs}
    return ExternalCommit(
        query=query,
        epoch=epoch,
        progress=progress,
        holders={at: HELD[at] for at in named},
        topics={ORDERS: "orders"},
        commits=commits,
        covers=covers,
    )


def placed_run(state: PartitionState, base: int, end: int, key: str) -> SegmentCommit:
    """As a stranger wrote it: its offsets begin at 0."""
    return commit_of(key, replace(run_of(state, base, end, key), stored_base=0))


class PlacingContract(MetadataScene):
    async def test_a_placement_moves_the_partitions_of_several_holders_at_once(self, ready: MetadataStore) -> None:
        first, second = await lead(ready, ALICE, part(0), part(1))
        [third] = await lead(ready, BOB, part(2))
        await publish(ready, ALICE, first, 5)
        commit = commit_of("k", run_of(first, 5, 9, "k"), run_of(third, 0, 3, "k"))
        done = await ready.commit_external_segments(placement(commit, placed_run(second, 0, 2, "j")))
        assert not done.is_replayed
        assert done.placed == (
            CommittedRange(topic="orders", partition=part(0), base=5, end=9),
            CommittedRange(topic="orders", partition=part(1), base=0, end=2),
            CommittedRange(topic="orders", partition=part(2), base=0, end=3),
        )
        assert [(await state_of(ready, part(number))).flushed_end for number in range(3)] == [9, 2, 3]
        assert await spans(ready, part(0)) == [(0, 5), (5, 9)]
        [run] = await ready.runs(part(1), from_offset=0, limit=9)
        assert (run.stored_base, run.base, run.epoch) == (0, 0, second.epoch)
        assert {"k", "j"} <= await ready.known_objects()

    async def test_one_partition_whose_guard_fails_keeps_all_from_being_placed(self, ready: MetadataStore) -> None:
        [first] = await lead(ready, ALICE, part(0))
        [third] = await lead(ready, BOB, part(2))
        await publish(ready, BOB, third, 4)  # it was not held after all
        request = placement(placed_run(first, 0, 2, "a"), placed_run(third, 0, 2, "b"))
        with pytest.raises(LeaseLost) as refused:
            await ready.commit_external_segments(request)
        assert refused.value.partitions == (part(2),)
        assert (await state_of(ready, part(0))).flushed_end == 0
        assert await ready.last_commit(QUERY) is None
        assert "a" not in await ready.known_objects()

    async def test_a_partition_that_was_given_up_and_taken_again_has_another_epoch(self, ready: MetadataStore) -> None:
        [first] = await lead(ready, ALICE, part(0))
        await ready.release(ALICE, [part(0)])
        await lead(ready, ALICE, part(0))
        with pytest.raises(LeaseLost) as refused:
            await ready.commit_external_segments(placement(placed_run(first, 0, 2, "a")))
        assert refused.value.partitions == (part(0),)

    async def test_another_holder_is_refused(self, ready: MetadataStore) -> None:
        [first] = await lead(ready, BOB, part(0))
        with pytest.raises(LeaseLost) as refused:
            await ready.commit_external_segments(placement(placed_run(first, 0, 2, "a")))
        assert refused.value.partitions == (part(0),)

    async def test_a_session_that_was_claimed_can_be_placed_behind_no_more(
        self, ready: MetadataStore, clock: ManualClock
    ) -> None:
        [first] = await lead(ready, ALICE, part(0))
        [third] = await lead(ready, BOB, part(2))
        assert await ready.claim_recovery(ALICE, by=BOB, proven_dead=True) is not None
        with pytest.raises(LeaseLost) as refused:
            await ready.commit_external_segments(placement(placed_run(first, 0, 2, "a"), placed_run(third, 0, 2, "b")))
        assert refused.value.partitions == (part(0),)

    async def test_a_repeated_commit_returns_its_result_and_stores_nothing_twice(self, ready: MetadataStore) -> None:
        [first] = await lead(ready, ALICE, part(0))
        done = await ready.commit_external_segments(placement(placed_run(first, 0, 2, "a"), progress='{"to": 7}'))
        again = await ready.commit_external_segments(placement(placed_run(first, 0, 2, "a"), progress="{}"))
        assert again == replace(done, is_replayed=True)
        # Whoever does the work anew writes other objects; the commit is the same.
        other = await ready.commit_external_segments(placement(placed_run(first, 2, 9, "other")))
        assert other == replace(done, is_replayed=True)
        assert await spans(ready, part(0)) == [(0, 2)]
        assert "other" not in await ready.known_objects()

    async def test_a_commit_is_repeated_only_by_one_that_covers_the_same(self, ready: MetadataStore) -> None:
        [first] = await lead(ready, ALICE, part(0))
        done = await ready.commit_external_segments(placement(placed_run(first, 0, 2, "a"), covers="to 5"))
        assert done.covers == "to 5"
        for covers in ("to 5", None, "records=2"):  # what can't be compared is told again
            again = await ready.commit_external_segments(placement(placed_run(first, 2, 9, "b"), covers=covers))
            assert again == replace(done, is_replayed=True)
        with pytest.raises(CheckpointMismatch, match=r"batch=1 committed_batch=1 committed=to 5 now=to 7 do=restore"):
            await ready.commit_external_segments(placement(placed_run(first, 2, 9, "b"), covers="to 7"))
        assert await spans(ready, part(0)) == [(0, 2)]

    async def test_a_repeated_commit_is_reported_also_when_its_partitions_have_gone_on(
        self, ready: MetadataStore
    ) -> None:
        [first] = await lead(ready, ALICE, part(0))
        done = await ready.commit_external_segments(placement(placed_run(first, 0, 2, "a")))
        await ready.release(ALICE, [part(0)])
        [taken] = await lead(ready, BOB, part(0))
        await publish(ready, BOB, taken, 7)
        assert await ready.commit_external_segments(placement(placed_run(first, 0, 2, "a"))) == replace(
            done, is_replayed=True
        )

    async def test_epochs_of_a_query_only_grow(self, ready: MetadataStore) -> None:
        [first] = await lead(ready, ALICE, part(0))
        await ready.commit_external_segments(placement(placed_run(first, 0, 2, "a"), epoch=5))
        with pytest.raises(StaleCommit):
            await ready.commit_external_segments(placement(placed_run(first, 2, 3, "b"), epoch=4))
        await ready.commit_external_segments(placement(placed_run(first, 2, 3, "b"), epoch=9))
        other = await ready.commit_external_segments(
            placement(placed_run(first, 3, 4, "c"), epoch=0, query=QueryId("q-2"))
        )
        assert not other.is_replayed

    async def test_the_last_commits_of_a_query_are_remembered_with_their_progress(self, ready: MetadataStore) -> None:
        [first] = await lead(ready, ALICE, part(0))
        assert await ready.last_commit(QUERY) is None
        for epoch in range(15):
            await ready.commit_external_segments(
                placement(placed_run(first, epoch, epoch + 1, f"k{epoch}"), epoch=epoch, progress=f'{{"n": {epoch}}}')
            )
        last = await ready.last_commit(QUERY)
        assert last == StoredCommit(
            query=QUERY,
            epoch=14,
            progress='{"n": 14}',
            placed=(CommittedRange(topic="orders", partition=part(0), base=14, end=15),),
        )
        assert await ready.find_commit(QUERY, 14) == last
        assert (await ready.find_commit(QUERY, 5)) is not None
        assert (await ready.find_commit(QUERY, 4)) is None

    async def test_commits_are_forgotten_when_their_query_was_silent_for_long(
        self, ready: MetadataStore, clock: ManualClock
    ) -> None:
        [first] = await lead(ready, ALICE, part(0))
        await ready.commit_external_segments(placement(placed_run(first, 0, 1, "a"), query=QueryId("old")))
        clock.advance(ms=10_000)
        await ready.commit_external_segments(placement(placed_run(first, 1, 2, "b"), query=QueryId("new")))
        assert await ready.forget_commits(5_000, 100) == 1
        assert await ready.last_commit(QueryId("old")) is None
        assert await ready.last_commit(QueryId("new")) is not None

    async def test_an_object_belongs_to_one_commit(self, ready: MetadataStore) -> None:
        [first] = await lead(ready, ALICE, part(0))
        await ready.commit_external_segments(placement(placed_run(first, 0, 2, "a"), epoch=1))
        with pytest.raises(CommitRefused):
            await ready.commit_external_segments(placement(placed_run(first, 2, 4, "a"), epoch=2))

    async def test_an_object_that_was_given_up_is_placed_no_more_and_collected(self, ready: MetadataStore) -> None:
        [first] = await lead(ready, ALICE, part(0))
        await ready.commit_external_segments(placement(placed_run(first, 0, 2, "placed"), epoch=1))
        await ready.abandon_objects(["late", "placed"])
        await ready.abandon_objects(["late"])
        with pytest.raises(CommitRefused):
            await ready.commit_external_segments(placement(placed_run(first, 2, 4, "late"), epoch=2))
        assert [item.key for item in await ready.objects_pending_deletion(grace_ms=0, limit=9)] == ["late"]
        assert await ready.known_among(["late", "placed", "never"]) == {"late", "placed"}
        assert await spans(ready, part(0)) == [(0, 2)]

    async def test_an_object_without_runs_can_not_be_placed(self, ready: MetadataStore) -> None:
        with pytest.raises(Internal):
            await ready.commit_external_segments(placement(commit_of("a")))

    async def test_of_two_that_commit_the_same_at_once_one_gets_the_result_of_the_other(
        self, ready: MetadataStore
    ) -> None:
        [first] = await lead(ready, ALICE, part(0))
        requests = [placement(placed_run(first, 0, 2, f"k{number}")) for number in range(4)]
        done = await asyncio.gather(*map(ready.commit_external_segments, requests))
        assert sorted(each.is_replayed for each in done) == [False, True, True, True]
        assert await spans(ready, part(0)) == [(0, 2)]

    # --- the producers' state

    async def test_a_placed_run_shows_where_the_producers_state_before_it_stands(self, ready: MetadataStore) -> None:
        [first] = await lead(ready, ALICE, part(0))
        await publish(ready, ALICE, first, 5)
        await ready.commit_external_segments(
            placement(placed_run(first, 5, 9, "a"), placed_run(first, 9, 11, "b"), epoch=1),
        )
        await ready.commit_external_segments(placement(placed_run(first, 11, 12, "c"), epoch=2))
        [last] = await ready.last_runs([part(0)])
        own = f"segments/{part(0)}/0"
        assert (last.base, last.object_key) == (11, "c")
        assert last.carried == CarriedProducers(object_key=own, position=1032, length=64, is_doubtful=False)
        await publish(ready, ALICE, await state_of(ready, part(0)), 15)
        [last] = await ready.last_runs([part(0)])
        assert (last.base, last.carried) == (12, None)

    async def test_the_first_run_of_all_carries_nothing(self, ready: MetadataStore) -> None:
        [first] = await lead(ready, ALICE, part(0))
        await ready.commit_external_segments(placement(placed_run(first, 0, 9, "a")))
        [last] = await ready.last_runs([part(0)])
        assert last.carried is None

    async def test_what_lies_behind_a_gap_is_in_doubt(self, ready: MetadataStore) -> None:
        [first] = await lead(ready, BOB, part(0))
        await publish(ready, BOB, first, 5)
        await ready.reserve_offsets(BOB, {part(0): 50})
        claim = await ready.claim_recovery(BOB, by=ALICE, proven_dead=True)
        assert claim is not None
        await ready.abandon_recovery(BOB, claim)
        [taken] = await lead(ready, ALICE, part(0))
        for epoch, base in enumerate((50, 52)):
            await ready.commit_external_segments(placement(placed_run(taken, base, base + 2, f"k{base}"), epoch=epoch))
            [last] = await ready.last_runs([part(0)])
            assert last.carried is not None
            assert last.carried.is_doubtful

    async def test_an_object_is_kept_as_long_as_a_placed_run_needs_its_producers(self, ready: MetadataStore) -> None:
        [first] = await lead(ready, ALICE, part(0))
        await publish(ready, ALICE, first, 5)
        own = f"segments/{part(0)}/0"
        await ready.commit_external_segments(placement(placed_run(first, 5, 9, "a")))
        await ready.advance_log_start({part(0): 9})
        assert await spans(ready, part(0)) == [(5, 9)]
        assert list(await ready.objects_pending_deletion(grace_ms=0, limit=9)) == []
        await publish(ready, ALICE, await state_of(ready, part(0)), 12)
        await ready.advance_log_start({part(0): 12})
        assert {item.key for item in await ready.objects_pending_deletion(grace_ms=0, limit=9)} == {own, "a"}

    async def test_with_its_topic_go_the_objects_that_placed_runs_needed(self, ready: MetadataStore) -> None:
        [first] = await lead(ready, ALICE, part(0))
        await publish(ready, ALICE, first, 5)
        await ready.commit_external_segments(placement(placed_run(first, 5, 9, "a")))
        await ready.advance_log_start({part(0): 9})
        await ready.delete_topic(ORDERS)
        doomed = {item.key for item in await ready.objects_pending_deletion(grace_ms=0, limit=9)}
        assert doomed == {f"segments/{part(0)}/0", "a"}

    async def test_what_takes_the_place_of_a_placed_run_carries_the_same(self, ready: MetadataStore) -> None:
        [first] = await lead(ready, ALICE, part(0))
        await publish(ready, ALICE, first, 5)
        await ready.commit_external_segments(placement(placed_run(first, 5, 9, "a")))
        expected = await ready.runs(part(0), from_offset=0, limit=9)
        assert await ready.replace_runs(ALICE, expected, commit_of("merged", run_of(first, 0, 9, "merged")))
        [last] = await ready.last_runs([part(0)])
        own = f"segments/{part(0)}/0"
        assert last.carried == CarriedProducers(object_key=own, position=1032, length=64, is_doubtful=False)
        assert [item.key for item in await ready.objects_pending_deletion(grace_ms=0, limit=9)] == ["a"]
