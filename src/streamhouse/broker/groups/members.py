"""Members of a group: one member, the set of all members, and the limits on what a member may send.

A member that waits in a join or a sync cannot send heartbeats, so its session does not expire meanwhile; it starts
again with the response. A member that was never in a generation is the exception, because its client may be gone.

`MemberSet` holds the members by id and by instance, elects the leader and selects the protocol.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from math import inf

from streamhouse.config import GroupSettings
from streamhouse.errors import FencedInstance, GroupDataTooLarge, UnknownMember
from streamhouse.model.group import OfferedProtocol, StoredMember
from streamhouse.model.group_requests import DescribedMember, JoinedMember, JoinRequest


class Member:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "expires_at",
        "instance_id",
        "is_new",
        "join_token",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_token",
    )

    def __init__(self, member_id: str, request: JoinRequest) -> None:
        self.member_id = member_id
        self.instance_id = request.instance_id
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.assignment = b""
        self.is_new = False
        self.join_token: object | None = None
        self.sync_token: object | None = None
        self.expires_at = inf
        self.protocols: tuple[OfferedProtocol, ...] = ()
        self.session_timeout_ms = self.rebalance_timeout_ms = 0
        self.update(request)

    def __repr__(self) -> str:
        waits = " joining" if self.join_token is not None else " syncing" if self.sync_token is not None else ""
        return f"<Member {self.member_id} instance={self.instance_id}{waits} expires_at={self.expires_at:.3f}>"

    @classmethod
    def load(cls, stored: StoredMember) -> "Member":
        request = JoinRequest(
            instance_id=stored.instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            session_timeout_ms=stored.session_timeout_ms,
            rebalance_timeout_ms=stored.rebalance_timeout_ms,
            protocol_type="",
            protocols=stored.protocols,
        )
        member = cls(stored.member_id, request)
        member.assignment = stored.assignment
        return member

    def update(self, request: JoinRequest) -> None:
        """Take over what a member may change with each join."""
        self.protocols = distinct(request.protocols)
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms(request)

    @property
    def names(self) -> list[str]:
        return [offered.name for offered in self.protocols]

    @property
    def size_bytes(self) -> int:
        return offered_bytes(self.protocols)

    def offers(self, protocols: tuple[OfferedProtocol, ...]) -> bool:
        return self.protocols == distinct(protocols)

    def metadata(self, protocol: str | None) -> bytes | None:
        return next((offered.metadata for offered in self.protocols if offered.name == protocol), None)

    def vote(self, candidates: Collection[str]) -> str | None:
        """The first of its protocols, in order of preference, that is a candidate."""
        return next((name for name in self.names if name in candidates), None)

    def touch(self, now: float) -> None:
        """Restart the session timeout."""
        self.expires_at = now + self.session_timeout_ms / 1000

    @property
    def is_excused(self) -> bool:
        """Whether its session does not expire, because it waits for a response."""
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    def stored(self, assignment: bytes) -> StoredMember:
        return StoredMember(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            protocols=self.protocols,
            assignment=assignment,
        )

    def joined(self, protocol: str | None) -> JoinedMember:
        return JoinedMember(
            member_id=self.member_id, instance_id=self.instance_id, metadata=self.metadata(protocol) or b""
        )

    def described(self, protocol: str | None) -> DescribedMember:
        """Metadata and assignment are filled only with a protocol."""
        return DescribedMember(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            metadata=(self.metadata(protocol) or b"") if protocol is not None else b"",
            assignment=self.assignment if protocol is not None else b"",
        )


def distinct(protocols: tuple[OfferedProtocol, ...]) -> tuple[OfferedProtocol, ...]:
    """Each name once: the first one counts, as in Kafka."""
    names: dict[str, OfferedProtocol] = {}
    for offered in protocols:
        names.setdefault(offered.name, offered)
    return tuple(names.values()) if len(names) < len(protocols) else protocols


def offered_bytes(protocols: tuple[OfferedProtocol, ...]) -> int:
    return sum(len(name) + len(metadata) for name, metadata in protocols)


def rebalance_timeout_ms(request: JoinRequest) -> int:
    """The oldest clients send none: then it is their session timeout."""
    return request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms


def check_metadata(request: JoinRequest, settings: GroupSettings, *, others_bytes: int) -> None:
    """Raise unless the member's metadata fits, alone and together with the other members' metadata."""
    size = offered_bytes(request.protocols)
    _check("member metadata is too large", size, settings.max_member_bytes, "groups.max_member_bytes")
    _check("the group's metadata is too large", size + others_bytes, settings.max_group_bytes, "groups.max_group_bytes")


def check_assignments(assignments: Mapping[str, bytes], settings: GroupSettings) -> None:
    """Raise unless each assignment, and all of them together, fit."""
    sizes = [len(assignment) for assignment in assignments.values()]
    largest = max(sizes, default=0)
    _check("an assignment is too large", largest, settings.max_member_bytes, "groups.max_member_bytes")
    _check("the assignments are too large", sum(sizes), settings.max_group_bytes, "groups.max_group_bytes")


def _check(what: str, size_bytes: int, limit_bytes: int, setting: str) -> None:
    if size_bytes > limit_bytes:
        raise GroupDataTooLarge(what, size_bytes=size_bytes, limit_bytes=limit_bytes, setting=setting)


class MemberSet:
    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._members: dict[str, Member] = {}
        self._instances: dict[str, str] = {}
        self._support: Counter[str] = Counter()
        self.leader: str | None = None
        self.size_bytes = 0
        """Metadata of all members, together."""

    def __repr__(self) -> str:
        return f"<MemberSet members={len(self._members)} static={len(self._instances)} leader={self.leader}>"

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        """In the order of joining, over a copy: members may be removed meanwhile."""
        return iter(list(self._members.values()))

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def by_instance(self, instance_id: str | None) -> Member | None:
        member_id = self._instances.get(instance_id) if instance_id is not None else None
        return self._members[member_id] if member_id is not None else None

    def check(self, member_id: str, instance_id: str | None) -> Member:
        """The member with this id; raises `UnknownMember`, or `FencedInstance` if its instance has another id now."""
        if instance_id is not None:
            current = self._instances.get(instance_id)
            if current is None:
                raise UnknownMember(self._group_id, member_id=member_id)
            if current != member_id:
                raise FencedInstance(self._group_id, instance_id=instance_id, member_id=member_id)
        if (member := self._members.get(member_id)) is None:
            raise UnknownMember(self._group_id, member_id=member_id)
        return member

    # --- joining and leaving

    def add(self, member: Member) -> None:
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id
        self._count(member)
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> None:
        member = self._members.pop(member_id)
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        self._discount(member)
        if self.leader == member_id:
            self.leader = next(iter(self._members), None)

    def replace(self, old: Member, new: Member) -> None:
        """Replace a static member by its next incarnation, also as the leader."""
        leads = self.leader == old.member_id
        self.remove(old.member_id)
        self.add(new)
        if leads:
            self.leader = new.member_id

    def update(self, member: Member, request: JoinRequest) -> None:
        self._discount(member)
        member.update(request)
        self._count(member)

    def _count(self, member: Member) -> None:
        self._support.update(member.names)
        self.size_bytes += member.size_bytes

    def _discount(self, member: Member) -> None:
        self.size_bytes -= member.size_bytes
        for name in member.names:
            self._support[name] -= 1
            if not self._support[name]:
                del self._support[name]

    # --- protocols

    def supports(self, names: Iterable[str]) -> bool:
        """Whether all members support one of these protocols."""
        return any(self._support[name] == len(self._members) for name in names)

    def select_protocol(self) -> str:
        """Each member votes for its first protocol that all support; most votes win, the earliest on a tie."""
        candidates = {name for name, count in self._support.items() if count == len(self._members)}
        votes = Counter(vote for member in self if (vote := member.vote(candidates)) is not None)
        [(chosen, _)] = votes.most_common(1)
        return chosen

    @property
    def rebalance_timeout_s(self) -> float:
        return max((member.rebalance_timeout_ms for member in self._members.values()), default=0) / 1000

    # --- waiting

    @property
    def earliest_expiry(self) -> float:
        return min((member.expires_at for member in self._members.values()), default=inf)

    @property
    def waiting(self) -> int:
        return sum(member.join_token is not None for member in self._members.values())

    @property
    def all_wait(self) -> bool:
        return all(member.join_token is not None for member in self._members.values())

    def elect_waiting(self) -> bool:
        """Elect a leader among the waiting members unless it is one already; False when no member waits."""
        leader = self._members.get(self.leader) if self.leader is not None else None
        if leader is not None and leader.join_token is not None:
            return True
        first = next((member for member in self._members.values() if member.join_token is not None), None)
        if first is not None:
            self.leader = first.member_id
        return first is not None
