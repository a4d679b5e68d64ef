"""Errors of leases, sessions and agents: who may append now, and who may not any more.

Errors of records and batches: what is stored, what can't be, and what was stored before.

Errors of topics: names, settings, partitions.
"""

from collections.abc import Iterable, Sequence

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


class OffsetOutOfRange(Rejected):
    """The offset lies below the log start or above the end."""

    def __init__(self, partition: object, *, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset out of range; partition={partition} offset={offset} start={start} end={end}")


class DataLost(Rejected):
    """Records that were to be read are no longer there: they expired, or their topic was deleted."""


class CorruptBatch(Rejected):
    """The batch's checksum or structure is wrong: it was damaged, or never well formed."""


class UnsupportedFormat(Rejected):
    """The batch is of an older format than magic 2."""


class BadRecords(Rejected):
    """Records break a rule; `records` are the positions of those to blame, where the rule is about single ones."""

    def __init__(self, text: str, *, records: Sequence[int] = ()) -> None:
        super().__init__(text)
        self.records = records


class InvalidRecord(BadRecords):
    """The batch is whole, but its content breaks a rule."""


class BatchTooLarge(InvalidRecord):
    """Decompressed, a batch has more bytes than its reader may hold."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"batch is too large once decompressed; limit_bytes={limit_bytes}")
        self.limit_bytes = limit_bytes


class InvalidTimestamp(BadRecords):
    """A timestamp lies outside what the topic allows."""


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

    It is not stored, and it is no duplicate of anything that counts. The producer must abort its transaction and go on
    under the next epoch.
    """

    def __init__(self, partition: object, *, producer_id: int, sequence: int) -> None:
        super().__init__(
            "sequence was used in a transaction that was aborted; "
            f"partition={partition} producer={producer_id} sequence={sequence} do=abort, and begin the next epoch"
        )


class DuplicateSequence(Rejected):
    """The batch was stored before, so long ago that its offset is no longer remembered."""


class IdempotencyKeyReused(Rejected):
    """The idempotency key was used before, with other records. A retry brings the same ones."""

    def __init__(self, partition: object) -> None:
        super().__init__(f"idempotency key was used before, with other records; partition={partition}")


class StaleProducerEpoch(Rejected):
    """A newer incarnation of this producer has written; this one must stop."""

    def __init__(self, partition: object, *, producer_id: int, epoch: int, current: int) -> None:
        super().__init__(
            f"producer epoch is stale; partition={partition} producer={producer_id} epoch={epoch} current={current}"
        )


class UnknownCommit(Rejected):
    """No such commit is remembered."""


class StaleCommit(Rejected):
    """The query has made later commits, and this one isn't remembered."""

    def __init__(self, query: str, *, epoch: int, last: int) -> None:
        super().__init__(f"commit is older than the last one; query={query} epoch={epoch} last={last}")


class CommitRefused(Rejected):
    """The segments can't be placed: they aren't what the commit says, or not any more."""


class RunsChanged(Rejected):
    """What was to be replaced is no longer there: plan again."""

    def __init__(self, partition: object, *, base: int, end: int) -> None:
        super().__init__(f"runs changed since they were planned; partition={partition} base={base} end={end}")


class UnknownTopic(Rejected):
    """No such topic or partition."""

    def __init__(self, what: object) -> None:
        super().__init__(f"unknown topic or partition; name={what}")


class UnknownTopicId(Rejected):
    """No topic has this id."""

    def __init__(self, topic_id: object) -> None:
        super().__init__(f"unknown topic id; id={topic_id}")


class TopicExists(Rejected):
    """A topic of this name is already there."""

    def __init__(self, name: str) -> None:
        super().__init__(f"topic already exists; name={name}")


class InvalidTopicName(Rejected):
    """The name can't be a topic's."""


class InvalidPartitions(Rejected):
    """The number of partitions is out of range."""


class InvalidReplication(Rejected):
    """The replication factor or the replica assignment makes no sense here."""


class InvalidAssignment(InvalidReplication):
    """Replicas assigned by hand contradict each other, or name agents that aren't there."""


class InvalidConfig(Rejected):
    """A setting is unknown or its value is not allowed."""


class PolicyViolation(Rejected):
    """The topic's settings don't allow this."""
