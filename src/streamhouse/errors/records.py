"""Errors of records and batches: what is stored, what can't be, and what was stored before."""

from collections.abc import Sequence

from streamhouse.errors.base import Rejected


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
