"""GroupService: administration of consumer groups at any agent.

Data path   HTTP, gRPC -> **groups** -> broker.groups here, or the group's coordinator over Dependencies.agents
Owns        retries while the coordinator changes; the list of all agents' groups
Leaves      the groups themselves to `broker.groups`
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.forwarding.leader_lookup import LocalBroker
from streamhouse.broker.groups import DescribedGroup, ListedGroup, MemberRef, OffsetToCommit
from streamhouse.config.fields import Address
from streamhouse.errors import (
    IllegalGeneration,
    NonEmptyGroup,
    RebalanceInProgress,
    Retriable,
    StreamhouseError,
    Unavailable,
    UnknownMember,
)
from streamhouse.model.cluster import Session
from streamhouse.model.group import CommittedOffset
from streamhouse.model.group_requests import Outcomes
from streamhouse.model.names import TopicPartition
from streamhouse.retry import RetryDeadline

T = TypeVar("T")

HAS_MEMBERS = (UnknownMember, IllegalGeneration, RebalanceInProgress)
"""Errors that a caller who is not a member gets for a group that has members."""


class GroupService:
    def __init__(self, dependencies: Dependencies, here: LocalBroker) -> None:
        self._dependencies = dependencies
        self._here = here

    async def of_all_agents(self) -> list[ListedGroup]:
        """The groups of all agents, by name."""

        async def attempt(deadline: RetryDeadline) -> list[ListedGroup]:
            lists = await asyncio.gather(*(self._list_at(session, deadline) for session in self._here.agents()))
            by_id = {group.group_id: group for groups in lists for group in groups}
            return [by_id[group_id] for group_id in sorted(by_id)]

        return await self._retry(attempt)

    async def _list_at(self, session: Session, deadline: RetryDeadline) -> list[ListedGroup]:
        if self._is_here(session):
            return list(await self._here.groups.list())
        return list(await self._dependencies.agents.list_groups(session.kafka, timeout_s=deadline.left_s))

    async def describe(self, group_id: str) -> DescribedGroup:
        async def here() -> DescribedGroup:
            return _or_raise((await self._here.groups.describe([group_id]))[group_id])

        return await self._at_coordinator(
            group_id, here, lambda at, left_s: self._dependencies.agents.describe_group(at, group_id, timeout_s=left_s)
        )

    async def committed(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """The group's committed offsets, which any agent reads; raises `GroupNotFound`."""

        async def attempt(_: RetryDeadline) -> Mapping[TopicPartition, CommittedOffset]:
            return _or_raise((await self._here.groups.fetch({group_id: None}))[group_id])

        offsets = await self._retry(attempt)
        if not offsets:
            await self.describe(group_id)
        return offsets

    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, OffsetToCommit]) -> Outcomes:
        """Set offsets of a group without members; raises `NonEmptyGroup` if it has members."""

        async def here() -> Outcomes:
            return await self._here.groups.commit(group_id, MemberRef(), offsets)

        try:
            return await self._at_coordinator(
                group_id, here, lambda at, left_s: self._commit_at(at, group_id, offsets, left_s)
            )
        except HAS_MEMBERS:
            raise NonEmptyGroup(group_id) from None

    async def _commit_at(
        self, at: Address, group_id: str, offsets: Mapping[TopicPartition, OffsetToCommit], left_s: float
    ) -> Outcomes:
        """Commit at a remote coordinator. Kafka repeats an error of the whole group per partition: raise it once."""
        outcomes = await self._dependencies.agents.commit(at, group_id, offsets, timeout_s=left_s)
        errors = list(outcomes.values())
        if errors and isinstance(errors[0], (Retriable, *HAS_MEMBERS)) and None not in errors:
            raise errors[0]
        return outcomes

    async def delete(self, group_id: str) -> None:
        async def here() -> None:
            if (error := (await self._here.groups.delete([group_id]))[group_id]) is not None:
                raise error

        await self._at_coordinator(
            group_id, here, lambda at, left_s: self._dependencies.agents.delete_group(at, group_id, timeout_s=left_s)
        )

    async def _at_coordinator(
        self, group_id: str, here: Callable[[], Awaitable[T]], there: Callable[[Address, float], Awaitable[T]]
    ) -> T:
        async def attempt(deadline: RetryDeadline) -> T:
            session = await self._here.groups.coordinator_of(group_id)
            return await (here() if self._is_here(session) else there(session.kafka, deadline.left_s))

        return await self._retry(attempt)

    async def _retry(self, attempt: Callable[[RetryDeadline], Awaitable[T]]) -> T:
        deadline = self._dependencies.deadline(self._dependencies.settings.records.patience_s)
        while True:
            try:
                return await attempt(deadline)
            except Retriable as error:
                self._here.cluster.refresh_soon()
                await deadline.wait_to_retry(error)

    def _is_here(self, session: Session) -> bool:
        agent_session = self._here.agent_session
        if agent_session is None:
            raise Unavailable("the agent has no session yet")
        return session.session_id == agent_session.session.session_id


def _or_raise(response: T | StreamhouseError) -> T:
    if isinstance(response, StreamhouseError):
        raise response
    return response
