"""Errors of leases, sessions and agents: who may append now, and who may not any more."""

from collections.abc import Iterable

from streamhouse.errors.base import Rejected, Retriable


class LeaseLost(Retriable):
    """This agent may not write these partitions, or no longer; another one does, or will."""

    def __init__(self, partitions: Iterable[object], *, why: str) -> None:
        self.partitions = tuple(partitions)
        super().__init__(f"lease lost; partitions={','.join(map(str, self.partitions))} why={why}")


class LeaseHeld(LeaseLost):
    """Another session holds the lease: it is on its way here, or will be recovered."""


class NotLeader(Retriable):
    """Another agent leads this partition, or should: ask there. `node_id` is None while nobody knows who."""

    def __init__(self, partition: object, *, node_id: int | None, epoch: int, address: tuple[str, int] | None) -> None:
        self.node_id = node_id
        self.epoch = epoch
        self.address = address
        super().__init__(f"not the partition's leader; partition={partition} leader={node_id or 'unknown'}")


class PredecessorRefused(Retriable):
    """A batch that comes before this one was refused for now, here or where the partition was: both will come again."""

    def __init__(self, partition: object, *, producer_id: int, awaited: int, got: int) -> None:
        super().__init__(
            f"a batch before this one is still to come; partition={partition} producer={producer_id} awaited={awaited}"
            f" got={got}"
        )


class SessionLost(Retriable):
    """The metadata store no longer knows this agent's session; whoever held it must stop acting on it."""

    def __init__(self, session: str, *, why: str) -> None:
        super().__init__(f"session lost; session={session} why={why}")


class AppendFailed(Retriable):
    """The write-ahead log could not make the append durable: it is not acknowledged, and its place may be reused."""


class SessionSealed(AppendFailed):
    """Others took this session for dead and have ended its log: it must stop acting, and nothing of it is repaired."""

    def __init__(self, session: str, *, sequence: int, why: str) -> None:
        super().__init__(f"the session was sealed; session={session} sequence={sequence} {why}")
        self.sequence = sequence


class NotReserved(Retriable):
    """The partition's leader may hand out no more offsets until the metadata store has reserved some for it."""

    def __init__(self, partition: object, *, end: int, until: int) -> None:
        super().__init__(f"offsets are not reserved yet; partition={partition} end={end} reserved_until={until}")


class PartitionHeld(Retriable):
    """Segments are being placed in the partition: appends, and other commits, wait for that."""


class UnknownAgent(Rejected):
    """No agent that is alive has this number."""

    def __init__(self, node_id: int) -> None:
        super().__init__(f"unknown agent; node={node_id}")


class UnknownDamagedLog(Rejected):
    """No damaged write-ahead log of this session is kept here."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"no damaged write-ahead log is kept; session={session_id}")


class FencedLeaderEpoch(Rejected):
    """The client knows an older leader epoch than the agent: it must refresh its metadata."""


class UnknownLeaderEpoch(Rejected):
    """The client knows a newer leader epoch than the agent."""
