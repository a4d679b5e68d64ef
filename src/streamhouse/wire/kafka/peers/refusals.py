"""Refusals: what an error code of another agent means here.

Data path   an answer of another agent -> **refusals** -> the same error that this agent would have raised itself
Owns        the way back from Kafka's codes to the error tree
Leaves      the way there to `wire.kafka.errors`
"""

from collections.abc import Mapping, Sequence
from typing import Final

from streamhouse import errors
from streamhouse.errors import BadRecords, Overloaded, PredecessorRefused, Rejected, StreamhouseError, Unavailable
from streamhouse.wire.kafka.errors import CODES, ErrorCode

RETRY_AFTER_S: Final = 1.0

_RETRIABLE: Final = frozenset(
    code
    for kind, code in CODES.items()
    if issubclass(kind, (errors.Retriable, errors.UnknownTopic, errors.UnknownTopicId))
)
"""An agent that doesn't know a topic may only not have heard of it yet."""

_KINDS: Final[Mapping[int, type[StreamhouseError]]] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: errors.OffsetOutOfRange,
    ErrorCode.CORRUPT_MESSAGE: errors.CorruptBatch,
    ErrorCode.INVALID_TOPIC_EXCEPTION: errors.InvalidTopicName,
    ErrorCode.INVALID_RECORD: errors.InvalidRecord,
    ErrorCode.INVALID_TIMESTAMP: errors.InvalidTimestamp,
    ErrorCode.MESSAGE_TOO_LARGE: errors.RecordTooLarge,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: errors.UnsupportedCompression,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: errors.OutOfOrderSequence,
    ErrorCode.UNKNOWN_PRODUCER_ID: errors.AbortedSequence,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: errors.DuplicateSequence,
    ErrorCode.INVALID_PRODUCER_EPOCH: errors.StaleProducerEpoch,
    ErrorCode.POLICY_VIOLATION: errors.PolicyViolation,
    ErrorCode.FENCED_LEADER_EPOCH: errors.FencedLeaderEpoch,
    ErrorCode.UNKNOWN_LEADER_EPOCH: errors.UnknownLeaderEpoch,
    ErrorCode.INVALID_GROUP_ID: errors.GroupIdInvalid,
    ErrorCode.GROUP_ID_NOT_FOUND: errors.GroupNotFound,
    ErrorCode.NON_EMPTY_GROUP: errors.NonEmptyGroup,
    ErrorCode.UNKNOWN_MEMBER_ID: errors.UnknownMember,
    ErrorCode.GROUP_MAX_SIZE_REACHED: errors.GroupFull,
    ErrorCode.OFFSET_METADATA_TOO_LARGE: errors.OffsetMetadataTooLarge,
    ErrorCode.INVALID_TXN_STATE: errors.InvalidTransactionState,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: errors.MarkerFenced,
}


def refusal(code: int, text: str | None, *, at: object, what: object, records: Sequence[int] = ()) -> StreamhouseError:
    """The error that the other agent had; `what` it was asked about is told where it gave no reason."""
    name = ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)
    said = text or f"another agent refused; address={at} about={what} code={name}"
    if code in _RETRIABLE:
        if code == ErrorCode.NOT_ENOUGH_REPLICAS and said.startswith("overloaded;"):
            return Overloaded(f"memory of {at}", limit_bytes=0, retry_after_s=RETRY_AFTER_S)
        if code == ErrorCode.NOT_ENOUGH_REPLICAS and said.startswith("a batch before this one is still to come;"):
            return _with_text(PredecessorRefused, said)
        return Unavailable(f"another agent refused; address={at} about={what} code={name} why={text}")
    kind = _KINDS.get(code, Rejected)
    return kind(said, records=records) if issubclass(kind, BadRecords) else _with_text(kind, said)


def _with_text(kind: type[StreamhouseError], text: str) -> StreamhouseError:
    """An error whose text is whole already."""
    error = kind.__new__(kind)
    StreamhouseError.__init__(error, text)
    return error
