"""Topics as an agent knows them: creating, refusing, and asking the store no more than needed."""

import asyncio
import uuid
from collections.abc import Callable, Mapping

import pytest

from streamhouse.broker.catalog.topic_catalog import FRESH_S, MISS_S, TopicCatalog
from streamhouse.config import TopicSettings
from streamhouse.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidTopicName,
    Rejected,
    TopicExists,
    Unavailable,
    UnknownTopic,
    UnknownTopicId,
)
from streamhouse.model.names import TopicId
from streamhouse.model.topic import Topic
from tests.broker.conftest import MakeWorld
from tests.broker.support import World, settle

Change = Callable[[Mapping[str, str]], Mapping[str, str]]


@pytest.fixture
async def catalog(world: World) -> TopicCatalog:
    return TopicCatalog(world.dependencies())


def other_agents_topic(name: str, number: int = 1) -> Topic:
    return Topic(topic_id=TopicId(uuid.UUID(int=number)), name=name, partitions=1, created_at_ms=0)


async def test_a_created_topic_is_found_by_name_and_by_id(catalog: TopicCatalog) -> None:
    made = await catalog.create("orders", partitions=3, overrides={"retention.ms": "1000"})
    assert (made.partitions, made.overrides) == (3, {"retention.ms": "1000"})
    assert await catalog.find("orders") == made
    assert await catalog.find_by_id(made.topic_id) == made
    assert list(await catalog.all()) == [made]


async def test_a_topic_without_a_number_of_partitions_has_the_default(make_world: MakeWorld) -> None:
    world = await make_world(topics=TopicSettings(default_partitions=7))
    assert (await TopicCatalog(world.dependencies()).create("orders")).partitions == 7


async def test_what_could_not_be_created_is_refused_with_its_reason(catalog: TopicCatalog, world: World) -> None:
    for name in ("", "..", "a/b", "x" * 250):
        with pytest.raises(InvalidTopicName):
            await catalog.create(name)
    for partitions in (0, -1, world.settings.topics.max_partitions + 1):
        with pytest.raises(InvalidPartitions):
            await catalog.create("orders", partitions=partitions)
    for overrides in ({"retention.ms": "soon"}, {"no.such.setting": "1"}):
        with pytest.raises(InvalidConfig):
            await catalog.create("orders", overrides=overrides)
    assert list(await catalog.all()) == []


async def test_a_name_is_given_once(catalog: TopicCatalog, world: World) -> None:
    await catalog.create("orders")
    with pytest.raises(TopicExists):
        await catalog.create("orders")
    await world.sqlite.create_topic(other_agents_topic("clicks"))
    with pytest.raises(TopicExists):
        await catalog.create("clicks")


async def test_names_that_differ_only_in_dots_and_underscores_collide(catalog: TopicCatalog) -> None:
    await catalog.create("a.b_c")
    with pytest.raises(InvalidTopicName, match=r"a\.b_c"):
        await catalog.create("a_b.c")
    await catalog.create("a-b-c")


async def test_there_is_a_limit_to_topics(make_world: MakeWorld) -> None:
    world = await make_world(topics=TopicSettings(max_topics=1))
    catalog = TopicCatalog(world.dependencies())
    first = await catalog.create("first")
    with pytest.raises(Rejected, match="too many topics"):
        await catalog.create("second")
    await catalog.delete(first)
    await catalog.create("second")


async def test_a_dry_run_says_what_would_be_and_changes_nothing(catalog: TopicCatalog, world: World) -> None:
    assert (await catalog.create("orders", partitions=3, dry_run=True)).partitions == 3
    assert list(await world.sqlite.topics()) == []
    await catalog.create("orders")
    with pytest.raises(TopicExists):
        await catalog.create("orders", dry_run=True)


async def test_a_deleted_topic_is_unknown_and_its_name_is_free(catalog: TopicCatalog) -> None:
    made = await catalog.create("orders")
    await catalog.delete(made)
    with pytest.raises(UnknownTopic):
        await catalog.find("orders")
    with pytest.raises(UnknownTopicId):
        await catalog.find_by_id(made.topic_id)
    assert (await catalog.create("orders")).topic_id != made.topic_id


async def test_deleting_a_topic_again_does_not_touch_its_successor(catalog: TopicCatalog) -> None:
    first = await catalog.create("orders")
    await catalog.delete(first)
    second = await catalog.create("orders")
    await catalog.delete(first)
    assert await catalog.find("orders") == second


async def test_known_topics_are_found_without_asking_the_store(catalog: TopicCatalog, world: World) -> None:
    await catalog.create("orders")
    calls_before = world.metadata.count("topics")
    for _ in range(100):
        await catalog.find("orders")
    assert world.metadata.count("topics") == calls_before


async def test_topics_of_other_agents_are_found_after_a_moment(catalog: TopicCatalog, world: World) -> None:
    with pytest.raises(UnknownTopic):
        await catalog.find("orders")
    await world.sqlite.create_topic(other_agents_topic("orders"))
    with pytest.raises(UnknownTopic):
        await catalog.find("orders")
    await world.clock.advance(MISS_S)
    assert (await catalog.find("orders")).name == "orders"


async def test_topics_deleted_by_other_agents_are_gone_after_a_while(catalog: TopicCatalog, world: World) -> None:
    made = await catalog.create("orders")
    await world.sqlite.delete_topic(made.topic_id)
    assert await catalog.find("orders") == made
    await world.clock.advance(FRESH_S)
    with pytest.raises(UnknownTopic):
        await catalog.find("orders")


async def test_unknown_names_do_not_storm_the_store(catalog: TopicCatalog, world: World) -> None:
    resume = world.metadata.hold("topics")
    asking = [asyncio.ensure_future(catalog.find(f"nobody-{number}")) for number in range(100)]
    await settle()
    resume.set()
    outcomes = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(outcome, UnknownTopic) for outcome in outcomes)
    assert world.metadata.count("topics") == 1


async def test_a_renewed_catalogue_knows_what_another_agent_was_given_before(
    catalog: TopicCatalog, world: World
) -> None:
    made = await catalog.create("orders")
    await TopicCatalog(world.dependencies()).alter("orders", lambda _: {"retention.ms": "1000"})
    assert (await catalog.find("orders")).overrides == {}
    await catalog.renew()
    assert (await catalog.find("orders")).overrides == {"retention.ms": "1000"}
    world.metadata.refuse("topics")
    await catalog.renew()  # while the store is away, what is known is told
    assert (await catalog.find_by_id(made.topic_id)).overrides == {"retention.ms": "1000"}


async def test_what_is_known_is_served_while_the_store_is_away(catalog: TopicCatalog, world: World) -> None:
    made = await catalog.create("orders")
    await world.clock.advance(FRESH_S)
    world.metadata.refuse("topics", 10)
    assert await catalog.find("orders") == made
    assert await catalog.find_by_id(made.topic_id) == made
    assert list(await catalog.all()) == [made]
    with pytest.raises(Unavailable):
        await catalog.find("clicks")


async def test_a_reading_that_began_before_a_topic_was_created_does_not_undo_it(
    catalog: TopicCatalog, world: World
) -> None:
    resume = world.metadata.hold("topics")
    reading = asyncio.ensure_future(catalog.all())
    creating = asyncio.ensure_future(catalog.create("orders"))
    await settle()
    resume.set()
    made = await creating
    await reading
    assert await catalog.find("orders") == made


async def test_a_reading_that_began_before_a_topic_was_deleted_does_not_bring_it_back(
    catalog: TopicCatalog, world: World
) -> None:
    made = await catalog.create("orders")
    await world.clock.advance(FRESH_S)
    resume = world.metadata.hold("topics")
    reading = asyncio.ensure_future(catalog.all())
    await settle()
    deleting = asyncio.ensure_future(catalog.delete(made))
    await settle()
    resume.set()
    await asyncio.gather(reading, deleting)
    with pytest.raises(UnknownTopic):
        await catalog.find("orders")


async def test_a_topic_whose_creation_got_no_response_is_found(catalog: TopicCatalog, world: World) -> None:
    world.metadata.lose_answer("create_topic")
    with pytest.raises(Unavailable):
        await catalog.create("orders")
    assert (await catalog.find("orders")).name == "orders"


async def test_many_who_want_a_topic_that_is_not_there_get_the_same_one(catalog: TopicCatalog, world: World) -> None:
    made = await asyncio.gather(*(catalog.find_or_create("orders") for _ in range(20)))
    assert len({topic.topic_id for topic in made}) == 1
    assert world.metadata.count("create_topic") == 1


async def test_another_agent_who_creates_it_first_wins_and_is_no_error(catalog: TopicCatalog, world: World) -> None:
    resume = world.metadata.hold("create_topic")
    creating = asyncio.ensure_future(catalog.find_or_create("orders"))
    await settle()
    theirs = other_agents_topic("orders")
    await world.sqlite.create_topic(theirs)
    resume.set()
    assert (await creating).topic_id == theirs.topic_id


# --- topics that change


def with_setting(name: str, value: str = "1") -> Change:
    return lambda overrides: {**overrides, name: value}


async def test_an_altered_topic_is_known_by_name_and_by_id(catalog: TopicCatalog, world: World) -> None:
    made = await catalog.create("orders", overrides={"retention.ms": "5"})
    altered = await catalog.alter("orders", with_setting("segment.bytes", "100"))
    assert altered.overrides == {"retention.ms": "5", "segment.bytes": "100"}
    assert await catalog.find("orders") == await catalog.find_by_id(made.topic_id) == altered
    assert list(await world.sqlite.topics()) == [altered]


async def test_an_alteration_is_made_of_what_another_agent_left(catalog: TopicCatalog, world: World) -> None:
    other = TopicCatalog(world.dependencies())
    await catalog.create("orders")
    await other.alter("orders", with_setting("retention.ms"))
    altered = await catalog.alter("orders", with_setting("segment.ms"))
    assert altered.overrides == {"retention.ms": "1", "segment.ms": "1"}


async def test_of_many_who_alter_a_topic_at_two_agents_none_is_undone(catalog: TopicCatalog, world: World) -> None:
    other = TopicCatalog(world.dependencies())
    await catalog.create("orders")
    names = ["retention.ms", "segment.ms", "retention.bytes", "flush.ms"]
    await asyncio.gather(*((catalog, other)[n % 2].alter("orders", with_setting(name)) for n, name in enumerate(names)))
    assert [topic.overrides for topic in await world.sqlite.topics()] == [dict.fromkeys(names, "1")]


async def test_a_bad_alteration_does_not_make_the_store_be_asked_again(catalog: TopicCatalog, world: World) -> None:
    await catalog.create("orders")
    calls_before = world.metadata.count("topics")
    with pytest.raises(InvalidConfig):
        await catalog.alter("orders", with_setting("no.such"))
    with pytest.raises(InvalidPartitions):
        await catalog.grow("orders", 1)
    await catalog.find("orders")
    assert world.metadata.count("topics") == calls_before
    assert world.metadata.count("alter_topic") == world.metadata.count("add_partitions") == 0


async def test_a_topic_grows_and_is_known_to_have_grown(catalog: TopicCatalog, world: World) -> None:
    made = await catalog.create("orders", partitions=2)
    grown = await catalog.grow("orders", 5)
    assert await catalog.find("orders") == await catalog.find_by_id(made.topic_id) == grown
    assert grown.partitions == len(await world.sqlite.partitions([made.topic_id])) == 5
    assert (await catalog.grow("orders", 9, dry_run=True)).partitions == 9
    assert (await catalog.find("orders")).partitions == 5


async def test_a_growth_goes_on_from_where_another_agent_left(catalog: TopicCatalog, world: World) -> None:
    other = TopicCatalog(world.dependencies())
    await catalog.create("orders", partitions=1)
    await other.grow("orders", 3)
    assert (await catalog.grow("orders", 4)).partitions == 4
    assert (await other.grow("orders", 4)).partitions == 4  # as it is already
    await catalog.grow("orders", 6)
    with pytest.raises(InvalidPartitions, match="has=6"):
        await other.grow("orders", 5)


@pytest.mark.parametrize("fault", ["refuse", "lose_answer"])
async def test_a_growth_that_failed_half_way_is_whole_when_it_is_tried_again(
    catalog: TopicCatalog, world: World, fault: str
) -> None:
    made = await catalog.create("orders", partitions=1)
    getattr(world.metadata, fault)("add_partitions")
    with pytest.raises(Unavailable):
        await catalog.grow("orders", 3)
    try:
        await catalog.grow("orders", 3)
    except InvalidPartitions:
        assert fault == "lose_answer"  # it had happened, and now the number is no growth
    assert [state.partition.partition for state in await world.sqlite.partitions([made.topic_id])] == [0, 1, 2]
    assert (await catalog.find("orders")).partitions == 3


async def test_a_topic_has_no_more_partitions_than_the_settings_allow(make_world: MakeWorld) -> None:
    world = await make_world(topics=TopicSettings(max_partitions=4))
    catalog = TopicCatalog(world.dependencies())
    await catalog.create("orders")
    with pytest.raises(InvalidPartitions, match=r"topics\.max_partitions"):
        await catalog.grow("orders", 5)
