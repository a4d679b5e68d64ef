"""What every metadata store must do for transactions of producers."""

from dataclasses import replace

import pytest

from streamhouse.errors import (
    ConcurrentTransactions,
    InvalidTransactionState,
    LeaseLost,
    ProducerFenced,
    SessionLost,
    TransactionTooLarge,
    UnknownProducerId,
)
from streamhouse.model.cluster import PartitionState
from streamhouse.model.group import OFFSETS_TOPIC, DropGroup, GroupOffset, PutGroup
from streamhouse.model.names import Epoch, PartitionId
from streamhouse.model.segment import SegmentCommit
from streamhouse.model.transaction import (
    AbortedTransaction,
    InitProducerRequest,
    PendingOffset,
    ProducerIdentity,
    StoredTransaction,
    TransactionCall,
    TransactionState,
)
from streamhouse.stores.metadata.base import MetadataStore
from streamhouse.stores.metadata.transaction_store import OffsetsRequest
from tests.contracts.clocks import ManualClock
from tests.contracts.metadata_groups import SHARDS, commit, committed, group, offsets, place, put, shard
from tests.contracts.metadata_scene import (
    ALICE,
    BOB,
    CLICKS,
    ORDERS,
    TTL_MS,
    commit_of,
    lead,
    new_session,
    part,
    publish,
    run_of,
    topic,
)

TIMEOUT_MS = 60_000
FRESH = 1000


async def init(
    store: MetadataStore, name: str = "t", *, fresh_id: int = 7, known: ProducerIdentity | None = None
) -> StoredTransaction:
    request = InitProducerRequest(transactional_id=name, timeout_ms=TIMEOUT_MS, fresh_id=fresh_id, known=known)
    return await store.init_producer(request)


async def begin(store: MetadataStore, name: str = "t", *partitions: PartitionId, fresh_id: int = 7) -> TransactionCall:
    """A new transactional id with a transaction under way."""
    call = TransactionCall(name, (await init(store, name, fresh_id=fresh_id)).producer)
    await store.add_transaction_partitions(call, partitions, limit=100)
    return call


async def end(
    store: MetadataStore, call: TransactionCall, *, commit: bool = True, bump: bool = False
) -> StoredTransaction:
    return await store.end_transaction(call, commit=commit, bump=bump, fresh_id=FRESH)


async def pend(
    store: MetadataStore,
    shard_state: PartitionState,
    call: TransactionCall,
    group_id: str = "g",
    *,
    begins: bool = False,
    **at: int,
) -> None:
    """Put offsets by partition: `p0=5`."""
    pending = [PendingOffset(part(int(name[1:])), committed(offset)) for name, offset in at.items()]
    await store.put_pending_offsets(
        ALICE, shard_state.partition, shard_state.epoch, call, group_id, pending, begins=begins
    )


async def undecided(store: MetadataStore, group_id: str = "g") -> set[GroupOffset]:
    return set(await store.pending_offsets([OffsetsRequest(group_id, None)]))


def with_aborted(commit: SegmentCommit, *aborted: AbortedTransaction, at: PartitionId) -> SegmentCommit:
    return replace(commit, aborted={at: aborted})


def aborted_at(last_offset: int, first_offset: int | None = None, producer_id: int = 7) -> AbortedTransaction:
    return AbortedTransaction(producer_id, last_offset - 1 if first_offset is None else first_offset, last_offset)


async def markers(store: MetadataStore, number: int = 0, from_offset: int = 0, limit: int = 100) -> list[int]:
    result = await store.aborted({part(number): from_offset}, limit=limit)
    return [each.last_offset for each in result.get(part(number), ())]


class ProducingContract:
    @pytest.fixture
    async def scene(self, store: MetadataStore) -> MetadataStore:
        """The topics `orders` and `__consumer_offsets`, and Alice's and Bob's sessions."""
        await store.create_topic(topic())
        await store.create_topic(topic(SHARDS, OFFSETS_TOPIC, partitions=2))
        await store.open_session(new_session(ALICE))
        await store.open_session(new_session(BOB))
        return store

    @pytest.fixture
    async def coordinated(self, scene: MetadataStore) -> PartitionState:
        """Alice's lease of shard 0, where the group `g` is."""
        [state] = await lead(scene, ALICE, shard())
        await scene.commit_groups(ALICE, [commit(state, 1, PutGroup(group=group()))])
        return state

    # --- producers

    async def test_a_transactional_id_that_is_new_gets_the_fresh_producer(
        self, scene: MetadataStore, clock: ManualClock
    ) -> None:
        created = await init(scene)
        assert created == StoredTransaction(
            transactional_id="t",
            producer=ProducerIdentity(7, 0),
            previous=None,
            marked_as=ProducerIdentity(7, 0),
            timeout_ms=TIMEOUT_MS,
            state=TransactionState.EMPTY,
            number=0,
            started_at_ms=-1,
            changed_at_ms=clock.now_ms(),
        )
        assert await scene.find_transaction("t") == created
        assert await scene.transaction_of(7) == created
        assert await scene.find_transaction("other") is None
        assert await scene.transaction_of(8) is None

    async def test_a_producer_that_comes_anew_fences_the_one_before(self, scene: MetadataStore) -> None:
        first = await init(scene)
        second = await init(scene, fresh_id=8)
        assert second.producer == (7, 1)
        with pytest.raises(ProducerFenced):
            await scene.add_transaction_partitions(TransactionCall("t", first.producer), [part(0)], limit=9)
        with pytest.raises(ProducerFenced):
            await init(scene, known=first.producer)

    async def test_a_known_producer_that_retries_is_told_the_same(self, scene: MetadataStore) -> None:
        first = await init(scene)
        second = await init(scene, known=first.producer)
        assert (second.producer, second.previous) == ((7, 1), (7, 0))
        assert (await init(scene, known=first.producer)).producer == second.producer

    async def test_a_transaction_that_its_producer_left_is_aborted_for_the_next_one(
        self, scene: MetadataStore, coordinated: PartitionState
    ) -> None:
        call = await begin(scene, "t", part(0))
        await pend(scene, coordinated, call, p0=5)
        fenced = await init(scene)
        assert (fenced.state, fenced.marked_as) == (TransactionState.PREPARE_ABORT, (7, 1))
        assert fenced.partitions == (part(0),)
        assert await undecided(scene) == set()
        assert await init(scene) == fenced  # until its markers are written
        await scene.complete_transaction("t", fenced.number)
        assert (await init(scene)).producer == (7, 2)
        assert await offsets(scene) == {}

    # --- beginning

    async def test_a_transaction_begins_with_its_first_partition(
        self, scene: MetadataStore, clock: ManualClock
    ) -> None:
        call = TransactionCall("t", (await init(scene)).producer)
        clock.advance(ms=5)
        begun = await scene.add_transaction_partitions(call, [part(0)], limit=9)
        assert (begun.state, begun.number) == (TransactionState.ONGOING, 1)
        assert begun.started_at_ms == clock.now_ms()
        clock.advance(ms=5)
        more = await scene.add_transaction_partitions(call, [part(2), part(0)], limit=9)
        assert (more.number, more.started_at_ms, more.partitions) == (1, begun.started_at_ms, (part(0), part(2)))
        assert await scene.find_transaction("t") == more

    async def test_what_is_enlisted_again_changes_nothing(self, scene: MetadataStore, clock: ManualClock) -> None:
        call = await begin(scene, "t", part(0))
        before = await scene.find_transaction("t")
        clock.advance(ms=5)
        assert await scene.add_transaction_partitions(call, [part(0)], limit=9) == before
        assert await scene.add_transaction_partitions(call, [], limit=9) == before

    async def test_partitions_that_are_not_there_are_passed_over(self, scene: MetadataStore) -> None:
        call = await begin(scene, "t", part(0), part(3), part(0, CLICKS))
        result = await scene.find_transaction("t")
        assert result is not None
        assert result.partitions == (part(0),)
        assert (await scene.add_transaction_partitions(call, [part(7)], limit=9)) == result

    async def test_partitions_of_several_topics_come_back(self, scene: MetadataStore) -> None:
        await scene.create_topic(topic(CLICKS, "clicks"))
        call = await begin(scene, "t", part(2), part(1, CLICKS))
        both = await scene.add_transaction_partitions(call, [part(0)], limit=9)
        assert set(both.partitions) == {part(0), part(2), part(1, CLICKS)}
        result = await scene.find_transaction("t")
        assert result is not None
        assert set(result.partitions) == set(both.partitions)

    async def test_a_transaction_beyond_the_limit_is_refused_and_stays_as_it_was(self, scene: MetadataStore) -> None:
        call = await begin(scene, "t", part(0))
        with pytest.raises(TransactionTooLarge):
            await scene.add_transaction_partitions(call, [part(1), part(2)], limit=2)
        result = await scene.find_transaction("t")
        assert result is not None
        assert result.partitions == (part(0),)

    async def test_nobody_else_begins_or_ends_it(self, scene: MetadataStore) -> None:
        await begin(scene, "t", part(0))
        strangers = {
            TransactionCall("other", ProducerIdentity(7, 0)): UnknownProducerId,
            TransactionCall("t", ProducerIdentity(8, 0)): UnknownProducerId,
            TransactionCall("t", ProducerIdentity(7, 1)): ProducerFenced,
        }
        before = await scene.find_transaction("t")
        for call, error in strangers.items():
            with pytest.raises(error):
                await scene.add_transaction_partitions(call, [part(1)], limit=9)
            with pytest.raises(error):
                await end(scene, call)
        assert await scene.find_transaction("t") == before

    # --- ending

    @pytest.mark.parametrize("bump", [False, True])
    async def test_the_next_one_begins_once_the_one_before_is_complete(self, scene: MetadataStore, bump: bool) -> None:
        call = await begin(scene, "t", part(0))
        ended = await end(scene, call, bump=bump)
        assert (ended.state, ended.partitions) == (TransactionState.PREPARE_COMMIT, (part(0),))
        assert ended.marker.number == 1
        following = TransactionCall("t", ended.producer)
        with pytest.raises(ConcurrentTransactions):
            await scene.add_transaction_partitions(following, [part(0)], limit=9)
        await scene.complete_transaction("t", 1)
        begun = await scene.add_transaction_partitions(following, [part(1)], limit=9)
        assert (begun.number, begun.partitions) == (2, (part(1),))
        await scene.complete_transaction("t", 1)  # late, of the one before
        await scene.complete_transaction("t", 2)  # not decided
        assert await scene.find_transaction("t") == begun

    @pytest.mark.parametrize("bump", [False, True])
    @pytest.mark.parametrize("is_commit", [False, True])
    async def test_a_repeated_end_returns_the_outcome(
        self, scene: MetadataStore, clock: ManualClock, bump: bool, is_commit: bool
    ) -> None:
        call = await begin(scene, "t", part(0))
        ended = await end(scene, call, commit=is_commit, bump=bump)
        clock.advance(ms=5)
        assert await end(scene, call, commit=is_commit, bump=bump) == ended
        with pytest.raises(InvalidTransactionState):
            await end(scene, call, commit=not is_commit, bump=bump)
        await scene.complete_transaction("t", 1)
        completed = await scene.find_transaction("t")
        assert await end(scene, call, commit=is_commit, bump=bump) == completed
        with pytest.raises(InvalidTransactionState):
            await end(scene, call, commit=not is_commit, bump=bump)
        await scene.complete_transaction("t", 1)
        assert await scene.find_transaction("t") == completed

    async def test_an_end_that_changes_the_producer_fences_what_is_late_of_it(self, scene: MetadataStore) -> None:
        call = await begin(scene, "t", part(0))
        ended = await end(scene, call, bump=True)
        assert (ended.producer, ended.previous, ended.marked_as) == ((7, 1), (7, 0), (7, 1))
        await scene.complete_transaction("t", 1)
        with pytest.raises(ProducerFenced):
            await scene.add_transaction_partitions(call, [part(0)], limit=9)

    async def test_there_is_nothing_to_end_before_it_begins(self, scene: MetadataStore) -> None:
        call = TransactionCall("t", (await init(scene)).producer)
        for is_commit in (False, True):
            with pytest.raises(InvalidTransactionState):
                await end(scene, call, commit=is_commit)
        with pytest.raises(InvalidTransactionState):
            await end(scene, call, bump=True)
        skipped = await end(scene, call, commit=False, bump=True)
        assert (skipped.state, skipped.producer) == (TransactionState.COMPLETE_ABORT, (7, 1))
        assert await end(scene, call, commit=False, bump=True) == skipped

    # --- its time

    async def test_a_transaction_expires_by_the_clock_of_the_store(
        self, scene: MetadataStore, clock: ManualClock, coordinated: PartitionState
    ) -> None:
        call = await begin(scene, "t", part(0))
        await pend(scene, coordinated, call, p0=5)
        clock.advance(ms=TIMEOUT_MS - 1)
        assert await scene.expire_transaction("t", 1) is None
        assert list(await scene.due_transactions(prepared_before_ms=0, limit=9)) == []
        clock.advance(ms=1)
        assert [each.transactional_id for each in await scene.due_transactions(prepared_before_ms=0, limit=9)] == ["t"]
        assert await scene.expire_transaction("t", 2) is None
        assert await scene.expire_transaction("other", 1) is None
        expired = await scene.expire_transaction("t", 1)
        assert expired is not None
        assert (expired.state, expired.marked_as) == (TransactionState.PREPARE_ABORT, (7, 1))
        assert await undecided(scene) == set()
        assert await scene.expire_transaction("t", 1) is None
        with pytest.raises(ProducerFenced):
            await end(scene, call)

    async def test_what_is_half_ended_for_long_is_due(self, scene: MetadataStore, clock: ManualClock) -> None:
        await end(scene, await begin(scene, "b", part(0), fresh_id=8))
        clock.advance(ms=1)
        await end(scene, await begin(scene, "a", part(0), fresh_id=9), commit=False)
        await begin(scene, "open", part(0), fresh_id=10)
        await init(scene, "idle", fresh_id=11)
        clock.advance(ms=1000)

        async def due(age_ms: int, limit: int = 9) -> list[str]:
            result = await scene.due_transactions(prepared_before_ms=age_ms, limit=limit)
            return [each.transactional_id for each in result]

        assert await due(1002) == []
        assert await due(1001) == ["b"]
        assert await due(1000) == ["b", "a"]
        assert await due(1000, limit=1) == ["b"]
        [first] = await scene.due_transactions(prepared_before_ms=1000, limit=1)
        [second] = await scene.due_transactions(prepared_before_ms=1000, limit=9, after=first)
        assert (first.transactional_id, second.transactional_id) == ("b", "a")
        assert list(await scene.due_transactions(prepared_before_ms=1000, limit=9, after=second)) == []
        await scene.complete_transaction("b", 1)
        assert await due(1000) == ["a"]

    async def test_transactions_are_listed_page_by_page(self, scene: MetadataStore) -> None:
        for number, name in enumerate(["b", "a", "ä", "B", "c"]):
            await init(scene, name, fresh_id=number)
        first = await scene.transactions(after=None, limit=3)
        assert [each.transactional_id for each in first] == ["B", "a", "b"]
        rest = await scene.transactions(after="b", limit=3)
        assert [each.transactional_id for each in rest] == ["c", "ä"]
        assert list(await scene.transactions(after="ä", limit=3)) == []

    async def test_only_what_is_idle_for_long_is_forgotten(self, scene: MetadataStore, clock: ManualClock) -> None:
        await init(scene, "idle", fresh_id=1)
        await end(scene, await begin(scene, "done", fresh_id=2))
        await scene.complete_transaction("done", 1)
        await begin(scene, "open", fresh_id=3)
        await end(scene, await begin(scene, "prepared", fresh_id=4))
        clock.advance(ms=1000)
        await init(scene, "new", fresh_id=5)
        assert await scene.forget_transactions(older_than_ms=1001, limit=9) == 0
        assert await scene.forget_transactions(older_than_ms=1000, limit=1) == 1
        assert await scene.forget_transactions(older_than_ms=1000, limit=9) == 1
        left = await scene.transactions(after=None, limit=9)
        assert [each.transactional_id for each in left] == ["new", "open", "prepared"]
        with pytest.raises(UnknownProducerId):
            await scene.add_transaction_partitions(TransactionCall("done", ProducerIdentity(2, 0)), [], limit=9)

    # --- offsets

    @pytest.mark.parametrize("bump", [False, True])
    async def test_offsets_count_with_the_decision(
        self, scene: MetadataStore, coordinated: PartitionState, bump: bool
    ) -> None:
        await scene.commit_groups(ALICE, [commit(coordinated, 2, put(1))])
        call = await begin(scene, "t")
        await pend(scene, coordinated, call, p0=5, p1=6)
        assert await offsets(scene) == {0: 1}
        assert await undecided(scene) == {place(0), place(1)}
        await end(scene, call, bump=bump)
        assert await offsets(scene) == {0: 5, 1: 6}
        assert await undecided(scene) == set()
        await scene.commit_groups(ALICE, [commit(coordinated, 3, put(9))])
        await end(scene, call, bump=bump)  # again, which undoes nothing
        assert await offsets(scene) == {0: 9, 1: 6}

    async def test_offsets_come_back_as_they_were_put(self, scene: MetadataStore, coordinated: PartitionState) -> None:
        call = await begin(scene, "t")
        await pend(scene, coordinated, call, p0=5)
        await end(scene, call)
        [stored] = await scene.committed_offsets([OffsetsRequest("g", None)])
        assert stored.committed == committed(5)

    async def test_the_longest_names_fit_together(self, scene: MetadataStore, coordinated: PartitionState) -> None:
        # Different characters, so that no index makes them shorter.
        longest = "".join(chr(0x10000 + 7919 * number % 0xFFFF) for number in range(1300 // 4))
        await scene.commit_groups(ALICE, [commit(coordinated, 2, PutGroup(group=group(longest)))])
        call = await begin(scene, longest)
        await pend(scene, coordinated, call, longest, p0=5)
        await end(scene, call)
        assert await offsets(scene, longest) == {0: 5}

    async def test_offsets_go_with_an_abort(self, scene: MetadataStore, coordinated: PartitionState) -> None:
        await scene.commit_groups(ALICE, [commit(coordinated, 2, put(1))])
        call = await begin(scene, "t")
        await pend(scene, coordinated, call, p0=5)
        await end(scene, call, commit=False)
        assert await offsets(scene) == {0: 1}
        assert await undecided(scene) == set()

    async def test_the_last_offset_of_a_transaction_counts(
        self, scene: MetadataStore, coordinated: PartitionState
    ) -> None:
        call = await begin(scene, "t")
        await pend(scene, coordinated, call, p0=5)
        await pend(scene, coordinated, call, p0=6)
        await pend(scene, coordinated, call, p0=6)
        both = [PendingOffset(part(1), committed(7)), PendingOffset(part(1), committed(8))]
        await scene.put_pending_offsets(ALICE, shard(), coordinated.epoch, call, "g", both, begins=False)
        await end(scene, call)
        assert await offsets(scene) == {0: 6, 1: 8}

    async def test_transactions_decide_their_own_offsets_alone(
        self, scene: MetadataStore, coordinated: PartitionState
    ) -> None:
        first, second = await begin(scene, "first", fresh_id=1), await begin(scene, "second", fresh_id=2)
        await pend(scene, coordinated, first, p0=5)
        await pend(scene, coordinated, second, p0=6, p1=7)
        await end(scene, first)
        assert await offsets(scene) == {0: 5}
        assert await undecided(scene) == {place(0), place(1)}
        assert set(await scene.pending_offsets([OffsetsRequest("g", [part(1), part(2)])])) == {place(1)}
        assert set(await scene.pending_offsets([OffsetsRequest("h", None), OffsetsRequest("g", [])])) == set()

    async def test_offsets_need_a_transaction_or_begin_one(
        self, scene: MetadataStore, coordinated: PartitionState, clock: ManualClock
    ) -> None:
        call = TransactionCall("t", (await init(scene)).producer)
        with pytest.raises(InvalidTransactionState):
            await pend(scene, coordinated, call, p0=5)
        await pend(scene, coordinated, call, begins=True, p0=5)
        result = await scene.find_transaction("t")
        assert result is not None
        assert (result.state, result.number, result.started_at_ms) == (TransactionState.ONGOING, 1, clock.now_ms())
        await end(scene, call)
        assert await offsets(scene) == {0: 5}
        with pytest.raises(ConcurrentTransactions):
            await pend(scene, coordinated, call, begins=True, p0=6)
        with pytest.raises(ProducerFenced):
            await pend(scene, coordinated, TransactionCall("t", ProducerIdentity(7, 9)), begins=True, p0=6)
        with pytest.raises(UnknownProducerId):
            await pend(scene, coordinated, TransactionCall("other", ProducerIdentity(7, 0)), begins=True, p0=6)
        assert await undecided(scene) == set()

    async def test_an_agent_that_others_took_for_dead_decides_nothing(self, scene: MetadataStore) -> None:
        call = await begin(scene, "t")
        await scene.claim_recovery(ALICE, by=BOB, proven_dead=True)
        with pytest.raises(SessionLost):
            await scene.end_transaction(call, commit=True, bump=False, fresh_id=FRESH, by=ALICE)
        request = InitProducerRequest(transactional_id="t", timeout_ms=TIMEOUT_MS, fresh_id=8)
        with pytest.raises(SessionLost):
            await scene.init_producer(request, by=ALICE)
        result = await scene.find_transaction("t")
        assert result is not None
        assert (result.state, result.producer) == (TransactionState.ONGOING, call.producer)
        ended = await scene.end_transaction(call, commit=True, bump=False, fresh_id=FRESH, by=BOB)
        assert ended.state is TransactionState.PREPARE_COMMIT

    async def test_an_agent_that_is_late_decides_nothing(self, scene: MetadataStore, clock: ManualClock) -> None:
        call = await begin(scene, "t")
        clock.advance(ms=TTL_MS)
        with pytest.raises(SessionLost):
            await scene.end_transaction(call, commit=True, bump=False, fresh_id=FRESH, by=ALICE)
        await scene.renew_session(ALICE, TTL_MS)
        ended = await scene.end_transaction(call, commit=True, bump=False, fresh_id=FRESH, by=ALICE)
        assert ended.state is TransactionState.PREPARE_COMMIT

    async def test_only_the_coordinator_of_the_group_puts_offsets(
        self, scene: MetadataStore, coordinated: PartitionState
    ) -> None:
        call = await begin(scene, "t")
        pending = [PendingOffset(part(0), committed(5))]
        older = Epoch(coordinated.epoch - 1)
        for session_id, epoch in ((BOB, coordinated.epoch), (ALICE, older)):
            with pytest.raises(LeaseLost) as lost:
                await scene.put_pending_offsets(session_id, shard(), epoch, call, "g", pending, begins=False)
            assert lost.value.partitions == (shard(),)
        await scene.claim_recovery(ALICE, by=BOB, proven_dead=True)
        with pytest.raises(LeaseLost):
            await scene.put_pending_offsets(ALICE, shard(), coordinated.epoch, call, "g", pending, begins=False)
        assert await undecided(scene) == set()

    async def test_offsets_are_decided_whichever_agent_coordinates_the_group_then(
        self, scene: MetadataStore, coordinated: PartitionState
    ) -> None:
        call = await begin(scene, "t")
        await pend(scene, coordinated, call, p0=5)
        await scene.end_session(ALICE)
        await end(scene, call)
        assert await offsets(scene) == {0: 5}

    async def test_offsets_of_what_is_gone_are_passed_over(
        self, scene: MetadataStore, coordinated: PartitionState
    ) -> None:
        await scene.create_topic(topic(CLICKS, "clicks"))
        call = await begin(scene, "t", part(0), part(0, CLICKS))
        pending = [PendingOffset(at, committed(5)) for at in (part(0), part(9), part(0, CLICKS))]
        await scene.put_pending_offsets(ALICE, shard(), coordinated.epoch, call, "g", pending, begins=False)
        assert await undecided(scene) == {place(0), place(0, topic_id=CLICKS)}
        await scene.delete_topic(CLICKS)
        assert await undecided(scene) == {place(0)}
        ended = await end(scene, call)
        assert set(ended.partitions) == {part(0), part(0, CLICKS)}  # whoever marks them finds it gone
        assert await offsets(scene) == {0: 5}

    async def test_a_group_that_is_deleted_takes_its_undecided_offsets_along(
        self, scene: MetadataStore, coordinated: PartitionState
    ) -> None:
        call = await begin(scene, "t")
        await pend(scene, coordinated, call, p0=5)
        await scene.commit_groups(ALICE, [commit(coordinated, 2, DropGroup(group_id="g"))])
        assert await undecided(scene) == set()
        await pend(scene, coordinated, call, "gone", p0=5)
        await end(scene, call)
        assert await offsets(scene) == {}
        assert await offsets(scene, "gone") == {}

    async def test_undecided_offsets_keep_a_group(self, scene: MetadataStore, coordinated: PartitionState) -> None:
        async def to_review() -> list[str]:
            return list(await scene.groups_to_review([shard()], before_ms=0, now_ms=0))

        assert await to_review() == ["g"]
        call = await begin(scene, "t")
        await pend(scene, coordinated, call, p0=5)
        assert await to_review() == []
        await scene.commit_groups(ALICE, [commit(coordinated, 2, DropGroup(group_id="g", unless_offsets=True))])
        await end(scene, call)
        assert await offsets(scene) == {0: 5}

    async def test_undecided_offsets_go_with_the_internal_topic(
        self, scene: MetadataStore, coordinated: PartitionState
    ) -> None:
        call = await begin(scene, "t")
        await pend(scene, coordinated, call, p0=5)
        await scene.delete_topic(SHARDS)
        assert await undecided(scene) == set()
        await end(scene, call)
        assert await offsets(scene) == {}

    # --- what was aborted

    async def test_aborted_transactions_are_published_with_their_runs(self, scene: MetadataStore) -> None:
        first, second = await lead(scene, ALICE, part(0), part(1))
        both = commit_of("k", run_of(first, 0, 10, ""), run_of(second, 0, 10, ""))
        of_first, of_second = aborted_at(4, 1), aborted_at(9, 0, producer_id=2**40)
        published = replace(both, aborted={part(0): (of_first,), part(1): (of_second,)})
        await scene.commit_segments(ALICE, [published])
        await scene.commit_segments(ALICE, [published])
        assert await scene.aborted({part(0): 0, part(1): 0, part(2): 0}, limit=9) == {
            part(0): [of_first],
            part(1): [of_second],
        }
        assert await scene.aborted({}, limit=9) == {}

    async def test_aborted_transactions_of_runs_that_were_refused_or_left_out_are_not(
        self, scene: MetadataStore
    ) -> None:
        [state] = await lead(scene, ALICE, part(0))
        late = with_aborted(commit_of("late", run_of(state, 5, 10, "")), aborted_at(6), at=part(0))
        with pytest.raises(LeaseLost):
            await scene.commit_segments(ALICE, [late])
        left_out = replace(
            commit_of("k", run_of(state, 0, 5, "")), aborted={part(0): (aborted_at(5),), part(1): (aborted_at(3),)}
        )
        await scene.commit_segments(ALICE, [left_out])
        assert await scene.aborted({part(0): 0, part(1): 0}, limit=9) == {}

    async def test_a_recovery_publishes_what_was_aborted(self, scene: MetadataStore) -> None:
        [state] = await lead(scene, ALICE, part(0))
        claim = await scene.claim_recovery(ALICE, by=BOB, proven_dead=True)
        assert claim is not None
        commits = [with_aborted(commit_of("k", run_of(state, 0, 10, "")), aborted_at(4), at=part(0))]
        await scene.finish_recovery(ALICE, claim, commits)
        await scene.finish_recovery(ALICE, claim, commits)
        assert await markers(scene) == [4]

    async def test_aborted_transactions_are_read_from_an_offset_on(self, scene: MetadataStore) -> None:
        [state] = await lead(scene, ALICE, part(0))
        lasts = [aborted_at(last) for last in (8, 2, 5)]
        await scene.commit_segments(ALICE, [with_aborted(commit_of("k", run_of(state, 0, 10, "")), *lasts, at=part(0))])
        assert await markers(scene) == [2, 5, 8]
        assert await markers(scene, from_offset=2) == [2, 5, 8]
        assert await markers(scene, from_offset=3, limit=1) == [5]
        assert await markers(scene, from_offset=9) == []

    async def test_aborted_transactions_go_with_the_log_start(self, scene: MetadataStore) -> None:
        first, second = await lead(scene, ALICE, part(0), part(1))
        runs = commit_of("k", run_of(first, 0, 10, ""), run_of(second, 0, 10, ""))
        lasts = tuple(aborted_at(last) for last in (2, 5, 8))
        await scene.commit_segments(ALICE, [replace(runs, aborted={part(0): lasts, part(1): lasts})])
        await scene.advance_log_start({part(0): 5})
        assert await markers(scene) == [5, 8]
        await scene.advance_log_start({part(0): 6})
        assert await markers(scene) == [8]
        assert await markers(scene, 1) == [2, 5, 8]

    async def test_more_aborted_transactions_than_go_at_once_go_by_and_by(self, scene: MetadataStore) -> None:
        [state] = await lead(scene, ALICE, part(0))
        lasts = [aborted_at(last) for last in range(1, 1501)]
        await scene.commit_segments(
            ALICE, [with_aborted(commit_of("k", run_of(state, 0, 2000, "")), *lasts, at=part(0))]
        )
        assert await scene.advance_log_start({part(0): 2000})
        assert (await markers(scene))[:1] == [1001]
        assert not await scene.advance_log_start({part(0): 2000})
        assert await markers(scene) == []

    async def test_aborted_transactions_whose_markers_were_compacted_away_are_forgotten(
        self, scene: MetadataStore
    ) -> None:
        [state] = await lead(scene, ALICE, part(0))
        lasts = [aborted_at(last) for last in (2, 5, 8)]
        await scene.commit_segments(ALICE, [with_aborted(commit_of("k", run_of(state, 0, 10, "")), *lasts, at=part(0))])
        for _ in range(2):
            await scene.forget_aborted(part(0), [2, 8, 9])
            assert await markers(scene) == [5]
        await scene.forget_aborted(part(0), [])
        assert await markers(scene) == [5]

    async def test_aborted_transactions_go_with_the_topic(self, scene: MetadataStore) -> None:
        [state] = await lead(scene, ALICE, part(0))
        await scene.commit_segments(
            ALICE, [with_aborted(commit_of("k", run_of(state, 0, 10, "")), aborted_at(4), at=part(0))]
        )
        await publish(scene, ALICE, replace(state, flushed_end=10), 20)
        await scene.delete_topic(ORDERS)
        assert await markers(scene) == []
