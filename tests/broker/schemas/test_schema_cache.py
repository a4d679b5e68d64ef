"""Schemas in memory: read once, served while the store is away, gone when others have deleted them."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from streamhouse.broker.metrics import BrokerMetrics
from streamhouse.broker.schemas import SchemaRegistry
from streamhouse.errors import Unavailable, UnknownSchema
from streamhouse.model.cluster import Change, ChangeKind
from streamhouse.model.schema import DEFAULT_CONTEXT
from tests.broker.schemas.support import CLICKS, ORDERS, avro, registry
from tests.broker.support import World, settle

PLAIN = avro("x")


@pytest.fixture
def schemas(world: World) -> SchemaRegistry:
    return registry(world)


async def test_a_schema_is_read_and_parsed_once(schemas: SchemaRegistry, world: World) -> None:
    await schemas.register(ORDERS, PLAIN)
    found = await asyncio.gather(*(schemas.schema(1) for _ in range(10)))
    assert all(each is found[0] for each in found)
    assert world.metadata.count("schema_of_id") == 1
    assert await schemas.schema(1) is found[0]
    assert await schemas.schema(1, context=".") is found[0]


async def test_an_unknown_id_is_requested_each_time(schemas: SchemaRegistry) -> None:
    with pytest.raises(UnknownSchema):
        await schemas.schema(1)
    await schemas.register(ORDERS, PLAIN)
    assert (await schemas.schema(1)).type == "AVRO"


async def test_a_known_schema_is_served_while_the_store_is_away(schemas: SchemaRegistry, world: World) -> None:
    await schemas.register(ORDERS, PLAIN)
    await schemas.schema(1)
    world.metadata.refuse("schema_of_id", 100)
    world.clock.skip(world.settings.schemas.cache_ttl_s * 3)
    schemas.on_change(Change(ChangeKind.EVERYTHING))
    assert (await schemas.schema(1)).type == "AVRO"
    assert (await schemas.stored(1)).schema_id == 1
    with pytest.raises(Unavailable):
        await schemas.schema(2)


async def test_after_its_time_a_schema_is_looked_up_and_not_parsed_again(schemas: SchemaRegistry, world: World) -> None:
    await schemas.register(ORDERS, PLAIN)
    before = await schemas.schema(1)
    world.clock.skip(world.settings.schemas.cache_ttl_s)
    assert await schemas.schema(1) is before
    assert world.metadata.count("schema_of_id") == 2


async def test_what_another_agent_deleted_is_unknown_once_it_is_heard(world: World) -> None:
    here, there = registry(world), registry(world)
    world.sqlite.subscribe(here.on_change)
    await there.register(ORDERS, PLAIN)
    await here.schema(1)
    await there.delete_subject(ORDERS)
    await settle()
    assert (await here.schema(1)).type == "AVRO"  # out of use, and still readable
    await there.delete_subject(ORDERS, permanent=True)
    await settle()
    with pytest.raises(UnknownSchema):
        await here.schema(1)


async def test_what_this_agent_deleted_is_unknown_at_once(schemas: SchemaRegistry) -> None:
    await schemas.register(ORDERS, PLAIN)
    await schemas.schema(1)
    await schemas.delete_subject(ORDERS)
    await schemas.delete_subject(ORDERS, permanent=True)
    with pytest.raises(UnknownSchema):
        await schemas.schema(1)


async def test_other_news_leave_schemas_alone(schemas: SchemaRegistry, world: World) -> None:
    await schemas.register(ORDERS, PLAIN)
    await schemas.schema(1)
    for kind in ChangeKind:
        if kind not in (ChangeKind.SCHEMAS, ChangeKind.EVERYTHING):
            schemas.on_change(Change(kind))
    await schemas.schema(1)
    assert world.metadata.count("schema_of_id") == 1


async def test_ids_belong_to_subjects_until_they_are_deleted(schemas: SchemaRegistry, world: World) -> None:
    await schemas.register(ORDERS, PLAIN)
    library = schemas.library
    assert await library.belongs(ORDERS, 1)
    assert library.is_membership_cached(ORDERS, 1)
    assert not await library.belongs(CLICKS, 1)
    await schemas.delete_version(ORDERS, 1)
    assert not library.is_membership_cached(ORDERS, 1)
    assert not await library.belongs(ORDERS, 1)
    assert await library.is_known(DEFAULT_CONTEXT, 1)


async def test_membership_is_remembered_while_the_store_is_away(schemas: SchemaRegistry, world: World) -> None:
    await schemas.register(ORDERS, PLAIN)
    await schemas.library.belongs(ORDERS, 1)
    world.metadata.refuse("versions_of_schema", 10)
    schemas.on_change(Change(ChangeKind.EVERYTHING))
    assert await schemas.library.belongs(ORDERS, 1)
    with pytest.raises(Unavailable):
        await schemas.library.belongs(CLICKS, 1)


async def test_hit_rates_are_reported(world: World) -> None:
    broker = await world.start()
    metrics = CollectorRegistry()
    metrics.register(BrokerMetrics(broker))
    await broker.schemas.register(ORDERS, PLAIN)
    for _ in range(4):
        await broker.schemas.schema(1)
    assert metrics.get_sample_value("streamhouse_cache_hits_total", {"cache": "schemas"}) == 3
    assert metrics.get_sample_value("streamhouse_cache_hit_rate", {"cache": "schemas"}) == 0.75
    assert metrics.get_sample_value("streamhouse_cache_entries", {"cache": "schema_subjects"}) == 0
