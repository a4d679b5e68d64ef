"""Requests: what messages of clients say, checked, in the broker's words.

Data path   methods -> **requests** -> broker
Owns        which field is to blame for what can't be understood
Leaves      what exists and what is allowed to the broker
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from streamhouse.errors import Rejected
from streamhouse.model.names import TopicPartition
from streamhouse.model.record import Acks, NewRecord

from .generated import streamhouse_pb2 as pb

ACKS: Final[Mapping[int, Acks]] = {
    pb.ACKS_UNSPECIFIED: Acks.WAL,
    pb.ACKS_BUFFERED: Acks.BUFFERED,
    pb.ACKS_WAL: Acks.WAL,
    pb.ACKS_STORED: Acks.STORED,
}

_KEY: Final = pb.Record.DESCRIPTOR.fields_by_name["key"]
_VALUE: Final = pb.Record.DESCRIPTOR.fields_by_name["value"]
_make: Final = NewRecord._make

MAX_RECORDS: Final = 100_000
"""Records in one message: an empty one is two bytes, and costs a hundred."""


def named(text: str, field: str) -> str:
    """A name that must be there."""
    if not text:
        raise Rejected(f"a name is missing; field={field}")
    return text


def partition_of(topic: str, partition: int, field: str = "partition") -> TopicPartition:
    if partition < 0:
        raise Rejected(f"a partition can't be negative; field={field} value={partition}")
    return TopicPartition(named(topic, "topic"), partition)


def acks_of(value: int) -> Acks:
    """An enum of proto3 may hold any number."""
    if (acks := ACKS.get(value)) is None:
        raise Rejected(f"unknown acks; field=acks value={value} allowed={', '.join(map(str, ACKS))}")
    return acks


def number_of(value: int, field: str) -> int:
    if value < 0:
        raise Rejected(f"a number can't be negative; field={field} value={value}")
    return value


def new_records(records: Collection[pb.Record]) -> list[NewRecord]:
    """By the thousand, so: one call for all that is set, and the usual shapes are recognised by it."""
    if len(records) > MAX_RECORDS:
        raise Rejected(f"too many records in one message; field=records count={len(records)} limit={MAX_RECORDS}")
    found = [
        _make((fields[1][1], fields[0][1], (), None, None))
        if len(fields := record.ListFields()) == 2 and fields[0][0] is _KEY and fields[1][0] is _VALUE
        else _make((fields[0][1], None, (), None, None))
        if len(fields) == 1 and fields[0][0] is _VALUE
        else _new_record(record)
        for record in records
    ]
    if not found:
        raise Rejected("there is nothing to append; field=records")
    return found


def _new_record(record: pb.Record) -> NewRecord:
    """Of any shape."""
    return NewRecord(
        record.value if record.HasField("value") else None,
        record.key if record.HasField("key") else None,
        _headers(record.headers),
        record.timestamp_ms if record.HasField("timestamp_ms") else None,
        record.partition if record.HasField("partition") else None,
    )


def _headers(headers: Iterable[pb.Header]) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((each.key, each.value if each.HasField("value") else None) for each in headers)
