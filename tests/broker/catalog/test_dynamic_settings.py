"""Settings that are changed while agents run: what they add up to, who learns of it, and who obeys."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.catalog.dynamic_settings import merge
from streamhouse.broker.catalog.kafka_configs import AGENT_SETTINGS, READ_ONLY, Overrides, agent_configs
from streamhouse.broker.catalog.topic_catalog import FRESH_S, MISS_S, TopicCatalog
from streamhouse.config import Address, FetchSettings, GroupSettings, Settings, TopicSettings
from streamhouse.errors import InvalidConfig, RecordTooLarge, Rejected, Unavailable, UnknownTopic
from streamhouse.model.names import NodeId
from streamhouse.model.topic_settings import TOPIC_SETTINGS
from tests.broker.conftest import MakeWorld
from tests.broker.support import CLICKS, NOW_MS, ORDERS, World, batch, current, fetch, produce, settle

DAY_MS = 86_400_000
Change = Callable[[Mapping[str, str]], Mapping[str, str]]


def with_(**configs: str) -> Change:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    return lambda before: {**before, **named}


def only(**configs: str) -> Change:
    change = with_(**configs)
    return lambda _: change({})


async def alter(broker: Broker, change: Change, node_id: NodeId | None = None) -> None:
    await broker.topic_admin.alter_agent(node_id, change)


# --- what they add up to


def test_what_was_changed_for_an_agent_comes_before_what_was_changed_for_all_and_both_before_its_start() -> None:
    started = Settings(topics=TopicSettings(default_partitions=3, auto_create=False))
    everywhere = {"num.partitions": "4", "log.retention.ms": "1", "log.retention.bytes": "2"}
    now = merge(started, Overrides(here={"num.partitions": "5", "log.retention.ms": "6"}, everywhere=everywhere))
    assert now.settings == Settings(topics=TopicSettings(default_partitions=5, auto_create=False))
    assert now.topic_defaults == {"retention.ms": "6", "retention.bytes": "2"}
    assert merge(started, Overrides(everywhere=everywhere)).settings.topics.default_partitions == 4


def test_units_are_kafkas_outside_and_ours_inside() -> None:
    changed = {
        "group.initial.rebalance.delay.ms": "250",
        "group.min.session.timeout.ms": "1500",
        "group.max.session.timeout.ms": "2500",
        "offsets.retention.minutes": "3",
    }
    groups = merge(Settings(), Overrides(everywhere=changed)).settings.groups
    assert groups == GroupSettings(
        initial_rebalance_delay_s=0.25, min_session_timeout_s=1.5, max_session_timeout_s=2.5, offsets_retention_s=180.0
    )


@pytest.mark.parametrize("name", [name for name, setting in AGENT_SETTINGS.items() if setting.path and setting.parse])
def test_a_setting_that_was_changed_to_what_it_says_is_what_it_was(name: str) -> None:
    default = AGENT_SETTINGS[name].default
    assert default is not None
    assert merge(Settings(), Overrides(here={name: default})).settings == Settings()


def test_every_default_of_topics_that_can_be_changed_reaches_the_topics() -> None:
    for setting in TOPIC_SETTINGS.values():
        if setting.synonym and AGENT_SETTINGS[setting.synonym].parse is not None:
            changed = Overrides(everywhere={setting.synonym: setting.default})
            assert merge(Settings(), changed).topic_defaults == {setting.name: setting.default}


def test_what_is_reported_of_an_agent_is_a_setting_or_a_fact() -> None:
    result = agent_configs(Settings(), node_id=1, advertised=Address("a", 1), store="s", changed=Overrides())
    assert {config.name for config in result} == (AGENT_SETTINGS.keys() | READ_ONLY) - {"cleanup.policy"}
    assert all(config.read_only for config in result if config.name in READ_ONLY)


# --- changing them


async def test_a_change_that_makes_no_sense_is_refused_and_asks_the_store_for_nothing(world: World) -> None:
    broker = await world.start()
    for bad, error in (
        (with_(no_such="1"), InvalidConfig),
        (with_(num_partitions="0"), Rejected),
        (with_(num_partitions="10001"), Rejected),
        (with_(broker_id="7"), Rejected),
        (with_(group_max_session_timeout_ms="5999"), Rejected),
    ):
        with pytest.raises(error):
            await alter(broker, bad)
    assert world.metadata.count("alter_broker_settings") == 0


async def test_a_wrong_name_is_reported_with_the_one_that_was_meant(world: World) -> None:
    broker = await world.start()
    with pytest.raises(InvalidConfig, match=r"did you mean log\.retention\.ms"):
        await alter(broker, with_(log_retention_msec="1"))


async def test_what_contradicts_itself_only_for_this_agent_is_refused(world: World) -> None:
    broker = await world.start()
    await alter(broker, with_(group_min_session_timeout_ms="9000"), broker.node_id)
    with pytest.raises(Rejected, match="contradict"):
        await alter(broker, with_(group_max_session_timeout_ms="8000"))
    await alter(broker, with_(group_max_session_timeout_ms="9000"))


async def test_of_two_agents_that_change_settings_at_once_none_loses_one(world: World) -> None:
    one, other = TopicCatalog(world.dependencies()), TopicCatalog(world.dependencies())
    await asyncio.gather(
        one.dynamic.alter(None, with_(num_partitions="3")),
        other.dynamic.alter(None, with_(group_max_size="4")),
        one.dynamic.alter(None, with_(log_retention_ms="5")),
    )
    expected = {"num.partitions": "3", "group.max.size": "4", "log.retention.ms": "5"}
    assert await world.sqlite.broker_settings() == {None: expected}


async def test_a_change_whose_answer_is_lost_is_read_again_before_the_next_answer(world: World) -> None:
    broker = await world.start()
    world.metadata.lose_answer("alter_broker_settings")
    with pytest.raises(Unavailable):
        await alter(broker, with_(num_partitions="3"))
    assert await broker.topic_admin.changed() == Overrides(everywhere={"num.partitions": "3"})
    assert (await broker.create_topic("orders", partitions=None, overrides={})).partitions == 3


async def test_a_dry_run_changes_nothing(world: World) -> None:
    broker = await world.start()
    await broker.topic_admin.alter_agent(None, with_(num_partitions="3"), dry_run=True)
    assert broker.settings.topics.default_partitions == 1
    assert await world.sqlite.broker_settings() == {}


async def test_what_a_newer_release_changed_counts_for_nothing_and_stays(world: World) -> None:
    newer = {"no.such": "1", "num.partitions": "3", "group.max.size": "as many as there are"}
    await world.sqlite.alter_broker_settings(None, expected={}, configs=newer)
    broker = await world.start()
    assert await broker.topic_admin.changed() == Overrides(everywhere={"num.partitions": "3"})
    await alter(broker, with_(num_partitions="4"))
    assert broker.settings.topics.default_partitions == 4
    assert await world.sqlite.broker_settings() == {None: {**newer, "num.partitions": "4"}}


# --- who learns of it


async def test_changes_hold_for_the_next_agent_from_its_start(world: World) -> None:
    broker = await world.start()
    await alter(broker, with_(num_partitions="3"))
    world.kill()
    assert (await world.start()).settings.topics.default_partitions == 3


async def test_a_nodes_changes_belong_to_its_number_and_to_nobody_else(world: World) -> None:
    broker = await world.start()
    await alter(broker, with_(num_partitions="3"), NodeId(broker.node_id + 1))
    assert broker.settings.topics.default_partitions == 1
    await alter(broker, with_(num_partitions="4"), broker.node_id)
    assert broker.settings.topics.default_partitions == 4


async def test_another_agents_change_is_seen_when_what_is_known_is_old(world: World) -> None:
    broker, other = await world.start_with(), TopicCatalog(world.dependencies())
    await produce(broker, batch(b"x" * 200))
    await other.dynamic.alter(None, with_(message_max_bytes="100", num_partitions="3"))
    await produce(broker, batch(b"x" * 200))
    await world.clock.advance(FRESH_S)
    with pytest.raises(RecordTooLarge):
        await produce(broker, batch(b"x" * 200))
    assert broker.settings.topics.default_partitions == 3


async def test_another_agents_change_is_seen_at_once_after_a_word_of_it(world: World) -> None:
    broker, other = await world.start_with(), TopicCatalog(world.dependencies())
    await produce(broker, batch(b"x" * 200))
    await other.dynamic.alter(None, with_(message_max_bytes="100"))
    broker.catalog.invalidate()
    with pytest.raises(RecordTooLarge):
        await produce(broker, batch(b"x" * 200))


async def test_an_open_log_learns_what_another_agent_changed_of_its_topic(world: World) -> None:
    broker, other = await world.start_with(ORDERS, CLICKS), TopicCatalog(world.dependencies())
    for name in (ORDERS, CLICKS):
        await produce(broker, batch(b"x" * 200), name)
    await other.alter("orders", lambda _: {"max.message.bytes": "100"})
    broker.catalog.invalidate()
    with pytest.raises(RecordTooLarge):
        await produce(broker, batch(b"x" * 200))
    await produce(broker, batch(b"x" * 200), CLICKS)


async def test_settings_are_not_requested_while_what_is_known_is_fresh(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    calls_before = world.metadata.count("broker_settings")
    for _ in range(3):
        await produce(broker, batch(b"a"))
        await broker.topic_admin.changed()
    assert world.metadata.count("broker_settings") == calls_before


async def test_what_is_known_holds_while_the_store_is_away(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"x"))
    await alter(broker, with_(message_max_bytes="100"))
    await world.clock.advance(FRESH_S)
    world.metadata.refuse("broker_settings", times=100)
    with pytest.raises(RecordTooLarge):
        await produce(broker, batch(b"x" * 200))
    assert await broker.topic_admin.changed() == Overrides(everywhere={"message.max.bytes": "100"})


async def test_a_reading_that_began_before_a_change_does_not_undo_it(world: World) -> None:
    broker = await world.start_with()
    reading = world.metadata.hold_answer("broker_settings")
    broker.catalog.invalidate()
    asking = asyncio.ensure_future(broker.topics())
    await settle()
    altering = asyncio.ensure_future(alter(broker, with_(num_partitions="3")))
    await settle()
    reading.set()
    await asyncio.gather(asking, altering)
    assert broker.settings.topics.default_partitions == 3


# --- who obeys


async def test_open_logs_obey_the_defaults_of_topics_unless_their_topic_knows_better(world: World) -> None:
    broker = await world.start_with()
    await broker.create_topic("clicks", partitions=1, overrides={"max.message.bytes": "500"})
    for name in (ORDERS, CLICKS):
        await produce(broker, batch(b"x" * 200), name)
    await alter(broker, with_(message_max_bytes="100", log_message_timestamp_type="LogAppendTime"))
    with pytest.raises(RecordTooLarge):
        await produce(broker, batch(b"x" * 200))
    await produce(broker, batch(b"x" * 200), CLICKS)
    assert [item.config.log_append_time for item in current(broker).logs] == [True, True]
    await alter(broker, only())
    await produce(broker, batch(b"x" * 200))


async def test_a_log_that_is_being_opened_obeys_as_well(world: World) -> None:
    broker = await world.start_with()
    opening = world.metadata.hold("acquire")
    appending = asyncio.ensure_future(broker.open_log(ORDERS))
    await settle()
    await alter(broker, with_(message_max_bytes="100"))
    opening.set()
    assert (await appending).config.max_message_bytes == 100


async def test_retention_follows_the_defaults_of_topics(world: World) -> None:
    broker = await world.start_with()
    for age_ms in (2 * DAY_MS, 0):
        await produce(broker, batch(b"a", timestamp_ms=NOW_MS - age_ms))
        await current(broker).flusher.flush_all()
    assert await broker.retention.apply() == 0
    await alter(broker, with_(log_retention_ms=str(DAY_MS)))
    assert await broker.retention.apply() == 1


async def test_settings_of_a_topic_that_contradict_the_defaults_are_refused(world: World) -> None:
    broker = await world.start_with()
    await alter(broker, with_(log_cleaner_max_compaction_lag_ms="10"))
    lag = {"min.compaction.lag.ms": "11"}
    with pytest.raises(InvalidConfig, match="contradict"):
        await broker.create_topic("clicks", partitions=1, overrides=lag)
    with pytest.raises(InvalidConfig, match="contradict"):
        await broker.topic_admin.alter_topic("orders", lambda _: lag)


async def test_topics_are_created_as_the_settings_in_force_say(world: World) -> None:
    broker = await world.start()
    await alter(broker, with_(num_partitions="3"))
    assert (await broker.topic("orders", create=True)).partitions == 3
    await alter(broker, with_(auto_create_topics_enable="false"))
    await world.clock.advance(MISS_S)
    with pytest.raises(UnknownTopic):
        await broker.topic("clicks", create=True)


async def test_a_response_to_a_fetch_has_the_size_in_force(make_world: MakeWorld) -> None:
    world = await make_world(fetch=FetchSettings(max_bytes=10_000_000))
    broker = await world.start_with()
    for _ in range(4):
        await produce(broker, batch(b"x" * 600))
    before = (await fetch(broker, 0)).size_bytes
    await alter(broker, with_(fetch_max_bytes="1500"))
    assert (await fetch(broker, 0)).size_bytes == before / 2
