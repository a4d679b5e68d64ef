"""Compacting a partition of very many runs: page by page, and as right as with all of them at once."""

import asyncio
import tracemalloc
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.maintenance import log_cleaner as module
from streamhouse.broker.maintenance.log_cleaner import LogCleaner
from streamhouse.broker.maintenance.run_rewriter import AbortedCleanup
from streamhouse.broker.segments.transaction_isolation import StableFlushedOffset
from streamhouse.config import CompactionSettings
from streamhouse.format.records import Record, build_batch
from streamhouse.model.cluster import PartitionState
from streamhouse.model.names import Epoch, PartitionId, TopicId
from streamhouse.model.segment import Run
from streamhouse.model.topic import parse_topic_config
from tests.broker.conftest import MakeWorld
from tests.broker.support import NOW_MS, World, current, produce, settle, values_of

COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
PARTITION = PartitionId(TopicId(uuid.UUID(int=7)), 0)
MANY = 20_000
MIB = 1 << 20


@pytest.fixture
async def world(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(module, "PAGE", 3)
    return await make_world(compaction=CompactionSettings(max_runs=2, merge_runs=0))


@pytest.fixture
async def broker(world: World) -> Broker:
    return await world.start_with(**COMPACT)


async def written(broker: Broker, *keys: bytes) -> None:
    """A run of its own."""
    records = [Record(key=key, value=b"v", timestamp_ms=NOW_MS) for key in keys]
    await produce(broker, memoryview(build_batch(records)))
    await current(broker).flusher.flush_all()


async def runs_of(world: World, broker: Broker) -> Sequence[Run]:
    partition = PartitionId((await broker.topic("orders")).topic_id, 0)
    return await world.sqlite.runs(partition, from_offset=0, limit=1000)


async def test_a_pass_over_many_pages_leaves_the_latest_of_each_key(world: World, broker: Broker) -> None:
    for number in range(11):
        await written(broker, b"same", b"key-%d" % (number % 4))
    await broker.compactor.run_once()
    # Of each two, the first is superseded by the run behind it, the second by the one four runs behind it.
    assert set(await values_of(broker)) == {15, 17, 19, 20, 21}
    assert broker.compactor.cleaner.dropped_records == 22 - 5
    replaced = [len(expected) for _, expected, _ in world.metadata.arguments("replace_runs")]
    assert max(replaced) == 2
    assert sum(replaced) == 10  # the last run is as it was
    assert (await runs_of(world, broker))[-1].end == 22


async def test_a_log_that_ends_with_a_page_is_compacted_to_its_end(world: World, broker: Broker) -> None:
    for _ in range(6):
        await written(broker, b"a")
    await broker.compactor.run_once()
    assert set(await values_of(broker)) == {5}
    assert broker.compactor.cleaner.passes == 1


async def test_a_merge_across_two_pages_ends_the_pass_and_the_next_one_is_whole(
    world: World, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        await written(broker, b"a", b"key-%d" % number)
    resume = world.objects.hold("put_new")
    looking = asyncio.ensure_future(broker.compactor.run_once())
    await settle()  # the first two runs are about to be replaced; the third is read already, the fourth isn't
    _, _, third, fourth, _ = await runs_of(world, broker)
    world.objects._held.clear()
    await merge(broker, third, fourth)
    resume.set()
    await looking
    assert broker.compactor.cleaner.passes == 0
    (result,) = (str(vars(each)["why"]) for each in caplog.records if each.msg == "partition not rewritten")
    assert result.startswith("runs changed while they were read")
    offered = [[(run.base, run.end) for run in each[1]] for each in world.metadata.arguments("replace_runs")]
    assert sorted(offered) == [[(0, 2), (2, 4)], [(4, 6), (6, 8)]]  # nothing was made of the third and of both
    assert set(await values_of(broker)) >= {1, 3, 5, 7, 8, 9}
    await broker.compactor.run_once()
    assert broker.compactor.cleaner.passes == 1
    assert set(await values_of(broker)) == {1, 3, 5, 7, 8, 9}


async def merge(broker: Broker, *runs: Run) -> None:
    """As another agent would, at once."""
    assert await broker.compactor.merger._merge(runs)


class Rows:
    """A partition of very many runs, created on demand."""

    def __init__(self) -> None:
        self.requested: list[int] = []

    async def now_ms(self) -> int:
        return 0

    async def last_runs(self, partitions: Sequence[PartitionId]) -> Sequence[Run]:
        return []

    async def runs(self, partition: PartitionId, *, from_offset: int, limit: int) -> Sequence[Run]:
        self.requested.append(limit)
        return [run_at(base) for base in range(from_offset, min(from_offset + limit, MANY))]


def run_at(base: int) -> Run:
    return Run(
        partition=PARTITION,
        base=base,
        end=base + 1,
        stored_base=base,
        epoch=Epoch(1),
        object_key=f"segments/{base}",
        position=0,
        length=100,
        index_position=100,
        index_length=10,
        records=1,
        max_timestamp_ms=NOW_MS,
    )


async def test_very_many_runs_are_never_in_memory_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 1000)
    rows = Rows()
    broker = await world.start()
    dependencies = replace(broker._dependencies, metadata=cast(Any, rows))
    cleaner = LogCleaner(
        dependencies,
        rewriter=broker.compactor.rewriter,
        stable_flushed=StableFlushedOffset(dependencies, reader=broker.reader),
        aborted_cleanup=AbortedCleanup(dependencies, logs=list),
    )
    state = PartitionState(
        partition=PARTITION, epoch=Epoch(1), holder=None, log_start=0, flushed_end=MANY, reserved_until=MANY
    )
    config = parse_topic_config({"cleanup.policy": "compact"}, {})
    tracemalloc.start()
    try:
        assert not await cleaner.clean(state, config, cleaned_to=MANY // 2 + 1)  # just not dirty enough
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(rows.requested) >= MANY
    assert peak_bytes < 2 * MIB  # all of them would be five times as much
