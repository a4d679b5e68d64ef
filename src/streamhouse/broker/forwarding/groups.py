"""Groups: consumer groups as administrators see them, at any agent.

Data path   HTTP, gRPC -> **groups** -> broker.groups here, or the group's coordinator over Doors.peers
Owns        asking again while the coordinator is on the move; putting all agents' groups together
Leaves      groups themselves to `broker.groups`
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
"""What somebody outside is told of a group that has members."""


class GroupService:
    def __init__(self, dependencies: Dependencies, here: LocalBroker) -> None:
        self._dependencies = dependencies
        self._here = here

    async def of_all_agents(self) -> list[ListedGroup]:
        """The groups of all agents, by name."""

        async def ask(deadline: RetryDeadline) -> list[ListedGroup]:
            asked = [self._list_at(session, deadline) for session in self._here.agents()]
            found = {group.group_id: group for groups in await asyncio.gather(*asked) for group in groups}
            return [found[group_id] for group_id in sorted(found)]

        return await self._patiently(ask)

    async def _list_at(self, session: Session, deadline: RetryDeadline) -> list[ListedGroup]:
        if self._is_here(session):
            return list(await self._here.groups.list())
        return list(await self._dependencies.peers.list_groups(session.kafka, timeout_s=deadline.left_s))

    async def describe(self, group_id: str) -> DescribedGroup:
        async def here() -> DescribedGroup:
            return _or_raise((await self._here.groups.describe([group_id]))[group_id])

        return await self._ask(
            group_id, here, lambda at, left_s: self._dependencies.peers.describe_group(at, group_id, timeout_s=left_s)
        )

    async def committed(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """What the group has committed; raises `GroupNotFound` where there is no group."""

        async def here() -> Mapping[TopicPartition, CommittedOffset]:
            return _or_raise((await self._here.groups.fetch({group_id: None}))[group_id])

        found = await self._ask(
            group_id, here, lambda at, left_s: self._dependencies.peers.committed(at, group_id, timeout_s=left_s)
        )
        if not found:
            await self.describe(group_id)
        return found

    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, OffsetToCommit]) -> Outcomes:
        """Put a group without members somewhere else; raises `NonEmptyGroup` where it has some."""

        async def here() -> Outcomes:
            return await self._here.groups.commit(group_id, MemberRef(), offsets)

        try:
            told = await self._ask(group_id, here, lambda at, left_s: self._commit_at(at, group_id, offsets, left_s))
        except HAS_MEMBERS:
            raise NonEmptyGroup(group_id) from None
        return told

    async def _commit_at(
        self, at: Address, group_id: str, offsets: Mapping[TopicPartition, OffsetToCommit], left_s: float
    ) -> Outcomes:
        """Kafka says of every partition what concerns the group; then it is raised, as it would be here."""
        told = await self._dependencies.peers.commit(at, group_id, offsets, timeout_s=left_s)
        errors = list(told.values())
        if errors and isinstance(errors[0], (Retriable, *HAS_MEMBERS)) and None not in errors:
            raise errors[0]
        return told

    async def delete(self, group_id: str) -> None:
        async def here() -> None:
            if (error := (await self._here.groups.delete([group_id]))[group_id]) is not None:
                raise error

        await self._ask(
            group_id, here, lambda at, left_s: self._dependencies.peers.delete_group(at, group_id, timeout_s=left_s)
        )

    async def _ask(
        self, group_id: str, here: Callable[[], Awaitable[T]], there: Callable[[Address, float], Awaitable[T]]
    ) -> T:
        async def ask(deadline: RetryDeadline) -> T:
            session = await self._here.groups.coordinator_of(group_id)
            return await (here() if self._is_here(session) else there(session.kafka, deadline.left_s))

        return await self._patiently(ask)

    async def _patiently(self, ask: Callable[[RetryDeadline], Awaitable[T]]) -> T:
        deadline = self._dependencies.deadline(self._dependencies.settings.records.patience_s)
        while True:
            try:
                return await ask(deadline)
            except Retriable as error:
                self._here.cluster.ask()
                await deadline.wait_to_retry(error)

    def _is_here(self, session: Session) -> bool:
        agent_session = self._here.agent_session
        if agent_session is None:
            raise Unavailable("the agent has no session yet")
        return session.session_id == agent_session.session.session_id


def _or_raise(answer: T | StreamhouseError) -> T:
    if isinstance(answer, StreamhouseError):
        raise answer
    return answer
