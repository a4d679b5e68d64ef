"""The check of objects: what rows name is looked for in the store, a little at a time, and what is gone is reported."""

import asyncio
import logging

import pytest

from streamhouse.broker.admin.health_rules import Check, CheckStatus
from streamhouse.broker.broker import Broker
from streamhouse.config import IntegritySettings
from streamhouse.errors import Unavailable
from tests.broker.conftest import MakeWorld
from tests.broker.maintenance.test_missing_objects import flushed, lose, runs_of
from tests.broker.support import ORDERS, World, batch, fetch


async def with_runs(world: World, count: int) -> Broker:
    broker = await world.start_with(ORDERS, **{"retention.ms": "-1"})
    for n in range(count):
        await flushed(broker, batch(b"o%d" % n))
    return broker


async def doctor(broker: Broker, name: str) -> Check:
    [result] = [
        each for each in (*await broker.health_check.shared(), *await broker.health_check.own()) if each.name == name
    ]
    return result


async def test_a_lost_object_is_found_with_its_partition_and_offsets(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await with_runs(world, 3)
    run = (await runs_of(world, broker))[1]
    await lose(world, run)
    await broker.object_check.run_once()
    await broker.object_check.run_once()
    assert (broker.object_check.missing, broker.object_check.short) == (1, 0)
    [line] = [each for each in caplog.records if each.levelno == logging.ERROR]  # once, not at every look
    assert (line.first_key, line.first_ranges) == (run.object_key, "orders-0[1,2)")  # type: ignore[attr-defined]
    result = await doctor(broker, "readable")
    assert result.verdict == CheckStatus.FAILURE
    assert "orders-0[1,2)" in result.text


async def test_an_object_that_was_cut_off_is_found(world: World) -> None:
    broker = await with_runs(world, 2)
    run = (await runs_of(world, broker))[0]
    body = await world.bucket.get_range(run.object_key, 0, 1 << 20)
    await lose(world, run)
    await world.bucket.put_new(run.object_key, [body[:-1]])
    await broker.object_check.run_once()
    assert (broker.object_check.missing, broker.object_check.short) == (0, 1)


async def test_what_is_put_back_is_found_again(world: World) -> None:
    broker = await with_runs(world, 2)
    run = (await runs_of(world, broker))[0]
    body = await world.bucket.get_range(run.object_key, 0, 1 << 20)
    await lose(world, run)
    await broker.object_check.run_once()
    await world.bucket.put_new(run.object_key, [body])
    await broker.object_check.run_once()
    assert broker.object_check.missing == 0


async def test_every_object_has_its_turn_and_a_look_requests_few(make_world: MakeWorld) -> None:
    world = await make_world(integrity=IntegritySettings(objects=2))
    broker = await with_runs(world, 5)
    for _ in range(3):
        before = world.objects.count("head")
        await broker.object_check.run_once()
        assert world.objects.count("head") - before <= 2
    requests = {key for (key,) in world.objects.arguments("head")}
    assert requests == {run.object_key for run in await runs_of(world, broker)}


async def test_an_object_that_no_row_names_by_now_is_not_missing(world: World) -> None:
    broker = await with_runs(world, 2)
    runs = await runs_of(world, broker)
    held = world.objects.hold("head")
    looking = asyncio.create_task(broker.object_check.run_once())
    await asyncio.sleep(0)
    await world.sqlite.advance_log_start({runs[0].partition: runs[0].end})
    await lose(world, runs[0])
    held.set()
    await looking
    assert broker.object_check.missing == 0


async def test_a_store_that_does_not_answer_has_lost_nothing(world: World) -> None:
    broker = await with_runs(world, 2)
    world.objects.refuse("head", 10)
    with pytest.raises(Unavailable):
        await broker.object_check.run_once()
    assert broker.object_check.missing == 0


async def test_the_check_runs_by_itself(world: World) -> None:
    broker = await with_runs(world, 1)
    await lose(world, *await runs_of(world, broker))
    world.run(broker)
    await world.clock.advance(world.settings.integrity.check_s)
    assert broker.object_check.missing == 1


async def test_the_doctor_finds_one_lost_object_of_many(world: World) -> None:
    broker = await with_runs(world, 5)
    assert (await doctor(broker, "segments")).verdict == CheckStatus.OK
    run = (await runs_of(world, broker))[3]
    await lose(world, run)
    result = await doctor(broker, "segments")
    assert result.verdict == CheckStatus.FAILURE
    assert f"orders-0[3,4) {run.object_key}" in result.text
    assert result.figures == {"looked_at": 5, "missing": 1, "short": 0}


async def test_the_doctor_says_that_a_bucket_was_emptied(world: World) -> None:
    broker = await with_runs(world, 3)
    await lose(world, *await runs_of(world, broker))
    result = await doctor(broker, "segments")
    assert result.verdict == CheckStatus.FAILURE
    assert "none of 3 objects" in result.text
    assert "restore" in result.text


async def test_the_doctor_requests_a_bounded_number_of_objects(make_world: MakeWorld) -> None:
    world = await make_world(integrity=IntegritySettings(doctor_objects=4))
    broker = await with_runs(world, 9)
    newest = (await runs_of(world, broker))[-1]
    await lose(world, newest)
    result = await doctor(broker, "segments")
    assert result.figures["looked_at"] <= 4
    assert result.figures["missing"] == 1


async def test_the_doctor_knows_what_readers_were_refused(world: World) -> None:
    broker = await with_runs(world, 2)
    assert (await doctor(broker, "readable")).verdict == CheckStatus.OK
    run = (await runs_of(world, broker))[0]
    await lose(world, run)
    await fetch(broker, 0)
    result = await doctor(broker, "readable")
    assert result.verdict == CheckStatus.FAILURE
    assert f"orders-0 [0,1) {run.object_key}" in result.text
