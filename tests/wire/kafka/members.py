"""Members of groups that say what a test wants said, each on a connection of its own, and a clock that leaps."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from streamhouse.clock import SystemClock
from streamhouse.config import FlushSettings, GroupSettings, LeaseSettings, Settings, WalSettings
from streamhouse.errors import StreamhouseError
from streamhouse.model.group import GroupState
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from streamhouse.wire.kafka.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from streamhouse.wire.kafka.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from streamhouse.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from streamhouse.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from streamhouse.wire.kafka.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.wire.kafka.talk import Client, Served

SESSION_MS = 10_000
REBALANCE_MS = 60_000
JOIN, SYNC, HEARTBEAT, LEAVE = 9, 5, 4, 5


def group_settings(**groups: float) -> Settings:
    """A broker whose groups don't wait for more members; otherwise as quick as the others."""
    groups.setdefault("initial_rebalance_delay_s", 0.0)
    return Settings(
        groups=GroupSettings(**groups),  # type: ignore[arg-type]
        lease=LeaseSettings(ttl_s=3600.0, renew_s=5.0),  # leaps are shorter than a session of the agent
        wal=WalSettings(fsync="never"),
        flush=FlushSettings(check_s=0.01),
    )


class LeapingClock(SystemClock):
    """The machine's time, and what a test leapt ahead of it; whoever sleeps is woken when his time has come."""

    def __init__(self) -> None:
        self._ahead_s = 0.0
        self._leapt = asyncio.Event()

    def monotonic(self) -> float:
        return super().monotonic() + self._ahead_s

    def now_ms(self) -> int:
        return super().now_ms() + round(self._ahead_s * 1000)

    async def sleep(self, seconds: float) -> None:
        until = self.monotonic() + seconds
        while (left := until - self.monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._leapt.wait()

    def leap(self, seconds: float) -> None:
        self._ahead_s += seconds
        leapt, self._leapt = self._leapt, asyncio.Event()
        leapt.set()


@dataclass
class Member:
    client: Client
    group_id: str = "g"
    instance_id: str | None = None
    protocols: Sequence[str] = ("range",)
    metadata: bytes = b"what I read"
    member_id: str = ""
    generation: int = -1
    leader: str = ""
    protocol: str | None = None
    others: Sequence[str] = ()

    @property
    def leads(self) -> bool:
        return self.leader == self.member_id

    # --- joining

    def join_request(self, *, session_timeout_ms: int = SESSION_MS) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=name, metadata=self.metadata) for name in self.protocols],
        )

    async def learn_id(self, version: int = JOIN) -> None:
        response = await self.client.call(self.join_request(), JoinGroupResponse, version)
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        self.member_id = response.member_id

    async def begin_join(self, version: int = JOIN) -> None:
        await self.client.send(self.join_request(), version)

    async def end_join(self, version: int = JOIN) -> JoinGroupResponse:
        response = await self.client.receive(JoinGroupResponse, version)
        if response.error_code == ErrorCode.NONE:
            self.member_id, self.generation = response.member_id, response.generation_id
            self.leader, self.protocol = response.leader, response.protocol_name
            self.others = [member.member_id for member in response.members]
        return response

    async def join(self, version: int = JOIN) -> JoinGroupResponse:
        """Ask to be in, with an id of one's own where versions want it, and wait for the generation."""
        if not self.member_id and self.instance_id is None and version >= 4:
            await self.learn_id(version)
        await self.begin_join(version)
        return await self.end_join(version)

    # --- assignments

    def sync_request(self, assignments: Mapping[str, bytes] | None = None) -> SyncGroupRequest:
        brought = assignments or {}
        if assignments is None and self.leads:
            brought = {member_id: f"for {member_id}".encode() for member_id in self.others}
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=self.protocol,
            assignments=[SyncGroupRequestAssignment(member_id=each, assignment=what) for each, what in brought.items()],
        )

    async def sync(self, version: int = SYNC) -> SyncGroupResponse:
        return await self.client.call(self.sync_request(), SyncGroupResponse, version)

    # --- living and leaving

    async def heartbeat(self, version: int = HEARTBEAT) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id if version >= 3 else None,
        )
        return ErrorCode((await self.client.call(request, HeartbeatResponse, version)).error_code)

    def leave_request(self, version: int = LEAVE) -> LeaveGroupRequest:
        if version < 3:
            return LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id)
        leaver = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        return LeaveGroupRequest(group_id=self.group_id, members=[leaver])

    async def leave(self, version: int = LEAVE) -> ErrorCode:
        response = await self.client.call(self.leave_request(version), LeaveGroupResponse, version)
        codes = [response.error_code, *(member.error_code for member in response.members)]
        return ErrorCode(next((code for code in codes if code), ErrorCode.NONE))

    async def commit(self, topic: str, offsets: Mapping[int, int], version: int = 9) -> list[ErrorCode]:
        request = commit_request(
            topic,
            offsets,
            group_id=self.group_id,
            member_id=self.member_id,
            generation=self.generation,
            instance_id=self.instance_id,
        )
        response = await self.client.call(request, OffsetCommitResponse, version)
        return [ErrorCode(part.error_code) for part in response.topics[0].partitions]


async def a_member(
    served: Served,
    group_id: str = "g",
    *,
    instance_id: str | None = None,
    protocols: Sequence[str] = ("range",),
    member_id: str = "",
) -> Member:
    return Member(
        await served.client(), group_id=group_id, instance_id=instance_id, protocols=protocols, member_id=member_id
    )


async def state_of(served: Served, group_id: str = "g") -> GroupState:
    result = (await served.broker.groups.describe([group_id]))[group_id]
    assert not isinstance(result, StreamhouseError), result
    return result.state


async def reach(served: Served, state: GroupState, group_id: str = "g") -> None:
    """Let the server work until the group is in a state; a test that waits in vain fails here."""
    for _ in range(10_000):
        if await state_of(served, group_id) is state:
            return
        await asyncio.sleep(0.002)
    raise AssertionError(f"waited in vain; state={await state_of(served, group_id)}")


async def join_all(served: Served, *members: Member) -> None:
    """All members join a new generation: first the one that gives a reason for it, new or the leader, then the others.

    A follower that joins a stable group as it is gets the present generation once more.
    """
    new = [each for each in members if each.generation < 0]
    reason = next(iter(new or [each for each in members if each.leads]), members[-1])
    others = [each for each in members if each is not reason]
    if not reason.member_id and reason.instance_id is None:
        await reason.learn_id()
    await reason.begin_join()
    if others:
        await reach(served, GroupState.PREPARING_REBALANCE, reason.group_id)
    responses = [*await asyncio.gather(*(each.join() for each in others)), await reason.end_join()]
    assert {response.error_code for response in responses} == {0}


async def sync_all(*members: Member) -> list[SyncGroupResponse]:
    return list(await asyncio.gather(*(member.sync() for member in members)))


async def rebalance(served: Served, *members: Member) -> None:
    """A new generation of all of them; afterwards the group is stable."""
    await join_all(served, *members)
    assert {response.error_code for response in await sync_all(*members)} == {0}


async def a_group(served: Served, size: int, group_id: str = "g") -> list[Member]:
    """A stable group: the first member, then each further one through a rebalance that all join."""
    members: list[Member] = []
    for _ in range(size):
        members.append(await a_member(served, group_id))
        await rebalance(served, *members)
    return members


def commit_request(
    topic: str,
    offsets: Mapping[int, int],
    *,
    group_id: str = "g",
    member_id: str = "",
    generation: int = -1,
    instance_id: str | None = None,
    metadata: str | None = None,
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=metadata
                    )
                    for partition, offset in offsets.items()
                ],
            )
        ],
    )


async def committed(client: Client, topic: str, *partitions: int, group_id: str = "g") -> dict[int, int]:
    """What a group committed, by partition; -1 for nothing."""
    call = OffsetFetchRequestTopics(name=topic, partition_indexes=list(partitions))
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=[call])])
    response = await client.call(request, OffsetFetchResponse, 9)
    assert response.groups[0].error_code == ErrorCode.NONE
    return {part.partition_index: part.committed_offset for part in response.groups[0].topics[0].partitions}
