"""Identity and adoption: the database's id and generations, and registering what no row names."""

from dataclasses import replace

import pytest

from streamhouse.errors import Internal, SessionLost
from streamhouse.model.cluster_identity import DatabaseIdentity
from streamhouse.model.names import Epoch
from streamhouse.model.orphan_adoption import Adoption
from streamhouse.model.transaction import AbortedTransaction
from streamhouse.stores.metadata.base import MetadataStore
from tests.contracts.metadata_scene import (
    ALICE,
    BOB,
    NOBODY,
    MetadataScene,
    commit_of,
    lead,
    part,
    publish,
    run_of,
    spans,
    state_of,
)


class IdentityContract(MetadataScene):
    async def test_a_new_database_has_no_name_and_no_generation(self, store: MetadataStore) -> None:
        assert await store.identity() == DatabaseIdentity(cluster_id=None, begun=0, stored=0)
        await store.cluster_id("c")
        assert await store.begin_generation() == 1
        assert await store.begin_generation() == 2
        await store.store_generation(2)
        await store.store_generation(1)
        assert await store.identity() == DatabaseIdentity(cluster_id="c", begun=2, stored=2)

    async def test_sessions_are_known_in_whatever_state(self, ready: MetadataStore) -> None:
        await ready.end_session(BOB)
        assert await ready.sessions_among([ALICE, BOB, NOBODY]) == {ALICE, BOB}
        assert await ready.sessions_among([]) == frozenset()

    async def test_adopted_runs_stand_beside_the_others_and_everything_goes_on_above_them(
        self, ready: MetadataStore
    ) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await publish(ready, ALICE, state, 10)
        later = replace(state, epoch=Epoch(state.epoch + 5))
        commits = [
            commit_of("k2", replace(run_of(later, 30, 40, "k2"), max_timestamp_ms=5)),
            replace(
                commit_of("k1", replace(run_of(state, 10, 20, "k1"), max_timestamp_ms=900)),
                aborted={part(0): (AbortedTransaction(7, 11, 15),)},
            ),
        ]
        await ready.adopt(
            Adoption(cluster_id="theirs", commits=commits, epoch=100, producer_id=2000, generation=9, ended=[ALICE])
        )
        assert await spans(ready, part(0)) == [(0, 10), (10, 20), (30, 40)]
        adopted = await state_of(ready, part(0))
        assert (adopted.flushed_end, adopted.epoch, adopted.holder) == (40, later.epoch, None)
        assert (await ready.sizes([part(0).topic_id]))[part(0)] == 3000
        assert (await ready.aborted({part(0): 0}, limit=9))[part(0)] == [AbortedTransaction(7, 11, 15)]
        latest = await ready.latest_run(part(0), from_offset=0)
        assert latest is not None
        assert latest.base == 10
        assert await ready.identity() == DatabaseIdentity(cluster_id="theirs", begun=9, stored=0)
        assert await ready.allocate_producer_ids(1) == 2001
        with pytest.raises(SessionLost):
            await ready.renew_session(ALICE, 1000)
        [taken] = await lead(ready, BOB, part(0))
        assert taken.epoch > 100

    async def test_a_run_before_others_is_found_by_its_time(self, ready: MetadataStore) -> None:
        """Searches by time rely on later runs telling of earlier times, too."""
        [state] = await lead(ready, ALICE, part(0))
        early = replace(run_of(state, 50, 60, "late"), max_timestamp_ms=3)
        await ready.adopt(Adoption(cluster_id="c", commits=[commit_of("late", early)]))
        middle = replace(run_of(state, 10, 20, "middle"), max_timestamp_ms=700)
        await ready.adopt(Adoption(cluster_id="c", commits=[commit_of("middle", middle)]))
        result = await ready.run_at_time(part(0), timestamp_ms=500, from_offset=0)
        assert result is not None
        assert result.base == 10

    async def test_rows_that_are_replaced_go_and_their_objects_are_doomed(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await publish(ready, ALICE, state, 10, 20)
        rows = await ready.runs(part(0), from_offset=0, limit=9)
        merged = commit_of("merged", run_of(state, 0, 30, "merged"))
        await ready.adopt(Adoption(cluster_id="c", commits=[merged], replaced=rows))
        assert await spans(ready, part(0)) == [(0, 30)]
        assert {each.key for each in await ready.objects_pending_deletion(grace_ms=0, limit=9)} == {
            r.object_key for r in rows
        }
        assert (await ready.sizes([part(0).topic_id]))[part(0)] == 1000

    async def test_an_object_that_rows_name_is_not_adopted_and_nothing_happens(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await ready.commit_segments(ALICE, [commit_of("k", run_of(state, 0, 10, "k"))])
        with pytest.raises(Internal, match="registered meanwhile"):
            await ready.adopt(
                Adoption(cluster_id="c", commits=[commit_of("k", run_of(state, 10, 20, "k"))], generation=5)
            )
        assert (await state_of(ready, part(0))).flushed_end == 10
        assert (await ready.identity()).begun == 0
