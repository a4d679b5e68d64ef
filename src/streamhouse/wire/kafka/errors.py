"""Error codes of Kafka: from the error tree to codes for clients, and back for responses of other agents.

Owns        the table from errors to codes, and the table from codes to errors
Leaves      the tree to `streamhouse.errors`, the place of a code in a response to the handlers

Invariant   `Retriable` errors have codes that the Java client and librdkafka retry, idempotent or not, with the same
            sequence numbers. So no UNKNOWN_SERVER_ERROR: on it the Java producer gives up a batch that may have been
            stored (KAFKA-14034), and THROTTLING_QUOTA_EXCEEDED is final for librdkafka's producer.

The choice among retriable codes follows what the two clients do:
  NOT_LEADER_OR_FOLLOWER            look the leader up again, the batch was not stored
  NOT_ENOUGH_REPLICAS               the same leader, a little later, the batch was not stored
  NOT_ENOUGH_REPLICAS_AFTER_APPEND  the same leader, a little later, the batch may have been stored
  KAFKA_STORAGE_ERROR               look the leader up again, then retry, and count the retry

Records that are damaged or missing in the store are CORRUPT_MESSAGE: the Java consumer throws, librdkafka passes the
error to the application, aiokafka and franz-go log it and try again. On KAFKA_STORAGE_ERROR all of them retry forever
without a message, on OFFSET_OUT_OF_RANGE they start at another offset, and on UNKNOWN_SERVER_ERROR Java continues.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

from streamhouse import errors
from streamhouse.errors import BadRecords, Overloaded, PredecessorRefused, Rejected, StreamhouseError, Unavailable


class ErrorCode(IntEnum):
    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    UNKNOWN_TOPIC_ID = 100
    TRANSACTIONAL_ID_NOT_FOUND = 105
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    TRANSACTION_ABORTABLE = 120
    INVALID_REGULAR_EXPRESSION = 128


CODES: Final[Mapping[type[StreamhouseError], ErrorCode]] = {
    errors.Retriable: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.LeaseLost: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.LeaseHeld: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.NotLeader: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.SessionLost: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.Stopping: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.AppendFailed: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    errors.SessionSealed: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    errors.Overloaded: ErrorCode.NOT_ENOUGH_REPLICAS,
    errors.TooFast: ErrorCode.NOT_ENOUGH_REPLICAS,
    errors.PredecessorRefused: ErrorCode.NOT_ENOUGH_REPLICAS,
    errors.NotReserved: ErrorCode.NOT_ENOUGH_REPLICAS,
    errors.PartitionHeld: ErrorCode.NOT_ENOUGH_REPLICAS,
    errors.Unavailable: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.DataKeyUnavailable: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.NotCoordinator: ErrorCode.NOT_COORDINATOR,
    errors.CoordinatorLoading: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    errors.CoordinatorUnavailable: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.Rejected: ErrorCode.INVALID_REQUEST,
    errors.UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.UnknownTopicId: ErrorCode.UNKNOWN_TOPIC_ID,
    errors.UnknownAgent: ErrorCode.INVALID_REQUEST,
    errors.UnknownDamagedLog: ErrorCode.RESOURCE_NOT_FOUND,
    errors.TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.InvalidTopicName: ErrorCode.INVALID_TOPIC_EXCEPTION,
    errors.InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
    errors.InvalidReplication: ErrorCode.INVALID_REPLICATION_FACTOR,
    errors.InvalidAssignment: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    errors.InvalidConfig: ErrorCode.INVALID_CONFIG,
    errors.PolicyViolation: ErrorCode.POLICY_VIOLATION,
    errors.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.DataLost: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
    errors.UnsupportedFormat: ErrorCode.INVALID_RECORD,
    errors.BadRecords: ErrorCode.INVALID_RECORD,
    errors.InvalidRecord: ErrorCode.INVALID_RECORD,
    errors.BatchTooLarge: ErrorCode.INVALID_RECORD,
    errors.InvalidSchema: ErrorCode.INVALID_REQUEST,
    errors.InvalidRecordValue: ErrorCode.INVALID_RECORD,
    errors.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    errors.RecordTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    errors.UnsupportedCompression: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    errors.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    # librdkafka aborts the transaction and raises its epoch on this one; on OUT_OF_ORDER_SEQUENCE_NUMBER it fails.
    errors.AbortedSequence: ErrorCode.UNKNOWN_PRODUCER_ID,
    errors.DuplicateSequence: ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    errors.IdempotencyKeyReused: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.StaleProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    errors.FencedLeaderEpoch: ErrorCode.FENCED_LEADER_EPOCH,
    errors.UnknownLeaderEpoch: ErrorCode.UNKNOWN_LEADER_EPOCH,
    errors.GroupIdInvalid: ErrorCode.INVALID_GROUP_ID,
    errors.GroupNotFound: ErrorCode.GROUP_ID_NOT_FOUND,
    errors.MemberIdRequired: ErrorCode.MEMBER_ID_REQUIRED,
    errors.UnknownMember: ErrorCode.UNKNOWN_MEMBER_ID,
    errors.IllegalGeneration: ErrorCode.ILLEGAL_GENERATION,
    errors.RebalanceInProgress: ErrorCode.REBALANCE_IN_PROGRESS,
    errors.FencedInstance: ErrorCode.FENCED_INSTANCE_ID,
    errors.InconsistentProtocol: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    errors.InvalidSessionTimeout: ErrorCode.INVALID_SESSION_TIMEOUT,
    errors.GroupFull: ErrorCode.GROUP_MAX_SIZE_REACHED,
    errors.GroupDataTooLarge: ErrorCode.INVALID_REQUEST,
    errors.NonEmptyGroup: ErrorCode.NON_EMPTY_GROUP,
    errors.GroupSubscribed: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    errors.OffsetMetadataTooLarge: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    errors.TransactionUnavailable: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.ConcurrentTransactions: ErrorCode.CONCURRENT_TRANSACTIONS,
    errors.UnstableOffsets: ErrorCode.UNSTABLE_OFFSET_COMMIT,
    errors.InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
    errors.TransactionAbortable: ErrorCode.TRANSACTION_ABORTABLE,
    errors.ProducerFenced: ErrorCode.PRODUCER_FENCED,
    errors.UnknownProducerId: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    errors.InvalidTransactionTimeout: ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    errors.TransactionalIdInvalid: ErrorCode.INVALID_REQUEST,
    errors.TransactionalIdNotFound: ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    errors.TransactionTooLarge: ErrorCode.POLICY_VIOLATION,
    errors.MarkerFenced: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    errors.UnknownCommit: ErrorCode.INVALID_REQUEST,
    errors.StaleCommit: ErrorCode.INVALID_REQUEST,
    errors.CommitRefused: ErrorCode.INVALID_REQUEST,
    errors.RunsChanged: ErrorCode.INVALID_REQUEST,
    errors.CannotSign: ErrorCode.INVALID_REQUEST,
    # The schema registry is only served over HTTP; records are rejected with `InvalidRecord`.
    errors.RegistryRefusal: ErrorCode.INVALID_REQUEST,
    errors.UnknownSubject: ErrorCode.INVALID_REQUEST,
    errors.UnknownVersion: ErrorCode.INVALID_REQUEST,
    errors.UnknownSchema: ErrorCode.INVALID_REQUEST,
    errors.SubjectSoftDeleted: ErrorCode.INVALID_REQUEST,
    errors.SubjectNotSoftDeleted: ErrorCode.INVALID_REQUEST,
    errors.VersionSoftDeleted: ErrorCode.INVALID_REQUEST,
    errors.VersionNotSoftDeleted: ErrorCode.INVALID_REQUEST,
    errors.ReferenceExists: ErrorCode.INVALID_REQUEST,
    errors.NotConfigured: ErrorCode.INVALID_REQUEST,
    errors.NoMode: ErrorCode.INVALID_REQUEST,
    errors.ModeRefused: ErrorCode.INVALID_REQUEST,
    errors.SchemaIdTaken: ErrorCode.INVALID_REQUEST,
    errors.InvalidSubject: ErrorCode.INVALID_REQUEST,
    errors.IncompatibleSchema: ErrorCode.INVALID_REQUEST,
    errors.SchemaLimit: ErrorCode.INVALID_REQUEST,
    # Tables, pipelines, views and SQL are only served over HTTP; the codes complete the table.
    errors.UnknownTable: ErrorCode.RESOURCE_NOT_FOUND,
    errors.UnknownPipeline: ErrorCode.RESOURCE_NOT_FOUND,
    errors.UnknownView: ErrorCode.RESOURCE_NOT_FOUND,
    errors.UnknownViewRow: ErrorCode.RESOURCE_NOT_FOUND,
    errors.UnknownQuery: ErrorCode.RESOURCE_NOT_FOUND,
    errors.NameTaken: ErrorCode.DUPLICATE_RESOURCE,
    errors.AnotherTable: ErrorCode.INVALID_REQUEST,
    errors.InvalidDefinition: ErrorCode.INVALID_REQUEST,
    errors.PipelineLimit: ErrorCode.POLICY_VIOLATION,
    errors.PlaceLost: ErrorCode.INVALID_REQUEST,
    errors.PipelineMoved: ErrorCode.INVALID_REQUEST,
    errors.ViewRefused: ErrorCode.INVALID_REQUEST,
    errors.CheckpointLost: ErrorCode.INVALID_REQUEST,
    errors.CheckpointMismatch: ErrorCode.INVALID_REQUEST,
    errors.StatementError: ErrorCode.INVALID_REQUEST,
    errors.BadSql: ErrorCode.INVALID_REQUEST,
    errors.QueryFailed: ErrorCode.INVALID_REQUEST,
    errors.QueryCancelled: ErrorCode.INVALID_REQUEST,
    errors.QueryTimedOut: ErrorCode.INVALID_REQUEST,
    errors.NoWorker: ErrorCode.NOT_ENOUGH_REPLICAS,
    errors.TooManyQueries: ErrorCode.NOT_ENOUGH_REPLICAS,
    # Access control.
    errors.NotAuthenticated: ErrorCode.SASL_AUTHENTICATION_FAILED,
    errors.AccessDenied: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    errors.TopicAccessDenied: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    errors.GroupAccessDenied: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    errors.TransactionalIdAccessDenied: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    errors.DelegationTokenAccessDenied: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    errors.InvalidAcl: ErrorCode.INVALID_REQUEST,
    errors.InvalidCredentials: ErrorCode.UNACCEPTABLE_CREDENTIAL,
    errors.UnknownUser: ErrorCode.RESOURCE_NOT_FOUND,
    errors.UserExists: ErrorCode.DUPLICATE_RESOURCE,
    errors.UnknownKey: ErrorCode.RESOURCE_NOT_FOUND,
    errors.SecurityLimit: ErrorCode.POLICY_VIOLATION,
    errors.SecurityDisabled: ErrorCode.SECURITY_DISABLED,
    errors.TooManyLogins: ErrorCode.NOT_ENOUGH_REPLICAS,
    errors.QuotaExceeded: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    errors.Misconfigured: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.NotUpYet: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.ChildFailed: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.Internal: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.CorruptObject: ErrorCode.CORRUPT_MESSAGE,
    errors.DamagedRecords: ErrorCode.CORRUPT_MESSAGE,
    errors.MissingRecords: ErrorCode.CORRUPT_MESSAGE,
}


READ_CODES: Final = frozenset(
    {
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
"""Codes that consumers expect in a Fetch response. On others, such as those of Produce, Java's consumer throws
IllegalStateException."""


def read_error_code(error: StreamhouseError) -> ErrorCode:
    """The code for a reader: errors of appends, such as a full disk, become one on which readers look up the leader
    again."""
    code = error_code(error)
    if code in READ_CODES or not isinstance(error, errors.Retriable):
        return code
    is_over = isinstance(error, errors.AppendFailed)  # the session ends, and another agent becomes the leader
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_over else ErrorCode.KAFKA_STORAGE_ERROR


def error_code(error: StreamhouseError) -> ErrorCode:
    """The code of the nearest ancestor that has one."""
    return next(CODES[cls] for cls in type(error).__mro__ if cls in CODES)


RETRY_AFTER_S: Final = 1.0

_RETRIABLE: Final = frozenset(
    code
    for kind, code in CODES.items()
    if issubclass(kind, (errors.Retriable, errors.UnknownTopic, errors.UnknownTopicId))
)
"""Codes that are retriable between agents: an agent may not know a new topic yet."""

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


def error_from_code(
    code: int, text: str | None, *, at: object, what: object, records: Sequence[int] = ()
) -> StreamhouseError:
    """The error of another agent's response; without an error text, `what` names the object of the request."""
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
    """An error with this complete text."""
    error = kind.__new__(kind)
    StreamhouseError.__init__(error, text)
    return error
