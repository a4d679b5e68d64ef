"""gRPC errors: one table from the error classes to status codes, and the metadata of an error."""

from collections.abc import Mapping
from typing import Any, Final

import grpc

from streamhouse import errors
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb

NAME_KEY: Final = "streamhouse-error"
RETRY_KEY: Final = "retry-after-ms"

CODES: Final[Mapping[type[errors.StreamhouseError], Any]] = {
    # base
    errors.Retriable: grpc.StatusCode.UNAVAILABLE,
    errors.Overloaded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.TooFast: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.Unavailable: grpc.StatusCode.UNAVAILABLE,
    errors.DataKeyUnavailable: grpc.StatusCode.UNAVAILABLE,
    errors.Stopping: grpc.StatusCode.UNAVAILABLE,
    errors.Rejected: grpc.StatusCode.INVALID_ARGUMENT,
    errors.Misconfigured: grpc.StatusCode.INTERNAL,
    errors.NotUpYet: grpc.StatusCode.INTERNAL,
    errors.ChildFailed: grpc.StatusCode.INTERNAL,
    errors.Internal: grpc.StatusCode.INTERNAL,
    errors.CorruptObject: grpc.StatusCode.DATA_LOSS,
    errors.DamagedRecords: grpc.StatusCode.DATA_LOSS,
    errors.MissingRecords: grpc.StatusCode.DATA_LOSS,
    # topics
    errors.UnknownTopic: grpc.StatusCode.NOT_FOUND,
    errors.UnknownTopicId: grpc.StatusCode.NOT_FOUND,
    errors.TopicExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.InvalidTopicName: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidPartitions: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidReplication: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidAssignment: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidConfig: grpc.StatusCode.INVALID_ARGUMENT,
    errors.PolicyViolation: grpc.StatusCode.FAILED_PRECONDITION,
    # records
    errors.OffsetOutOfRange: grpc.StatusCode.OUT_OF_RANGE,
    errors.DataLost: grpc.StatusCode.DATA_LOSS,
    errors.CorruptBatch: grpc.StatusCode.INVALID_ARGUMENT,
    errors.UnsupportedFormat: grpc.StatusCode.INVALID_ARGUMENT,
    errors.BadRecords: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidRecord: grpc.StatusCode.INVALID_ARGUMENT,
    errors.BatchTooLarge: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidTimestamp: grpc.StatusCode.INVALID_ARGUMENT,
    errors.RecordTooLarge: grpc.StatusCode.INVALID_ARGUMENT,
    errors.UnsupportedCompression: grpc.StatusCode.INVALID_ARGUMENT,
    errors.OutOfOrderSequence: grpc.StatusCode.FAILED_PRECONDITION,
    errors.AbortedSequence: grpc.StatusCode.FAILED_PRECONDITION,
    errors.DuplicateSequence: grpc.StatusCode.ALREADY_EXISTS,
    errors.IdempotencyKeyReused: grpc.StatusCode.ALREADY_EXISTS,
    errors.StaleProducerEpoch: grpc.StatusCode.ABORTED,
    errors.UnknownCommit: grpc.StatusCode.NOT_FOUND,
    errors.StaleCommit: grpc.StatusCode.ABORTED,
    errors.CommitRefused: grpc.StatusCode.INVALID_ARGUMENT,
    errors.RunsChanged: grpc.StatusCode.ABORTED,
    errors.CannotSign: grpc.StatusCode.FAILED_PRECONDITION,
    # leases
    errors.LeaseLost: grpc.StatusCode.UNAVAILABLE,
    errors.LeaseHeld: grpc.StatusCode.UNAVAILABLE,
    errors.NotLeader: grpc.StatusCode.UNAVAILABLE,
    errors.PredecessorRefused: grpc.StatusCode.UNAVAILABLE,
    errors.SessionLost: grpc.StatusCode.UNAVAILABLE,
    errors.AppendFailed: grpc.StatusCode.UNAVAILABLE,
    errors.SessionSealed: grpc.StatusCode.UNAVAILABLE,
    errors.NotReserved: grpc.StatusCode.UNAVAILABLE,
    errors.PartitionHeld: grpc.StatusCode.UNAVAILABLE,
    errors.UnknownAgent: grpc.StatusCode.NOT_FOUND,
    errors.UnknownDamagedLog: grpc.StatusCode.NOT_FOUND,
    errors.FencedLeaderEpoch: grpc.StatusCode.ABORTED,
    errors.UnknownLeaderEpoch: grpc.StatusCode.ABORTED,
    # groups
    errors.NotCoordinator: grpc.StatusCode.UNAVAILABLE,
    errors.CoordinatorLoading: grpc.StatusCode.UNAVAILABLE,
    errors.CoordinatorUnavailable: grpc.StatusCode.UNAVAILABLE,
    errors.GroupIdInvalid: grpc.StatusCode.INVALID_ARGUMENT,
    errors.GroupNotFound: grpc.StatusCode.NOT_FOUND,
    errors.MemberIdRequired: grpc.StatusCode.INVALID_ARGUMENT,
    errors.UnknownMember: grpc.StatusCode.NOT_FOUND,
    errors.IllegalGeneration: grpc.StatusCode.ABORTED,
    errors.RebalanceInProgress: grpc.StatusCode.ABORTED,
    errors.FencedInstance: grpc.StatusCode.ABORTED,
    errors.InconsistentProtocol: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidSessionTimeout: grpc.StatusCode.INVALID_ARGUMENT,
    errors.GroupFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.GroupDataTooLarge: grpc.StatusCode.INVALID_ARGUMENT,
    errors.NonEmptyGroup: grpc.StatusCode.FAILED_PRECONDITION,
    errors.GroupSubscribed: grpc.StatusCode.FAILED_PRECONDITION,
    errors.OffsetMetadataTooLarge: grpc.StatusCode.INVALID_ARGUMENT,
    # transactions
    errors.TransactionUnavailable: grpc.StatusCode.UNAVAILABLE,
    errors.ConcurrentTransactions: grpc.StatusCode.UNAVAILABLE,
    errors.UnstableOffsets: grpc.StatusCode.UNAVAILABLE,
    errors.InvalidTransactionState: grpc.StatusCode.FAILED_PRECONDITION,
    errors.TransactionAbortable: grpc.StatusCode.ABORTED,
    errors.ProducerFenced: grpc.StatusCode.ABORTED,
    errors.UnknownProducerId: grpc.StatusCode.NOT_FOUND,
    errors.InvalidTransactionTimeout: grpc.StatusCode.INVALID_ARGUMENT,
    errors.TransactionalIdInvalid: grpc.StatusCode.INVALID_ARGUMENT,
    errors.TransactionalIdNotFound: grpc.StatusCode.NOT_FOUND,
    errors.TransactionTooLarge: grpc.StatusCode.INVALID_ARGUMENT,
    errors.MarkerFenced: grpc.StatusCode.ABORTED,
    # schemas
    errors.InvalidSchema: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidRecordValue: grpc.StatusCode.INVALID_ARGUMENT,
    errors.RegistryRefusal: grpc.StatusCode.INVALID_ARGUMENT,
    errors.UnknownSubject: grpc.StatusCode.NOT_FOUND,
    errors.UnknownVersion: grpc.StatusCode.NOT_FOUND,
    errors.UnknownSchema: grpc.StatusCode.NOT_FOUND,
    errors.SubjectSoftDeleted: grpc.StatusCode.INVALID_ARGUMENT,
    errors.SubjectNotSoftDeleted: grpc.StatusCode.INVALID_ARGUMENT,
    errors.VersionSoftDeleted: grpc.StatusCode.INVALID_ARGUMENT,
    errors.VersionNotSoftDeleted: grpc.StatusCode.INVALID_ARGUMENT,
    errors.ReferenceExists: grpc.StatusCode.INVALID_ARGUMENT,
    errors.NotConfigured: grpc.StatusCode.INVALID_ARGUMENT,
    errors.NoMode: grpc.StatusCode.INVALID_ARGUMENT,
    errors.ModeRefused: grpc.StatusCode.INVALID_ARGUMENT,
    errors.SchemaIdTaken: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidSubject: grpc.StatusCode.INVALID_ARGUMENT,
    errors.IncompatibleSchema: grpc.StatusCode.INVALID_ARGUMENT,
    errors.SchemaLimit: grpc.StatusCode.INVALID_ARGUMENT,
    # pipelines
    errors.UnknownTable: grpc.StatusCode.NOT_FOUND,
    errors.UnknownPipeline: grpc.StatusCode.NOT_FOUND,
    errors.UnknownView: grpc.StatusCode.NOT_FOUND,
    errors.UnknownViewRow: grpc.StatusCode.NOT_FOUND,
    errors.NameTaken: grpc.StatusCode.ALREADY_EXISTS,
    errors.AnotherTable: grpc.StatusCode.FAILED_PRECONDITION,
    errors.InvalidDefinition: grpc.StatusCode.INVALID_ARGUMENT,
    errors.PipelineLimit: grpc.StatusCode.FAILED_PRECONDITION,
    errors.PlaceLost: grpc.StatusCode.FAILED_PRECONDITION,
    errors.PipelineMoved: grpc.StatusCode.ABORTED,
    errors.ViewRefused: grpc.StatusCode.FAILED_PRECONDITION,
    errors.UnknownQuery: grpc.StatusCode.NOT_FOUND,
    errors.NoWorker: grpc.StatusCode.UNAVAILABLE,
    # queries
    errors.BadSql: grpc.StatusCode.INVALID_ARGUMENT,
    errors.QueryFailed: grpc.StatusCode.INVALID_ARGUMENT,
    errors.QueryCancelled: grpc.StatusCode.CANCELLED,
    errors.QueryTimedOut: grpc.StatusCode.DEADLINE_EXCEEDED,
    errors.TooManyQueries: grpc.StatusCode.RESOURCE_EXHAUSTED,
    # security
    errors.NotAuthenticated: grpc.StatusCode.UNAUTHENTICATED,
    errors.AccessDenied: grpc.StatusCode.PERMISSION_DENIED,
    errors.TopicAccessDenied: grpc.StatusCode.PERMISSION_DENIED,
    errors.GroupAccessDenied: grpc.StatusCode.PERMISSION_DENIED,
    errors.TransactionalIdAccessDenied: grpc.StatusCode.PERMISSION_DENIED,
    errors.DelegationTokenAccessDenied: grpc.StatusCode.PERMISSION_DENIED,
    errors.InvalidAcl: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidCredentials: grpc.StatusCode.INVALID_ARGUMENT,
    errors.UnknownUser: grpc.StatusCode.NOT_FOUND,
    errors.UserExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.UnknownKey: grpc.StatusCode.NOT_FOUND,
    errors.SecurityLimit: grpc.StatusCode.FAILED_PRECONDITION,
    errors.SecurityDisabled: grpc.StatusCode.FAILED_PRECONDITION,
    errors.TooManyLogins: grpc.StatusCode.UNAVAILABLE,
    errors.QuotaExceeded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    # sql
    errors.StatementError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.CheckpointLost: grpc.StatusCode.FAILED_PRECONDITION,
    errors.CheckpointMismatch: grpc.StatusCode.FAILED_PRECONDITION,
}


def code_of(error: errors.StreamhouseError) -> Any:
    return next(CODES[cls] for cls in type(error).__mro__ if cls in CODES)


def metadata_of(error: errors.StreamhouseError) -> tuple[tuple[str, str], ...]:
    """Trailing metadata of a failed call: the error's name and the retry delay."""
    named = (NAME_KEY, type(error).__name__)
    return (named, (RETRY_KEY, str(_retry_after_ms(error)))) if _retry_after_ms(error) else (named,)


def as_message(error: errors.StreamhouseError) -> pb.Error:
    """The error as part of a response."""
    return pb.Error(
        code=code_of(error).value[0],
        name=type(error).__name__,
        message=str(error),
        retriable=isinstance(error, errors.Retriable),
        retry_after_ms=_retry_after_ms(error),
    )


def _retry_after_ms(error: errors.StreamhouseError) -> int:
    if isinstance(error, errors.Overloaded | errors.TooFast | errors.TooManyQueries | errors.QuotaExceeded):
        return max(1, round(error.retry_after_s * 1000))
    return 0
