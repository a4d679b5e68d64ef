"""Limits of groups that change while agents run: the next call obeys, in groups that are there as well."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from streamhouse.broker.groups import MemberRef, OffsetToCommit
from streamhouse.config import GroupSettings
from streamhouse.errors import GroupFull, InvalidSessionTimeout, OffsetMetadataTooLarge
from tests.broker.groups.scene import ORDERS, Agent, Scene, at, committed, join, open_scene


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with open_scene() as scene:
        yield scene


@pytest.fixture
async def agent(scene: Scene) -> Agent:
    agent = await scene.agent()
    await agent.catalog.create("orders", partitions=len(ORDERS))
    return agent


def limits(**limits: Any) -> GroupSettings:
    return GroupSettings(**limits)


async def test_session_timeouts_are_refused_by_the_limits_in_force(scene: Scene, agent: Agent) -> None:
    agent.groups.configure(limits(min_session_timeout_s=0.5, max_session_timeout_s=2.0))
    for session_ms in (499, 2001):
        with pytest.raises(InvalidSessionTimeout):
            await agent.groups.join("g", join(session_ms=session_ms))
    joining = scene.start(agent.groups.join("g", join(session_ms=500)))
    await scene.clock.advance(0.3)
    assert not joining.done()


async def test_an_empty_group_that_is_there_waits_as_long_as_is_in_force(scene: Scene, agent: Agent) -> None:
    await agent.groups.commit("g", MemberRef(), at(1))
    agent.groups.configure(limits(initial_rebalance_delay_s=0.0))
    joining = scene.start(agent.groups.join("g", join()))
    await scene.clock.advance(0.1)
    assert joining.done()


async def test_a_group_that_is_there_takes_as_many_members_as_are_in_force(scene: Scene, agent: Agent) -> None:
    await scene.group_of(agent.groups, 2)
    agent.groups.configure(limits(max_members=2))
    with pytest.raises(GroupFull):
        await agent.groups.join("g", join())


async def test_text_committed_with_an_offset_is_as_long_as_is_in_force(scene: Scene, agent: Agent) -> None:
    agent.groups.configure(limits(offset_metadata_bytes=3))
    outcome = await agent.groups.commit("g", MemberRef(), {ORDERS[0]: OffsetToCommit(offset=1, metadata="four")})
    assert isinstance(outcome[ORDERS[0]], OffsetMetadataTooLarge)


async def test_offsets_expire_after_the_time_in_force(scene: Scene, agent: Agent) -> None:
    await agent.groups.commit("g", MemberRef(), at(1))
    await scene.clock.advance(120)
    assert await agent.groups.expiry.sweep() == 0
    agent.groups.configure(limits(offsets_retention_s=60.0))
    assert await agent.groups.expiry.sweep() == 1
    assert await committed(agent.groups) == []
