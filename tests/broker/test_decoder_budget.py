"""The memory for decompressing: who is admitted, who waits, who is refused at once, what those leave who go."""

import asyncio

import pytest

from streamhouse.broker.partition.batch_decoder import DecoderBudget
from streamhouse.config import DecoderSettings
from streamhouse.errors import Overloaded


def make_budget(**settings: float) -> DecoderBudget:
    return DecoderBudget(DecoderSettings(memory_bytes=100, **settings))  # type: ignore[arg-type]


async def waiting(budget: DecoderBudget, size_bytes: int) -> "asyncio.Task[None]":
    task = asyncio.create_task(budget.take(size_bytes))
    await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_who_comes_behind_too_many_is_refused_at_once() -> None:
    budget = make_budget(max_waiting=1, max_wait_s=1e6)
    await budget.take(100)
    first = await waiting(budget, 1)
    async with asyncio.timeout(5):
        with pytest.raises(Overloaded):
            await budget.take(1)
    assert budget.refused == 1
    budget.release(100)
    await first


async def test_a_small_one_does_not_overtake_a_large_one_that_waits() -> None:
    budget = make_budget()
    await budget.take(60)
    large = await waiting(budget, 80)
    small = await waiting(budget, 10)
    budget.release(60)
    await asyncio.gather(large, small)
    assert budget.used_bytes == 90


async def test_one_that_leaves_the_front_of_the_queue_lets_the_next_in() -> None:
    budget = make_budget()
    await budget.take(60)
    large = await waiting(budget, 80)
    small = await waiting(budget, 10)
    large.cancel()
    await small
    assert (budget.used_bytes, budget.waiting) == (70, 0)


async def test_what_was_admitted_in_the_moment_in_which_its_owner_left_comes_back() -> None:
    budget = make_budget()
    await budget.take(100)
    gone = await waiting(budget, 40)
    budget.release(100)
    assert budget.used_bytes == 40
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    assert budget.used_bytes == 0
