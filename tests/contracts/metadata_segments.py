"""Commits, reading runs, retention and collection: what is published, and how it goes."""

import asyncio
from dataclasses import replace

import pytest

from streamhouse.errors import Internal, LeaseLost, SessionLost
from streamhouse.model.names import Epoch
from streamhouse.stores.metadata import store as store_module
from streamhouse.stores.metadata.base import MetadataStore
from tests.contracts.clocks import ManualClock
from tests.contracts.metadata_scene import (
    ALICE,
    BOB,
    CLICKS,
    NOBODY,
    ORDERS,
    TTL_MS,
    MetadataScene,
    commit_of,
    lead,
    part,
    publish,
    run_of,
    spans,
    state_of,
)


class SegmentContract(MetadataScene):
    # --- commits

    async def test_a_commit_publishes_its_runs_and_moves_the_flushed_ends(self, ready: MetadataStore) -> None:
        first, second = await lead(ready, ALICE, part(0), part(1))
        commit = commit_of("k", run_of(first, 0, 10, "k"), run_of(second, 0, 7, "k"))
        await ready.commit_segments(ALICE, [commit])
        assert await state_of(ready, part(0)) == replace(first, flushed_end=10)
        assert await state_of(ready, part(1)) == replace(second, flushed_end=7)
        assert list(await ready.runs(part(0), from_offset=0, limit=9)) == [commit.runs[0]]
        assert list(await ready.last_runs([part(1), part(0)])) == [commit.runs[0], commit.runs[1]]
        assert await ready.known_objects() == {"k"}

    async def test_runs_are_listed_backwards_from_an_offset(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await publish(ready, ALICE, state, 10, 20, 30)
        result = await ready.runs_before(part(0), before=21, limit=9)
        assert [(run.base, run.end) for run in result] == [(20, 30), (10, 20), (0, 10)]
        assert [run.base for run in await ready.runs_before(part(0), before=20, limit=1)] == [10]
        assert list(await ready.runs_before(part(0), before=0, limit=9)) == []

    async def test_objects_are_listed_with_what_they_hold_while_runs_name_them(self, ready: MetadataStore) -> None:
        first, second = await lead(ready, ALICE, part(0), part(1))
        both = commit_of("a", run_of(first, 0, 10, "a"), run_of(second, 0, 7, "a"))
        await ready.commit_segments(ALICE, [both, commit_of("b", run_of(first, 10, 12, "b"))])
        listed = await ready.stored_objects(after=0, limit=9)
        assert [(each.key, each.size_bytes) for each in listed] == [
            ("a", both.segment.size_bytes),
            ("b", both.segment.size_bytes),
        ]
        assert list(await ready.stored_objects(after=listed[0].number, limit=9)) == [listed[1]]
        assert list(await ready.newest_objects(limit=1)) == [listed[1]]
        assert await ready.ranges_of_object("a") == [(part(0), 0, 10), (part(1), 0, 7)]
        await ready.advance_log_start({part(0): 10, part(1): 7})
        assert await ready.ranges_of_object("a") == [(part(1), 0, 7)]  # the newest run of a partition stays
        assert await ready.ranges_of_object("unknown") is None

    async def test_large_offsets_survive(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        edges = [2**31 - 1, 2**31 + 1, 2**32, 2**53 + 1, 2**63 - 1]
        await publish(ready, ALICE, state, *edges)
        assert [end for _, end in await spans(ready, part(0))] == edges
        assert (await state_of(ready, part(0))).flushed_end == 2**63 - 1

    async def test_several_runs_of_a_partition_chain_in_one_commit(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        commits = [
            commit_of("a", run_of(state, 0, 3, "a"), run_of(state, 3, 4, "a")),
            commit_of("b", run_of(state, 4, 9, "b")),
        ]
        await ready.commit_segments(ALICE, commits)
        assert await spans(ready, part(0)) == [(0, 3), (3, 4), (4, 9)]
        assert (await state_of(ready, part(0))).flushed_end == 9

    async def test_runs_of_many_partitions_are_those_of_each(self, ready: MetadataStore) -> None:
        states = await lead(ready, ALICE, part(0), part(1), part(2))
        for number in range(6):
            runs = [run_of(state, number * 10, number * 10 + 10, f"k{number}") for state in states[:2]]
            await ready.commit_segments(ALICE, [commit_of(f"k{number}", *runs)])
        expected = {part(1): 25, part(0): 0, part(2): 0, part(7): 0}
        for limit in (1, 3, 100):
            result = await ready.runs_of(expected, limit=limit)
            one_by_one = [
                run
                for partition in (part(0), part(1))
                for run in await ready.runs(partition, from_offset=expected[partition], limit=limit)
            ]
            assert list(result) == one_by_one
        assert list(await ready.runs_of({}, limit=5)) == []
        assert list(await ready.runs_of({part(0): 60}, limit=5)) == []

    async def test_runs_that_chain_may_come_in_any_order(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        commits = [commit_of("b", run_of(state, 4, 9, "b")), commit_of("a", run_of(state, 0, 4, "a"))]
        await ready.commit_segments(ALICE, commits)
        assert await spans(ready, part(0)) == [(0, 4), (4, 9)]

    @pytest.mark.parametrize("wrong", ["epoch", "older epoch", "holder", "gap", "overlap", "released", "deleted"])
    async def test_a_commit_whose_guard_fails_changes_nothing_and_names_the_partition(
        self, ready: MetadataStore, wrong: str
    ) -> None:
        good, bad = await lead(ready, ALICE, part(0), part(1))
        await publish(ready, ALICE, bad, 5)
        run = run_of(bad, 5, 8, "k")
        if wrong == "epoch":
            run = replace(run, epoch=Epoch(bad.epoch + 1))
        elif wrong == "older epoch":
            await ready.release(ALICE, [part(1)])
            await lead(ready, ALICE, part(1))
        elif wrong == "holder":
            await ready.release(ALICE, [part(1)])
            [taken] = await lead(ready, BOB, part(1))
            run = replace(run, epoch=taken.epoch)
        elif wrong == "gap":
            run = replace(run, base=6)
        elif wrong == "overlap":
            run = replace(run, base=4)
        elif wrong == "released":
            await ready.release(ALICE, [part(1)])
        elif wrong == "deleted":
            run = replace(run, partition=part(1, CLICKS))
        before = await ready.partitions([ORDERS])
        with pytest.raises(LeaseLost) as lost:
            await ready.commit_segments(ALICE, [commit_of("k", run_of(good, 0, 10, "k"), run)])
        assert lost.value.partitions == (run.partition,)
        assert await ready.partitions([ORDERS]) == before
        assert await spans(ready, part(0)) == []
        assert "k" not in await ready.known_objects()
        await ready.commit_segments(ALICE, [commit_of("k", run_of(good, 0, 10, "k"))])

    async def test_a_broken_chain_fails_as_a_whole(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        commits = [commit_of("a", run_of(state, 0, 3, "a")), commit_of("b", run_of(state, 4, 9, "b"))]
        with pytest.raises(LeaseLost) as lost:
            await ready.commit_segments(ALICE, commits)
        assert lost.value.partitions == (part(0),)
        assert (await state_of(ready, part(0))).flushed_end == 0
        assert await ready.known_objects() == frozenset()

    async def test_every_failing_partition_is_named_once(self, ready: MetadataStore) -> None:
        states = await lead(ready, ALICE, part(0), part(1), part(2))
        runs = [run_of(states[0], 0, 1, "k"), run_of(states[1], 1, 2, "k"), run_of(states[1], 2, 3, "k")]
        runs.append(run_of(states[2], 7, 8, "k"))
        with pytest.raises(LeaseLost) as lost:
            await ready.commit_segments(ALICE, [commit_of("k", *runs)])
        assert sorted(map(str, lost.value.partitions)) == [str(part(1)), str(part(2))]

    async def test_a_commit_after_its_topic_was_deleted_names_its_partitions(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await ready.delete_topic(ORDERS)
        with pytest.raises(LeaseLost) as lost:
            await ready.commit_segments(ALICE, [commit_of("k", run_of(state, 0, 1, "k"))])
        assert lost.value.partitions == (part(0),)
        assert await ready.known_objects() == frozenset()

    async def test_a_repeated_commit_is_a_no_op_also_after_later_ones(self, ready: MetadataStore) -> None:
        first, second = await lead(ready, ALICE, part(0), part(1))
        commit = commit_of("k", run_of(first, 0, 10, "k"), run_of(second, 0, 7, "k"))
        await ready.commit_segments(ALICE, [commit])
        await ready.commit_segments(ALICE, [commit])
        await ready.commit_segments(ALICE, [commit_of("l", run_of(first, 10, 20, "l"))])
        before = await ready.partitions([ORDERS])
        await ready.commit_segments(ALICE, [commit])
        assert await ready.partitions([ORDERS]) == before
        assert await spans(ready, part(0)) == [(0, 10), (10, 20)]

    async def test_a_repeated_commit_is_a_no_op_after_retention_or_deletion(self, ready: MetadataStore) -> None:
        first, second = await lead(ready, ALICE, part(0), part(1))
        commit = commit_of("k", run_of(first, 0, 10, "k"), run_of(second, 0, 7, "k"))
        await ready.commit_segments(ALICE, [commit])
        await ready.commit_segments(ALICE, [commit_of("l", run_of(first, 10, 20, "l"))])
        await ready.advance_log_start({part(0): 10})
        await ready.commit_segments(ALICE, [commit])
        await ready.delete_topic(ORDERS)
        await ready.commit_segments(ALICE, [commit])
        assert {each.key for each in await ready.objects_pending_deletion(grace_ms=0, limit=9)} == {"k", "l"}

    async def test_a_repeated_commit_may_bring_a_new_one_along(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        first = commit_of("k", run_of(state, 0, 10, "k"))
        await ready.commit_segments(ALICE, [first])
        await ready.commit_segments(ALICE, [first, commit_of("l", run_of(state, 10, 20, "l"))])
        assert await spans(ready, part(0)) == [(0, 10), (10, 20)]

    async def test_a_known_object_can_not_silently_swallow_a_run_it_never_published(self, ready: MetadataStore) -> None:
        first, second = await lead(ready, ALICE, part(0), part(1))
        await ready.commit_segments(ALICE, [commit_of("k", run_of(first, 0, 10, "k"))])
        with pytest.raises(LeaseLost) as lost:
            await ready.commit_segments(ALICE, [commit_of("k", run_of(first, 0, 10, "k"), run_of(second, 0, 7, "k"))])
        assert lost.value.partitions == (part(1),)
        assert (await state_of(ready, part(1))).flushed_end == 0

    async def test_a_commit_of_a_collected_object_does_not_bring_it_back(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await publish(ready, ALICE, state, 10, 20)
        await ready.advance_log_start({part(0): 10})
        [gone] = await ready.objects_pending_deletion(grace_ms=0, limit=9)
        await ready.forget_objects([gone.key])
        with pytest.raises(LeaseLost):
            await ready.commit_segments(ALICE, [commit_of(gone.key, run_of(state, 0, 10, gone.key))])
        assert gone.key not in await ready.known_objects()

    async def test_an_expired_session_that_nobody_claimed_may_still_publish(
        self, ready: MetadataStore, clock: ManualClock
    ) -> None:
        [state] = await lead(ready, ALICE, part(0))
        clock.advance(ms=TTL_MS * 2)
        await publish(ready, ALICE, state, 10)
        assert (await state_of(ready, part(0))).flushed_end == 10

    async def test_an_object_without_runs_or_with_foreign_or_empty_runs_is_refused(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        foreign = replace(commit_of("k"), runs=(run_of(state, 0, 1, "other"),))
        twice = commit_of("k", run_of(state, 0, 1, "k"))
        for commits in ([commit_of("k")], [foreign], [commit_of("k", run_of(state, 0, 0, "k"))], [twice, twice]):
            with pytest.raises(Internal):
                await ready.commit_segments(ALICE, commits)
        assert await ready.known_objects() == frozenset()

    async def test_an_empty_commit_is_no_error(self, ready: MetadataStore) -> None:
        await ready.commit_segments(ALICE, [])

    async def test_racing_commits_of_one_partition_let_one_win(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        rivals = [commit_of(f"k{n}", run_of(state, 0, n + 1, f"k{n}")) for n in range(16)]
        results = await asyncio.gather(*(ready.commit_segments(ALICE, [c]) for c in rivals), return_exceptions=True)
        assert sum(result is None for result in results) == 1
        assert sum(isinstance(result, LeaseLost) for result in results) == 15
        winner = rivals[results.index(None)]
        assert list(await ready.runs(part(0), from_offset=0, limit=99)) == list(winner.runs)
        assert await ready.known_objects() == {winner.segment.key}

    # --- reading runs

    async def test_runs_begin_with_the_one_that_holds_the_offset(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await publish(ready, ALICE, state, 10, 20, 30)
        assert await spans(ready, part(0), 0) == [(0, 10), (10, 20), (20, 30)]
        assert await spans(ready, part(0), 9) == [(0, 10), (10, 20), (20, 30)]
        assert await spans(ready, part(0), 10) == [(10, 20), (20, 30)]
        assert await spans(ready, part(0), 29) == [(20, 30)]
        assert await spans(ready, part(0), 30) == []
        assert [run.base for run in await ready.runs(part(0), from_offset=5, limit=2)] == [0, 10]

    async def test_pages_of_runs_leave_nothing_out(self, ready: MetadataStore) -> None:
        many = 2500
        [state] = await lead(ready, ALICE, part(0))
        await ready.commit_segments(ALICE, [commit_of("k", *(run_of(state, n, n + 1, "k") for n in range(many)))])
        for page in (999, 1250):
            results: list[int] = []
            while runs := await ready.runs(part(0), from_offset=len(results), limit=page):
                assert len(runs) <= page
                results += [run.base for run in runs]
            assert results == list(range(many))

    async def test_pages_of_runs_go_on_while_those_behind_are_replaced(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await publish(ready, ALICE, state, *range(10, 70, 10))
        first = await ready.runs(part(0), from_offset=0, limit=2)
        whole = run_of(state, 0, 20, "whole")
        assert await ready.replace_runs(ALICE, first, commit_of("whole", whole))
        second = await ready.runs(part(0), from_offset=first[-1].end, limit=2)
        assert [(run.base, run.end) for run in second] == [(20, 30), (30, 40)]
        across = run_of(state, 30, 50, "across")
        expected = await ready.runs(part(0), from_offset=30, limit=2)
        assert await ready.replace_runs(ALICE, expected, commit_of("across", across))
        third = await ready.runs(part(0), from_offset=second[-1].end, limit=2)
        assert [(run.base, run.end) for run in third] == [(30, 50), (50, 60)]  # the one across is told again

    async def test_runs_below_the_first_that_is_left_are_skipped(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await publish(ready, ALICE, state, 10, 20, 30)
        await ready.advance_log_start({part(0): 20})
        assert await spans(ready, part(0), 3) == [(20, 30)]

    async def test_runs_of_one_partition_do_not_show_in_another(self, ready: MetadataStore) -> None:
        first, _ = await lead(ready, ALICE, part(0), part(1))
        await publish(ready, ALICE, first, 10)
        assert await spans(ready, part(1)) == []
        assert list(await ready.last_runs([part(1)])) == []

    async def test_a_time_finds_the_first_run_that_has_it(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        late = [100, 50, 100, 300, 200]
        runs = [replace(run_of(state, n, n + 1, "k"), max_timestamp_ms=each) for n, each in enumerate(late)]
        await ready.commit_segments(ALICE, [commit_of("k", *reversed(runs[:3]))])
        await ready.commit_segments(ALICE, [commit_of("l", *runs[3:])])

        async def first(timestamp_ms: int, from_offset: int = 0) -> int | None:
            run = await ready.run_at_time(part(0), timestamp_ms=timestamp_ms, from_offset=from_offset)
            return None if run is None else run.base

        assert [await first(each) for each in (0, 100, 101, 300, 301)] == [0, 0, 3, 3, None]
        assert [await first(100, start) for start in range(6)] == [0, 2, 2, 3, 4, None]
        assert [await first(300, start) for start in (3, 4)] == [3, None]
        await ready.advance_log_start({part(0): 4})
        assert [await first(each) for each in (0, 200, 250)] == [4, 4, None]
        assert await ready.run_at_time(part(1), timestamp_ms=0, from_offset=0) is None

    async def test_the_latest_run_is_the_first_with_the_largest_timestamp(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        assert await ready.latest_run(part(0), from_offset=0) is None
        late = [100, 300, 300, 200]
        runs = [replace(run_of(state, n, n + 1, "k"), max_timestamp_ms=each) for n, each in enumerate(late)]
        commit = commit_of("k", *runs)
        await ready.commit_segments(ALICE, [commit])
        results = [await ready.latest_run(part(0), from_offset=start) for start in range(5)]
        assert results == [commit.runs[1], commit.runs[1], commit.runs[2], commit.runs[3], None]

    async def test_an_epoch_ends_where_its_last_run_ends(self, ready: MetadataStore) -> None:
        epochs: list[int] = []
        for end in (10, 20, 30):
            [state] = await lead(ready, ALICE, part(0))
            await publish(ready, ALICE, state, end - 5, end)
            await ready.release(ALICE, [part(0)])
            await lead(ready, BOB, part(0))
            await ready.release(BOB, [part(0)])
            epochs.append(state.epoch)
        first, second, third = epochs
        for request, epoch, end in ((first, first, 10), (first + 1, first, 10), (second, second, 20), (99, third, 30)):
            result = await ready.epoch_end(part(0), request)
            assert result is not None
            assert (result.epoch, result.end) == (epoch, end)
        assert await ready.epoch_end(part(0), first - 1) is None
        assert await ready.epoch_end(part(1), 99) is None

    async def test_a_refusal_is_not_a_failure_of_the_store(self, ready: MetadataStore) -> None:
        with pytest.raises(SessionLost):
            await ready.renew_session(NOBODY, TTL_MS)
        assert ready.failures_in_a_row == 0

    # --- retention and collection

    async def test_the_log_start_drops_what_ends_at_or_below_it(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await publish(ready, ALICE, state, 10, 20, 30)
        await ready.advance_log_start({part(0): 15})
        assert await spans(ready, part(0)) == [(10, 20), (20, 30)]
        await ready.advance_log_start({part(0): 20})
        assert await spans(ready, part(0)) == [(20, 30)]
        assert (await state_of(ready, part(0))).log_start == 20
        assert len(await ready.objects_pending_deletion(grace_ms=0, limit=9)) == 2

    async def test_the_newest_run_always_stays(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await publish(ready, ALICE, state, 10, 20)
        await ready.advance_log_start({part(0): 20})
        assert await spans(ready, part(0)) == [(10, 20)]
        moved = await state_of(ready, part(0))
        assert (moved.log_start, moved.flushed_end) == (20, 20)
        await publish(ready, ALICE, moved, 25)
        await ready.advance_log_start({part(0): 20})
        assert await spans(ready, part(0)) == [(20, 25)]

    async def test_a_far_move_of_the_log_start_drops_the_oldest_runs_first_and_the_rest_when_it_is_repeated(
        self, ready: MetadataStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(store_module, "DELETED_PER_TRANSACTION", 2)
        [state] = await lead(ready, ALICE, part(0))
        for end in range(10, 80, 10):
            await publish(ready, ALICE, replace(state, flushed_end=end - 10), end)
        assert await ready.advance_log_start({part(0): 50})
        assert (await state_of(ready, part(0))).log_start == 50
        assert await spans(ready, part(0)) == [(20, 30), (30, 40), (40, 50), (50, 60), (60, 70)]
        assert await ready.advance_log_start({part(0): 50})
        assert not await ready.advance_log_start({part(0): 50})
        assert await spans(ready, part(0)) == [(50, 60), (60, 70)]
        assert await ready.sizes([ORDERS]) == {part(0): 2000}

    async def test_a_topic_with_very_many_runs_is_deleted_in_several_steps(
        self, ready: MetadataStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(store_module, "DELETED_PER_TRANSACTION", 2)
        states = await lead(ready, ALICE, part(0), part(1))
        for end in range(10, 80, 10):
            for state in states:
                await publish(ready, ALICE, replace(state, flushed_end=end - 10), end)
        known = await ready.known_objects()
        await ready.delete_topic(ORDERS)
        assert await ready.partitions([ORDERS]) == []
        assert await ready.runs(part(0), from_offset=0, limit=9) == []
        assert {doomed.key for doomed in await ready.objects_pending_deletion(grace_ms=0, limit=100)} == known

    async def test_the_log_start_never_goes_back_nor_past_the_flushed_end(self, ready: MetadataStore) -> None:
        first, _ = await lead(ready, ALICE, part(0), part(1))
        await publish(ready, ALICE, first, 10)
        await ready.advance_log_start({part(0): 7, part(1): 100, part(99): 5, part(0, CLICKS): 1})
        assert (await state_of(ready, part(0))).log_start == 7
        assert (await state_of(ready, part(1))).log_start == 0
        await ready.advance_log_start({part(0): 3})
        assert (await state_of(ready, part(0))).log_start == 7
        await ready.advance_log_start({part(0): 1000})
        assert (await state_of(ready, part(0))).log_start == 10

    async def test_an_object_is_doomed_only_when_its_last_run_is_gone(self, ready: MetadataStore) -> None:
        first, second = await lead(ready, ALICE, part(0), part(1))
        await ready.commit_segments(
            ALICE, [commit_of("shared", run_of(first, 0, 5, "shared"), run_of(second, 0, 5, "shared"))]
        )
        await ready.commit_segments(
            ALICE, [commit_of("next", run_of(first, 5, 6, "next"), run_of(second, 5, 6, "next"))]
        )
        await ready.advance_log_start({part(0): 5})
        assert list(await ready.objects_pending_deletion(grace_ms=0, limit=9)) == []
        await ready.advance_log_start({part(1): 5})
        assert [each.key for each in await ready.objects_pending_deletion(grace_ms=0, limit=9)] == ["shared"]

    async def test_doomed_objects_wait_for_their_grace_by_the_stores_clock(
        self, ready: MetadataStore, clock: ManualClock
    ) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await publish(ready, ALICE, state, 10, 20, 30)
        await ready.advance_log_start({part(0): 10})
        doomed_at = clock.now_ms()
        clock.advance(ms=100)
        await ready.advance_log_start({part(0): 20})
        assert list(await ready.objects_pending_deletion(grace_ms=101, limit=9)) == []
        [first] = await ready.objects_pending_deletion(grace_ms=100, limit=9)
        assert first.marked_at_ms == doomed_at
        clock.advance(ms=100)
        assert [each.marked_at_ms for each in await ready.objects_pending_deletion(grace_ms=100, limit=9)] == [
            doomed_at,
            doomed_at + 100,
        ]
        assert list(await ready.objects_pending_deletion(grace_ms=100, limit=1)) == [first]

    async def test_known_objects_are_the_live_and_the_doomed_until_forgotten(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await publish(ready, ALICE, state, 10, 20)
        keys = await ready.known_objects()
        await ready.advance_log_start({part(0): 10})
        assert await ready.known_objects() == keys
        [doomed] = await ready.objects_pending_deletion(grace_ms=0, limit=9)
        await ready.forget_objects([doomed.key])
        await ready.forget_objects([doomed.key])
        assert await ready.known_objects() == keys - {doomed.key}
        assert list(await ready.objects_pending_deletion(grace_ms=0, limit=9)) == []

    async def test_a_live_object_can_not_be_forgotten(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await publish(ready, ALICE, state, 10)
        keys = await ready.known_objects()
        await ready.forget_objects(sorted(keys))
        assert await ready.known_objects() == keys
