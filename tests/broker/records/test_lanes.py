"""Lanes: no sequence is used for two batches, and none that may have been stored is used again."""

import asyncio
from itertools import count
from uuid import UUID

import pytest

from streamhouse.broker.forwarding.producer_ids import Lanes
from streamhouse.broker.partition.producer_state import SEQUENCES
from streamhouse.config import AgentClientSettings
from streamhouse.errors import Unavailable
from streamhouse.model.names import PartitionId, TopicId
from tests.broker.support import settle

HERE = PartitionId(TopicId(UUID(int=1)), 0)
THERE = PartitionId(TopicId(UUID(int=1)), 1)


def some_lanes(*, lanes: int = 2, partitions: int = 10) -> Lanes:
    ids = count(100)

    async def allocate() -> int:
        return next(ids)

    return Lanes(AgentClientSettings(lanes=lanes, lane_partitions=partitions), allocate=allocate)


async def test_a_lane_is_used_again_after_its_batch_was_stored_and_goes_on_behind_it() -> None:
    lanes = some_lanes()
    lane = await lanes.take(HERE)
    assert lane.identity == (100, 0, 0)
    lanes.stored(lane, records=3)
    again = await lanes.take(HERE)
    assert again.identity == (100, 0, 3)


async def test_batches_at_the_same_time_and_partitions_have_ids_of_their_own() -> None:
    lanes = some_lanes()
    taken = [await lanes.take(HERE), await lanes.take(HERE), await lanes.take(THERE)]
    assert len({lane.producer_id for lane in taken}) == 3


async def test_a_lane_in_doubt_is_never_seen_again() -> None:
    lanes = some_lanes(lanes=1)
    lanes.drop(await lanes.take(HERE))
    assert (await lanes.take(HERE)).producer_id == 101


async def test_a_sequence_goes_round_after_the_largest() -> None:
    lanes = some_lanes()
    lane = await lanes.take(HERE)
    lane.sequence = SEQUENCES - 2
    lanes.stored(lane, records=5)
    assert lane.sequence == 3


async def test_who_finds_all_lanes_in_use_waits_and_giving_up_costs_no_lane() -> None:
    lanes = some_lanes(lanes=1)
    lane = await lanes.take(HERE)
    impatient, patient = asyncio.ensure_future(lanes.take(HERE)), asyncio.ensure_future(lanes.take(HERE))
    await settle()
    impatient.cancel()
    await settle()
    lanes.stored(lane, records=1)
    assert (await patient).identity == (100, 0, 1)


async def test_an_id_that_can_not_be_had_costs_no_lane() -> None:
    lanes = some_lanes(lanes=1)
    working = lanes._allocate

    async def broken() -> int:
        raise Unavailable("no ids")

    lanes._allocate = broken
    with pytest.raises(Unavailable):
        await lanes.take(HERE)
    lanes._allocate = working
    await lanes.take(HERE)


async def test_partitions_that_are_forgotten_come_back_with_other_ids() -> None:
    lanes = some_lanes(partitions=1)
    lanes.stored(await lanes.take(HERE), records=1)
    lanes.stored(await lanes.take(THERE), records=1)
    assert (await lanes.take(HERE)).identity == (102, 0, 0)


async def test_partitions_in_use_are_not_forgotten() -> None:
    lanes = some_lanes(partitions=1)
    busy = await lanes.take(HERE)
    lanes.stored(await lanes.take(THERE), records=1)
    lanes.stored(busy, records=1)
    assert (await lanes.take(HERE)).identity == (100, 0, 1)
