"""AppendBarrier: waiters are served in order, and none waits forever."""

import asyncio

import pytest

from streamhouse.broker.partition.backpressure import AppendBarrier
from streamhouse.errors import PartitionHeld
from tests.broker.support import settle


async def passing(barrier: AppendBarrier, name: str, passed: list[str]) -> None:
    if not barrier.is_open:
        await barrier.wait()
    passed.append(name)


async def test_a_caller_that_waited_goes_before_one_that_comes_later() -> None:
    barrier, passed = AppendBarrier(), list[str]()
    await barrier.shut()
    waiting = [asyncio.ensure_future(passing(barrier, name, passed)) for name in "abc"]
    await settle()
    barrier.open()
    await passing(barrier, "d", passed)
    await asyncio.gather(*waiting)
    assert passed == ["a", "b", "c", "d"]
    assert barrier.is_open


async def test_a_caller_that_shuts_it_again_lets_those_through_who_waited() -> None:
    barrier, passed = AppendBarrier(), list[str]()
    await barrier.shut()
    waiting = [asyncio.ensure_future(passing(barrier, name, passed)) for name in "abc"]
    again = asyncio.ensure_future(barrier.shut())
    await settle()
    barrier.open()
    await again
    assert passed == ["a", "b", "c"]
    late = asyncio.ensure_future(passing(barrier, "d", passed))
    await settle()
    assert not late.done()
    barrier.open()
    await late
    await asyncio.gather(*waiting)


async def test_one_who_gives_up_keeps_nobody() -> None:
    barrier, passed = AppendBarrier(), list[str]()
    await barrier.shut()
    first, second = (asyncio.ensure_future(passing(barrier, name, passed)) for name in "ab")
    wanting = [asyncio.ensure_future(barrier.shut()) for _ in range(2)]
    await settle()
    barrier.open()
    first.cancel()
    wanting[0].cancel()
    await asyncio.gather(first, wanting[0], return_exceptions=True)
    await second
    await wanting[1]
    assert (passed, barrier.is_shut) == (["b"], True)


async def test_the_end_of_the_log_ends_all_waiting() -> None:
    barrier = AppendBarrier()
    await barrier.shut()
    waiting = [asyncio.ensure_future(barrier.wait()), asyncio.ensure_future(barrier.shut())]
    await settle()
    barrier.close(PartitionHeld("over"))
    for each in waiting:
        with pytest.raises(PartitionHeld):
            await each
    await barrier.wait()
    with pytest.raises(PartitionHeld):
        await barrier.shut()
