"""OpenBatcher: logs that are requested together are opened together, and none after the end."""

import asyncio
from collections.abc import Mapping

import pytest

from streamhouse.broker.session.open_batcher import OpenBatcher
from streamhouse.errors import Internal, LeaseLost, StreamhouseError, Unavailable

OVER = LeaseLost([], why="the session is ending")


class Door:
    """Opens all requested logs, in steps that the test can delay."""

    def __init__(self) -> None:
        self.goes: list[list[str]] = []
        self.may_go = asyncio.Event()

    async def open_many(self, wanted: Mapping[str, int]) -> Mapping[str, str | StreamhouseError]:
        self.goes.append(list(wanted))
        await self.may_go.wait()
        return {key: f"{key}-{about}" for key, about in wanted.items()}


async def test_what_is_wanted_while_a_go_is_under_way_waits_for_the_next_one_together() -> None:
    door = Door()
    opening: OpenBatcher[str, int, str] = OpenBatcher(door.open_many)
    first = asyncio.ensure_future(opening.open("a", 1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    later = [asyncio.ensure_future(opening.open(key, 2)) for key in ("a", "b", "c", "b")]
    door.may_go.set()
    assert await asyncio.gather(first, *later) == ["a-1", "a-1", "b-2", "c-2", "b-2"]
    assert door.goes == [["a"], ["b", "c"]]


async def test_a_caller_that_waits_at_the_end_gets_an_error_and_a_caller_that_comes_after_it_begins_nothing() -> None:
    door = Door()
    opening: OpenBatcher[str, int, str] = OpenBatcher(door.open_many)
    waiting = asyncio.ensure_future(opening.open("a", 1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await opening.aclose(OVER)
    for late in (waiting, opening.open("b", 1)):
        with pytest.raises(LeaseLost, match="ending"):
            await late
    assert door.goes == [["a"]]
    assert [task for task in asyncio.all_tasks() if task.get_name() == "opening"] == []


class BrokenDoor(Door):
    """Fails with an unexpected error, in its first step only."""

    async def open_many(self, wanted: Mapping[str, int]) -> Mapping[str, str | StreamhouseError]:
        if len(self.goes) == 0:
            self.goes.append(list(wanted))
            await self.may_go.wait()
            raise ValueError("a row without an epoch")
        return await super().open_many(wanted)


async def test_an_unexpected_failure_reaches_those_who_wait_as_an_error_and_not_the_next_ones() -> None:
    door = BrokenDoor()
    opening: OpenBatcher[str, int, str] = OpenBatcher(door.open_many)
    first = [asyncio.ensure_future(opening.open("a", 1)) for _ in range(2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    later = asyncio.ensure_future(opening.open("b", 2))
    await asyncio.sleep(0)
    door.may_go.set()
    for waiting in first:
        with pytest.raises(Internal, match="ValueError: a row without an epoch"):
            await waiting
    assert await later == "b-2"
    assert await opening.open("a", 3) == "a-3"


async def test_a_log_that_was_left_out_of_the_response_is_an_error_for_those_who_wait() -> None:
    async def open_nothing(_: Mapping[str, int]) -> Mapping[str, str | StreamhouseError]:
        return {}

    opening: OpenBatcher[str, int, str] = OpenBatcher(open_nothing)
    with pytest.raises(Internal, match="KeyError"):
        await opening.open("a", 1)


async def test_a_worker_that_is_cancelled_leaves_an_error_for_those_who_wait() -> None:
    door = Door()
    opening: OpenBatcher[str, int, str] = OpenBatcher(door.open_many)
    waiting = asyncio.ensure_future(opening.open("a", 1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for task in asyncio.all_tasks():
        if task.get_name() == "opening":
            task.cancel()
    with pytest.raises(Unavailable):
        await waiting
