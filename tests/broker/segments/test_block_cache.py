"""The cache: least recently used out first, by weight, and one flight per value."""

import asyncio
from dataclasses import dataclass

import pytest

from streamhouse.broker.segments.block_cache import Block, SingleFlightCache
from streamhouse.errors import Stopping, Unavailable
from streamhouse.format.batch import assign_offset
from tests.broker.support import batch, settle


@dataclass(frozen=True)
class Thing:
    name: str
    weight: int = 1


class Maker:
    """Creates things on request, and counts the requests."""

    def __init__(self) -> None:
        self.requested = 0
        self.resume = asyncio.Event()

    async def __call__(self) -> Thing:
        self.requested += 1
        await self.resume.wait()
        return Thing("made")


def cache(limit: int = 10) -> SingleFlightCache[str, Thing]:
    return SingleFlightCache(limit)


async def put(into: SingleFlightCache[str, Thing], name: str, weight: int = 1) -> Thing:
    async def make() -> Thing:
        return Thing(name, weight)

    return await into.get(name, make)


async def test_a_value_is_made_once_and_then_remembered() -> None:
    made, maker = cache(), Maker()
    maker.resume.set()
    assert await made.get("a", maker) is await made.get("a", maker)
    assert (maker.requested, made.hits, made.misses) == (1, 1, 1)


async def test_the_least_recently_used_goes_first() -> None:
    made = cache(limit=3)
    for name in "abc":
        await put(made, name)
    await put(made, "a")
    await put(made, "d")
    assert [name for name in "abcd" if name in made] == ["a", "c", "d"]


async def test_a_heavy_value_pushes_out_as_many_light_ones_as_it_weighs() -> None:
    made = cache(limit=4)
    for name in "abcd":
        await put(made, name)
    await put(made, "heavy", weight=3)
    assert [name for name in (*"abcd", "heavy") if name in made] == ["d", "heavy"]
    assert made.weight == 4


async def test_a_value_heavier_than_the_limit_is_kept_alone_until_the_next_comes() -> None:
    made = cache(limit=4)
    await put(made, "a")
    await put(made, "giant", weight=100)
    assert "a" not in made
    assert "giant" in made
    await put(made, "b")
    assert "giant" not in made
    assert made.weight == 1


async def test_all_who_want_a_value_that_is_under_way_wait_for_the_one_flight() -> None:
    made, maker = cache(), Maker()
    waiting = [asyncio.ensure_future(made.get("a", maker)) for _ in range(5)]
    await settle()
    assert "a" in made
    maker.resume.set()
    assert len({id(thing) for thing in await asyncio.gather(*waiting)}) == 1
    assert maker.requested == 1


async def test_a_failed_flight_fails_for_all_its_waiters_and_the_next_tries_again() -> None:
    made = cache()

    async def fail() -> Thing:
        await asyncio.sleep(0)
        raise Unavailable("away")

    waiting = [asyncio.ensure_future(made.get("a", fail)) for _ in range(3)]
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(outcome, Unavailable) for outcome in outcomes)
    assert "a" not in made
    assert (await put(made, "a")).name == "a"


async def test_a_waiter_who_leaves_does_not_take_the_flight_down() -> None:
    made, maker = cache(), Maker()
    first = asyncio.ensure_future(made.get("a", maker))
    second = asyncio.ensure_future(made.get("a", maker))
    await settle()
    first.cancel()
    await settle()
    maker.resume.set()
    assert (await second).name == "made"
    assert first.cancelled()


async def test_a_flight_whose_waiters_all_left_lands_in_the_cache() -> None:
    made, maker = cache(), Maker()
    waiting = asyncio.ensure_future(made.get("a", maker))
    await settle()
    waiting.cancel()
    maker.resume.set()
    await settle()
    assert (await put(made, "a")).name == "made"


async def test_a_failed_flight_whose_waiters_all_left_is_no_news() -> None:
    made = cache()
    resume = asyncio.Event()

    async def fail() -> Thing:
        await resume.wait()
        raise Unavailable("away")

    waiting = asyncio.ensure_future(made.get("a", fail))
    await settle()
    waiting.cancel()
    resume.set()
    await settle()  # a forgotten exception would be a warning, and a warning an error
    assert "a" not in made


async def test_what_is_forgotten_weighs_nothing() -> None:
    made = cache()
    await put(made, "a", weight=5)
    made.forget("a")
    made.forget("never there")
    assert "a" not in made
    assert made.weight == 0


async def test_closing_ends_flights_and_lets_everything_go() -> None:
    made, maker = cache(), Maker()
    await put(made, "b", weight=5)
    waiting = asyncio.ensure_future(made.get("a", maker))
    await settle()
    await made.aclose()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert made.weight == 0
    assert "b" not in made


def block(*sizes: int) -> Block:
    """A block of batches with so many records each, from offset 10."""
    data, offset = bytearray(), 10
    for size in sizes:
        each = batch(*[b"v"] * size)
        assign_offset(each, base_offset=offset, leader_epoch=1)
        data += each
        offset += size
    return Block(bytes(data))


def test_a_slice_begins_with_the_batch_that_holds_the_offset() -> None:
    made = block(3, 2)
    piece, end = made.slice(11, max_bytes=10_000, at_least_one=True)
    assert (len(piece), end) == (made.weight, 15)
    piece, end = made.slice(13, max_bytes=10_000, at_least_one=True)
    assert (piece, end) == (made.data[made.spans[1].position :], 15)


def test_a_slice_holds_whole_batches_only() -> None:
    made = block(1, 1, 1)
    size = made.spans[0].size_bytes
    assert made.slice(10, max_bytes=2 * size, at_least_one=True) == (made.data[: 2 * size], 12)
    assert made.slice(10, max_bytes=2 * size - 1, at_least_one=True) == (made.data[:size], 11)


def test_a_slice_too_small_for_a_batch_is_empty_unless_one_is_wanted_anyway() -> None:
    made = block(1, 1)
    size = made.spans[0].size_bytes
    assert made.slice(10, max_bytes=size - 1, at_least_one=False) == (made.data[:0], 10)
    assert made.slice(10, max_bytes=size - 1, at_least_one=True) == (made.data[:size], 11)
    assert made.slice(12, max_bytes=10_000, at_least_one=True) == (made.data[:0], 12)


async def test_a_closed_cache_begins_nothing() -> None:
    closed, make = cache(), Maker()
    await closed.aclose()
    with pytest.raises(Stopping):
        await closed.get("a", make)
    assert make.requested == 0
