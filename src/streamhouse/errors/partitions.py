"""Errors of leases, sessions and agents; of records and batches; of topics and their settings."""

from collections.abc import Iterable, Sequence

from streamhouse.errors.base import Rejected, Retriable


class LeaseLost(Retriable):
    """This agent doesn't hold the leases of these partitions (any more)."""

    def __init__(self, partitions: Iterable[object], *, why: str) -> None:
        self.partitions = tuple(partitions)
        super().__init__(f"lease lost; partitions={','.join(map(str, self.partitions))} why={why}")


class LeaseHeld(LeaseLost):
    """Another session holds the lease: it will be transferred or recovered."""


class NotLeader(Retriable):
    """Another agent leads this partition, or should lead it. `node_id` is None while the leader is unknown."""

    def __init__(self, partition: object, *, node_id: int | None, epoch: int, address: tuple[str, int] | None) -> None:
        self.node_id = node_id
        self.epoch = epoch
        self.address = address
        super().__init__(f"not the partition's leader; partition={partition} leader={node_id or 'unknown'}")


class PredecessorRefused(Retriable):
    """An earlier batch was rejected with a retriable error, here or at the previous leader: the client must send both
    again."""

    def __init__(self, partition: object, *, producer_id: int, awaited: int, got: int) -> None:
        super().__init__(
            f"a batch before this one is still to come; partition={partition} producer={producer_id} awaited={awaited}"
            f" got={got}"
        )


class SessionLost(Retriable):
    """The metadata store has ended this session; its agent must stop using it."""

    def __init__(self, session: str, *, why: str) -> None:
        super().__init__(f"session lost; session={session} why={why}")


class AppendFailed(Retriable):
    """The write-ahead log could not make the append durable: it is not acknowledged, and its offsets may be reused."""


class SessionSealed(AppendFailed):
    """Another agent has sealed this session's log, as that of a dead session: the session must end."""

    def __init__(self, session: str, *, sequence: int, why: str) -> None:
        super().__init__(f"the session was sealed; session={session} sequence={sequence} {why}")
        self.sequence = sequence


class NotReserved(Retriable):
    """The partition's leader can't assign offsets until the metadata store has reserved more."""

    def __init__(self, partition: object, *, end: int, until: int) -> None:
        super().__init__(f"offsets are not reserved yet; partition={partition} end={end} reserved_until={until}")


class PartitionHeld(Retriable):
    """The partition is frozen by an external commit: appends and other commits wait."""


class UnknownAgent(Rejected):
    """There is no live agent with this node id."""

    def __init__(self, node_id: int) -> None:
        super().__init__(f"unknown agent; node={node_id}")


class UnknownDamagedLog(Rejected):
    """There is no retained damaged log of this session."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"no damaged write-ahead log is kept; session={session_id}")


class FencedLeaderEpoch(Rejected):
    """The client has an older leader epoch than the agent: it must refresh its metadata."""


class UnknownLeaderEpoch(Rejected):
    """The client has a newer leader epoch than the agent."""


class OffsetOutOfRange(Rejected):
    """The offset is below the log start or above the end."""

    def __init__(self, partition: object, *, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset out of range; partition={partition} offset={offset} start={start} end={end}")


class DataLost(Rejected):
    """The requested records were deleted by retention, or with their topic."""


class CorruptBatch(Rejected):
    """The batch's checksum or structure is invalid."""


class UnsupportedFormat(Rejected):
    """The batch is of an older format than magic 2."""


class BadRecords(Rejected):
    """Records violate a rule; `records` are the positions of the invalid ones, if single records are invalid."""

    def __init__(self, text: str, *, records: Sequence[int] = ()) -> None:
        super().__init__(text)
        self.records = records


class InvalidRecord(BadRecords):
    """The batch is intact, but its content violates a rule."""


class BatchTooLarge(InvalidRecord):
    """The decompressed batch exceeds the limit."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"batch is too large once decompressed; limit_bytes={limit_bytes}")
        self.limit_bytes = limit_bytes


class InvalidTimestamp(BadRecords):
    """A timestamp is out of the topic's allowed range."""


class RecordTooLarge(Rejected):
    """The batch is larger than the topic or the agent allows."""

    def __init__(self, partition: object, *, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"batch too large; partition={partition} size={size_bytes} limit={limit_bytes}")


class UnsupportedCompression(Rejected):
    """The codec is unknown."""


class OutOfOrderSequence(Rejected):
    """An idempotent producer's batch does not follow its predecessor."""

    def __init__(self, partition: object, *, producer_id: int, expected: int, got: int) -> None:
        super().__init__(
            f"sequence out of order; partition={partition} producer={producer_id} expected={expected} got={got}"
        )


class AbortedSequence(Rejected):
    """A batch has sequence numbers that its producer used in a transaction that was aborted.

    The batch is not stored, and is not a duplicate of a stored one. The producer must abort its transaction and
    continue under the next epoch.
    """

    def __init__(self, partition: object, *, producer_id: int, sequence: int) -> None:
        super().__init__(
            "sequence was used in a transaction that was aborted; "
            f"partition={partition} producer={producer_id} sequence={sequence} do=abort, and begin the next epoch"
        )


class DuplicateSequence(Rejected):
    """The batch was stored before, but its offset is no longer known."""


class IdempotencyKeyReused(Rejected):
    """The idempotency key was used before with other records."""

    def __init__(self, partition: object) -> None:
        super().__init__(f"idempotency key was used before, with other records; partition={partition}")


class StaleProducerEpoch(Rejected):
    """The producer has an older epoch than the partition's last batch; it must stop."""

    def __init__(self, partition: object, *, producer_id: int, epoch: int, current: int) -> None:
        super().__init__(
            f"producer epoch is stale; partition={partition} producer={producer_id} epoch={epoch} current={current}"
        )


class UnknownCommit(Rejected):
    """There is no such commit."""


class StaleCommit(Rejected):
    """The query has later commits, and this one is not stored any more."""

    def __init__(self, query: str, *, epoch: int, last: int) -> None:
        super().__init__(f"commit is older than the last one; query={query} epoch={epoch} last={last}")


class CommitRefused(Rejected):
    """The segments can't be committed: they don't match the commit, or have expired."""


class RunsChanged(Rejected):
    """The runs to replace have changed: plan again."""

    def __init__(self, partition: object, *, base: int, end: int) -> None:
        super().__init__(f"runs changed since they were planned; partition={partition} base={base} end={end}")


class CannotSign(Rejected):
    """Reads of the object store can't be signed: clients need credentials, or read through agents."""

    def __init__(self) -> None:
        super().__init__(
            "reads can't be signed: the store is no S3, its records are encrypted, or the agent's credentials are none"
            " of those that it can sign with (AWS_ACCESS_KEY_ID, or a container's role)"
        )


class UnknownTopic(Rejected):
    """No such topic or partition."""

    def __init__(self, what: object) -> None:
        super().__init__(f"unknown topic or partition; name={what}")


class UnknownTopicId(Rejected):
    """No topic has this id."""

    def __init__(self, topic_id: object) -> None:
        super().__init__(f"unknown topic id; id={topic_id}")


class TopicExists(Rejected):
    """A topic of this name exists."""

    def __init__(self, name: str) -> None:
        super().__init__(f"topic already exists; name={name}")


class InvalidTopicName(Rejected):
    """The topic name is invalid."""


class InvalidPartitions(Rejected):
    """The number of partitions is out of range."""


class InvalidReplication(Rejected):
    """The replication factor is invalid."""


class InvalidAssignment(InvalidReplication):
    """A manual replica assignment is contradictory, or names unknown agents."""


class InvalidConfig(Rejected):
    """A setting is unknown or its value is not allowed."""


class PolicyViolation(Rejected):
    """The topic's settings forbid this."""
