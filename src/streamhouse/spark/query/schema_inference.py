"""Infers the columns of JSON records from a sample, and reads tables, schemas and samples from agents.

Data path   query.catalog -> **AgentCatalogBackend** -> an agent's HTTP listener; a sample -> **infer** -> columns
Owns        which type fits all values of a field; which records are a sample
Leaves      reading with these columns to `connectors.topic`

Types only widen: whole numbers and fractions are DOUBLE, values without a common type are STRING (their JSON text).
Times stay text: a later record may not look like one, and a record that doesn't fit is lost to a query. `CREATE
TABLE` declares them.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import msgspec
import numpy as np

from streamhouse.errors import AccessDenied, Rejected, Unavailable, UnknownTopic
from streamhouse.format.columnar_decoder import Binary, Selection, read_columns_in_parts
from streamhouse.format.columnar_decoder import Column as RecordColumn
from streamhouse.model.identifiers import quote_if_needed
from streamhouse.model.names import TopicPartition
from streamhouse.model.table import Column, Connector, Table
from streamhouse.spark.agents.address import AgentAddress
from streamhouse.spark.agents.client import AgentClient, PartitionPlan, error_detail, run_on_loop
from streamhouse.spark.columns.column_types import type_text
from streamhouse.spark.columns.typed_columns import own_types
from streamhouse.spark.columns.typed_decoder import find_schema
from streamhouse.spark.connectors.topic import METADATA_COLUMNS

MAX_COLUMNS: Final = 500
MAX_DEPTH: Final = 10
"""Maximum nesting of objects; deeper values are JSON text."""
JSON_SHARE: Final = 0.5
"""More of a sample's values than this must be JSON objects for the topic to be one of JSON."""
_LONG: Final = range(-(2**63), 2**63)
_NUMBERS: Final = ("BIGINT", "DOUBLE")


@dataclass(frozen=True, slots=True)
class _Object:
    fields: Mapping[str, "_JsonType"]


@dataclass(frozen=True, slots=True)
class _List:
    items: "_JsonType"


_JsonType = str | _Object | _List | None
"""None: nothing but nulls so far."""


def infer(values: Iterable[bytes | None]) -> tuple[Column, ...]:
    """The columns of values that are JSON objects, in the order of their first appearance; others are passed over."""
    kind: _JsonType = _Object({})
    for decoded in objects_of(values):
        kind = _widened(kind, _json_type(decoded, 0))
    assert isinstance(kind, _Object)
    columns: dict[str, Column] = {}
    for name, each in kind.fields.items():
        # Spark's names have no case: of two that differ in it only, the first is seen.
        if name not in METADATA_COLUMNS and len(columns) < MAX_COLUMNS:
            columns.setdefault(name.lower(), Column(name=name, type=_type_of(each)))
    return tuple(columns.values())


def objects_of(values: Iterable[bytes | None]) -> list[dict[str, Any]]:
    objects = []
    for value in values:
        try:
            decoded = msgspec.json.decode(value) if value else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(decoded, dict):
            objects.append(decoded)
    return objects


def is_json(values: Sequence[bytes | None]) -> bool:
    """Whether a sample is mostly JSON objects; deleted records, which have no value, don't count."""
    present = [value for value in values if value]
    return bool(present) and len(objects_of(present)) > JSON_SHARE * len(present)


def is_text(values: Iterable[bytes | None]) -> bool:
    try:
        for value in values:
            (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _json_type(value: Any, depth: int) -> _JsonType:
    if value is None:
        return None
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        return "BIGINT" if value in _LONG else "DOUBLE"
    if isinstance(value, float):
        return "DOUBLE"
    if isinstance(value, dict) and depth < MAX_DEPTH:
        return _Object({name: _json_type(each, depth + 1) for name, each in value.items()})
    if isinstance(value, list) and depth < MAX_DEPTH:
        items: _JsonType = None
        for each in value:
            items = _widened(items, _json_type(each, depth + 1))
        return _List(items)
    return "STRING"


def _widened(one: _JsonType, other: _JsonType) -> _JsonType:
    """The narrowest kind that both are."""
    if one is None or other is None or one == other:
        return other if one is None else one
    if isinstance(one, _Object) and isinstance(other, _Object):
        names = dict.fromkeys((*one.fields, *other.fields))
        return _Object({name: _widened(one.fields.get(name), other.fields.get(name)) for name in names})
    if isinstance(one, _List) and isinstance(other, _List):
        return _List(_widened(one.items, other.items))
    return "DOUBLE" if one in _NUMBERS and other in _NUMBERS else "STRING"


def _type_of(kind: _JsonType) -> str:
    if isinstance(kind, _List):
        return f"ARRAY<{_type_of(kind.items)}>"
    if isinstance(kind, _Object):
        seen: dict[str, str] = {}
        for name, each in kind.fields.items():
            seen.setdefault(name.lower(), f"{quote_if_needed(name)}: {_type_of(each)}")
        return f"STRUCT<{', '.join(seen.values())}>" if seen else "STRING"
    return kind or "STRING"


SAMPLE_RECORDS: Final = 1_000
SAMPLE_PARTITIONS: Final = 4
SAMPLE_BYTES: Final = 256 * 1024
"""Sample size of one end of one partition."""
SAMPLE_RESPONSES: Final = 4
"""Requests for one sample, where the first responses are short."""
BATCH_LIMIT_BYTES: Final = 64 * 1024 * 1024


class _Column(msgspec.Struct, frozen=True):
    name: str
    type: str


class _Table(msgspec.Struct, frozen=True):
    name: str
    connector: str
    columns: list[_Column] | None = None
    key: list[str] = []
    options: dict[str, str] = {}
    text: str | None = None

    def table(self) -> Table:
        columns = None if self.columns is None else tuple(Column(name=c.name, type=c.type) for c in self.columns)
        return Table(
            name=self.name,
            connector=Connector(self.connector),
            columns=columns,
            key=tuple(self.key),
            options=self.options,
            text=self.text,
        )


class _Tables(msgspec.Struct, frozen=True):
    tables: list[_Table]


class AgentCatalogBackend:
    """Blocks while it waits for agents; may be used from several threads at once."""

    def __init__(self, address: AgentAddress) -> None:
        self._address = address

    def tables(self) -> Sequence[Table]:
        return run_on_loop(self._tables())

    def fields(self, topic: str) -> tuple[Column, ...] | None:
        """The columns of the latest schema of a topic's values; None where none is registered, or may be seen."""
        return run_on_loop(self._fields(topic))

    def sample(self, topic: str) -> list[bytes | None]:
        """Values of the newest and the oldest records."""
        return run_on_loop(self._sample(topic))

    async def _tables(self) -> Sequence[Table]:
        async with AgentClient(self._address) as agents:
            response = await agents.http.send("GET", "/v1/tables")
        if response.status >= 500:
            raise Unavailable(error_detail(response))
        if response.status >= 400:
            raise Rejected(error_detail(response))
        return [each.table() for each in msgspec.json.decode(response.content, type=_Tables).tables]

    async def _fields(self, topic: str) -> tuple[Column, ...] | None:
        try:
            schema = await find_schema(self._address, topic)
        except AccessDenied:  # a right on the topic is none on the subject
            return None
        if schema is None:
            return None
        return tuple(
            Column(name=name, type=type_text(kind))
            for name, kind in own_types(schema).items()
            if name not in METADATA_COLUMNS
        )

    async def _sample(self, topic: str) -> list[bytes | None]:
        async with AgentClient(self._address) as agents:
            partitions = (await agents.topics()).get(topic)
            if partitions is None:
                raise UnknownTopic(topic)
            log_bounds = await agents.log_bounds(TopicPartition(topic, number) for number in range(partitions))
            full = [each for each in log_bounds.values() if each.end > each.log_start][:SAMPLE_PARTITIONS]
            share = SAMPLE_RECORDS // max(1, 2 * len(full))
            starts = [(each, offset) for each in full for offset in _ends(each, share)]
            samples = await asyncio.gather(*(_sampled(agents, each, offset, share) for each, offset in starts))
        return [value for values in samples for value in values][:SAMPLE_RECORDS]


def _ends(bounds: PartitionPlan, share: int) -> Iterable[int]:
    """The start offsets of samples of this many records: at the log's start, and before its end if they don't
    overlap."""
    newest = max(bounds.log_start, bounds.end - share)
    return (newest, bounds.log_start) if newest >= bounds.log_start + share else (bounds.log_start,)


async def _sampled(agents: AgentClient, bounds: PartitionPlan, offset: int, limit: int) -> list[bytes | None]:
    """Up to `limit` values from an offset on. A response ends with a segment, so there may be more behind it."""
    sample: list[bytes | None] = []
    for _ in range(SAMPLE_RESPONSES):
        values, offset = _values(
            await _batches(agents, bounds.topic_partition, offset), offset, limit=limit - len(sample)
        )
        sample += values
        if not values or len(sample) >= limit or offset >= bounds.end:
            break
    return sample


async def _batches(agents: AgentClient, partition: TopicPartition, offset: int) -> bytes:
    path = f"/v1/topics/{quote(partition.topic, safe='')}/partitions/{partition.partition}/batches"
    params: dict[str, str | int] = {"offset": offset, "max_bytes": SAMPLE_BYTES, "wait_ms": 0}
    response = await agents.http.send("GET", path, params=params)
    return response.content if response.status < 400 else b""


def _values(blob: bytes, offset: int, *, limit: int) -> tuple[list[bytes | None], int]:
    """The first values, and the offset behind all that were read."""
    if not blob:
        return [], offset
    selection = Selection(columns=RecordColumn.VALUE | RecordColumn.OFFSET, from_offset=offset)
    values: list[bytes | None] = []
    for columns in read_columns_in_parts([blob], selection, limit_bytes=BATCH_LIMIT_BYTES):
        assert columns.value is not None
        assert columns.offset is not None
        values += _bytes_of(columns.value, min(limit - len(values), columns.rows))
        offset = int(np.frombuffer(columns.offset, dtype=np.int64)[columns.rows - 1]) + 1
        if len(values) >= limit:
            break
    return values, offset


def _bytes_of(column: Binary, rows: int) -> Iterator[bytes | None]:
    offsets = np.frombuffer(column.offsets, dtype=np.int32)
    for row in range(rows):
        is_null = column.validity is not None and not column.validity[row >> 3] >> (row & 7) & 1
        yield None if is_null else bytes(column.data[offsets[row] : offsets[row + 1]])
