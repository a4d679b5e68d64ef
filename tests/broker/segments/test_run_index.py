"""Windows of runs: one bisect where the window reaches, one question to the store where it doesn't."""

import uuid
from collections.abc import Sequence
from typing import cast

import pytest

from streamhouse.broker.segments import run_index as module
from streamhouse.broker.segments.run_index import RunIndex
from streamhouse.errors import Unavailable
from streamhouse.model.names import Epoch, PartitionId, TopicId
from streamhouse.model.segment import Run
from streamhouse.stores.metadata.base import MetadataStore
from tests.broker.support import Faulty

PARTITION = PartitionId(TopicId(uuid.UUID(int=1)), 0)
OTHER = PartitionId(TopicId(uuid.UUID(int=2)), 0)


def run(base: int, end: int, partition: PartitionId = PARTITION) -> Run:
    return Run(
        partition=partition,
        base=base,
        end=end,
        stored_base=base,
        epoch=Epoch(1),
        object_key=f"segments/{base}",
        position=0,
        length=1,
        index_position=1,
        index_length=1,
        records=end - base,
        max_timestamp_ms=0,
    )


class Rows:
    """The part of the metadata store that returns runs."""

    def __init__(self, *rows: Run) -> None:
        self.rows = list(rows)

    async def runs(self, partition: PartitionId, *, from_offset: int, limit: int) -> Sequence[Run]:
        return [row for row in self.rows if row.partition == partition and row.end > from_offset][:limit]


def index(*rows: Run, limit: int = 100) -> tuple[RunIndex, Faulty, Rows]:
    store = Rows(*rows)
    faulty = Faulty(store)
    return RunIndex(cast(MetadataStore, faulty), limit=limit), faulty, store


async def test_the_run_that_holds_an_offset_is_found_and_its_neighbours_need_no_further_question() -> None:
    result, faulty, _ = index(run(0, 10), run(10, 20), run(20, 30))
    assert [await result.find(PARTITION, offset) for offset in (0, 9, 10, 29)] == [
        run(0, 10),
        run(0, 10),
        run(10, 20),
        run(20, 30),
    ]
    assert faulty.count("runs") == 1


async def test_in_a_gap_the_next_run_is_found_also_before_the_first() -> None:
    result, faulty, _ = index(run(5, 10), run(20, 30))
    assert await result.find(PARTITION, 2) == run(5, 10)
    assert await result.find(PARTITION, 15) == run(20, 30)
    assert await result.find(PARTITION, 3) == run(5, 10)
    assert faulty.count("runs") == 1


async def test_behind_the_last_run_is_nothing_and_that_is_not_remembered() -> None:
    result, _, store = index(run(0, 10))
    assert await result.find(PARTITION, 10) is None
    store.rows.append(run(10, 20))
    assert await result.find(PARTITION, 10) == run(10, 20)


async def test_a_window_grows_by_what_this_agent_publishes() -> None:
    result, faulty, _ = index(run(0, 10))
    await result.find(PARTITION, 0)
    result.published([run(10, 20), run(20, 30)])
    assert await result.find(PARTITION, 25) == run(20, 30)
    assert faulty.count("runs") == 1


async def test_a_window_that_ends_elsewhere_does_not_grow_into_a_hole() -> None:
    result, faulty, store = index(run(0, 10), run(10, 20))
    result.published([run(20, 30)])  # no window yet
    await result.find(PARTITION, 0)
    store.rows += [run(20, 30), run(30, 40)]
    result.published([run(30, 40)])
    assert await result.find(PARTITION, 20) == run(20, 30)
    assert faulty.count("runs") == 2


async def test_a_window_that_grew_too_long_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WINDOW", 2)
    result, faulty, store = index(run(0, 10), run(10, 20))
    await result.find(PARTITION, 0)
    store.rows.append(run(20, 30))
    result.published([run(20, 30)])
    assert await result.find(PARTITION, 20) == run(20, 30)
    assert faulty.count("runs") == 2


async def test_long_logs_are_read_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 2)
    rows = [run(base, base + 10) for base in range(0, 60, 10)]
    result, faulty, _ = index(*rows)
    assert [await result.find(PARTITION, offset) for offset in range(0, 60, 10)] == rows
    assert faulty.count("runs") == 3


async def test_what_is_forgotten_is_requested_again() -> None:
    result, _, store = index(run(0, 10), run(10, 20))
    await result.find(PARTITION, 0)
    del store.rows[0]
    result.forget(PARTITION)
    result.forget(OTHER)
    assert await result.find(PARTITION, 0) == run(10, 20)


async def test_readers_far_apart_have_a_window_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 2)
    rows = [run(base, base + 10) for base in range(0, 60, 10)]
    result, faulty, _ = index(*rows)
    for _ in range(3):
        assert await result.find(PARTITION, 5) == rows[0]
        assert await result.find(PARTITION, 45) == rows[4]
    assert faulty.count("runs") == 2


async def test_only_so_many_runs_are_kept_and_the_longest_unused_window_goes() -> None:
    third = PartitionId(OTHER.topic_id, 1)
    result, faulty, _ = index(run(0, 10), run(0, 10, OTHER), run(0, 10, third), limit=2)
    for partition in (PARTITION, OTHER, PARTITION, third):
        await result.find(partition, 0)
    assert faulty.count("runs") == 3
    await result.find(PARTITION, 0)
    assert faulty.count("runs") == 3
    await result.find(OTHER, 0)
    assert faulty.count("runs") == 4


async def test_trouble_of_the_store_is_passed_on_and_not_remembered() -> None:
    result, faulty, _ = index(run(0, 10))
    faulty.refuse("runs")
    with pytest.raises(Unavailable):
        await result.find(PARTITION, 0)
    assert await result.find(PARTITION, 0) == run(0, 10)
