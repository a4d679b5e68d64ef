"""The worlds that the broker's tests run in."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from tests.broker.support import World
from tests.broker.wal.support import run_inline

MakeWorld: TypeAlias = Callable[..., Awaitable[World]]


@pytest.fixture
async def make_world() -> AsyncIterator[MakeWorld]:
    """Makes worlds with settings of their own, given as sections."""
    run_inline()
    made: list[World] = []

    async def make(**sections: Any) -> World:
        made.append(World(**sections))
        await made[-1].sqlite.open()
        return made[-1]

    yield make
    for each in made:
        await each.aclose()


@pytest.fixture
async def world(make_world: MakeWorld) -> World:
    return await make_world()
