"""What every metadata store must do for groups and committed offsets."""

import uuid

import pytest

from streamhouse.errors import Internal, LeaseLost
from streamhouse.model.cluster import PartitionState
from streamhouse.model.group import (
    OFFSETS_TOPIC,
    CommittedOffset,
    DropGroup,
    DropOffset,
    GroupChange,
    GroupOffset,
    OfferedProtocol,
    PutGroup,
    PutOffset,
    ShardCommit,
    StoredGroup,
    StoredMember,
)
from streamhouse.model.group_lag import LagHistory, LagSample, WaitingPartition
from streamhouse.model.names import Epoch, PartitionId, SessionId, TopicId, TopicPartition
from streamhouse.stores.metadata.base import MetadataStore
from streamhouse.stores.metadata.transaction_store import OffsetsRequest
from tests.contracts.clocks import ManualClock
from tests.contracts.metadata_scene import ALICE, BOB, CLICKS, NOBODY, ORDERS, TTL_MS, lead, new_session, part, topic

SHARDS = TopicId(uuid.UUID(int=50))


def shard(number: int = 0) -> PartitionId:
    return PartitionId(SHARDS, number)


def member(member_id: str) -> StoredMember:
    return StoredMember(
        member_id=member_id,
        instance_id=None,
        client_id="client",
        client_host="/127.0.0.1",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
        protocols=(OfferedProtocol("range", b"\x00\x01"), OfferedProtocol("roundrobin", b"")),
        assignment=b"\xff\x00",
    )


def group(group_id: str = "g", generation: int = 1) -> StoredGroup:
    return StoredGroup(
        group_id=group_id,
        generation=generation,
        protocol_type="consumer",
        protocol="range",
        leader="m1",
        members=(member("m1"), member("m2")),
        changed_at_ms=77,
    )


def committed(offset: int, at_ms: int = 1000, expires_at_ms: int | None = None) -> CommittedOffset:
    return CommittedOffset(
        offset=offset, leader_epoch=3, metadata="note", committed_at_ms=at_ms, expires_at_ms=expires_at_ms
    )


def place(partition: int = 0, group_id: str = "g", topic_id: TopicId = ORDERS) -> GroupOffset:
    return GroupOffset(group_id, part(partition, topic_id))


def put(offset: int, partition: int = 0, group_id: str = "g", at_ms: int = 1000) -> PutOffset:
    return PutOffset(at=place(partition, group_id), committed=committed(offset, at_ms))


def commit(state: PartitionState, sequence: int, *changes: GroupChange) -> ShardCommit:
    return ShardCommit(shard=state.partition, epoch=state.epoch, sequence=sequence, changes=changes)


async def offsets(store: MetadataStore, group_id: str = "g") -> dict[int, int]:
    result = await store.committed_offsets([OffsetsRequest(group_id, None)])
    return {each.at.partition.partition: each.committed.offset for each in result}


async def group_ids(store: MetadataStore) -> list[str]:
    return [each.group.group_id for each in await store.load_groups([shard(0), shard(1)])]


class GroupContract:
    @pytest.fixture
    async def sharded(self, store: MetadataStore) -> MetadataStore:
        """The topics `orders` and `__consumer_offsets` (two shards), and Alice's and Bob's sessions."""
        await store.create_topic(topic())
        await store.create_topic(topic(SHARDS, OFFSETS_TOPIC, partitions=2))
        await store.open_session(new_session(ALICE))
        await store.open_session(new_session(BOB))
        return store

    @pytest.fixture
    async def mine(self, sharded: MetadataStore) -> PartitionState:
        """Alice's lease of shard 0."""
        return (await lead(sharded, ALICE, shard()))[0]

    # --- groups

    async def test_a_group_comes_back_as_it_was_written(self, sharded: MetadataStore, mine: PartitionState) -> None:
        await sharded.commit_groups(ALICE, [commit(mine, 1, PutGroup(group=group()))])
        assert [each.group for each in await sharded.load_groups([shard()])] == [group()]
        assert list(await sharded.load_groups([shard(1)])) == []

    async def test_a_group_is_replaced_by_its_next_generation(
        self, sharded: MetadataStore, mine: PartitionState
    ) -> None:
        await sharded.commit_groups(ALICE, [commit(mine, 1, PutGroup(group=group()))])
        empty = StoredGroup(
            group_id="g",
            generation=2,
            protocol_type=None,
            protocol=None,
            leader=None,
            members=(),
            changed_at_ms=99,
        )
        await sharded.commit_groups(ALICE, [commit(mine, 2, PutGroup(group=empty))])
        assert [each.group for each in await sharded.load_groups([shard()])] == [empty]

    async def test_groups_are_loaded_by_shard_and_name(self, sharded: MetadataStore) -> None:
        first, second = await lead(sharded, ALICE, shard(0), shard(1))
        await sharded.commit_groups(
            ALICE,
            [
                commit(first, 1, PutGroup(group=group("b")), PutGroup(group=group("a"))),
                commit(second, 1, PutGroup(group=group("c"))),
            ],
        )
        result = await sharded.load_groups([shard(1), shard(0)])
        assert [(each.shard, each.group.group_id) for each in result] == [
            (shard(0), "a"),
            (shard(0), "b"),
            (shard(1), "c"),
        ]

    async def test_a_dropped_group_takes_its_offsets_along(self, sharded: MetadataStore, mine: PartitionState) -> None:
        await sharded.commit_groups(ALICE, [commit(mine, 1, PutGroup(group=group()), put(5), put(6, group_id="other"))])
        await sharded.commit_groups(ALICE, [commit(mine, 2, DropGroup(group_id="g"))])
        assert await group_ids(sharded) == []
        assert await offsets(sharded) == {}
        assert await offsets(sharded, "other") == {0: 6}

    async def test_a_group_may_be_dropped_only_if_it_has_no_offsets(
        self, sharded: MetadataStore, mine: PartitionState
    ) -> None:
        drop = DropGroup(group_id="g", unless_offsets=True)
        await sharded.commit_groups(ALICE, [commit(mine, 1, PutGroup(group=group()), put(5))])
        await sharded.commit_groups(ALICE, [commit(mine, 2, drop)])
        assert await group_ids(sharded) == ["g"]
        assert await offsets(sharded) == {0: 5}
        await sharded.commit_groups(ALICE, [commit(mine, 3, DropOffset(at=place()), drop)])
        assert await group_ids(sharded) == []

    async def test_changes_happen_in_their_order(self, sharded: MetadataStore, mine: PartitionState) -> None:
        again = PutGroup(group=group(generation=9))
        changes = (PutGroup(group=group()), put(5), DropGroup(group_id="g"), again, put(1), put(2), put(3))
        await sharded.commit_groups(ALICE, [commit(mine, 1, *changes)])
        assert [each.group.generation for each in await sharded.load_groups([shard()])] == [9]
        assert await offsets(sharded) == {0: 3}

    # --- offsets

    async def test_an_offset_comes_back_as_it_was_committed(self, sharded: MetadataStore, mine: PartitionState) -> None:
        value = committed(2**62, expires_at_ms=5)
        await sharded.commit_groups(ALICE, [commit(mine, 1, PutOffset(at=place(2), committed=value))])
        [result] = await sharded.committed_offsets([OffsetsRequest("g", None)])
        assert (result.at, result.committed) == (place(2), value)

    async def test_offsets_of_some_partitions_and_several_groups_are_read_at_once(
        self, sharded: MetadataStore, mine: PartitionState
    ) -> None:
        await sharded.commit_groups(ALICE, [commit(mine, 1, put(1), put(2, 1), put(3, 2), put(9, 1, "other"))])
        requests = [OffsetsRequest("g", [part(2), part(1), part(0, CLICKS)]), OffsetsRequest("other", None)]
        result = await sharded.committed_offsets(requests)
        assert [(each.at.group_id, each.at.partition.partition, each.committed.offset) for each in result] == [
            ("g", 1, 2),
            ("g", 2, 3),
            ("other", 1, 9),
        ]
        assert list(await sharded.committed_offsets([OffsetsRequest("nobody", None), OffsetsRequest("g", [])])) == []

    async def test_an_offset_of_a_partition_that_is_gone_is_passed_over(
        self, sharded: MetadataStore, mine: PartitionState
    ) -> None:
        nowhere = PutOffset(at=place(3), committed=committed(1))
        elsewhere = PutOffset(at=place(0, topic_id=CLICKS), committed=committed(1))
        await sharded.commit_groups(ALICE, [commit(mine, 1, nowhere, elsewhere, put(7))])
        assert await offsets(sharded) == {0: 7}

    async def test_deleting_a_topic_deletes_what_was_committed_in_it(
        self, sharded: MetadataStore, mine: PartitionState
    ) -> None:
        await sharded.create_topic(topic(CLICKS, "clicks"))
        elsewhere = PutOffset(at=place(1, topic_id=CLICKS), committed=committed(8))
        await sharded.commit_groups(ALICE, [commit(mine, 1, PutGroup(group=group()), put(7), elsewhere)])
        await sharded.delete_topic(ORDERS)
        assert await offsets(sharded) == {1: 8}
        assert await group_ids(sharded) == ["g"]

    async def test_deleting_the_internal_topic_deletes_all_groups(
        self, sharded: MetadataStore, mine: PartitionState
    ) -> None:
        await sharded.commit_groups(ALICE, [commit(mine, 1, PutGroup(group=group()), put(7))])
        await sharded.delete_topic(SHARDS)
        assert await group_ids(sharded) == []
        assert await offsets(sharded) == {}
        await sharded.create_topic(topic(SHARDS, OFFSETS_TOPIC, partitions=2))
        [again] = await lead(sharded, ALICE, shard())
        await sharded.commit_groups(ALICE, [commit(again, 1, put(3))])
        assert await offsets(sharded) == {0: 3}

    async def test_the_lag_of_a_group_is_kept_until_the_group_goes_or_nobody_measures_it(
        self, sharded: MetadataStore, mine: PartitionState
    ) -> None:
        waiting = (WaitingPartition(TopicPartition("orders", 3), -1, 5),)
        mine_lag = LagHistory("g", (LagSample(1000, 7, None), LagSample(2500, 9, 40)), waiting)
        other_lag = LagHistory("other", (LagSample(1000, 1, 0),))
        await sharded.commit_groups(
            ALICE, [commit(mine, 1, PutGroup(group=group()), PutGroup(group=group("other")), put(7))]
        )
        await sharded.put_group_lags([mine_lag, other_lag], now_ms=3000, forget_ms=1000)
        everybody = ["g", "nobody", "other"]
        assert await sharded.group_lags(everybody) == [mine_lag, other_lag]
        assert await sharded.group_lags(["other"]) == [other_lag]
        await sharded.commit_groups(ALICE, [commit(mine, 2, DropGroup(group_id="g"))])
        assert await sharded.group_lags(everybody) == [other_lag]
        await sharded.put_group_lags([], now_ms=4000, forget_ms=1000)
        assert await sharded.group_lags(everybody) == [other_lag]
        await sharded.put_group_lags([], now_ms=4001, forget_ms=1000)
        assert await sharded.group_lags(everybody) == []

    async def test_dropping_an_offset_of_another_time_leaves_it(
        self, sharded: MetadataStore, mine: PartitionState
    ) -> None:
        await sharded.commit_groups(ALICE, [commit(mine, 1, put(7, at_ms=100), put(8, 1, at_ms=100))])
        await sharded.commit_groups(ALICE, [commit(mine, 2, put(9, 1, at_ms=200))])
        drops = [DropOffset(at=place(number), committed_at_ms=100) for number in (0, 1, 2)]
        await sharded.commit_groups(ALICE, [commit(mine, 3, *drops)])
        assert await offsets(sharded) == {1: 9}

    async def test_groups_to_review_have_an_old_offset_or_none(
        self, sharded: MetadataStore, mine: PartitionState
    ) -> None:
        timed = PutOffset(at=place(0, "timed"), committed=committed(1, at_ms=900, expires_at_ms=950))
        changes = [PutGroup(group=group(name)) for name in ("bare", "fresh", "old", "timed")]
        await sharded.commit_groups(
            ALICE,
            [
                commit(
                    mine,
                    1,
                    *changes,
                    put(1, 0, "old", at_ms=500),
                    put(1, 1, "old", at_ms=900),
                    put(1, 0, "fresh", at_ms=501),
                    timed,
                )
            ],
        )
        assert list(await sharded.groups_to_review([shard()], before_ms=500, now_ms=949)) == ["bare", "old"]
        assert list(await sharded.groups_to_review([shard()], before_ms=499, now_ms=950)) == ["bare", "timed"]
        assert list(await sharded.groups_to_review([shard(1)], before_ms=10_000, now_ms=10_000)) == []

    # --- the fence

    async def test_a_shard_that_another_session_holds_is_refused_and_nothing_happens(
        self, sharded: MetadataStore
    ) -> None:
        [mine] = await lead(sharded, ALICE, shard(0))
        [theirs] = await lead(sharded, BOB, shard(1))
        with pytest.raises(LeaseLost) as refusal:
            await sharded.commit_groups(ALICE, [commit(mine, 1, put(5)), commit(theirs, 1, put(6, group_id="h"))])
        assert refusal.value.partitions == (shard(1),)
        assert await offsets(sharded) == {}
        assert await offsets(sharded, "h") == {}

    async def test_an_old_epoch_is_refused_though_the_holder_is_the_same(
        self, sharded: MetadataStore, mine: PartitionState
    ) -> None:
        await sharded.commit_groups(ALICE, [commit(mine, 1, put(5))])
        await sharded.release(ALICE, [shard()])
        [again] = await lead(sharded, ALICE, shard())
        assert again.epoch > mine.epoch
        with pytest.raises(LeaseLost):
            await sharded.commit_groups(ALICE, [commit(mine, 2, put(4))])
        await sharded.commit_groups(ALICE, [commit(again, 1, put(6))])
        assert await offsets(sharded) == {0: 6}

    async def test_a_released_shard_is_refused(self, sharded: MetadataStore, mine: PartitionState) -> None:
        await sharded.release(ALICE, [shard()])
        with pytest.raises(LeaseLost):
            await sharded.commit_groups(ALICE, [commit(mine, 1, put(5))])

    @pytest.mark.parametrize("session", [BOB, NOBODY])
    async def test_another_session_is_refused(
        self, sharded: MetadataStore, mine: PartitionState, session: SessionId
    ) -> None:
        with pytest.raises(LeaseLost):
            await sharded.commit_groups(session, [commit(mine, 1, put(5))])
        assert await offsets(sharded) == {}

    async def test_a_claimed_session_is_refused_and_an_expired_one_is_not(
        self, sharded: MetadataStore, mine: PartitionState, clock: ManualClock
    ) -> None:
        await sharded.renew_session(BOB, 10 * TTL_MS)
        clock.advance(ms=TTL_MS + 1)
        await sharded.commit_groups(ALICE, [commit(mine, 1, put(5))])
        await sharded.claim_recovery(ALICE, by=BOB, proven_dead=False)
        with pytest.raises(LeaseLost):
            await sharded.commit_groups(ALICE, [commit(mine, 2, put(6))])
        assert await offsets(sharded) == {0: 5}

    async def test_after_a_recovery_the_next_holder_goes_on_and_the_zombie_is_refused(
        self, sharded: MetadataStore, mine: PartitionState
    ) -> None:
        await sharded.commit_groups(ALICE, [commit(mine, 7, put(5))])
        claim = await sharded.claim_recovery(ALICE, by=BOB, proven_dead=True)
        assert claim is not None
        await sharded.finish_recovery(ALICE, claim, [])
        [theirs] = await lead(sharded, BOB, shard())
        await sharded.commit_groups(BOB, [commit(theirs, 1, put(10))])
        with pytest.raises(LeaseLost):
            await sharded.commit_groups(ALICE, [commit(mine, 8, put(6))])
        assert await offsets(sharded) == {0: 10}

    async def test_an_unknown_shard_is_refused(self, sharded: MetadataStore, mine: PartitionState) -> None:
        odd = ShardCommit(shard=shard(5), epoch=Epoch(1), sequence=1, changes=())
        with pytest.raises(LeaseLost) as refusal:
            await sharded.commit_groups(ALICE, [commit(mine, 1, put(5)), odd])
        assert refusal.value.partitions == (shard(5),)

    async def test_repeating_the_last_commit_is_a_no_op(self, sharded: MetadataStore, mine: PartitionState) -> None:
        first = commit(mine, 1, PutGroup(group=group()), put(5))
        await sharded.commit_groups(ALICE, [first])
        await sharded.commit_groups(ALICE, [first])
        assert await offsets(sharded) == {0: 5}

    async def test_a_commit_that_arrives_after_a_later_one_is_refused(
        self, sharded: MetadataStore, mine: PartitionState
    ) -> None:
        await sharded.commit_groups(ALICE, [commit(mine, 2, put(20))])
        with pytest.raises(LeaseLost):
            await sharded.commit_groups(ALICE, [commit(mine, 1, put(10))])
        assert await offsets(sharded) == {0: 20}

    async def test_a_new_epoch_counts_its_commits_anew(self, sharded: MetadataStore, mine: PartitionState) -> None:
        await sharded.commit_groups(ALICE, [commit(mine, 9, put(1))])
        await sharded.release(ALICE, [shard()])
        [theirs] = await lead(sharded, BOB, shard())
        await sharded.commit_groups(BOB, [commit(theirs, 1, put(2))])
        assert await offsets(sharded) == {0: 2}

    async def test_a_shard_is_named_once_in_a_commit(self, sharded: MetadataStore, mine: PartitionState) -> None:
        with pytest.raises(Internal):
            await sharded.commit_groups(ALICE, [commit(mine, 1, put(1)), commit(mine, 2, put(2))])
        assert await offsets(sharded) == {}
