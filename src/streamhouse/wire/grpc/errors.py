"""Errors on gRPC: one table from the error tree to status codes, and how an error is told."""

from collections.abc import Mapping
from typing import Any, Final

import grpc

from streamhouse import errors

from .generated import streamhouse_pb2 as pb

NAME_KEY: Final = "streamhouse-error"
RETRY_KEY: Final = "retry-after-ms"

CODES: Final[Mapping[type[errors.StreamhouseError], Any]] = {
    errors.Retriable: grpc.StatusCode.UNAVAILABLE,
    errors.Overloaded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.TooFast: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.Rejected: grpc.StatusCode.INVALID_ARGUMENT,
    errors.UnknownTopic: grpc.StatusCode.NOT_FOUND,
    errors.UnknownTopicId: grpc.StatusCode.NOT_FOUND,
    errors.UnknownAgent: grpc.StatusCode.NOT_FOUND,
    errors.GroupNotFound: grpc.StatusCode.NOT_FOUND,
    errors.UnknownSchema: grpc.StatusCode.NOT_FOUND,
    errors.UnknownMember: grpc.StatusCode.NOT_FOUND,
    errors.TopicExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.DuplicateSequence: grpc.StatusCode.ALREADY_EXISTS,
    errors.IdempotencyKeyReused: grpc.StatusCode.ALREADY_EXISTS,
    errors.OffsetOutOfRange: grpc.StatusCode.OUT_OF_RANGE,
    errors.PolicyViolation: grpc.StatusCode.FAILED_PRECONDITION,
    errors.NonEmptyGroup: grpc.StatusCode.FAILED_PRECONDITION,
    errors.GroupSubscribed: grpc.StatusCode.FAILED_PRECONDITION,
    errors.OutOfOrderSequence: grpc.StatusCode.FAILED_PRECONDITION,
    errors.GroupFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.StaleProducerEpoch: grpc.StatusCode.ABORTED,
    errors.FencedInstance: grpc.StatusCode.ABORTED,
    errors.FencedLeaderEpoch: grpc.StatusCode.ABORTED,
    errors.UnknownLeaderEpoch: grpc.StatusCode.ABORTED,
    errors.IllegalGeneration: grpc.StatusCode.ABORTED,
    errors.RebalanceInProgress: grpc.StatusCode.ABORTED,
    errors.Misconfigured: grpc.StatusCode.INTERNAL,
    errors.Internal: grpc.StatusCode.INTERNAL,
    errors.CorruptObject: grpc.StatusCode.DATA_LOSS,
}


def code_of(error: errors.StreamhouseError) -> Any:
    return next(CODES[cls] for cls in type(error).__mro__ if cls in CODES)


def metadata_of(error: errors.StreamhouseError) -> tuple[tuple[str, str], ...]:
    """What a failed call says besides code and text."""
    named = (NAME_KEY, type(error).__name__)
    return (named, (RETRY_KEY, str(_retry_after_ms(error)))) if _retry_after_ms(error) else (named,)


def as_message(error: errors.StreamhouseError) -> pb.Error:
    """The error as a part of an answer."""
    return pb.Error(
        code=code_of(error).value[0],
        name=type(error).__name__,
        message=str(error),
        retriable=isinstance(error, errors.Retriable),
        retry_after_ms=_retry_after_ms(error),
    )


def _retry_after_ms(error: errors.StreamhouseError) -> int:
    return max(1, round(error.retry_after_s * 1000)) if isinstance(error, errors.Overloaded | errors.TooFast) else 0
