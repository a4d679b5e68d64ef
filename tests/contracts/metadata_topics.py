"""Topics that change: their settings, their partitions, and how large they are."""

import asyncio
from dataclasses import replace

import pytest

from streamhouse.errors import Internal, UnknownTopicId
from streamhouse.stores.metadata.base import MetadataStore
from tests.contracts.metadata_scene import (
    ALICE,
    BOB,
    CLICKS,
    ORDERS,
    MetadataScene,
    commit_of,
    lead,
    part,
    publish,
    run_of,
    state_of,
    topic,
)

OLD = {"retention.ms": "1000"}
NEW = {"retention.ms": "2000", "cleanup.policy": "compact"}


class TopicContract(MetadataScene):
    # --- settings

    async def test_settings_are_replaced_when_they_are_the_expected_ones(self, ready: MetadataStore) -> None:
        altered = await ready.alter_topic(ORDERS, expected=OLD, overrides=NEW)
        assert altered == replace(topic(), overrides=NEW)
        assert list(await ready.topics()) == [altered]

    async def test_settings_that_someone_changed_meanwhile_are_left_and_returned(self, ready: MetadataStore) -> None:
        await ready.alter_topic(ORDERS, expected=OLD, overrides=NEW)
        seen = await ready.alter_topic(ORDERS, expected=OLD, overrides={"retention.ms": "3000"})
        assert seen.overrides == NEW
        assert [each.overrides for each in await ready.topics()] == [NEW]

    async def test_the_order_of_settings_does_not_matter(self, ready: MetadataStore) -> None:
        await ready.alter_topic(ORDERS, expected=OLD, overrides=NEW)
        backwards = dict(reversed(NEW.items()))
        assert (await ready.alter_topic(ORDERS, expected=backwards, overrides={})).overrides == {}

    async def test_repeating_an_alteration_is_a_no_op(self, ready: MetadataStore) -> None:
        first = await ready.alter_topic(ORDERS, expected=OLD, overrides=NEW)
        assert await ready.alter_topic(ORDERS, expected=OLD, overrides=NEW) == first

    async def test_of_sixteen_who_add_a_setting_each_none_is_lost(self, ready: MetadataStore) -> None:
        async def add(name: str) -> None:
            seen = topic().overrides
            while name not in seen:
                expected = {**seen, name: "1"}
                seen = (await ready.alter_topic(ORDERS, expected=seen, overrides=expected)).overrides

        names = [f"setting-{number}" for number in range(16)]
        await asyncio.gather(*map(add, names))
        assert [each.overrides for each in await ready.topics()] == [{**OLD, **dict.fromkeys(names, "1")}]

    async def test_a_topic_that_is_not_there_is_neither_altered_nor_grown(self, ready: MetadataStore) -> None:
        with pytest.raises(UnknownTopicId):
            await ready.alter_topic(CLICKS, expected={}, overrides=NEW)
        with pytest.raises(UnknownTopicId):
            await ready.add_partitions(CLICKS, from_count=3, to_count=5)
        assert list(await ready.topics()) == [topic()]
        assert list(await ready.partitions([CLICKS])) == []

    # --- partitions

    async def test_new_partitions_are_empty_and_the_old_ones_stay(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(2))
        await publish(ready, ALICE, state, 10)
        before = await ready.partitions([ORDERS])
        grown = await ready.add_partitions(ORDERS, from_count=3, to_count=5)
        assert grown == replace(topic(), partitions=5)
        after = await ready.partitions([ORDERS])
        assert after[:3] == before
        assert [each.partition for each in after] == [part(n) for n in range(5)]
        assert {(each.holder, each.log_start, each.flushed_end) for each in after[3:]} == {(None, 0, 0)}

    async def test_new_partitions_can_be_led_under_a_higher_epoch(self, ready: MetadataStore) -> None:
        [old] = await lead(ready, ALICE, part(0))
        await ready.add_partitions(ORDERS, from_count=3, to_count=4)
        assert (await state_of(ready, part(3))).epoch >= old.epoch
        [new] = await lead(ready, ALICE, part(3))
        assert new.epoch > old.epoch

    async def test_repeating_a_growth_is_a_no_op(self, ready: MetadataStore) -> None:
        first = await ready.add_partitions(ORDERS, from_count=3, to_count=5)
        assert await ready.add_partitions(ORDERS, from_count=3, to_count=5) == first
        assert len(await ready.partitions([ORDERS])) == 5

    async def test_a_growth_from_another_number_changes_nothing_and_shows_the_number(
        self, ready: MetadataStore
    ) -> None:
        assert (await ready.add_partitions(ORDERS, from_count=2, to_count=9)).partitions == 3
        assert len(await ready.partitions([ORDERS])) == 3

    async def test_of_sixteen_who_grow_a_topic_one_succeeds_and_its_partitions_are_whole(
        self, ready: MetadataStore
    ) -> None:
        seen = await asyncio.gather(
            *(ready.add_partitions(ORDERS, from_count=3, to_count=4 + number) for number in range(16))
        )
        (count,) = {each.partitions for each in seen}
        assert [each.partition.partition for each in await ready.partitions([ORDERS])] == list(range(count))

    async def test_a_topic_never_shrinks(self, ready: MetadataStore) -> None:
        for count in (3, 2):
            with pytest.raises(Internal):
                await ready.add_partitions(ORDERS, from_count=3, to_count=count)
        assert len(await ready.partitions([ORDERS])) == 3

    # --- sizes

    async def test_sizes_are_the_sums_of_the_runs_that_are_kept(self, ready: MetadataStore) -> None:
        await ready.create_topic(topic(CLICKS, "clicks"))
        first, second, other = await lead(ready, ALICE, part(0), part(1), part(0, CLICKS))
        await publish(ready, ALICE, first, 10, 20, 30)
        await publish(ready, ALICE, second, 10)
        await publish(ready, ALICE, other, 10)
        assert await ready.sizes([ORDERS]) == {part(0): 3000, part(1): 1000}
        await ready.advance_log_start({part(0): 15, part(1): 10})
        assert await ready.sizes([ORDERS]) == {part(0): 2000}
        assert await ready.sizes([ORDERS, CLICKS]) == {part(0): 2000, part(0, CLICKS): 1000}
        assert await ready.sizes([]) == {}
        await ready.delete_topic(ORDERS)
        assert await ready.sizes([ORDERS, CLICKS]) == {part(0, CLICKS): 1000}

    async def test_a_repeated_commit_is_not_counted_twice(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        commit = commit_of("k", run_of(state, 0, 5, "k"), run_of(state, 5, 9, "k"))
        for _ in range(2):
            await ready.commit_segments(ALICE, [commit])
        assert await ready.sizes([ORDERS]) == {part(0): 2000}

    async def test_what_was_recovered_counts(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        claim = await ready.claim_recovery(ALICE, by=BOB, proven_dead=True)
        assert claim is not None
        await ready.finish_recovery(ALICE, claim, [commit_of("k", run_of(state, 0, 5, "k"))])
        assert await ready.sizes([ORDERS]) == {part(0): 1000}

    async def test_sizes_stay_true_while_runs_come_and_go(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        for end in range(10, 200, 10):
            await publish(ready, ALICE, replace(state, flushed_end=end - 10), end)
            await ready.advance_log_start({part(0): max(0, end - 35)})
            runs = await ready.runs(part(0), from_offset=0, limit=1000)
            assert await ready.sizes([ORDERS]) == {part(0): sum(run.length for run in runs)}
