"""A listing of registered runs: pages of a bounded size that leave nothing out, in order, whatever goes meanwhile."""

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.fetch.read_plans import RunCursor
from streamhouse.config import PlanSettings
from streamhouse.model.names import TopicPartition
from tests.broker.conftest import MakeWorld
from tests.broker.support import World, batch, current, produce

MAX_RUNS, MAX_PARTITIONS = 4, 3
Listed = list[tuple[str, int, int]]


@pytest.fixture
async def world(make_world: MakeWorld) -> World:
    return await make_world(plans=PlanSettings(max_runs=MAX_RUNS, max_partitions=MAX_PARTITIONS))


@pytest.fixture
async def broker(world: World) -> Broker:
    broker = await world.start()
    for name, partitions in (("b", 5), ("a", 2), ("c", 1)):
        await broker.create_topic(name, partitions=partitions, overrides={})
    return broker


async def flushed(broker: Broker, topic: str, partition: int, *, runs: int) -> None:
    for _ in range(runs):
        await produce(broker, batch(b"v"), TopicPartition(topic, partition))
        await current(broker).flusher.flush_all()


async def listed(broker: Broker, *, limit: int, begin: RunCursor | None = None) -> tuple[Listed, int]:
    """All that is listed from there on, and in how many pages."""
    results: Listed = []
    for pages in range(1, 50):
        page = await broker.run_listing.page(await broker.topics(), limit=limit, begin=begin)
        assert len(page.runs) <= min(limit, MAX_RUNS)
        results += [(name.topic, name.partition, run.base) for name, run in page.runs]
        if page.next is None:
            return results, pages
        begin = page.next
    raise AssertionError("the listing never ends")


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 1000])
async def test_pages_are_small_and_leave_nothing_out(broker: Broker, limit: int) -> None:
    expected = {("a", 1): 5, ("b", 0): 1, ("b", 4): 6, ("c", 0): 2}
    for (topic, partition), runs in expected.items():
        await flushed(broker, topic, partition, runs=runs)
    result, _ = await listed(broker, limit=limit)
    assert result == [(*name, base) for name, runs in expected.items() for base in range(runs)]


async def test_one_page_looks_at_so_many_partitions_only(broker: Broker) -> None:
    await flushed(broker, "c", 0, runs=1)
    page = await broker.run_listing.page(await broker.topics(), limit=1000)
    assert (page.runs, page.next) == ([], RunCursor(TopicPartition("b", 1), 0))
    assert await listed(broker, limit=1000) == ([("c", 0, 0)], 3)


async def test_a_listing_goes_on_behind_a_topic_that_was_deleted_meanwhile(broker: Broker) -> None:
    for topic in ("a", "b", "c"):
        await flushed(broker, topic, 0, runs=2)
    page = await broker.run_listing.page(await broker.topics(), limit=3)
    assert page.next == RunCursor(TopicPartition("b", 0), 1)
    await broker.delete_topic(await broker.topic("b"))
    assert await listed(broker, limit=4, begin=page.next) == ([("c", 0, 0), ("c", 0, 1)], 1)


async def test_a_place_that_never_was_ends_nothing_but_its_topic(broker: Broker) -> None:
    await flushed(broker, "a", 0, runs=1)
    await flushed(broker, "b", 0, runs=1)
    assert (await listed(broker, limit=4, begin=RunCursor(TopicPartition("a", 99), 5)))[0] == [("b", 0, 0)]
    assert (await listed(broker, limit=4, begin=RunCursor(TopicPartition("z", 0), 0)))[0] == []
