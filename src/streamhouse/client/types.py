"""Types that the client returns: records, topics, groups, schemas, segments, the state of a cluster."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct, field

from streamhouse.model.names import TopicPartition
from streamhouse.schemas.base import SchemaType

EARLIEST: Final = -2
LATEST: Final = -1

Acks = Literal["0", "1", "all"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record that was read. Key and value are bytes, None, or decoded with a schema."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: Headers = ()

    def text(self) -> str:
        """The value's bytes as UTF-8; raises `ValueError` if the value is not bytes or not UTF-8."""
        if not isinstance(self.value, bytes):
            raise ValueError(f"the value is not bytes; type={type(self.value).__name__}")
        return self.value.decode()

    def json(self) -> Any:
        """The value's bytes as JSON; raises `ValueError` if they are not."""
        return json.loads(self.text())


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaReference:
    """A reference from one schema to another; `name` is how the text refers to it."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchema:
    """A schema's text, before it is registered."""

    text: str
    type: SchemaType = "AVRO"
    references: tuple[SchemaReference, ...] = ()
    message: str | None = None
    """For Protobuf: which message of the file values are; by default the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRef:
    """A registered schema; without a version, the latest."""

    subject: str
    version: int | None = None
    message: str | None = None
    """For Protobuf: which message of the file values are; by default the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A version of a subject in the registry."""

    subject: str
    version: int
    id: int
    type: SchemaType
    text: str
    references: tuple[SchemaReference, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of a compatibility check, with the reasons for an incompatible schema."""

    compatible: bool
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    partition: int
    leader: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    name: str
    internal: bool
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """The timestamp of a partition's first record, and the latest timestamp of all its records."""

    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    member_id: str
    client_id: str
    host: str
    assigned: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A consumer group; `state` is Kafka's name for it."""

    name: str
    state: str
    protocol: str
    members: tuple[GroupMember, ...]

    @property
    def is_active(self) -> bool:
        """Whether it has members: then only they may commit offsets."""
        return self.state not in ("Empty", "Dead")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A topic's setting; `own`: set for the topic, not the default."""

    name: str
    value: str | None
    own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Agents by node id, as `HOST:PORT`."""

    agents: Mapping[int, str]


class Segment(Struct, frozen=True, kw_only=True):
    """One partition's range in an object, as `GET /v1/segments` returns it. Offsets are half open."""

    topic: str
    partition: int
    base: int
    end: int
    records: int
    bytes: int
    max_timestamp_ms: int
    object: str
    epoch: int = -1


class AgentStatus(Struct, frozen=True, kw_only=True):
    """An agent, as `GET /v1/agents` returns it; `state` is live, draining, expired or recovering."""

    node: int
    session: str
    kafka: str
    http: str
    state: str
    wal: str
    started_at_ms: int
    expires_in_ms: int
    partitions: int
    shards: int
    is_responder: bool = field(default=False, name="asked")
    """Whether this agent sent the response."""
    zone: str = ""
    """Empty if the agent has none, or is of an earlier release."""

    @property
    def is_alive(self) -> bool:
        return self.state in ("live", "draining")


class PartitionStatus(Struct, frozen=True, kw_only=True):
    """A partition, as `GET /v1/partitions` returns it. `leader` holds the lease, `owner` should. `local`: sent by its
    leader, which alone knows the high watermark and the last stable offset."""

    topic: str
    partition: int
    leader: int | None
    owner: int | None
    pinned_to: int | None
    epoch: int
    lease_expires_in_ms: int | None
    log_start: int
    flushed_end: int
    high_watermark: int | None
    bytes: int
    local: bool
    last_stable_offset: int | None = None

    @property
    def is_moving(self) -> bool:
        return None not in (self.leader, self.owner) and self.leader != self.owner

    @property
    def is_held_back(self) -> bool:
        """Whether an open transaction holds back the last stable offset."""
        stable, high = self.last_stable_offset, self.high_watermark
        return stable is not None and high is not None and stable < high


class TransactionPartition(Struct, frozen=True, kw_only=True):
    """A partition that takes part in a transaction."""

    topic: str
    partition: int


class LagSample(Struct, frozen=True, kw_only=True):
    at_ms: int
    lag: int
    lag_ms: int | None = None


class PartitionStanding(Struct, frozen=True, kw_only=True):
    """The position of a group in a partition, as `GET /v1/groups/{group}/lag` returns it."""

    topic: str
    partition: int
    committed: int | None = None
    committed_at_ms: int | None = None
    end: int | None = None
    lag: int | None = None
    lag_ms: int | None = None
    stuck: bool = False
    member: str | None = None


class GroupStanding(Struct, frozen=True, kw_only=True):
    """How far a group is behind; `at_ms` is None if nothing was measured yet. `partitions` only of a single group."""

    group: str
    health: str
    lag: int
    at_ms: int | None = None
    lag_ms: int | None = None
    records_per_second: float | None = None
    history: list[LagSample] = []
    partitions: list[PartitionStanding] = []


class GroupStandings(Struct, frozen=True, kw_only=True):
    groups: list[GroupStanding]


class Transaction(Struct, frozen=True, kw_only=True):
    """A transactional id and its last transaction, as `GET /v1/transactions` returns it; `state` is Kafka's name.
    `open_for_ms` is None unless it is ongoing or completing."""

    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    timeout_ms: int
    changed_at_ms: int
    started_at_ms: int | None = None
    open_for_ms: int | None = None
    partitions: list[TransactionPartition] = []

    @property
    def is_open(self) -> bool:
        return self.open_for_ms is not None


class TransactionAborted(Struct, frozen=True, kw_only=True):
    """A transaction before and after its producer was fenced; `aborted`: it was open."""

    aborted: bool
    before: Transaction
    after: Transaction


class Finding(Struct, frozen=True, kw_only=True):
    """The result of a check; `verdict` is ok, warning or failure."""

    name: str
    verdict: str
    text: str
    figures: dict[str, float] = {}


class PartitionLoss(Struct, frozen=True, kw_only=True):
    """Offsets of a partition that a damaged log has lost, as [first, end): `gaps` held records; `skipped` may have, and
    the partition continues above them; `unpublished` are in the log and in no segment."""

    topic: str | None
    topic_id: str
    partition: int
    epoch: int
    gaps: list[list[int]] = []
    skipped: list[list[int]] = []
    unpublished: list[list[int]] = []


class DamagedLog(Struct, frozen=True, kw_only=True):
    """A damaged write-ahead log that is kept, as `GET /v1/damaged-logs` returns it."""

    session: str
    kind: str
    where: str
    files: int
    bytes: int
    loss: bool
    found_at_ms: int | None
    losses: int
    places: list[str]
    partitions: list[PartitionLoss]


class Examination(Struct, frozen=True, kw_only=True):
    """The checks of an agent and of the shared stores, as `GET /v1/doctor` returns it."""

    node: int | None
    version: str
    lease_ttl_s: float
    members: list[int]
    own: list[Finding]
    shared: list[Finding]
