"""Who may bring bytes in, who waits, who is refused."""

import asyncio

import pytest

from streamhouse.broker.partition.backpressure import MemoryBudget
from streamhouse.clock import SystemClock
from streamhouse.config import BufferSettings
from streamhouse.errors import Overloaded
from tests.broker.support import settle

PATIENT_S = 60.0


def budget(*, limit: int = 100, throttle_at: float = 0.5, max_throttle_s: float = PATIENT_S) -> MemoryBudget:
    settings = BufferSettings(memory_bytes=limit, throttle_at=throttle_at, max_throttle_s=max_throttle_s)
    return MemoryBudget(settings, clock=SystemClock())


def full(**settings: float) -> MemoryBudget:
    """A budget at its limit, without a limit for each waiter."""
    made = budget(limit=100, throttle_at=1.0, max_throttle_s=settings.get("max_throttle_s", PATIENT_S))
    made.take(100)
    return made


async def test_below_the_threshold_everybody_comes_in_at_once() -> None:
    made = budget()
    assert made.fits(50)
    assert await made.admit(50) == 0.0
    assert not made.is_short


async def test_above_the_threshold_an_append_is_held_back_and_then_let_in() -> None:
    made = budget(max_throttle_s=0.1)
    made.take(80)
    assert not made.fits(10)
    assert await made.admit(10) >= 0.006
    assert made.refused == 0


async def test_at_the_limit_an_append_is_refused_when_nothing_is_given_back_in_time() -> None:
    made = full(max_throttle_s=0.01)
    with pytest.raises(Overloaded) as refused:
        await made.admit(1)
    assert refused.value.retry_after_s > 0
    assert made.refused == 1
    assert not made.fits(1)


async def test_without_a_timeout_the_refusal_is_immediate() -> None:
    made = full(max_throttle_s=0.0)
    with pytest.raises(Overloaded):
        await made.admit(1)


async def test_bytes_given_back_wake_who_waits() -> None:
    made = full()
    waiting = asyncio.ensure_future(made.admit(40))
    await settle()
    assert not waiting.done()
    made.release(40)
    await settle()
    assert waiting.done()
    assert waiting.result() >= 0


async def test_too_few_bytes_given_back_wake_nobody() -> None:
    made = full()
    waiting = asyncio.ensure_future(made.admit(40))
    await settle()
    made.release(39)
    await settle()
    assert not waiting.done()
    made.release(1)
    await waiting


async def test_a_caller_that_came_first_goes_in_first_and_small_ones_do_not_overtake() -> None:
    made = full()
    order: list[str] = []

    async def come(name: str, size: int) -> None:
        await made.admit(size)
        made.take(size)
        order.append(name)

    waiting = [asyncio.ensure_future(come(name, size)) for name, size in (("a", 60), ("b", 10), ("c", 10))]
    await settle()
    made.release(20)  # enough for b and c, who must wait for a
    await settle()
    assert order == []
    made.release(60)
    await asyncio.gather(*waiting)
    assert order == ["a", "b", "c"]


async def test_a_caller_that_was_held_back_long_enough_still_does_not_overtake() -> None:
    made = budget(limit=100, throttle_at=0.5, max_throttle_s=1.0)
    made.take(60)
    first = asyncio.ensure_future(made.admit(90))
    second = asyncio.ensure_future(made.admit(10))
    done, _ = await asyncio.wait({first, second}, timeout=0.2)  # ten times as long as the second is held back
    assert not done
    made.release(60)
    await first
    await second


async def test_nobody_comes_in_freely_past_those_who_wait() -> None:
    made = budget(limit=100, throttle_at=1.0)
    made.take(50)
    waiting = asyncio.ensure_future(made.admit(60))
    await settle()
    assert not made.fits(1)
    made.release(50)
    await waiting
    assert made.fits(1)


async def test_one_return_lets_in_as_many_as_fit() -> None:
    made = full()

    async def come() -> None:
        await made.admit(30)
        made.take(30)

    waiting = [asyncio.ensure_future(come()) for _ in range(4)]
    await settle()
    made.release(100)
    await settle()
    assert [each.done() for each in waiting] == [True, True, True, False]
    assert made.used_bytes == 90
    made.release(30)
    await asyncio.gather(*waiting)


async def test_an_append_larger_than_the_whole_budget_is_let_in_alone() -> None:
    made = budget(limit=100, throttle_at=1.0)
    assert await made.admit(500) < PATIENT_S
    made.take(500)
    waiting = asyncio.ensure_future(made.admit(500))
    await settle()
    assert not waiting.done()
    made.release(500)
    await waiting


async def test_memory_counts_as_short_for_as_long_as_someone_waits() -> None:
    """Otherwise nothing would flush the few bytes that block a large append."""
    made = budget(limit=100)
    made.take(10)
    waiting = asyncio.ensure_future(made.admit(500))
    await settle()
    made.release(5)
    await settle()
    assert made.is_short
    made.release(5)
    await waiting
    assert not made.is_short


async def test_a_waiter_who_leaves_makes_room_for_the_next() -> None:
    made = full()
    first = asyncio.ensure_future(made.admit(90))
    second = asyncio.ensure_future(made.admit(10))
    await settle()
    made.release(10)
    await settle()
    assert not second.done()
    first.cancel()
    await second
    assert first.cancelled()
    assert not made.is_short


async def test_a_waiter_who_is_refused_makes_room_for_the_next() -> None:
    made = full(max_throttle_s=0.01)
    first = asyncio.ensure_future(made.admit(90))
    await settle()
    made.release(10)
    second = asyncio.ensure_future(made.admit(10))
    with pytest.raises(Overloaded):
        await first
    await second


async def test_a_waiter_who_leaves_at_the_moment_of_his_turn_passes_it_on() -> None:
    made = full()
    first = asyncio.ensure_future(made.admit(10))
    second = asyncio.ensure_future(made.admit(10))
    await settle()
    made.release(10)
    first.cancel()
    await second


async def test_giving_back_more_than_was_taken_is_a_bug() -> None:
    made = budget()
    made.take(1)
    with pytest.raises(AssertionError, match="given back"):
        made.release(2)
