"""Opening: what is asked for together is opened together, and nothing after the end."""

import asyncio
from collections.abc import Mapping

import pytest

from streamhouse.broker.opening import Opening
from streamhouse.errors import LeaseLost, StreamhouseError

OVER = LeaseLost([], why="the session is ending")


class Door:
    """Opens everything it is asked for, in goes that the test can hold."""

    def __init__(self) -> None:
        self.goes: list[list[str]] = []
        self.may_go = asyncio.Event()

    async def open_many(self, wanted: Mapping[str, int]) -> Mapping[str, str | StreamhouseError]:
        self.goes.append(list(wanted))
        await self.may_go.wait()
        return {key: f"{key}-{about}" for key, about in wanted.items()}


async def test_what_is_wanted_while_a_go_is_under_way_waits_for_the_next_one_together() -> None:
    door = Door()
    opening: Opening[str, int, str] = Opening(door.open_many)
    first = asyncio.ensure_future(opening.open("a", 1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    later = [asyncio.ensure_future(opening.open(key, 2)) for key in ("a", "b", "c", "b")]
    door.may_go.set()
    assert await asyncio.gather(first, *later) == ["a-1", "a-1", "b-2", "c-2", "b-2"]
    assert door.goes == [["a"], ["b", "c"]]


async def test_whoever_waits_at_the_end_is_told_and_whoever_comes_after_it_begins_nothing() -> None:
    door = Door()
    opening: Opening[str, int, str] = Opening(door.open_many)
    waiting = asyncio.ensure_future(opening.open("a", 1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await opening.aclose(OVER)
    for late in (waiting, opening.open("b", 1)):
        with pytest.raises(LeaseLost, match="ending"):
            await late
    assert door.goes == [["a"]]
    assert [task for task in asyncio.all_tasks() if task.get_name() == "opening"] == []
