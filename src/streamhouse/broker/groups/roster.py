"""Roster: who belongs to a group, who leads it, and which protocols all of them understand.

Owns        the members by id and by instance, the votes for a protocol, the choice of a leader
Leaves      when somebody comes or goes, and what follows, to `state`
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from math import inf

from streamhouse.broker.groups.calls import Join
from streamhouse.broker.groups.member import Member
from streamhouse.errors import FencedInstance, UnknownMember


class Roster:
    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._members: dict[str, Member] = {}
        self._instances: dict[str, str] = {}
        self._support: Counter[str] = Counter()
        self.leader: str | None = None
        self.size_bytes = 0
        """What all members offer, together."""

    def __repr__(self) -> str:
        return f"<Roster members={len(self._members)} static={len(self._instances)} leader={self.leader}>"

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        """In the order in which they came, over a copy: members may go meanwhile."""
        return iter(list(self._members.values()))

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def by_instance(self, instance_id: str | None) -> Member | None:
        member_id = self._instances.get(instance_id) if instance_id is not None else None
        return self._members[member_id] if member_id is not None else None

    def check(self, member_id: str, instance_id: str | None) -> Member:
        """The member of this id, if it is also the one of this instance; raises what it should be told otherwise."""
        if instance_id is not None:
            current = self._instances.get(instance_id)
            if current is None:
                raise UnknownMember(self._group_id, member_id=member_id)
            if current != member_id:
                raise FencedInstance(self._group_id, instance_id=instance_id, member_id=member_id)
        if (member := self._members.get(member_id)) is None:
            raise UnknownMember(self._group_id, member_id=member_id)
        return member

    # --- coming and going

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
        """Another life of the same static member takes its place, also as the leader."""
        leads = self.leader == old.member_id
        self.remove(old.member_id)
        self.add(new)
        if leads:
            self.leader = new.member_id

    def update(self, member: Member, ask: Join) -> None:
        self._discount(member)
        member.update(ask)
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

    # --- what they have in common

    def supports(self, names: Iterable[str]) -> bool:
        """Whether one of these is understood by every member."""
        return any(self._support[name] == len(self._members) for name in names)

    def select_protocol(self) -> str:
        """Each member votes for the first of its own that all understand; the most votes win, early ones on a tie."""
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
        """Make sure that the leader is one of those who wait for the generation; False when nobody waits."""
        leader = self._members.get(self.leader) if self.leader is not None else None
        if leader is not None and leader.join_token is not None:
            return True
        first = next((member for member in self._members.values() if member.join_token is not None), None)
        if first is not None:
            self.leader = first.member_id
        return first is not None
