"""Errors, named by what the caller should do.

Owns        the error tree that every room raises and every wire translates
Leaves      codes and status numbers to the wires (`wire.kafka.errors`, `wire.http.errors`)

Texts are lower case, then `key=value`, and never longer than `MAX_TEXT`.
"""

from collections.abc import Iterable, Sequence
from typing import Final

MAX_TEXT: Final = 500


class StreamhouseError(Exception):
    """The root; never raised itself."""

    def __init__(self, text: str) -> None:
        super().__init__(text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…")


# --- the same request may succeed later -------------------------------------------------------------------------


class Retriable(StreamhouseError):
    """The same request may succeed later."""


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
    """A batch that comes before this one was refused for now: both will come again, in order."""

    def __init__(self, partition: object, *, producer_id: int, awaited: int, got: int) -> None:
        super().__init__(
            f"a batch before this one was refused; partition={partition} producer={producer_id} awaited={awaited}"
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


class Overloaded(Retriable):
    """The memory budget is full; come back after `retry_after_s`."""

    def __init__(self, what: str, *, limit_bytes: int, retry_after_s: float) -> None:
        super().__init__(f"overloaded; what={what} limit_bytes={limit_bytes} retry_after_s={retry_after_s:g}")
        self.retry_after_s = retry_after_s


class NotReserved(Retriable):
    """The partition's leader may hand out no more offsets until the metadata store has reserved some for it."""

    def __init__(self, partition: object, *, end: int, until: int) -> None:
        super().__init__(f"offsets are not reserved yet; partition={partition} end={end} reserved_until={until}")


class Unavailable(Retriable):
    """A store did not answer, or answered that it cannot serve now."""


class Stopping(Retriable):
    """The agent is on its way out; another one, or the next start, will answer."""


class PartitionHeld(Retriable):
    """Segments are being placed in the partition: appends, and other commits, wait for that."""


class NotCoordinator(Retriable):
    """This agent does not coordinate the group, or no longer; the client must look its coordinator up again."""

    def __init__(self, group_id: str, *, why: str) -> None:
        super().__init__(f"not the group's coordinator; group={group_id!r} why={why}")


class CoordinatorLoading(Retriable):
    """This agent will coordinate the group, but has not read it yet; the same request may succeed in a moment."""

    def __init__(self, group_id: str, *, why: str) -> None:
        super().__init__(f"the group's coordinator is loading; group={group_id!r} why={why}")


class CoordinatorUnavailable(Retriable):
    """The group's change could not be made durable, or may not have been; the client may ask again."""

    def __init__(self, group_id: str, *, why: str) -> None:
        super().__init__(f"the group's coordinator can't answer now; group={group_id!r} why={why}")


# --- the caller must change the request -------------------------------------------------------------------------


class Rejected(StreamhouseError):
    """The same request will fail again."""


class UnknownTopic(Rejected):
    """No such topic or partition."""

    def __init__(self, what: object) -> None:
        super().__init__(f"unknown topic or partition; name={what}")


class UnknownTopicId(Rejected):
    """No topic has this id."""

    def __init__(self, topic_id: object) -> None:
        super().__init__(f"unknown topic id; id={topic_id}")


class UnknownAgent(Rejected):
    """No agent that is alive has this number."""

    def __init__(self, node_id: int) -> None:
        super().__init__(f"unknown agent; node={node_id}")


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


class DuplicateSequence(Rejected):
    """The batch was stored before, so long ago that its offset is no longer remembered."""


class IdempotencyKeyReused(Rejected):
    """The idempotency key was used before, with other records: a retry brings the same ones, anything else a new key."""

    def __init__(self, partition: object) -> None:
        super().__init__(f"idempotency key was used before, with other records; partition={partition}")


class StaleProducerEpoch(Rejected):
    """A newer incarnation of this producer has written; this one must stop."""

    def __init__(self, partition: object, *, producer_id: int, epoch: int, current: int) -> None:
        super().__init__(
            f"producer epoch is stale; partition={partition} producer={producer_id} epoch={epoch} current={current}"
        )


class FencedLeaderEpoch(Rejected):
    """The client knows an older leader epoch than the agent: it must refresh its metadata."""


class UnknownLeaderEpoch(Rejected):
    """The client knows a newer leader epoch than the agent."""


class GroupIdInvalid(Rejected):
    """The name can't be a group's."""


class GroupNotFound(Rejected):
    """There is no such group."""

    def __init__(self, group_id: str) -> None:
        super().__init__(f"no such group; group={group_id!r}")


class MemberIdRequired(Rejected):
    """A new member must join again, under the id that is given here."""

    def __init__(self, group_id: str, *, member_id: str) -> None:
        super().__init__(f"join again with the member id; group={group_id!r} member={member_id!r}")
        self.member_id = member_id


class UnknownMember(Rejected):
    """The group has no such member, or no longer; it must join anew, without a member id."""

    def __init__(self, group_id: str, *, member_id: str) -> None:
        super().__init__(f"unknown member; group={group_id!r} member={member_id!r}")


class IllegalGeneration(Rejected):
    """The member speaks of another generation than the group's; it must join again."""

    def __init__(self, group_id: str, *, generation: int, current: int) -> None:
        super().__init__(f"another generation; group={group_id!r} generation={generation} current={current}")


class RebalanceInProgress(Rejected):
    """The group is finding its next generation; the member must join it."""

    def __init__(self, group_id: str) -> None:
        super().__init__(f"the group is rebalancing; group={group_id!r}")


class FencedInstance(Rejected):
    """Another member has taken over this static member's instance id; this one must stop."""

    def __init__(self, group_id: str, *, instance_id: str, member_id: str) -> None:
        super().__init__(f"instance is taken over; group={group_id!r} instance={instance_id!r} member={member_id!r}")


class InconsistentProtocol(Rejected):
    """The member has no protocol in common with the group, or none at all."""

    def __init__(self, group_id: str, *, why: str) -> None:
        super().__init__(f"inconsistent group protocol; group={group_id!r} why={why}")


class InvalidSessionTimeout(Rejected):
    """The session timeout lies outside what the agent allows."""

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
    """Members of the group read the topic; its offsets can't be deleted under them."""

    def __init__(self, group_id: str, *, topic: str) -> None:
        super().__init__(f"the group reads the topic; group={group_id!r} topic={topic}")


class OffsetMetadataTooLarge(Rejected):
    """The text committed with an offset is longer than the agent allows."""

    def __init__(self, partition: object, *, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"offset metadata is too large; partition={partition} size={size_bytes} limit={limit_bytes}")


class UnknownCommit(Rejected):
    """No such commit is remembered."""


class StaleCommit(Rejected):
    """The query has made later commits, and this one isn't remembered."""

    def __init__(self, query: str, *, epoch: int, last: int) -> None:
        super().__init__(f"commit is older than the last one; query={query} epoch={epoch} last={last}")


class CommitRefused(Rejected):
    """The segments can't be placed: they aren't what the commit says, or not any more."""


class InvalidSchema(Rejected):
    """The text is no schema of its language; `path` (or line and column) says where, `reason` why."""

    def __init__(self, reason: str, *, path: str = "") -> None:
        super().__init__(f"invalid schema; path={path or '/'} reason={reason}")
        self.path, self.reason = path or "/", reason


class InvalidRecordValue(Rejected):
    """A value doesn't fit its schema, or bytes weren't written with it; `path` says where, `reason` why."""

    def __init__(self, reason: str, *, path: str = "") -> None:
        super().__init__(f"the value doesn't fit its schema; path={path or '/'} reason={reason}")
        self.path, self.reason = path or "/", reason


class RegistryRefusal(Rejected):
    """The schema registry can't do this to a subject, or to one of its versions."""

    what = "refused"

    def __init__(self, subject: object, version: int | None = None, *, why: str = "") -> None:
        parts = (f"subject={subject}", f"version={version}" if version is not None else "", f"why={why}" if why else "")
        super().__init__(f"{self.what}; {' '.join(filter(None, parts))}")
        self.subject, self.version, self.why = str(subject), version, why


class UnknownSubject(RegistryRefusal):
    """No version is registered under this name, or all were deleted."""

    what = "unknown subject"


class UnknownVersion(RegistryRefusal):
    """The subject has no such version."""

    what = "unknown version"


class UnknownSchema(RegistryRefusal):
    """No schema has this id, or the subject doesn't have this schema."""

    what = "unknown schema"

    def __init__(self, subject: object = "", *, schema_id: object = None) -> None:
        super().__init__(subject, why="" if schema_id is None else f"nothing has the id {schema_id}")
        self.schema_id = schema_id


class SubjectSoftDeleted(RegistryRefusal):
    what = "subject is deleted already"


class SubjectNotSoftDeleted(RegistryRefusal):
    what = "subject must be deleted before it is deleted for good"


class VersionSoftDeleted(RegistryRefusal):
    what = "version is deleted already"


class VersionNotSoftDeleted(RegistryRefusal):
    what = "version must be deleted before it is deleted for good"


class ReferenceExists(RegistryRefusal):
    """Other schemas need this version."""

    what = "version is referred to by others"


class NotConfigured(RegistryRefusal):
    what = "subject has no configuration of its own"


class NoMode(RegistryRefusal):
    what = "subject has no mode of its own"


class ModeRefused(RegistryRefusal):
    """The mode of the subject, or of its context, doesn't allow this."""

    what = "the registry's mode does not allow it"


class SchemaIdTaken(ModeRefused):
    """An id or a version that was to be imported is another schema's."""

    what = "imported id or version is taken"

    def __init__(self, subject: object, *, schema_id: int, version: int | None) -> None:
        super().__init__(subject, version, why=f"another schema has it, id={schema_id}")
        self.schema_id = schema_id


class InvalidSubject(RegistryRefusal):
    """The name can't be a subject's."""

    what = "invalid subject"


class IncompatibleSchema(RegistryRefusal):
    """The schema doesn't get along with earlier versions of its subject; `reasons` are for people."""

    what = "incompatible schema"

    def __init__(self, subject: object, reasons: Sequence[str]) -> None:
        super().__init__(subject, why="; ".join(reasons))
        self.reasons = tuple(reasons)


class SchemaLimit(Rejected):
    """A limit of the schema registry is reached."""

    def __init__(self, what: str, *, limit: int, setting: str) -> None:
        super().__init__(f"{what}; limit={limit} setting={setting}")


# --- the operator must act --------------------------------------------------------------------------------------


class Misconfigured(StreamhouseError):
    """The agent cannot start like this; the text says what is wrong and what to do."""


class ChildFailed(Misconfigured):
    """A process that was started for a local cluster did not start, or ended; its last words are in its log."""

    def __init__(self, text: str, *, log_path: str, last_lines: Sequence[str] = ()) -> None:
        super().__init__(f"{text}; log={log_path}")
        self.last_lines = tuple(last_lines)


class Internal(StreamhouseError):
    """Something that must hold does not."""


class CorruptObject(Internal):
    """Bytes at rest are not what was written; the range is refused, its neighbours are served."""

    def __init__(self, key: str, *, why: str) -> None:
        super().__init__(f"corrupt object; key={key} why={why}")
        self.key = key
