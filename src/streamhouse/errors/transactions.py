"""Errors of transactions; clients branch on them, so each stands for exactly one of Kafka's codes."""

from streamhouse.errors.base import Rejected, Retriable
from streamhouse.errors.groups import CoordinatorUnavailable


class ConcurrentTransactions(Retriable):
    """The transaction before is decided and its markers are not all written yet; the same call may succeed soon."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(f"the transaction before is still being ended; transactional_id={transactional_id!r}")


class TransactionUnavailable(CoordinatorUnavailable):
    """The store didn't answer: the change may have been made or not, and the same call tells."""

    def __init__(self, transactional_id: str, *, why: str) -> None:
        Retriable.__init__(
            self, f"the transaction's coordinator can't answer now; transactional_id={transactional_id!r} why={why}"
        )


class UnstableOffsets(Retriable):
    """Offsets that were committed in a transaction which is not decided yet; the same call may succeed soon."""


class InvalidTransactionState(Rejected):
    """The call doesn't follow what happened to the transaction before."""

    def __init__(self, transactional_id: str, *, why: str) -> None:
        super().__init__(f"the transaction is in another state; transactional_id={transactional_id!r} why={why}")


class TransactionAbortable(Rejected):
    """The batch belongs to no transaction that is under way; its producer may abort, and go on."""


class ProducerFenced(Rejected):
    """Somebody else has the transactional id now, or the transaction took longer than its timeout."""

    def __init__(self, transactional_id: str, *, epoch: int, current: int) -> None:
        super().__init__(
            f"the producer was replaced; transactional_id={transactional_id!r} epoch={epoch} current={current}"
        )


class UnknownProducerId(Rejected):
    """The producer id isn't the one of its transactional id."""

    def __init__(self, transactional_id: str, *, producer_id: int) -> None:
        super().__init__(
            f"the transactional id has no such producer; transactional_id={transactional_id!r} producer={producer_id}"
        )


class InvalidTransactionTimeout(Rejected):
    """A transaction may not be open for so long."""

    def __init__(self, *, timeout_ms: int, limit_ms: int) -> None:
        super().__init__(f"transaction timeout is out of range; timeout_ms={timeout_ms} limit_ms={limit_ms}")


class TransactionalIdInvalid(Rejected):
    """The name can't be a transactional id."""


class TransactionalIdNotFound(Rejected):
    """No producer has this transactional id."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(f"no such transactional id; transactional_id={transactional_id!r}")


class TransactionTooLarge(Rejected):
    """A transaction may not be about so many partitions."""

    def __init__(self, transactional_id: str, *, partitions: int, limit: int) -> None:
        super().__init__(
            f"too many partitions in a transaction; transactional_id={transactional_id!r} partitions={partitions} "
            f"limit={limit} setting=transactions.max_partitions"
        )


class MarkerFenced(Rejected):
    """A marker of an earlier transaction than the one that the partition heard of last, or of an older producer."""
