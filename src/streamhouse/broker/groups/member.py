"""Member: one member of a group, as its coordinator sees it.

Owns        what the member offers and was assigned, whether it waits, until when it is believed to be alive
Leaves      what follows from that to `state`

A member that waits in a join or a sync can't heartbeat, so its session does not run out meanwhile; it gets a whole
one with the answer. A member that never was in a generation is the exception: it may have gone without a trace.
"""

from collections.abc import Collection
from math import inf

from streamhouse.broker.groups.calls import DescribedMember, Join, JoinedMember
from streamhouse.model.group import OfferedProtocol, StoredMember


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

    def __init__(self, member_id: str, ask: Join) -> None:
        self.member_id = member_id
        self.instance_id = ask.instance_id
        self.client_id = ask.client_id
        self.client_host = ask.client_host
        self.assignment = b""
        self.is_new = False
        self.join_token: object | None = None
        self.sync_token: object | None = None
        self.expires_at = inf
        self.protocols: tuple[OfferedProtocol, ...] = ()
        self.session_timeout_ms = self.rebalance_timeout_ms = 0
        self.update(ask)

    def __repr__(self) -> str:
        waits = " joining" if self.join_token is not None else " syncing" if self.sync_token is not None else ""
        return f"<Member {self.member_id} instance={self.instance_id}{waits} expires_at={self.expires_at:.3f}>"

    @classmethod
    def load(cls, stored: StoredMember) -> "Member":
        ask = Join(
            instance_id=stored.instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            session_timeout_ms=stored.session_timeout_ms,
            rebalance_timeout_ms=stored.rebalance_timeout_ms,
            protocol_type="",
            protocols=stored.protocols,
        )
        member = cls(stored.member_id, ask)
        member.assignment = stored.assignment
        return member

    def update(self, ask: Join) -> None:
        """What a member may change whenever it joins."""
        self.protocols = distinct(ask.protocols)
        self.session_timeout_ms = ask.session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms(ask)

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
        """The first of its protocols, which are in the order of its preference, that can be chosen."""
        return next((name for name in self.names if name in candidates), None)

    def touch(self, now: float) -> None:
        """It gave a sign of life."""
        self.expires_at = now + self.session_timeout_ms / 1000

    @property
    def is_excused(self) -> bool:
        """Whether it needs no sign of life, because it waits for us."""
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
        """With a protocol: also what it offered for it, and what it was assigned."""
        return DescribedMember(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            metadata=(self.metadata(protocol) or b"") if protocol is not None else b"",
            assignment=self.assignment if protocol is not None else b"",
        )


def distinct(protocols: tuple[OfferedProtocol, ...]) -> tuple[OfferedProtocol, ...]:
    """Each name once, the first of its kind, as Kafka has it."""
    names: dict[str, OfferedProtocol] = {}
    for offered in protocols:
        names.setdefault(offered.name, offered)
    return tuple(names.values()) if len(names) < len(protocols) else protocols


def offered_bytes(protocols: tuple[OfferedProtocol, ...]) -> int:
    return sum(len(name) + len(metadata) for name, metadata in protocols)


def rebalance_timeout_ms(ask: Join) -> int:
    """The oldest clients don't name one: then it is their session timeout."""
    return ask.rebalance_timeout_ms if ask.rebalance_timeout_ms >= 0 else ask.session_timeout_ms
