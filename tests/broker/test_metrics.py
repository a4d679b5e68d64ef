"""Metrics of the caches: every cache says how often it answered, and the disk tier how it is."""

import errno
from pathlib import Path

from prometheus_client import CollectorRegistry

from streamhouse.broker.broker import Broker
from streamhouse.broker.metrics import BrokerMetrics
from streamhouse.config import AgentSettings, FetchSettings
from streamhouse.model.names import TopicPartition
from tests.broker.conftest import MakeWorld
from tests.broker.support import ORDERS, World, batch, current, fetch, produce

CACHES = ("blocks", "indexes", "runs", "topics")


class Page:
    def __init__(self, broker: Broker) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(BrokerMetrics(broker))

    def __call__(self, name: str, cache: str | None = None) -> float | None:
        labels = {"cache": cache} if cache is not None else {}
        return self._registry.get_sample_value(f"streamhouse_{name}", labels)

    def of_topic(self, name: str, topic: str) -> float | None:
        return self._registry.get_sample_value(f"streamhouse_topic_{name}", {"topic": topic})


async def read_twice(world: World) -> tuple[Broker, Page]:
    broker = await world.start_with(ORDERS)
    for _ in range(4):
        await produce(broker, batch(b"x" * 200))
    await current(broker).flusher.flush_all()
    for _ in range(2):
        for offset in range(4):
            assert (await fetch(broker, offset, max_bytes=1)).records
            if broker.reader.disk is not None:
                await broker.reader.disk.settled()
    return broker, Page(broker)


async def test_every_cache_shows_its_hits_misses_evictions_entries_and_hit_rate(world: World) -> None:
    _, page = await read_twice(world)
    for cache in CACHES:
        hits, misses = page("cache_hits_total", cache), page("cache_misses_total", cache)
        assert hits is not None
        assert misses is not None
        assert hits >= 4
        assert misses >= (0 if cache == "topics" else 1)
        assert page("cache_hit_rate", cache) == hits / (hits + misses)
        assert page("cache_evictions_total", cache) == 0
    assert [page("cache_entries", cache) for cache in CACHES] == [4, 1, 1, 1]
    assert (page("cache_bytes", "blocks") or 0) > 800
    assert page("cold_reads_waiting") == 0
    assert page("cache_hits_total", "blocks_on_disk") is None
    assert page("disk_cache_on") is None


async def test_a_cache_that_nobody_asked_has_no_hit_rate(world: World) -> None:
    page = Page(await world.start())
    assert page("cache_hits_total", "blocks") == 0
    assert page("cache_hit_rate", "blocks") is None


async def test_both_tiers_of_the_block_cache_are_distinguished(make_world: MakeWorld, tmp_path: Path) -> None:
    world = await make_world(
        fetch=FetchSettings(cache_bytes=1, readahead_blocks=0, disk_cache_path=str(tmp_path / "cache"))
    )
    broker, page = await read_twice(world)
    assert page("cache_misses_total", "blocks") == 8
    assert page("cache_evictions_total", "blocks") == 7
    assert page("cache_misses_total", "blocks_on_disk") == page("cache_hits_total", "blocks_on_disk") == 4
    assert page("cache_hit_rate", "blocks_on_disk") == 0.5
    assert page("cache_entries", "blocks_on_disk") == 4
    assert page("cache_bytes", "blocks_on_disk") == 4 * 4096
    assert [page(f"disk_cache_{name}") for name in ("on", "errors_total", "damaged_total", "dropped_total")] == [
        1,
        0,
        0,
        0,
    ]
    await broker.reader.aclose()


async def test_a_tier_that_was_turned_off_shows(make_world: MakeWorld, tmp_path: Path) -> None:
    world = await make_world(fetch=FetchSettings(disk_cache_path=str(tmp_path / "cache")))
    broker, page = await read_twice(world)
    assert broker.reader.disk is not None
    broker.reader.disk._turn_off(OSError(errno.EIO, "trouble"))
    assert (page("disk_cache_on"), page("disk_cache_errors_total")) == (0, 1)
    await broker.reader.aclose()


async def test_topics_beyond_the_limit_are_counted_together_until_one_is_deleted(make_world: MakeWorld) -> None:
    world = await make_world(agent=AgentSettings(max_metric_topics=1))
    payments = TopicPartition("payments", 0)
    broker = await world.start_with(ORDERS, payments)
    page = Page(broker)
    size_bytes = len(batch(b"x", b"y"))
    for name in (ORDERS, payments, payments):
        await produce(broker, batch(b"x", b"y"), name)
    assert (await fetch(broker, 0)).records
    names = ("appended_records_total", "appended_bytes_total", "fetched_bytes_total", "retained_offsets", "partitions")
    assert [page.of_topic(name, "orders") for name in names] == [2, size_bytes, size_bytes, 2, 1]
    assert [page.of_topic(name, "(others)") for name in names] == [4, 2 * size_bytes, 0, 4, 1]
    assert page.of_topic("appended_bytes_total", "payments") is None
    await broker.delete_topic(await broker.catalog.find("orders"))
    assert page.of_topic("appended_bytes_total", "orders") is None
    await produce(broker, batch(b"x", b"y"), payments)
    assert page.of_topic("appended_bytes_total", "payments") == size_bytes
