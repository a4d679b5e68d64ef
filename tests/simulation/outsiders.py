"""Outsiders: who uses a group without being in it.

Owns        commits from outside group management, deleting groups and what they committed
Leaves      members and the audit to `groups`, requests to `group_calls`, the verdict to `group_history`
"""

from collections.abc import Sequence

from streamhouse.broker.groups import MemberRef
from streamhouse.errors import StreamhouseError
from streamhouse.model.names import TopicPartition

from .group_calls import GroupClient
from .network import Lost
from .options import GroupPlan
from .world import World


class Outsider(GroupClient):
    """Commits in a group that has no members, several at once, and reads what came of it."""

    def __init__(self, world: World, name: str, plan: GroupPlan, names: Sequence[TopicPartition]) -> None:
        super().__init__(world, name, plan)
        self._names = names

    async def run(self) -> None:
        while not self.world.is_quiet:
            await self.pause(0.15)
            try:
                connection = await self.connection()
                for _ in range(self.chance.choice((0, 0, 1, 3))):
                    connection.send(self.committing(MemberRef(), self._offsets()))
                await self.commit(MemberRef(), self._offsets())
                await self.committed(self._names)
            except (StreamhouseError, Lost):
                continue

    def _offsets(self) -> dict[TopicPartition, int]:
        names = self.chance.sample(self._names, self.chance.randint(1, len(self._names)))
        return {name: self.chance.randrange(1000) for name in names}


class Janitor(GroupClient):
    """Deletes the group, or some of its offsets, whenever it is let to: members are in the way as long as they live."""

    def __init__(self, world: World, plan: GroupPlan, names: Sequence[TopicPartition]) -> None:
        super().__init__(world, f"janitor-{plan.group_id}", plan)
        self._names = names

    async def run(self) -> None:
        while not self.world.is_quiet:
            await self.pause(self.plan.deletes_s)
            try:
                if self.chance.random() < 0.3:
                    await self.delete_group(self._names)
                else:
                    await self.delete_offsets(self.chance.sample(self._names, self.chance.randint(1, len(self._names))))
            except (StreamhouseError, Lost):
                continue
