"""Lanes: no sequence is used for two batches, and none that may have been stored is used again."""

import asyncio
from itertools import count
from uuid import UUID

import pytest

from streamhouse.broker.forwarding.producer_ids import ProducerIdPool
from streamhouse.broker.partition.producer_state import SEQUENCES
from streamhouse.config import AgentClientSettings
from streamhouse.errors import Unavailable
from streamhouse.model.names import PartitionId, TopicId
from tests.broker.support import settle

HERE = PartitionId(TopicId(UUID(int=1)), 0)
THERE = PartitionId(TopicId(UUID(int=1)), 1)


def some_lanes(*, id_pool: int = 2, partitions: int = 10) -> ProducerIdPool:
    ids = count(100)

    async def allocate() -> int:
        return next(ids)

    return ProducerIdPool(AgentClientSettings(lanes=id_pool, lane_partitions=partitions), allocate=allocate)


async def test_a_lane_is_used_again_after_its_batch_was_stored_and_goes_on_behind_it() -> None:
    id_pool = some_lanes()
    pooled = await id_pool.acquire(HERE)
    assert pooled.identity == (100, 0, 0)
    id_pool.stored(pooled, records=3)
    again = await id_pool.acquire(HERE)
    assert again.identity == (100, 0, 3)


async def test_batches_at_the_same_time_and_partitions_have_ids_of_their_own() -> None:
    id_pool = some_lanes()
    taken = [await id_pool.acquire(HERE), await id_pool.acquire(HERE), await id_pool.acquire(THERE)]
    assert len({pooled.producer_id for pooled in taken}) == 3


async def test_a_producer_id_in_doubt_is_never_seen_again() -> None:
    id_pool = some_lanes(id_pool=1)
    id_pool.discard(await id_pool.acquire(HERE))
    assert (await id_pool.acquire(HERE)).producer_id == 101


async def test_a_sequence_goes_round_after_the_largest() -> None:
    id_pool = some_lanes()
    pooled = await id_pool.acquire(HERE)
    pooled.sequence = SEQUENCES - 2
    id_pool.stored(pooled, records=5)
    assert pooled.sequence == 3


async def test_who_finds_all_lanes_in_use_waits_and_giving_up_costs_no_lane() -> None:
    id_pool = some_lanes(id_pool=1)
    pooled = await id_pool.acquire(HERE)
    impatient, patient = asyncio.ensure_future(id_pool.acquire(HERE)), asyncio.ensure_future(id_pool.acquire(HERE))
    await settle()
    impatient.cancel()
    await settle()
    id_pool.stored(pooled, records=1)
    assert (await patient).identity == (100, 0, 1)


async def test_an_id_that_can_not_be_had_costs_no_lane() -> None:
    id_pool = some_lanes(id_pool=1)
    working = id_pool._allocate

    async def broken() -> int:
        raise Unavailable("no ids")

    id_pool._allocate = broken
    with pytest.raises(Unavailable):
        await id_pool.acquire(HERE)
    id_pool._allocate = working
    await id_pool.acquire(HERE)


async def test_partitions_that_are_forgotten_come_back_with_other_ids() -> None:
    id_pool = some_lanes(partitions=1)
    id_pool.stored(await id_pool.acquire(HERE), records=1)
    id_pool.stored(await id_pool.acquire(THERE), records=1)
    assert (await id_pool.acquire(HERE)).identity == (102, 0, 0)


async def test_partitions_in_use_are_not_forgotten() -> None:
    id_pool = some_lanes(partitions=1)
    busy = await id_pool.acquire(HERE)
    id_pool.stored(await id_pool.acquire(THERE), records=1)
    id_pool.stored(busy, records=1)
    assert (await id_pool.acquire(HERE)).identity == (100, 0, 1)
