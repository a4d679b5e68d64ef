"""Replacing runs: merged and compacted ones in the place of those they were made of, or nothing."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from streamhouse.errors import Internal, SessionLost
from streamhouse.model.names import Epoch
from streamhouse.model.segment import Run, SegmentCommit
from streamhouse.stores.metadata.base import MetadataStore
from tests.contracts.metadata_scene import (
    ALICE,
    BOB,
    CAROL,
    CLICKS,
    NOBODY,
    ORDERS,
    MetadataScene,
    commit_of,
    lead,
    new_session,
    part,
    publish,
    run_of,
    spans,
    state_of,
    topic,
)


async def published(store: MetadataStore, *ends: int, partition: int = 0) -> list[Run]:
    """Alice leads the partition and publishes runs up to these ends."""
    [state] = await lead(store, ALICE, part(partition))
    await publish(store, ALICE, state, *ends)
    return await rows(store, partition)


async def rows(store: MetadataStore, partition: int = 0) -> list[Run]:
    return list(await store.runs(part(partition), from_offset=0, limit=1000))


def merged(runs: Sequence[Run], key: str = "merged", **changes: Any) -> SegmentCommit:
    """One run in the place of these."""
    whole: dict[str, Any] = {"max_timestamp_ms": max(run.max_timestamp_ms for run in runs), "length": 700}
    return commit_of(key, replace(runs[0], end=runs[-1].end, **(whole | changes)))


class ReplacementContract(MetadataScene):
    async def test_a_run_stands_in_for_several_and_their_objects_are_doomed(self, ready: MetadataStore) -> None:
        old = await published(ready, 10, 20, 30, 40)
        commit = merged(old[1:3])
        assert await ready.replace_runs(BOB, old[1:3], commit)
        assert await rows(ready) == [old[0], commit.runs[0], old[3]]
        assert (await state_of(ready, part(0))).flushed_end == 40
        doomed = {each.key for each in await ready.objects_pending_deletion(grace_ms=0, limit=9)}
        assert doomed == {run.object_key for run in old[1:3]}
        assert await ready.known_objects() == {run.object_key for run in old} | {"merged"}

    async def test_sizes_stay_true(self, ready: MetadataStore) -> None:
        old = await published(ready, 10, 20, 30)
        await ready.replace_runs(ALICE, old[:2], merged(old[:2], length=700))
        assert await ready.sizes([ORDERS]) == {part(0): 1700}
        await ready.replace_runs(ALICE, (await rows(ready))[:1], merged((await rows(ready))[:1], "larger", length=5000))
        assert await ready.sizes([ORDERS]) == {part(0): 6000}

    async def test_the_newest_run_may_be_replaced_and_commits_go_on_behind_it(self, ready: MetadataStore) -> None:
        old = await published(ready, 10, 20)
        state = await state_of(ready, part(0))
        commit = merged(old)
        assert await ready.replace_runs(ALICE, old, commit)
        assert list(await ready.last_runs([part(0)])) == [commit.runs[0]]
        await publish(ready, ALICE, state, 30)
        assert await spans(ready, part(0)) == [(0, 20), (20, 30)]

    async def test_an_object_that_holds_runs_of_others_stays(self, ready: MetadataStore) -> None:
        first, second = await lead(ready, ALICE, part(0), part(1))
        await ready.commit_segments(ALICE, [commit_of("k", run_of(first, 0, 10, "k"), run_of(second, 0, 7, "k"))])
        old = await rows(ready)
        await ready.replace_runs(ALICE, old, merged(old))
        assert not await ready.objects_pending_deletion(grace_ms=0, limit=9)
        old = await rows(ready, 1)
        await ready.replace_runs(ALICE, old, merged(old, "other"))
        assert [each.key for each in await ready.objects_pending_deletion(grace_ms=0, limit=9)] == ["k"]

    @pytest.mark.parametrize("change", ["replaced", "dropped", "one more", "one less", "other bytes", "deleted"])
    async def test_nothing_happens_unless_exactly_the_expected_rows_are_there(
        self, ready: MetadataStore, change: str
    ) -> None:
        old = await published(ready, 10, 20, 30)
        expected = old[:2]
        commit = merged(expected)
        if change == "replaced":
            await ready.replace_runs(BOB, expected, merged(expected, "quicker"))
        elif change == "dropped":
            await ready.advance_log_start({part(0): 10})
        elif change == "one more":
            expected = [old[0], replace(old[2], base=10, end=20)]
        elif change == "one less":
            expected = [old[0], replace(old[1], base=10, end=15), replace(old[1], base=15)]
        elif change == "other bytes":
            expected = [old[0], replace(old[1], position=4711)]
        elif change == "deleted":
            await ready.delete_topic(ORDERS)
        before = (await rows(ready), await ready.known_objects(), await ready.sizes([ORDERS]))
        assert not await ready.replace_runs(ALICE, expected, commit)
        assert (await rows(ready), await ready.known_objects(), await ready.sizes([ORDERS])) == before

    async def test_a_repeated_replacement_is_a_no_op_also_after_later_changes(self, ready: MetadataStore) -> None:
        old = await published(ready, 10, 20, 30)
        commit = merged(old[:2])
        assert await ready.replace_runs(ALICE, old[:2], commit)
        assert await ready.replace_runs(ALICE, old[:2], commit)
        both = await rows(ready)
        assert await ready.replace_runs(BOB, both, merged(both, "again"))
        assert await ready.replace_runs(ALICE, old[:2], commit)
        assert [run.object_key for run in await rows(ready)] == ["again"]
        assert await ready.sizes([ORDERS]) == {part(0): 700}

    async def test_only_a_live_session_may_replace(self, ready: MetadataStore) -> None:
        old = await published(ready, 10, 20)
        await ready.end_session(BOB)
        for session in (BOB, NOBODY):
            with pytest.raises(SessionLost):
                await ready.replace_runs(session, old, merged(old))
        await ready.open_session(new_session(CAROL))
        assert await ready.claim_recovery(ALICE, by=CAROL, proven_dead=True)
        with pytest.raises(SessionLost):
            await ready.replace_runs(ALICE, old, merged(old))
        assert await rows(ready) == old

    async def test_runs_of_several_epochs_are_replaced_by_one_for_each(self, ready: MetadataStore) -> None:
        first = await published(ready, 10, 20)
        await ready.release(ALICE, [part(0)])
        await published(ready, 30, 40)
        old = await rows(ready)
        late = old[2:]
        assert late[0].epoch > first[0].epoch
        with pytest.raises(Internal, match="epoch"):
            await ready.replace_runs(ALICE, old, merged(old))
        new = commit_of("k", replace(first[0], end=20), replace(late[0], end=40))
        assert await ready.replace_runs(ALICE, old, new)
        assert await spans(ready, part(0)) == [(0, 20), (20, 40)]
        for epoch, end in ((first[0].epoch, 20), (late[0].epoch, 40)):
            result = await ready.epoch_end(part(0), epoch)
            assert result is not None
            assert (result.epoch, result.end) == (epoch, end)

    async def test_a_gap_between_runs_may_stay_and_no_other_may_come(self, ready: MetadataStore) -> None:
        """A lost disk, or a damaged log, leaves one: with its recovery the partition goes on further up."""
        [state] = await lead(ready, ALICE, part(0))
        claim = await ready.claim_recovery(ALICE, by=BOB, proven_dead=True)
        assert claim is not None
        first = commit_of("a", run_of(state, 0, 10, "a"))
        await ready.finish_recovery(ALICE, claim, [first], continue_at={part(0): 100, part(1): 50})
        assert (await state_of(ready, part(1))).flushed_end == 0  # not held, not moved
        [state] = await lead(ready, BOB, part(0))
        assert state.flushed_end == 100
        await ready.commit_segments(BOB, [commit_of("b", run_of(state, 100, 110, "b"))])
        old = await rows(ready)
        assert await spans(ready, part(0)) == [(0, 10), (100, 110)]
        for end, base in ((9, 100), (10, 101)):
            with pytest.raises(Internal, match=r"hole|other"):
                await ready.replace_runs(BOB, old, commit_of("k", replace(old[0], end=end), replace(old[1], base=base)))
        assert await ready.replace_runs(BOB, old, commit_of("k", *old))
        assert await spans(ready, part(0)) == [(0, 10), (100, 110)]

    async def test_what_no_caller_may_ask_is_refused(self, ready: MetadataStore) -> None:
        old = await published(ready, 10, 20, 30)
        run = old[0]
        wrong = [
            ([], commit_of("k", run)),
            (old[:2], commit_of("k")),
            (old[:2], commit_of("k", run)),
            (old[:2], commit_of("k", replace(run, end=30))),
            (old[:2], commit_of("k", replace(run, end=5), replace(run, base=6, end=20))),
            (old[:2], commit_of("k", replace(run, end=20, partition=part(1)))),
            (old[:2], commit_of("k", replace(run, end=20, epoch=Epoch(run.epoch + 1)))),
            ([old[1], old[0]], commit_of("k", replace(run, end=20))),
        ]
        for expected, commit in wrong:
            with pytest.raises(Internal):
                await ready.replace_runs(ALICE, expected, commit)
        assert await rows(ready) == old

    # --- the rest of the store after it

    async def test_a_commit_is_known_when_it_is_repeated_after_its_run_was_replaced(self, ready: MetadataStore) -> None:
        first, second = await lead(ready, ALICE, part(0), part(1))
        commit = commit_of("k", run_of(first, 0, 10, "k"), run_of(second, 0, 7, "k"))
        await ready.commit_segments(ALICE, [commit])
        await ready.commit_segments(ALICE, [commit_of("l", run_of(first, 10, 20, "l"))])
        for number in (0, 1):
            old = await rows(ready, number)
            assert await ready.replace_runs(BOB, old, merged(old, f"m{number}"))
        before = await ready.partitions([ORDERS])
        await ready.commit_segments(ALICE, [commit])
        assert await ready.partitions([ORDERS]) == before
        assert await spans(ready, part(0)) == [(0, 20)]

    async def test_times_are_found_after_the_latest_record_was_compacted_away(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        times = [100, 900, 300, 400]
        runs = [replace(run_of(state, 10 * n, 10 * n + 10, f"k{n}"), max_timestamp_ms=at) for n, at in enumerate(times)]
        for n, run in enumerate(runs):
            await ready.commit_segments(ALICE, [commit_of(f"k{n}", run)])
        assert await ready.replace_runs(ALICE, runs[1:3], merged(runs[1:3], max_timestamp_ms=300))

        async def at(timestamp_ms: int) -> int | None:
            result = await ready.run_at_time(part(0), timestamp_ms=timestamp_ms, from_offset=0)
            return None if result is None else result.base

        assert [await at(each) for each in (50, 101, 300, 301, 400, 401, 900)] == [0, 10, 10, 30, 30, None, None]
        latest = await ready.latest_run(part(0), from_offset=0)
        assert latest is not None
        assert latest.base == 30

    async def test_an_empty_run_hides_no_other_from_a_search_by_time(self, ready: MetadataStore) -> None:
        old = await published(ready, 10, 20, 30)
        await ready.replace_runs(ALICE, old[1:2], merged(old[1:2], max_timestamp_ms=-1, length=0, records=0))
        result = await ready.run_at_time(part(0), timestamp_ms=15, from_offset=0)
        assert result == old[2]

    async def test_retention_drops_replaced_runs_whole(self, ready: MetadataStore) -> None:
        old = await published(ready, 10, 20, 30)
        await ready.replace_runs(ALICE, old[:2], merged(old[:2]))
        await ready.advance_log_start({part(0): 15})
        assert await spans(ready, part(0)) == [(0, 20), (20, 30)]
        await ready.advance_log_start({part(0): 20})
        assert await spans(ready, part(0)) == [(20, 30)]
        assert await ready.sizes([ORDERS]) == {part(0): 1000}

    # --- races

    async def test_of_racing_replacements_one_wins(self, ready: MetadataStore) -> None:
        old = await published(ready, 10, 20, 30, 40)
        rivals = [merged(old[n % 2 :], f"k{n}") for n in range(12)]
        won = await asyncio.gather(*(ready.replace_runs(BOB, old[n % 2 :], c) for n, c in enumerate(rivals)))
        assert sum(won) == 1
        winner = rivals[won.index(True)]
        assert [run for run in await rows(ready) if run not in old] == list(winner.runs)
        assert {key for key in await ready.known_objects() if key.startswith("k")} == {winner.segment.key}

    async def test_commits_retention_and_replacements_do_not_disturb_each_other(self, ready: MetadataStore) -> None:
        old = await published(ready, 10, 20, 30, 40)
        state = await state_of(ready, part(0))
        replaced, *_ = await asyncio.gather(
            ready.replace_runs(BOB, old[1:3], merged(old[1:3])),
            publish(ready, ALICE, state, 50, 60, 70),
            ready.advance_log_start({part(0): 20}),
        )
        result = await rows(ready)
        assert [run.base for run in result] == ([10, 30, 40, 50, 60] if replaced else [20, 30, 40, 50, 60])
        assert [run.end for run in result][-3:] == [50, 60, 70]
        assert await ready.sizes([ORDERS]) == {part(0): sum(run.length for run in result)}

    async def test_a_topic_that_is_deleted_meanwhile_leaves_only_doomed_objects(self, ready: MetadataStore) -> None:
        old = await published(ready, 10, 20)
        replaced, _ = await asyncio.gather(ready.replace_runs(BOB, old, merged(old)), ready.delete_topic(ORDERS))
        expected = {run.object_key for run in old} | ({"merged"} if replaced else set())
        assert await ready.known_objects() == expected
        assert {each.key for each in await ready.objects_pending_deletion(grace_ms=0, limit=9)} == expected

    # --- how far was compacted

    async def test_what_was_cleaned_is_remembered_and_never_goes_back(self, ready: MetadataStore) -> None:
        await published(ready, 10, 20)
        await ready.create_topic(topic(CLICKS, "clicks"))
        assert await ready.cleaned([ORDERS, CLICKS]) == {}
        for up_to in (15, 10, 21):
            await ready.mark_cleaned(part(0), up_to)
            assert await ready.cleaned([ORDERS, CLICKS]) == {part(0): 15}
        await ready.mark_cleaned(part(0), 20)
        assert await ready.cleaned([ORDERS]) == {part(0): 20}
        assert await ready.cleaned([CLICKS]) == {}
        await ready.delete_topic(ORDERS)
        await ready.mark_cleaned(part(0), 20)
        assert await ready.cleaned([ORDERS]) == {}
