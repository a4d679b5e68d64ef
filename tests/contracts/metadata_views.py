"""What every metadata store must do for the rows of views, and for commits that are fenced by a pipeline's owner."""

import random
import string
from dataclasses import replace

import pytest

from streamhouse.errors import CheckpointMismatch, PipelineLimit, PipelineMoved, Rejected, ViewRefused
from streamhouse.format.metadata_values import parse_view_lookup_key
from streamhouse.model.pipeline import Fence, Kind, PipelineName, ViewPart, ViewRow, ViewState
from streamhouse.model.table import Column
from streamhouse.stores.metadata.base import MetadataStore
from tests.contracts.clocks import ManualClock
from tests.contracts.metadata_pipelines import BERT, LEASE_MS, ROOM, beat, change, find, pipeline, put
from tests.contracts.metadata_placing import placed_run, placement
from tests.contracts.metadata_scene import ALICE, MetadataScene, lead, part, spans

VIEW = PipelineName("revenue")
MUCH = 1 << 30


async def view_part(store: MetadataStore, *rows: tuple[object, object], batch: int = 0, **reported: object) -> ViewPart:
    """A part of a batch under the owner of now; rows are key and value."""
    kept = await find(store, VIEW)
    assert kept.owner is not None
    whole = ViewPart(
        fence=Fence(pipeline=VIEW, epoch=kept.owner.epoch),
        query=kept.pipeline.query_id,
        batch=batch,
        part=0,
        parts=1,
        upserts=tuple(ViewRow(key=(key,), row={"id": key, "sum": value}) for key, value in rows),
        deletes=(),
        fresh_at_ms=1000 + batch,
    )
    return replace(whole, **reported)  # type: ignore[arg-type]


def version(time: int, partition: int = 0, offset: int = 0, *, by: str = "t") -> str:
    return f"{by}{time:016X}{partition:08X}{offset:016X}{0:08X}"


async def tell(store: MetadataStore, *rows: tuple[object, object], batch: int = 0, **reported: object) -> ViewState:
    return await store.change_view(await view_part(store, *rows, batch=batch, **reported), max_rows=ROOM)


async def sums(store: MetadataStore) -> dict[object, object]:
    page = await store.view_rows(VIEW, cursor=None, limit=ROOM, max_bytes=MUCH)
    state = await store.find_view(VIEW)
    assert (0 if state is None else state.rows) == len(page.rows)
    return {each.row["id"]: each.row["sum"] for each in page.rows}


class ViewContract(MetadataScene):
    @pytest.fixture
    async def kept(self, store: MetadataStore) -> MetadataStore:
        await put(store, VIEW, kind=Kind.VIEW)
        await beat(store)
        return store

    async def test_rows_are_set_changed_and_deleted_by_key(self, kept: MetadataStore) -> None:
        assert await kept.find_view(VIEW) is None
        columns = (Column(name="id", type="BIGINT"),)
        state = await tell(kept, (1, 10), (2, 20), key=("id",), columns=columns)
        assert (state.rows, state.fresh_at_ms, state.key, state.columns) == (2, 1000, ("id",), columns)
        await tell(kept, (2, 21), (3, 30), batch=1, deletes=((1,), (9,)))
        assert await sums(kept) == {2: 21, 3: 30}
        assert await kept.find_view_row(VIEW, parse_view_lookup_key(["3"], ["bigint"])) == ViewRow(
            key=(3,), row={"id": 3, "sum": 30}
        )
        assert await kept.find_view_row(VIEW, parse_view_lookup_key(["1"], ["bigint"])) is None
        [listed] = await kept.views()
        assert (listed.name, listed.rows, listed.batch, listed.key) == (VIEW, 2, 1, ("id",))

    async def test_keys_may_be_as_long_as_settings_allow(self, kept: MetadataStore) -> None:
        letters = random.Random(0).choices(string.ascii_letters, k=1990)
        keys = ["".join(letters[:number]) for number in (1990, 1989, 990)]
        await tell(kept, *((key, len(key)) for key in keys))
        page = await kept.view_rows(VIEW, cursor=None, limit=2, max_bytes=MUCH)
        rest = await kept.view_rows(VIEW, cursor=page.cursor, limit=2, max_bytes=MUCH)
        assert [each.row["sum"] for each in (*page.rows, *rest.rows)] == [990, 1989, 1990]

    async def test_a_batch_that_is_there_is_passed_over(self, kept: MetadataStore) -> None:
        await tell(kept, (1, 10))
        await tell(kept, (1, 11), batch=1)
        await tell(kept, (1, 99), batch=1)
        await tell(kept, (1, 99), batch=0)
        assert await sums(kept) == {1: 11}

    async def test_a_batch_is_passed_over_only_if_it_covers_the_same(self, kept: MetadataStore) -> None:
        await tell(kept, (1, 10), batch=1, covers="to 5")
        await tell(kept, (1, 99), batch=1, covers="to 5")
        await tell(kept, (1, 99), batch=1)  # from before there were such words
        with pytest.raises(CheckpointMismatch, match=r"batch=1 committed_batch=1 committed=to 5 now=to 7 do=restore"):
            await tell(kept, (1, 99), batch=1, covers="to 7")
        with pytest.raises(CheckpointMismatch, match="batch=0 committed_batch=1"):
            await tell(kept, (1, 99), batch=0, covers="to 5")
        assert await sums(kept) == {1: 10}
        await tell(kept, (1, 20), batch=2, part=0, parts=2, covers="to 8")
        with pytest.raises(CheckpointMismatch, match="batch=2"):
            await tell(kept, (1, 99), batch=2, part=0, parts=2, covers="to 9")

    async def test_a_view_is_as_fresh_as_its_last_whole_batch(self, kept: MetadataStore) -> None:
        await tell(kept, (1, 10))
        state = await tell(kept, (1, 11), batch=1, part=0, parts=2)
        assert (state.fresh_at_ms, state.is_whole) == (1000, False)
        state = await tell(kept, (2, 21), batch=1, part=1, parts=2)
        assert (state.fresh_at_ms, state.is_whole) == (1001, True)

    async def test_a_complete_batch_may_follow_one_that_is_not_whole(self, kept: MetadataStore) -> None:
        await tell(kept, (1, 10))
        await tell(kept, (7, 70), batch=1, part=0, parts=2, complete=True)
        await tell(kept, (2, 20), batch=2, complete=True)
        assert await sums(kept) == {2: 20}

    async def test_parts_come_in_order_and_a_batch_that_is_not_whole_may_begin_again(self, kept: MetadataStore) -> None:
        await tell(kept, (1, 10), part=0, parts=3)
        with pytest.raises(ViewRefused, match="expected=1"):
            await tell(kept, (3, 30), part=2, parts=3)
        with pytest.raises(ViewRefused, match="incomplete"):
            await tell(kept, (1, 10), batch=1)
        await tell(kept, (2, 20), part=1, parts=3)
        await tell(kept, (2, 20), part=0, parts=2)  # whoever took over cuts it in another way
        state = await tell(kept, (1, 10), (3, 30), part=1, parts=2)
        assert state.is_whole
        assert await sums(kept) == {1: 10, 2: 20, 3: 30}
        await tell(kept, (1, 99), part=2, parts=3)
        assert await sums(kept) == {1: 10, 2: 20, 3: 30}

    async def test_an_older_version_of_a_row_changes_nothing(self, kept: MetadataStore) -> None:
        async def versions(batch: int, *rows: tuple[int, int, str | None]) -> None:
            upserts = tuple(ViewRow(key=(key,), row={"id": key, "sum": n}, version=text) for key, n, text in rows)
            state = await tell(kept, batch=batch, upserts=upserts)
            assert state.rows == len(await sums(kept))

        await versions(0, (1, 10, version(5)), (2, 20, version(5, 1, 7)), (3, 30, None))
        await versions(
            1, (1, 11, version(4, 9, 9)), (2, 21, version(5, 0, 8)), (3, 31, version(1)), (4, 40, version(1))
        )
        assert await sums(kept) == {1: 10, 2: 20, 3: 31, 4: 40}
        joined = version(1) + version(0)[1:]
        await versions(2, (1, 12, version(5)), (2, 22, version(5, 1, 8)), (3, 32, version(0)), (4, 41, joined))
        assert await sums(kept) == {1: 12, 2: 22, 3: 31, 4: 41}
        await versions(3, (1, 13, None), (2, 23, version(6)))
        assert await sums(kept) == {1: 13, 2: 23, 3: 31, 4: 41}

    async def test_in_one_partition_the_offset_decides_where_the_version_says_so(self, kept: MetadataStore) -> None:
        async def reported(batch: int, n: int, text: str) -> object:
            await tell(kept, batch=batch, upserts=(ViewRow(key=(1,), row={"id": 1, "sum": n}, version=text),))
            return (await sums(kept))[1]

        assert await reported(0, 10, version(9, 3, 1, by="o")) == 10
        assert await reported(1, 11, version(5, 3, 2, by="o")) == 11
        assert await reported(2, 12, version(7, 3, 1, by="o")) == 11
        assert await reported(3, 13, version(4, 4, 9, by="o")) == 11
        assert await reported(4, 14, version(6, 4, 10, by="o")) == 11  # the other partition has a record of 9
        assert await reported(5, 15, version(10, 4, 11, by="o")) == 15

    @pytest.mark.parametrize("seed", range(5))
    async def test_the_newest_row_of_a_key_in_several_partitions_is_the_same_however_they_are_read(
        self, kept: MetadataStore, seed: int
    ) -> None:
        chance = random.Random(seed)
        logs = [[chance.randrange(9) for _ in range(chance.randrange(1, 8))] for _ in range(3)]  # times, by offset
        ends, batch = [0, 0, 0], 0
        while any(end < len(log) for end, log in zip(ends, logs, strict=True)):
            upserts = []
            for partition in chance.sample(range(3), 3):
                begin, ends[partition] = ends[partition], chance.randint(ends[partition], len(logs[partition]))
                if times := logs[partition][begin : ends[partition]]:
                    last = ends[partition] - 1
                    text = version(max(times), partition, last, by="o")
                    upserts.append(ViewRow(key=(1,), row={"id": 1, "sum": (partition, last)}, version=text))
            for _ in range(chance.choice((1, 1, 2))):  # a batch may come twice
                await tell(kept, batch=batch, upserts=tuple(upserts))
            batch += 1
            read = [
                (max(log[:end]), number, end - 1)
                for number, (log, end) in enumerate(zip(logs, ends, strict=True))
                if end
            ]
            if read:
                _, partition, last = max(read)
                assert await sums(kept) == {1: [partition, last]}

    async def test_a_complete_batch_replaces_all_rows_with_its_last_part(self, kept: MetadataStore) -> None:
        await tell(kept, (1, 10), (2, 20))
        await tell(kept, (2, 21), batch=1, parts=2, complete=True)
        assert await sums(kept) == {1: 10, 2: 21}
        await tell(kept, (3, 30), batch=1, part=1, parts=2, complete=True)
        assert await sums(kept) == {2: 21, 3: 30}

    async def test_rows_vanish_with_the_first_part_of_a_new_generation(self, kept: MetadataStore) -> None:
        await tell(kept, (1, 10), batch=5)
        old = await view_part(kept, (9, 90), batch=6)
        await change(kept, pipeline(VIEW, kind=Kind.VIEW, revision=2, generation=2))
        assert await sums(kept) == {1: 10}
        with pytest.raises(PipelineMoved):
            await kept.change_view(old, max_rows=ROOM)
        with pytest.raises(ViewRefused, match="another query"):
            await tell(kept, (9, 90), batch=6, query="revenue 1")
        await tell(kept, (2, 20))
        assert await sums(kept) == {2: 20}

    async def test_an_agent_that_lost_the_pipeline_changes_nothing(
        self, kept: MetadataStore, clock: ManualClock
    ) -> None:
        stale = await view_part(kept, (1, 10))
        clock.advance(ms=LEASE_MS)
        await kept.change_view(stale, max_rows=ROOM)  # nobody else has it yet
        await beat(kept, BERT)
        with pytest.raises(PipelineMoved, match="its epoch is"):
            await kept.change_view(replace(stale, batch=1), max_rows=ROOM)
        await kept.remove_supervisor(BERT)
        with pytest.raises(PipelineMoved, match="released"):
            await kept.change_view(replace(stale, batch=1), max_rows=ROOM)
        await kept.drop_pipeline(VIEW)
        with pytest.raises(PipelineMoved, match="gone"):
            await kept.change_view(replace(stale, batch=1), max_rows=ROOM)
        assert await kept.views() == []
        assert (await kept.view_rows(VIEW, cursor=None, limit=5, max_bytes=MUCH)).rows == ()

    async def test_there_is_a_limit_of_rows(self, kept: MetadataStore) -> None:
        await tell(kept, (1, 10), (2, 20))
        with pytest.raises(PipelineLimit, match=r"views\.max_rows"):
            await kept.change_view(await view_part(kept, (3, 30), batch=1), max_rows=2)
        await kept.change_view(await view_part(kept, (3, 30), batch=1, deletes=((1,),)), max_rows=2)
        assert await sums(kept) == {2: 20, 3: 30}

    async def test_pages_are_in_the_order_of_keys(self, kept: MetadataStore) -> None:
        keys = [-10, -2.5, 0, 2, 10, 2**60, 2**60 + 1, "", "a", "a\0b", "ab", "b", "ä"]
        await tell(kept, *((key, None) for key in reversed(keys)))
        seen: list[object] = []
        cursor: str | None = None
        for _ in range(len(keys)):
            page = await kept.view_rows(VIEW, cursor=cursor, limit=2, max_bytes=MUCH)
            seen += [each.row["id"] for each in page.rows]
            cursor = page.cursor
            if cursor is None:
                break
        assert seen == keys
        with pytest.raises(Rejected, match="cursor"):
            await kept.view_rows(VIEW, cursor="[1]", limit=2, max_bytes=MUCH)

    async def test_a_page_has_a_limit_of_bytes_and_at_least_one_row(self, kept: MetadataStore) -> None:
        await tell(kept, (1, "x" * 100), (2, "y"), (3, "z"))
        first = await kept.view_rows(VIEW, cursor=None, limit=9, max_bytes=50)
        assert [each.key for each in first.rows] == [(1,)]
        rest = await kept.view_rows(VIEW, cursor=first.cursor, limit=9, max_bytes=50)
        assert [each.key for each in rest.rows] == [(2,), (3,)]
        assert rest.cursor is None

    async def test_a_key_given_twice_in_a_part_is_as_the_last(self, kept: MetadataStore) -> None:
        await tell(kept, (1, 10), (1, 11), (2, 20))
        assert await sums(kept) == {1: 11, 2: 20}

    # --- commits

    async def test_segments_are_placed_only_for_the_owner_of_the_pipeline(
        self, ready: MetadataStore, clock: ManualClock
    ) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await put(ready, VIEW)
        epoch = (await beat(ready))[VIEW]
        fence = Fence(pipeline=VIEW, epoch=epoch)
        await ready.commit_external_segments(replace(placement(placed_run(state, 0, 10, "one"), epoch=0), fence=fence))
        clock.advance(ms=LEASE_MS)
        await beat(ready, BERT)
        stale = replace(placement(placed_run(state, 10, 20, "two"), epoch=1), fence=fence)
        with pytest.raises(PipelineMoved):
            await ready.commit_external_segments(stale)
        assert await spans(ready, part(0)) == [(0, 10)]
        replayed = await ready.commit_external_segments(
            replace(placement(placed_run(state, 0, 10, "one"), epoch=0), fence=fence)
        )
        assert replayed.is_replayed  # it had happened while the pipeline was its own
