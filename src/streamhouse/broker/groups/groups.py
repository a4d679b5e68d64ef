"""Groups: the public calls for consumer groups and committed offsets.

Data path   wire -> **groups** -> coordinator, offsets -> commit_queue -> metadata store
Owns        the public calls, limits on names and timeouts, starting and stopping the parts
Leaves      codes and versions to `wire`, membership and offsets to their own modules

Every call raises `errors.StreamhouseError`s, named by what the caller should do. A call with many items returns an
error per item.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, overload

from streamhouse.broker.catalog.topic_catalog import TopicCatalog
from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.groups.coordinator import GroupCoordinator
from streamhouse.broker.groups.descriptions import check_delete, describe, list_entry
from streamhouse.broker.groups.group_state import Group
from streamhouse.broker.groups.offset_expiry import OffsetExpiry
from streamhouse.broker.groups.offsets import GroupOffsets, PendingOffsets
from streamhouse.broker.groups.shards import LeaderView, SessionView, Shard, Shards
from streamhouse.config import GroupSettings
from streamhouse.errors import (
    CoordinatorLoading,
    CoordinatorUnavailable,
    GroupDataTooLarge,
    GroupIdInvalid,
    GroupNotFound,
    InvalidSessionTimeout,
    NotCoordinator,
    StreamhouseError,
    Unavailable,
)
from streamhouse.limits import iterate_fairly
from streamhouse.model.cluster import Session
from streamhouse.model.group import DropGroup
from streamhouse.model.group_requests import (
    DescribedGroup,
    Fetched,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    LeaveResults,
    ListedGroup,
    MemberRef,
    OffsetToCommit,
    Outcomes,
    Stable,
    SyncRequest,
    SyncResult,
)
from streamhouse.model.names import TopicPartition
from streamhouse.model.tenant import bare
from streamhouse.model.transaction import TransactionCall


class Groups:
    def __init__(
        self,
        dependencies: Dependencies,
        *,
        catalog: TopicCatalog,
        current_session: Callable[[], SessionView],
        cluster: LeaderView,
    ) -> None:
        """`current_session` gives the session in force, or raises `Unavailable` when there is none."""
        self._settings = dependencies.settings.groups
        self._coordinator = GroupCoordinator(dependencies)
        self._shards = Shards(
            dependencies,
            catalog=catalog,
            current_session=current_session,
            placement=cluster,
            loaded=self._coordinator.loaded,
            dropped=self._coordinator.dropped,
        )
        self._coordinator.attach(self._shards)
        self._offsets = GroupOffsets(dependencies, coordinator=self._coordinator, catalog=catalog)
        self._pending = PendingOffsets(dependencies, coordinator=self._coordinator, offsets=self._offsets)
        self.expiry = OffsetExpiry(dependencies, coordinator=self._coordinator, catalog=catalog)

    def __repr__(self) -> str:
        return f"<Groups {self._coordinator!r}>"

    def configure(self, settings: GroupSettings) -> None:
        """Apply new limits from the next call on, to existing groups too."""
        self._settings = settings
        self._coordinator.configure(settings)
        self._offsets.configure(settings)
        self.expiry.configure(settings)

    # --- life

    async def run(self) -> None:
        """Serve until cancelled; calls get responses only while this runs."""
        try:
            async with asyncio.TaskGroup() as loops:
                loops.create_task(self._coordinator.commits.run(), name="group-commits")
                loops.create_task(self._coordinator.run(), name="group-deadlines")
                loops.create_task(self.expiry.run(), name="offset-expiry")
        finally:
            self.release("the agent is stopping")

    async def balance(self) -> None:
        """Release the groups that other agents should coordinate, and take those that this agent should."""
        try:
            await self._shards.balance()
        except (NotCoordinator, CoordinatorLoading) as error:
            raise Unavailable(str(error)) from None

    def release(self, why: str) -> None:
        """Drop every group now; waiting calls get NotCoordinator."""
        self._shards.drop_all(why)
        self._coordinator.commits.stop(why)

    # --- membership

    async def coordinator_of(self, group_id: str) -> Session:
        """The session that should coordinate the group."""
        self._check_id(group_id, may_be_empty=True)
        try:
            return await self._shards.coordinator(group_id)
        except (NotCoordinator, CoordinatorLoading) as error:
            raise CoordinatorUnavailable(group_id, why=str(error)) from None

    async def join(self, group_id: str, request: JoinRequest) -> JoinResult:
        """Join the next generation; waits for the other members."""
        self._check_id(group_id)
        self._check_join(request)
        return await self._coordinator.join(group_id, request)

    async def sync(self, group_id: str, request: SyncRequest) -> SyncResult:
        """Get the member's assignment; the leader sends those of all. Waits for the leader, and until it is durable."""
        self._check_id(group_id)
        return await self._coordinator.sync(group_id, request)

    async def heartbeat(self, group_id: str, caller: MemberRef) -> None:
        self._check_id(group_id)
        await self._coordinator.heartbeat(group_id, caller)

    async def leave(self, group_id: str, leavers: Sequence[LeaveRequest]) -> LeaveResults:
        self._check_id(group_id)
        return await self._coordinator.leave(group_id, leavers)

    # --- offsets

    async def commit(
        self,
        group_id: str,
        caller: MemberRef,
        offsets: Mapping[TopicPartition, OffsetToCommit],
        *,
        retention_ms: int | None = None,
    ) -> Outcomes:
        """Commit offsets; returns once they are durable. Raises `GroupNotFound` for a generation of no group."""
        self._check_id(group_id, may_be_empty=True)
        return await self._offsets.commit(group_id, caller, offsets, retention_ms=retention_ms)

    async def commit_in_transaction(
        self,
        group_id: str,
        caller: MemberRef,
        call: TransactionCall,
        offsets: Mapping[TopicPartition, OffsetToCommit],
        *,
        begins: bool,
    ) -> Outcomes:
        """Store offsets that become committed with the transaction; returns once they are durable. With `begins`, a
        transaction is started if none is open. Raises if the group or the transaction rejects them."""
        self._check_id(group_id)
        return await self._pending.commit(group_id, caller, call, offsets, begins=begins)

    @overload
    async def fetch(
        self, names_by_group: Mapping[str, Sequence[TopicPartition] | None], *, stable: Literal[False] = False
    ) -> Mapping[str, Fetched | StreamhouseError]: ...

    @overload
    async def fetch(
        self, names_by_group: Mapping[str, Sequence[TopicPartition] | None], *, stable: bool
    ) -> Mapping[str, Stable | StreamhouseError]: ...

    async def fetch(
        self, names_by_group: Mapping[str, Sequence[TopicPartition] | None], *, stable: bool = False
    ) -> Mapping[str, Stable | StreamhouseError]:
        """Committed offsets by group: of the given partitions, or of all with None. With `stable`, a partition with
        offsets of an open transaction is `UnstableOffsets`."""
        invalid: dict[str, Stable | StreamhouseError] = {}
        async for group_id in iterate_fairly(names_by_group):
            try:
                self._check_id(group_id, may_be_empty=True)
            except StreamhouseError as error:
                invalid[group_id] = error
        accepted = {group_id: names for group_id, names in names_by_group.items() if group_id not in invalid}
        return {**await self._offsets.fetch(accepted, stable=stable), **invalid}

    async def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> Outcomes:
        self._check_id(group_id, may_be_empty=True)
        return await self._offsets.delete(group_id, partitions)

    # --- administration

    async def describe(self, group_ids: Collection[str]) -> Mapping[str, DescribedGroup | StreamhouseError]:
        results: dict[str, DescribedGroup | StreamhouseError] = {}
        async for group_id in iterate_fairly(dict.fromkeys(group_ids)):
            try:
                _, group = await self._find(group_id)
                results[group_id] = describe(group)
            except StreamhouseError as error:
                results[group_id] = error
        return results

    async def list(
        self, *, states: Collection[str] = (), types: Collection[str] = (), often: bool = False
    ) -> Sequence[ListedGroup]:
        """All groups that this agent coordinates, by name; an empty filter matches every group. With `often`, an
        unknown topic of the shards is not looked up again."""
        await self._shards.hold_all(often=often)
        entries = [list_entry(group) for shard in self._shards for group in shard.groups.values()]
        of_states, of_types = {each.lower() for each in states}, {each.lower() for each in types}
        return sorted(
            (
                group
                for group in entries
                if (not states or group.state.lower() in of_states) and (not types or group.group_type in of_types)
            ),
            key=lambda group: group.group_id,
        )

    async def delete(self, group_ids: Collection[str]) -> Mapping[str, StreamhouseError | None]:
        """Delete groups without members, with their committed offsets."""
        results: dict[str, StreamhouseError | None] = {}
        async for group_id in iterate_fairly(dict.fromkeys(group_ids)):
            try:
                await self._delete(group_id)
                results[group_id] = None
            except StreamhouseError as error:
                results[group_id] = error
        return results

    async def _delete(self, group_id: str) -> None:
        shard, group = await self._find(group_id)
        check_delete(group)
        await self._coordinator.delete(shard, group, [DropGroup(group_id=group_id)])

    async def _find(self, group_id: str) -> tuple[Shard, Group]:
        self._check_id(group_id, may_be_empty=True)
        shard = await self._shards.hold(group_id)
        if (group := shard.groups.get(group_id)) is None:
            raise GroupNotFound(group_id)
        return shard, group

    # --- limits

    def _check_id(self, group_id: str, *, may_be_empty: bool = False) -> None:
        """Membership requires a group id; offsets may be committed under an empty one, as the oldest consumers do."""
        if not bare(group_id) and not may_be_empty:
            raise GroupIdInvalid("group id is empty")
        if "\0" in group_id:
            raise GroupIdInvalid("group id contains a NUL character")
        if (size_bytes := len(group_id.encode())) > self._settings.max_id_bytes:
            raise GroupIdInvalid(
                f"group id is too long; bytes={size_bytes} limit={self._settings.max_id_bytes} "
                "setting=groups.max_id_bytes"
            )

    def _check_join(self, request: JoinRequest) -> None:
        low_ms = round(self._settings.min_session_timeout_s * 1000)
        high_ms = round(self._settings.max_session_timeout_s * 1000)
        if not low_ms <= request.session_timeout_ms <= high_ms:
            raise InvalidSessionTimeout(timeout_ms=request.session_timeout_ms, low_ms=low_ms, high_ms=high_ms)
        for what, name in (
            ("client id", request.client_id),
            ("instance id", request.instance_id or ""),
            ("protocol type", request.protocol_type),
        ):
            if (size_bytes := len(name.encode())) > self._settings.max_id_bytes:
                raise GroupDataTooLarge(
                    f"{what} is too long",
                    size_bytes=size_bytes,
                    limit_bytes=self._settings.max_id_bytes,
                    setting="groups.max_id_bytes",
                )
