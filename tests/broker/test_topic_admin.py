"""Topics that change under their open logs, records that are deleted, sizes and settings."""

import asyncio
from functools import partial

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.catalog.kafka_configs import SettingSource
from streamhouse.config import Address, StoreSettings, TopicSettings
from streamhouse.errors import (
    InvalidConfig,
    InvalidTopicName,
    LeaseLost,
    OffsetOutOfRange,
    PolicyViolation,
    RecordTooLarge,
    Stopping,
    Unavailable,
    UnknownTopic,
)
from streamhouse.model.group import OFFSETS_TOPIC
from streamhouse.model.names import TopicPartition
from tests.broker.conftest import MakeWorld
from tests.broker.support import CLICKS, ORDERS, World, batch, idempotent, produce, settle, values_of

SMALL = {"max.message.bytes": "100"}
ADVERTISED = Address("127.0.0.1", 9092)


def to(**overrides: str) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in overrides.items()}


async def stored_start(world: World, broker: Broker, name: TopicPartition = ORDERS) -> int:
    topic = await broker.topic(name.topic)
    return (await world.sqlite.partitions([topic.topic_id]))[name.partition].log_start


# --- settings and open logs


async def test_an_altered_topic_s_open_logs_obey_when_it_returns(world: World) -> None:
    broker = await world.start_with(ORDERS, CLICKS)
    await produce(broker, batch(b"x" * 200))
    await produce(broker, batch(b"x" * 200), CLICKS)
    await broker.topic_admin.alter_topic("orders", lambda _: SMALL)
    with pytest.raises(RecordTooLarge):
        await produce(broker, batch(b"x" * 200))
    await produce(broker, batch(b"x" * 200), CLICKS)


async def test_a_log_that_was_being_opened_obeys_as_well(world: World) -> None:
    broker = await world.start_with()
    opening = world.metadata.hold("acquire")
    appending = asyncio.ensure_future(broker.open_log(ORDERS))
    await settle()
    altering = asyncio.ensure_future(broker.topic_admin.alter_topic("orders", lambda _: SMALL))
    await settle()
    opening.set()
    await altering
    assert (await appending).config.max_message_bytes == 100


async def test_the_last_of_two_alterations_holds(world: World) -> None:
    broker = await world.start_with()
    opened = await broker.open_log(ORDERS)
    alter = broker.topic_admin.alter_topic
    requests = [to(max_message_bytes=str(size)) for size in (1, 2, 3)]
    await asyncio.gather(*(alter("orders", partial(lambda new, _: new, new)) for new in requests))
    (topic,) = await world.sqlite.topics()
    assert opened.config.max_message_bytes == int(topic.overrides["max.message.bytes"])


async def test_a_dry_run_changes_neither_the_topic_nor_its_logs(world: World) -> None:
    broker = await world.start_with()
    opened = await broker.open_log(ORDERS)
    response = await broker.topic_admin.alter_topic("orders", lambda _: SMALL, dry_run=True)
    assert response.overrides == SMALL
    assert opened.config.max_message_bytes != 100
    assert (await broker.topic("orders")).overrides == {}


async def test_an_alteration_whose_answer_got_lost_can_be_repeated(world: World) -> None:
    broker = await world.start_with()
    opened = await broker.open_log(ORDERS)
    world.metadata.lose_answer("alter_topic")
    with pytest.raises(Unavailable):
        await broker.topic_admin.alter_topic("orders", lambda _: SMALL)
    await broker.topic_admin.alter_topic("orders", lambda _: SMALL)
    assert opened.config.max_message_bytes == 100


async def test_a_topic_that_is_deleted_meanwhile_can_not_be_altered(world: World) -> None:
    broker = await world.start_with()
    topic = await broker.topic("orders")
    await world.sqlite.delete_topic(topic.topic_id)
    with pytest.raises(UnknownTopic):
        await broker.topic_admin.alter_topic("orders", lambda _: SMALL)
    with pytest.raises(UnknownTopic):
        await broker.topic_admin.grow_topic("orders", 2)


async def test_a_bad_setting_leaves_everything_as_it_was(world: World) -> None:
    broker = await world.start_with()
    opened = await broker.open_log(ORDERS)
    before = opened.config
    with pytest.raises(InvalidConfig):
        await broker.topic_admin.alter_topic("orders", lambda _: to(retention_ms="soon"))
    assert opened.config is before


async def test_an_altered_topic_can_be_deleted_by_who_knew_it_before(world: World) -> None:
    broker = await world.start_with()
    known = await broker.topic("orders")
    await broker.topic_admin.alter_topic("orders", lambda _: SMALL)
    await broker.delete_topic(known)
    with pytest.raises(UnknownTopic):
        await broker.topic("orders")


async def test_retention_obeys_an_altered_topic(world: World) -> None:
    broker = await world.start_with()
    for value in (b"a", b"b"):
        await produce(broker, batch(value))
        await broker.agent_session.flusher.flush_all()  # type: ignore[union-attr]
    await world.clock.advance(10)
    assert await broker.retention.apply() == 0
    await broker.topic_admin.alter_topic("orders", lambda _: to(retention_ms="5000"))
    assert await broker.retention.apply() == 1


# --- deleting records


async def test_deleting_flushes_what_is_only_in_the_tail_first(world: World) -> None:
    broker = await world.start_with()
    world.run(broker)
    for value in (b"a", b"b", b"c"):
        await produce(broker, batch(value))
    deleting = asyncio.ensure_future(broker.topic_admin.delete_records(ORDERS, 2))
    await settle()
    assert await stored_start(world, broker) == 0
    await world.clock.advance(world.settings.flush.check_s)
    assert await deleting == 2
    assert await stored_start(world, broker) == 2
    assert await values_of(broker, offset=2) == {2: b"c"}


async def test_what_is_flushed_already_needs_no_flush(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"a", b"b"))
    await broker.agent_session.flusher.flush_all()  # type: ignore[union-attr]
    assert await broker.topic_admin.delete_records(ORDERS, 1) == 1
    assert world.objects.count("put_new") == 1


async def test_a_deletion_survives_the_agent_and_offsets_go_on(world: World) -> None:
    broker = await world.start_with()
    world.run(broker)
    await produce(broker, batch(b"a", b"b"))
    deleting = asyncio.ensure_future(broker.topic_admin.delete_records(ORDERS, -1))
    await world.clock.advance(1)
    assert await deleting == 2
    world.kill()
    again = await world.start()
    assert (await again.earliest(ORDERS)).offset == 2
    assert (await produce(again, batch(b"c"))).base_offset == 2
    assert await values_of(again, offset=2) == {2: b"c"}


async def test_duplicates_are_known_after_everything_was_deleted(world: World) -> None:
    broker = await world.start_with()
    world.run(broker)
    await produce(broker, idempotent(b"a", sequence=0))
    deleting = asyncio.ensure_future(broker.topic_admin.delete_records(ORDERS, -1))
    await world.clock.advance(1)
    await deleting
    world.kill()
    again = await world.start()
    assert (await produce(again, idempotent(b"a", sequence=0))).base_offset == 0
    assert (await produce(again, idempotent(b"b", sequence=1))).base_offset == 1


async def test_while_the_object_store_is_away_a_deletion_waits_and_nothing_is_lost(world: World) -> None:
    broker = await world.start_with()
    world.run(broker)
    await produce(broker, batch(b"a", b"b"))
    world.objects.refuse("put_new", times=3)
    deleting = asyncio.ensure_future(broker.topic_admin.delete_records(ORDERS, 1))
    await world.clock.advance(0.3)
    assert not deleting.done()
    assert await values_of(broker) == {0: b"a", 1: b"b"}
    await world.clock.advance(30)
    assert await deleting == 1


async def test_who_gives_up_waiting_leaves_the_log_start_alone(world: World) -> None:
    broker = await world.start_with()
    world.run(broker)
    await produce(broker, batch(b"a"))
    away = world.objects.hold("put_new")
    deleting = asyncio.ensure_future(broker.topic_admin.delete_records(ORDERS, 1))
    await world.clock.advance(1)
    deleting.cancel()
    away.set()
    await world.clock.advance(1)
    opened = await broker.open_log(ORDERS)
    assert (opened.flushed_end, opened.log_start, opened.has_flush_waiters) == (1, 0, False)


async def test_a_deletion_whose_answer_got_lost_can_be_repeated(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"a", b"b"))
    await broker.agent_session.flusher.flush_all()  # type: ignore[union-attr]
    world.metadata.lose_answer("advance_log_start")
    with pytest.raises(Unavailable):
        await broker.topic_admin.delete_records(ORDERS, 1)
    assert await broker.topic_admin.delete_records(ORDERS, 1) == 1
    assert (await broker.earliest(ORDERS)).offset == 1


async def test_a_stop_ends_the_wait_with_an_error_that_may_be_retried(world: World) -> None:
    broker = await world.start_with()
    running = world.run(broker)
    await produce(broker, batch(b"a"))
    world.objects.hold("put_new")
    deleting = asyncio.ensure_future(broker.topic_admin.delete_records(ORDERS, 1))
    await world.clock.advance(1)
    broker.stop()
    await settle()
    with pytest.raises(Stopping):
        await deleting
    running.cancel()


async def test_a_topic_that_is_deleted_ends_the_wait(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    deleting = asyncio.ensure_future(broker.topic_admin.delete_records(ORDERS, 1))
    await settle()
    await broker.delete_topic(await broker.topic("orders"))
    with pytest.raises(LeaseLost):
        await deleting


async def test_only_what_consumers_could_see_is_deleted(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    for offset in (2, -2):
        with pytest.raises(OffsetOutOfRange):
            await broker.topic_admin.delete_records(ORDERS, offset)
    await broker.topic_admin.alter_topic("orders", lambda _: to(cleanup_policy="compact"))
    with pytest.raises(PolicyViolation):
        await broker.topic_admin.delete_records(ORDERS, 1)
    with pytest.raises(InvalidTopicName):
        await broker.topic_admin.delete_records(TopicPartition(OFFSETS_TOPIC, 0), 0)


# --- sizes, producers, the agent's settings


async def test_sizes_add_up_segments_and_tail(world: World) -> None:
    broker = await world.start_with(ORDERS, CLICKS)
    topics = await broker.topics()
    await produce(broker, batch(b"a" * 100))
    await broker.agent_session.flusher.flush_all()  # type: ignore[union-attr]
    ((_, run),) = (await broker.run_listing.page([await broker.topic("orders")], limit=10)).runs
    tail = batch(b"b")
    await produce(broker, tail)
    assert await broker.topic_admin.sizes(topics) == {CLICKS: 0, ORDERS: run.length + len(tail)}
    assert await broker.topic_admin.sizes([]) == {}


async def test_producers_are_told_from_the_table_that_judges(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, idempotent(b"a", b"b", sequence=0, producer=9, epoch=2))
    (entry,) = await broker.topic_admin.producers(ORDERS)
    assert (entry.producer_id, entry.epoch, entry.batches[-1].last_sequence) == (9, 2, 1)


async def test_the_agents_settings_say_whether_someone_chose_them(make_world: MakeWorld) -> None:
    world = await make_world(
        topics=TopicSettings(auto_create=False), store=StoreSettings(url="s3://key:secret@bucket/path")
    )
    broker = await world.start()
    result = {each.name: each for each in await broker.topic_admin.configs(advertised=ADVERTISED)}
    assert result["auto.create.topics.enable"].values == (
        (SettingSource.STARTED_WITH, "false"),
        (SettingSource.DEFAULT, "true"),
    )
    assert result["num.partitions"].values == ((SettingSource.DEFAULT, "1"),)
    assert result["advertised.listeners"].value == "PLAINTEXT://127.0.0.1:9092"
    assert all(each.about and "secret" not in each.value for each in result.values())
    assert "secret" not in broker.topic_admin.store
