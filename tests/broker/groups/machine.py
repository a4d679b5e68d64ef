"""A group's machine with its time, its tokens and its store in the test's hands."""

from collections.abc import Mapping
from typing import Any

from streamhouse.broker.groups.group_state import Group
from streamhouse.broker.groups.rebalance import Action, Reply, WriteGroup
from streamhouse.config import GroupSettings
from streamhouse.errors import StreamhouseError
from streamhouse.model.group import GroupState, OfferedProtocol, StoredGroup
from streamhouse.model.group_requests import JoinRequest, JoinResult, LeaveRequest, MemberRef, SyncRequest, SyncResult

DELAY_S = 3.0
SESSION_MS = 10_000
REBALANCE_MS = 60_000


def offers(*names: str, metadata: bytes = b"m") -> tuple[OfferedProtocol, ...]:
    return tuple(OfferedProtocol(name, metadata) for name in names)


class Machine:
    """Tokens are numbers. Writes are durable at once unless `holds_writes`."""

    def __init__(self, **settings: Any) -> None:
        self.settings = GroupSettings(**{"initial_rebalance_delay_s": DELAY_S, **settings})
        self.group = Group("g", self.settings)
        self.now = 100.0
        self.responses: dict[int, JoinResult | SyncResult | StreamhouseError] = {}
        self.holds_writes = False
        self.writes: list[WriteGroup] = []
        self.stored: list[StoredGroup] = []
        self._tokens = 0
        self._names = 0

    def perform(self, effects: list[Action]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                assert isinstance(effect.token, int)
                assert effect.token not in self.responses, "answered twice"
                self.responses[effect.token] = effect.response
            else:
                self.writes.append(effect)
        while self.writes and not self.holds_writes:
            self.settle()

    def settle(self, error: StreamhouseError | None = None) -> None:
        """The oldest write is durable, or not."""
        write = self.writes.pop(0)
        if error is None:
            self.stored.append(write.group)
        self.perform(self.group.stored(self.now, write.number, error))

    # --- calls; each returns a token

    def join(self, member_id: str = "", *, protocols: tuple[str, ...] = ("range",), **more: Any) -> int:
        self._tokens += 1
        self._names += 1
        ask = JoinRequest(
            member_id=member_id,
            session_timeout_ms=more.pop("session_ms", SESSION_MS),
            rebalance_timeout_ms=more.pop("rebalance_ms", REBALANCE_MS),
            protocol_type=more.pop("protocol_type", "consumer"),
            protocols=offers(*protocols, metadata=more.pop("metadata", b"m")),
            learns_id=more.pop("learns_id", False),
            **more,
        )
        token = self._tokens
        self.perform(self.group.join(self.now, ask, token, new_member_id=f"m{self._names}"))
        return token

    def sync(self, member_id: str, assignments: Mapping[str, bytes] | None = None, **more: Any) -> int:
        self._tokens += 1
        token = self._tokens
        ask = SyncRequest(
            member_id=member_id,
            generation=more.pop("generation", self.group.generation),
            assignments=assignments or {},
            **more,
        )
        self.perform(self.group.sync(self.now, ask, token))
        return token

    def heartbeat(self, member_id: str, generation: int | None = None, instance_id: str | None = None) -> None:
        self.group.heartbeat(self.now, self.caller(member_id, generation, instance_id))

    def check_commit(self, member_id: str, generation: int | None = None, instance_id: str | None = None) -> None:
        self.group.check_commit(self.now, self.caller(member_id, generation, instance_id))

    def caller(self, member_id: str, generation: int | None, instance_id: str | None) -> MemberRef:
        current = self.group.generation if generation is None else generation
        return MemberRef(member_id=member_id, generation=current, instance_id=instance_id)

    def leave(self, *leavers: str | LeaveRequest) -> list[StreamhouseError | None]:
        named = [LeaveRequest(member_id=each) if isinstance(each, str) else each for each in leavers]
        outcomes, effects = self.group.leave(self.now, named)
        self.perform(effects)
        return outcomes

    def pass_time(self, seconds: float) -> None:
        """Advance the time; `tick` is called exactly at the deadlines."""
        end = self.now + seconds
        ticks = 0
        while (due := self.group.next_deadline()) <= end:
            ticks = ticks + 1 if due <= self.now else 0
            assert ticks < 100, "a busy loop: what is due stays due"
            self.now = max(self.now, due)
            self.perform(self.group.tick(self.now))
        self.now = end

    # --- shortcuts

    def state(self) -> GroupState:
        return self.group.state

    def joined(self, token: int) -> JoinResult:
        response = self.responses[token]
        assert isinstance(response, JoinResult), response
        return response

    def synced(self, token: int) -> SyncResult:
        response = self.responses[token]
        assert isinstance(response, SyncResult), response
        return response

    def refused(self, token: int) -> StreamhouseError:
        response = self.responses[token]
        assert isinstance(response, StreamhouseError), response
        return response

    def waits(self, token: int) -> bool:
        return token not in self.responses

    def gather(self, *instances: str | None, **more: Any) -> list[str]:
        """A first generation of so many members; they have their ids, and are about to sync."""
        tokens = [self.join(instance_id=instance, **more) for instance in instances]
        self.pass_time(DELAY_S)
        while self.waits(tokens[0]):
            self.pass_time(DELAY_S)
        return [self.joined(token).member_id for token in tokens]

    def settled(self, *instances: str | None, **more: Any) -> list[str]:
        """A stable group of so many members; each is assigned its own name."""
        members = self.gather(*instances, **more)
        leader = self.group.roster.leader
        assert leader is not None
        self.sync(leader, {member: member.encode() for member in members})
        for member in members:
            if member != leader:
                self.sync(member)
        return members

    def keep_alive(self, seconds: float, *members: str, step_s: float = 3.0) -> None:
        """Advance the time while these members send heartbeats, whose responses are ignored."""
        end = self.now + seconds
        while self.now < end:
            self.pass_time(min(step_s, end - self.now))
            for member in members:
                result = self.group.roster.get(member)
                if result is not None:
                    result.touch(self.now)
