"""Retention of records without timestamps: their age is that of their object."""

import pytest

from tests.broker.support import CLICKS, ORDERS, World, batch, current, produce, values_of

DAY_S = 86_400


@pytest.mark.parametrize("timestamp_ms", [-1, -5_000])
async def test_records_without_a_time_are_as_old_as_their_object(world: World, timestamp_ms: int) -> None:
    broker = await world.start_with(**{"retention.ms": "4000"})
    for value in (b"a", b"b"):
        await produce(broker, batch(value, timestamp_ms=timestamp_ms))
        await current(broker).flusher.flush_all()
        await world.clock.advance(2)
    assert await broker.retention.apply() == 0
    assert await values_of(broker) == {0: b"a", 1: b"b"}
    await world.clock.advance(1)
    assert await broker.retention.apply() == 1
    assert await values_of(broker, offset=1) == {1: b"b"}
    assert (await broker.earliest(ORDERS)).offset == 1


async def test_while_it_is_unknown_how_old_records_without_a_time_are_they_stay(world: World) -> None:
    broker = await world.start_with(**{"retention.ms": "1000"})
    await produce(broker, batch(b"a", timestamp_ms=-1))
    await current(broker).flusher.flush_all()
    await world.clock.advance(DAY_S)
    world.objects.refuse("head")
    assert await broker.retention.apply() == 0
    assert await broker.retention.apply() == 1


async def test_the_age_of_records_without_a_time_costs_a_request_per_object(world: World) -> None:
    broker = await world.start_with(ORDERS, CLICKS, **{"retention.ms": str(1000 * DAY_S)})
    for name in (ORDERS, CLICKS):
        await produce(broker, batch(b"a", timestamp_ms=-1), name)
    await current(broker).flusher.flush_all()
    assert await broker.retention.apply() == 0
    assert world.objects.count("head") == 1
