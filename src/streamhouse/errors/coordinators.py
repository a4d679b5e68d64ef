"""Errors of consumer groups and transactions. Clients branch on them, so each maps to exactly one Kafka error code."""

from streamhouse.errors.base import Rejected, Retriable


class NotCoordinator(Retriable):
    """This agent does not coordinate the group, or, without a group, any; the client must look up the coordinator
    again."""

    def __init__(self, group_id: str | None, *, why: str) -> None:
        what = (
            "not a coordinator of groups;" if group_id is None else f"not the group's coordinator; group={group_id!r}"
        )
        super().__init__(f"{what} why={why}")


class CoordinatorLoading(Retriable):
    """This agent will coordinate the group, or, without a group, some, but has not loaded it yet; the client may
    retry."""

    def __init__(self, group_id: str | None, *, why: str) -> None:
        what = "groups are loading;" if group_id is None else f"the group's coordinator is loading; group={group_id!r}"
        super().__init__(f"{what} why={why}")


class CoordinatorUnavailable(Retriable):
    """The group's change is not, or may not be, durable; the client may retry."""

    def __init__(self, group_id: str, *, why: str) -> None:
        super().__init__(f"the group's coordinator can't answer now; group={group_id!r} why={why}")


class GroupIdInvalid(Rejected):
    """The group id is invalid."""


class GroupNotFound(Rejected):
    """There is no such group."""

    def __init__(self, group_id: str) -> None:
        super().__init__(f"no such group; group={group_id!r}")


class MemberIdRequired(Rejected):
    """A new member must join again, with this id."""

    def __init__(self, group_id: str, *, member_id: str) -> None:
        super().__init__(f"join again with the member id; group={group_id!r} member={member_id!r}")
        self.member_id = member_id


class UnknownMember(Rejected):
    """The group has no such member; it must join again without a member id."""

    def __init__(self, group_id: str, *, member_id: str) -> None:
        super().__init__(f"unknown member; group={group_id!r} member={member_id!r}")


class IllegalGeneration(Rejected):
    """The member has another generation than the group; it must join again."""

    def __init__(self, group_id: str, *, generation: int, current: int) -> None:
        super().__init__(f"another generation; group={group_id!r} generation={generation} current={current}")


class RebalanceInProgress(Rejected):
    """The group is rebalancing; the member must join again."""

    def __init__(self, group_id: str) -> None:
        super().__init__(f"the group is rebalancing; group={group_id!r}")


class FencedInstance(Rejected):
    """Another member has taken over this static member's instance id; this member must stop."""

    def __init__(self, group_id: str, *, instance_id: str, member_id: str) -> None:
        super().__init__(f"instance is taken over; group={group_id!r} instance={instance_id!r} member={member_id!r}")


class InconsistentProtocol(Rejected):
    """The member has no protocol in common with the group, or none at all."""

    def __init__(self, group_id: str, *, why: str) -> None:
        super().__init__(f"inconsistent group protocol; group={group_id!r} why={why}")


class InvalidSessionTimeout(Rejected):
    """The session timeout is out of the allowed range."""

    def __init__(self, *, timeout_ms: int, low_ms: int, high_ms: int) -> None:
        super().__init__(f"session timeout is out of range; timeout_ms={timeout_ms} allowed={low_ms} to {high_ms}")


class GroupFull(Rejected):
    """A limit on members, or on groups, is reached."""

    def __init__(self, what: str, *, limit: int, setting: str) -> None:
        super().__init__(f"{what}; limit={limit} setting={setting}")


class GroupDataTooLarge(Rejected):
    """Member metadata or assignments are larger than the agent allows."""

    def __init__(self, what: str, *, size_bytes: int, limit_bytes: int, setting: str) -> None:
        super().__init__(f"{what}; size={size_bytes} limit={limit_bytes} setting={setting}")


class NonEmptyGroup(Rejected):
    """The group has members; they must leave first."""

    def __init__(self, group_id: str) -> None:
        super().__init__(f"the group has members; group={group_id!r}")


class GroupSubscribed(Rejected):
    """Members of the group read the topic, so its offsets can't be deleted."""

    def __init__(self, group_id: str, *, topic: str) -> None:
        super().__init__(f"the group reads the topic; group={group_id!r} topic={topic}")


class OffsetMetadataTooLarge(Rejected):
    """The text committed with an offset is longer than the agent allows."""

    def __init__(self, partition: object, *, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"offset metadata is too large; partition={partition} size={size_bytes} limit={limit_bytes}")


class ConcurrentTransactions(Retriable):
    """The previous transaction is decided and its markers are not all written yet; the call may be retried."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(f"the transaction before is still being ended; transactional_id={transactional_id!r}")


class TransactionUnavailable(CoordinatorUnavailable):
    """The store didn't respond: the change may have been applied; the call may be repeated."""

    def __init__(self, transactional_id: str, *, why: str) -> None:
        Retriable.__init__(
            self, f"the transaction's coordinator can't answer now; transactional_id={transactional_id!r} why={why}"
        )


class UnstableOffsets(Retriable):
    """The offsets belong to a transaction that is not decided yet; the call may be retried."""


class InvalidTransactionState(Rejected):
    """The call is invalid in the transaction's state."""

    def __init__(self, transactional_id: str, *, why: str) -> None:
        super().__init__(f"the transaction is in another state; transactional_id={transactional_id!r} why={why}")


class TransactionAbortable(Rejected):
    """The batch does not belong to an open transaction; the producer may abort and continue."""


class ProducerFenced(Rejected):
    """Another producer has the transactional id now, or the transaction exceeded its timeout."""

    def __init__(self, transactional_id: str, *, epoch: int, current: int) -> None:
        super().__init__(
            f"the producer was replaced; transactional_id={transactional_id!r} epoch={epoch} current={current}"
        )


class UnknownProducerId(Rejected):
    """The producer id does not belong to the transactional id."""

    def __init__(self, transactional_id: str, *, producer_id: int) -> None:
        super().__init__(
            f"the transactional id has no such producer; transactional_id={transactional_id!r} producer={producer_id}"
        )


class InvalidTransactionTimeout(Rejected):
    """The transaction timeout is too long."""

    def __init__(self, *, timeout_ms: int, limit_ms: int) -> None:
        super().__init__(f"transaction timeout is out of range; timeout_ms={timeout_ms} limit_ms={limit_ms}")


class TransactionalIdInvalid(Rejected):
    """The transactional id is invalid."""


class TransactionalIdNotFound(Rejected):
    """No producer has this transactional id."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(f"no such transactional id; transactional_id={transactional_id!r}")


class TransactionTooLarge(Rejected):
    """The transaction has too many partitions."""

    def __init__(self, transactional_id: str, *, partitions: int, limit: int) -> None:
        super().__init__(
            f"too many partitions in a transaction; transactional_id={transactional_id!r} partitions={partitions} "
            f"limit={limit} setting=transactions.max_partitions"
        )


class MarkerFenced(Rejected):
    """The marker belongs to an older transaction than the partition's last one, or to a fenced producer."""
