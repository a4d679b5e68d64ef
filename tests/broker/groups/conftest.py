"""One agent, one topic."""

from collections.abc import AsyncIterator

import pytest

from tests.broker.groups.scene import Agent, Scene, open_scene


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with open_scene() as scene:
        yield scene


@pytest.fixture
async def agent(scene: Scene) -> Agent:
    """An agent that knows the topic `orders`, with four partitions."""
    agent = await scene.agent()
    await agent.catalog.create("orders", partitions=4)
    return agent
