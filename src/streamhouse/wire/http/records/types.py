"""Types of records in JSON bodies and responses.

Data path   JSON -> **types** -> formats -> broker.records; and back
Owns        the fields of records in bodies and responses
Leaves      conversion to and from bytes to `formats`

A record can be published again as it was read: the names of formats mean the same in both directions.
"""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from streamhouse.model.record import Acks
from streamhouse.wire.http.elements import Element
from streamhouse.wire.http.errors import Problem
from streamhouse.wire.http.operations import MAX_INT, MAX_LONG

MAX_RECORDS: Final = 50_000
"""Maximum records of one JSON body."""

Format = Literal["json", "text", "base64"]
ReadFormat = Literal["json", "text", "base64", "schema"]
PartitionNumber = Annotated[int, Meta(ge=0, le=MAX_INT)]
Timestamp = Annotated[int, Meta(ge=0, le=MAX_LONG, description="milliseconds since 1970, UTC")]
SchemaId = Annotated[int, Meta(ge=1, le=MAX_INT)]
Subject = Annotated[str, Meta(min_length=1, max_length=1000)]


class HeaderShape(Element, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A record header: its value is text, bytes in base64, or null."""

    name: str
    value: str | UnsetType = UNSET
    base64: str | UnsetType = UNSET


class RecordShape(Element, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A record to publish. `value` null is a tombstone; without `partition` the key decides, with Kafka's default
    partitioner."""

    value: Raw
    key: Raw = msgspec.field(default_factory=Raw)
    headers: list[HeaderShape] = msgspec.field(default_factory=list)
    partition: PartitionNumber | None = None
    timestamp_ms: Timestamp | None = None
    key_format: Format | None = None
    value_format: Format | None = None


class Publication(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Records to publish, and defaults for records that don't set their own. With a schema (an id, or a subject's
    latest version) values are encoded with it and prefixed with its id."""

    records: Annotated[list[RecordShape], Meta(min_length=1, max_length=MAX_RECORDS)]
    acks: Acks | None = None
    format: Annotated[Format, Meta(description="the same as value_format")] | None = None
    key_format: Format | None = None
    value_format: Format | None = None
    key_schema_id: SchemaId | None = None
    value_schema_id: SchemaId | None = None
    key_subject: Subject | None = None
    value_subject: Subject | None = None


class PublicationQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults for records that don't set their own."""

    acks: Annotated[Acks, Meta(description="what to wait for: buffered, wal or stored")] = Acks.WAL
    key: Annotated[str, Meta(description="key, as text")] | UnsetType = UNSET
    partition: Annotated[int, Meta(ge=0, le=MAX_INT, description="where they go")] | UnsetType = UNSET
    timestamp_ms: Annotated[int, Meta(ge=0, le=MAX_LONG, description="their time; now")] | UnsetType = UNSET
    format: Annotated[Format, Meta(description="the same as value_format")] | UnsetType = UNSET
    key_format: Annotated[Format, Meta(description="how keys are written; text")] | UnsetType = UNSET
    value_format: Annotated[Format, Meta(description="how values are written; json")] | UnsetType = UNSET
    key_schema_id: SchemaId | UnsetType = UNSET
    value_schema_id: SchemaId | UnsetType = UNSET
    key_subject: Subject | UnsetType = UNSET
    value_subject: Subject | UnsetType = UNSET


class Published(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Partition and offset of a record, or its error. `offset` is null with acks=buffered if another agent leads."""

    partition: int | UnsetType = UNSET
    offset: int | UnsetType | None = UNSET
    timestamp_ms: int | UnsetType = UNSET
    error: Problem | UnsetType = UNSET


class PublishedRecords(msgspec.Struct, frozen=True, kw_only=True):
    """One entry for each record, in order. If some records were published, the others have an `error`."""

    records: list[Published]


class BadLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of an upload, counted from 1, that was not published."""

    line: int
    reason: str


class UploadedPartition(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    records: int
    last_offset: int | None


class Uploaded(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an upload: the number of records published and of lines that failed, with the first errors. `complete`
    is false if the upload was aborted."""

    records: int
    failed: int
    errors: list[BadLine]
    partitions: list[UploadedPartition]
    complete: bool


class RecordView(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A record. `key` and `value` have the requested format; if bytes don't fit it, they are text, or base64 if they
    aren't UTF-8, and the format is named."""

    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: list[HeaderShape] = []
    key_format: Format | UnsetType = UNSET
    value_format: Format | UnsetType = UNSET
    key_schema_id: int | UnsetType = UNSET
    value_schema_id: int | UnsetType = UNSET
    cursor: str | UnsetType = UNSET
