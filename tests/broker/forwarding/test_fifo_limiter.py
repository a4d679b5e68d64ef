"""FifoLimiter: a limit at once, in order of arrival; no waiter loses its place when another gives up."""

import asyncio

import pytest

from streamhouse.errors import Overloaded
from streamhouse.limits import FifoLimiter
from tests.broker.support import settle


def a_limiter(*, items: int = 2, size_bytes: int = 100, waiting: int = 10) -> FifoLimiter:
    return FifoLimiter("tests", max_items=items, max_bytes=size_bytes, max_waiting=waiting)


async def test_who_fits_goes_in_and_who_does_not_waits_for_its_turn() -> None:
    limiter = a_limiter()
    await limiter.enter(60)
    large, small = asyncio.ensure_future(limiter.enter(60)), asyncio.ensure_future(limiter.enter(10))
    await settle()
    assert not large.done()
    assert not small.done(), "nobody overtakes"
    limiter.leave(60)
    await settle()
    assert large.done()
    assert small.done()
    assert (limiter.items, limiter.size_bytes) == (2, 70)


async def test_the_number_of_items_is_limited_as_well() -> None:
    limiter = a_limiter(items=1)
    await limiter.enter(0)
    second = asyncio.ensure_future(limiter.enter(0))
    await settle()
    assert not second.done()
    limiter.leave(0)
    await second


async def test_what_is_larger_than_the_limit_goes_alone() -> None:
    limiter = a_limiter()
    await limiter.enter(1)
    huge = asyncio.ensure_future(limiter.enter(1000))
    await settle()
    assert not huge.done()
    limiter.leave(1)
    await huge
    after = asyncio.ensure_future(limiter.enter(1))
    await settle()
    assert not after.done()
    limiter.leave(1000)
    await after


async def test_a_line_that_is_too_long_is_refused() -> None:
    limiter = a_limiter(items=1, waiting=1)
    await limiter.enter(0)
    waiting = asyncio.ensure_future(limiter.enter(0))
    await settle()
    with pytest.raises(Overloaded):
        await limiter.enter(0)
    limiter.leave(0)
    await waiting


@pytest.mark.parametrize("is_admitted", [False, True])
async def test_who_gives_up_waiting_leaves_its_place_to_the_next(is_admitted: bool) -> None:
    limiter = a_limiter(items=1)
    await limiter.enter(5)
    first, second = asyncio.ensure_future(limiter.enter(5)), asyncio.ensure_future(limiter.enter(5))
    await settle()
    if is_admitted:
        limiter.leave(5)
        first.cancel()
    else:
        first.cancel()
        await settle()
        limiter.leave(5)
    await settle()
    assert first.cancelled()
    assert second.done()
    assert (limiter.items, limiter.size_bytes) == (1, 5)
