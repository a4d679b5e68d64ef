"""Shapes: records as JSON has them, on their way in and out.

Data path   JSON -> **shapes** -> payloads -> broker.records; and back
Owns        the fields of records in bodies and answers
Leaves      turning them into bytes, and bytes into them, to `formats`

A record that was read can be published again as it is: marks of formats mean the same in both directions.
"""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from streamhouse.model.record import Acks
from streamhouse.wire.http.errors import Problem
from streamhouse.wire.http.operations import MAX_INT, MAX_LONG

MAX_RECORDS: Final = 50_000
"""Records of one JSON body."""

Format = Literal["json", "text", "base64"]
ReadFormat = Literal["json", "text", "base64", "schema"]
PartitionNumber = Annotated[int, Meta(ge=0, le=MAX_INT)]
Timestamp = Annotated[int, Meta(ge=0, le=MAX_LONG, description="milliseconds since 1970, UTC")]
SchemaId = Annotated[int, Meta(ge=1, le=MAX_INT)]
Subject = Annotated[str, Meta(min_length=1, max_length=1000)]


class HeaderShape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A record's header: its value is text, or bytes in base64, or neither: then it has none."""

    name: str
    value: str | UnsetType = UNSET
    base64: str | UnsetType = UNSET


class RecordShape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A record to publish. `value` null is a record without a value; without `partition` the key chooses, as Java's
    client does."""

    value: Raw
    key: Raw = msgspec.field(default_factory=Raw)
    headers: list[HeaderShape] = []
    partition: PartitionNumber | None = None
    timestamp_ms: Timestamp | None = None
    key_format: Format | None = None
    value_format: Format | None = None


class Publication(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Records to publish, and what holds for all of them that don't say otherwise.

    With a schema (by id, or a subject's newest) values are encoded by it, behind its id.
    """

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
    """What holds for records that don't say otherwise."""

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
    """Where a record went, or why it didn't. `offset` is null while only the leader knows it (acks=buffered)."""

    partition: int | UnsetType = UNSET
    offset: int | UnsetType | None = UNSET
    timestamp_ms: int | UnsetType = UNSET
    error: Problem | UnsetType = UNSET


class PublishedRecords(msgspec.Struct, frozen=True, kw_only=True):
    """One entry for each record, in order. Some have an `error` when others were published."""

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
    """What became of an upload: how many records were published and how many lines were not; the first of those are
    named. `complete` is false where the upload was given up before its end."""

    records: int
    failed: int
    errors: list[BadLine]
    partitions: list[UploadedPartition]
    complete: bool


class RecordView(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A record that was read. `key` and `value` are as the request wants them; where bytes can't be written so, their
    format is said: text, or base64 for what isn't UTF-8 either."""

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
