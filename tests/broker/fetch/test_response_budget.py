"""Response budget: the memory of all responses is limited, however many clients there are, and however slow."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.broker.broker import Broker
from streamhouse.broker.partition.backpressure import SHARE, ResponseBudget
from streamhouse.config import FetchSettings
from streamhouse.model.fetch import FetchResult, PartitionFetch
from streamhouse.model.names import TopicPartition
from tests.broker.conftest import MakeWorld
from tests.broker.support import MANY_BYTES, World, batch, current, produce, records_of, settle

LIMIT_BYTES = 40_000
VALUE = bytes(1000)
PARTITIONS, BATCHES = 8, 10
READERS = 50


@given(st.lists(st.integers(0, 5_000), max_size=100))
def test_a_caller_that_takes_no_more_than_there_is_room_for_never_passes_the_limit(wanted: list[int]) -> None:
    responses = ResponseBudget(LIMIT_BYTES)
    for size in wanted:
        responses.resize(0, min(size, responses.room_bytes()))
    assert responses.held_bytes <= LIMIT_BYTES
    assert len(wanted) > 20 or responses.room_bytes() > 0


def test_a_response_gets_its_share_of_what_the_others_leave_however_it_grows() -> None:
    responses = ResponseBudget(LIMIT_BYTES)
    responses.resize(0, LIMIT_BYTES // 2)
    own = responses.resize(0, 1_000)
    assert own + responses.room_bytes(own_bytes=own) == LIMIT_BYTES // 2 // SHARE
    responses.resize(LIMIT_BYTES // 2, 2 * LIMIT_BYTES)  # a batch may be larger than everything
    assert responses.room_bytes(own_bytes=own) == 0


@pytest.fixture
async def world(make_world: MakeWorld) -> World:
    return await make_world(fetch=FetchSettings(answers_bytes=LIMIT_BYTES, readahead_blocks=0, cache_bytes=1))


@pytest.fixture
async def broker(world: World) -> Broker:
    """Every partition has more in segments than the budget of all responses."""
    broker = await world.start()
    await broker.create_topic("orders", partitions=PARTITIONS, overrides={})
    for number in range(PARTITIONS):
        for _ in range(BATCHES):
            await produce(broker, batch(VALUE), TopicPartition("orders", number))
    await current(broker).flusher.flush_all()
    return broker


def ask(
    broker: Broker, *, offset: int = 0, wait_s: float = 0.0, min_bytes: int = 1
) -> "asyncio.Task[list[FetchResult]]":
    requests = [PartitionFetch(TopicPartition("orders", number), offset, MANY_BYTES) for number in range(PARTITIONS)]
    fetching = broker.fetch(requests, max_bytes=MANY_BYTES, min_bytes=min_bytes, max_wait_s=wait_s)
    return asyncio.get_running_loop().create_task(fetching)


async def test_many_cold_responses_that_are_gathered_at_once_stay_within_the_limit(
    world: World, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    resize = broker.reader.response_budget.resize

    def noted(before_bytes: int, after_bytes: int) -> int:
        held.append(broker.reader.response_budget.held_bytes)
        return resize(before_bytes, after_bytes)

    monkeypatch.setattr(broker.reader.response_budget, "resize", noted)
    going = world.objects.hold("get_range")
    readers = [ask(broker) for _ in range(READERS)]
    await settle()
    going.set()
    sizes = [sum(item.size_bytes for item in each) for each in await asyncio.gather(*readers)]
    assert 0 < min(sizes) <= max(sizes) <= LIMIT_BYTES // SHARE
    assert LIMIT_BYTES / 2 < max(held) <= LIMIT_BYTES + READERS * len(batch(VALUE))
    assert broker.reader.response_budget.held_bytes == 0


async def test_a_response_that_was_cut_does_not_wait_and_a_retry_brings_the_rest(broker: Broker) -> None:
    broker.reader.response_budget.resize(0, 2 * LIMIT_BYTES)  # others have it all
    for offset in range(BATCHES):
        async with asyncio.timeout(10):
            first, *others = await ask(broker, offset=offset, wait_s=60, min_bytes=MANY_BYTES)
        assert [record.offset for record in records_of(first.records)] == [offset]
        assert not any(item.records for item in others)


async def test_a_caller_that_gives_up_while_its_response_is_gathered_holds_nothing(
    world: World, broker: Broker
) -> None:
    world.objects.hold("get_range")
    reader = ask(broker)
    await settle()
    assert broker.reader.response_budget.held_bytes > 0
    reader.cancel()
    await settle()
    assert broker.reader.response_budget.held_bytes == 0
