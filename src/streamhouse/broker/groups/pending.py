"""Pending: offsets that a group has committed if a transaction is, and not otherwise.

Data path   groups -> **pending** -> metadata store
Owns        which of them are accepted
Leaves      telling readers that there are some to `offsets`; deciding to the metadata store, which makes them visible,
            or drops them, together with the transaction

They don't go with the other changes of groups: the store refuses one whose transaction is over, and its neighbours must
not be refused with it.
"""

from collections.abc import Mapping, Sequence

from streamhouse.broker.doors import Doors
from streamhouse.broker.groups.calls import Caller, OffsetToCommit, Outcomes
from streamhouse.broker.groups.coordinator import Coordinator
from streamhouse.broker.groups.offsets import Offsets
from streamhouse.broker.groups.shards import Shard
from streamhouse.broker.groups.state import Group
from streamhouse.errors import (
    CoordinatorLoading,
    CoordinatorUnavailable,
    IllegalGeneration,
    LeaseLost,
    NotCoordinator,
    SessionLost,
    Unavailable,
)
from streamhouse.model.group import CommittedOffset, GroupState
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.transaction import PendingOffset, TransactionCall


class Pending:
    def __init__(self, doors: Doors, *, coordinator: Coordinator, offsets: Offsets) -> None:
        self._metadata = doors.metadata
        self._doors = doors
        self._coordinator = coordinator
        self._offsets = offsets

    async def commit(
        self,
        group_id: str,
        caller: Caller,
        call: TransactionCall,
        offsets: Mapping[TopicPartition, OffsetToCommit],
        *,
        begins: bool,
    ) -> Outcomes:
        """Have what can be committed with the transaction; raises when the group, or the transaction, accepts nothing
        from this caller."""
        places = await self._offsets.find(group_id, offsets)
        shard = await self._coordinator.shards.hold(group_id)
        group = self._admit(shard, group_id, caller)
        outcomes = {name: self._offsets.refusal(name, places[name], offset) for name, offset in offsets.items()}
        now_ms = self._doors.agreed_time().later_ms
        pending = [
            PendingOffset(place, _committed(offsets[name], now_ms=now_ms))
            for name, place in places.items()
            if outcomes[name] is None and isinstance(place, PartitionId)
        ]
        if pending:
            await self._write(shard, group, call, pending, begins=begins)
        else:
            self._coordinator.forget_if_blank(shard, group)
        return outcomes

    def _admit(self, shard: Shard, group_id: str, caller: Caller) -> Group:
        group = shard.groups.get(group_id)
        if group is None:
            if caller.generation >= 0:
                raise IllegalGeneration(group_id, generation=caller.generation, current=-1)
            group = self._coordinator.create(shard, group_id)
        group.check_commit_in_transaction(caller)
        return group

    async def _write(
        self, shard: Shard, group: Group, call: TransactionCall, pending: Sequence[PendingOffset], *, begins: bool
    ) -> None:
        """The group's own row goes first: an offset of a group that isn't there is nobody's when it is decided."""
        group_id = group.group_id
        if not group.is_stored:
            if group.state is not GroupState.EMPTY:
                raise CoordinatorLoading(group_id, why="the group's first generation is not written yet")
            await self._offsets.write_group(shard, group)
        # Whoever looks for what has expired has another time: a group without offsets would go.
        group.commits += 1
        shard.unwritten[group_id] += 1
        try:
            await self._metadata.put_pending_offsets(
                shard.session_id, shard.partition, shard.epoch, call, group_id, pending, begins=begins
            )
        except (LeaseLost, SessionLost) as error:
            self._coordinator.shards.drop(shard, str(error))
            raise NotCoordinator(group_id, why=str(error)) from None
        except Unavailable as error:
            raise CoordinatorUnavailable(group_id, why=str(error)) from None
        finally:
            shard.written(group_id)


def _committed(offset: OffsetToCommit, *, now_ms: int) -> CommittedOffset:
    return CommittedOffset(
        offset=offset.offset, leader_epoch=offset.leader_epoch, metadata=offset.metadata, committed_at_ms=now_ms
    )
