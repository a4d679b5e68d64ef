"""Requests: messages of clients validated and translated to the broker's types, with the field that is wrong.

Also resolves positions (offset, timestamp, earliest, latest) to offsets; an error of one partition stays its own.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from streamhouse.broker.broker import Broker
from streamhouse.errors import Rejected, StreamhouseError
from streamhouse.model.fetch import OffsetResult
from streamhouse.model.names import TopicPartition
from streamhouse.model.record import Acks, NewRecord
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb

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


def partition_name(text: str, field: str) -> str:
    """Return the name; raise `Rejected` if it is empty."""
    if not text:
        raise Rejected(f"a name is missing; field={field}")
    return text


def partition_of(topic: str, partition: int, field: str = "partition") -> TopicPartition:
    if partition < 0:
        raise Rejected(f"a partition can't be negative; field={field} value={partition}")
    return TopicPartition(partition_name(topic, "topic"), partition)


def acks_of(value: int) -> Acks:
    """Return the acks; raise `Rejected` for an unknown number, which proto3 allows in an enum."""
    if (acks := ACKS.get(value)) is None:
        raise Rejected(f"unknown acks; field=acks value={value} allowed={', '.join(map(str, ACKS))}")
    return acks


def number_of(value: int, field: str) -> int:
    if value < 0:
        raise Rejected(f"a number can't be negative; field={field} value={value}")
    return value


def new_records(records: Collection[pb.Record]) -> list[NewRecord]:
    """Translate records. A hot path: one `ListFields` per record, and the usual field sets are handled inline."""
    if len(records) > MAX_RECORDS:
        raise Rejected(f"too many records in one message; field=records count={len(records)} limit={MAX_RECORDS}")
    translated = [
        _make((fields[1][1], fields[0][1], (), None, None))
        if len(fields := record.ListFields()) == 2 and fields[0][0] is _KEY and fields[1][0] is _VALUE
        else _make((fields[0][1], None, (), None, None))
        if len(fields) == 1 and fields[0][0] is _VALUE
        else _new_record(record)
        for record in records
    ]
    if not translated:
        raise Rejected("there is nothing to append; field=records")
    return translated


def _new_record(record: pb.Record) -> NewRecord:
    """Translate a record with any set of fields."""
    return NewRecord(
        record.value if record.HasField("value") else None,
        record.key if record.HasField("key") else None,
        _headers(record.headers),
        record.timestamp_ms if record.HasField("timestamp_ms") else None,
        record.partition if record.HasField("partition") else None,
    )


def _headers(headers: Iterable[pb.Header]) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((each.key, each.value if each.HasField("value") else None) for each in headers)


AT_ONCE: Final = 64
"""Offset lookups of one call at the same time."""

NO_OFFSET: Final = OffsetResult(-1)


class Start(NamedTuple):
    """A partition and the offset where reading it begins, or the error of the lookup."""

    name: TopicPartition
    result: OffsetResult | StreamhouseError


def check_count(count: int, limit: int, field: str = "positions") -> None:
    """Raise `Rejected` for too many positions, before each of them is looked at."""
    if count > limit:
        raise Rejected(f"too many partitions; field={field} requested={count} limit={limit}")


async def resolve_offsets(
    broker: Broker, positions: Sequence[pb.Position], *, limit: int, field: str = "positions", or_end: bool = True
) -> list[Start]:
    """Resolve positions, topic by topic. With `or_end`, a time after the last record means the end of the log.

    Raises `Rejected` for an invalid position, and the errors of a topic as a whole.
    """
    requested: list[tuple[TopicPartition, pb.Position]] = []
    for number, one in enumerate(positions):
        requested += await _expand(broker, one, f"{field}[{number}]")
        check_count(len(requested), limit, field)  # before the next position adds all partitions of a topic
    slots = asyncio.Semaphore(AT_ONCE)

    async def start(name: TopicPartition, position: pb.Position) -> Start:
        try:
            async with slots:
                return Start(name, await _resolve(broker, name, position, or_end=or_end))
        except StreamhouseError as error:
            return Start(name, error)

    return await asyncio.gather(*(start(name, position) for name, position in requested))


async def _expand(broker: Broker, position: pb.Position, field: str) -> list[tuple[TopicPartition, pb.Position]]:
    """Return one entry per partition of the position's topic."""
    partition_name(position.topic, f"{field}.topic")
    if position.WhichOneof("start") == "offset":
        number_of(position.offset, f"{field}.offset")
    if position.HasField("partition"):
        return [(partition_of(position.topic, position.partition, f"{field}.partition"), position)]
    topic = await broker.topic(position.topic)
    return [(TopicPartition(topic.name, number), position) for number in range(topic.partitions)]


async def _resolve(broker: Broker, name: TopicPartition, position: pb.Position, *, or_end: bool) -> OffsetResult:
    kind = position.WhichOneof("start")
    if kind == "offset":
        return OffsetResult(position.offset)
    if kind == "timestamp_ms":
        at_time = await broker.records.at_time(name, position.timestamp_ms)
        if at_time is not None or not or_end:
            return at_time if at_time is not None else NO_OFFSET
    elif position.edge == pb.EDGE_EARLIEST:
        return await broker.records.earliest(name)
    return await broker.records.stable_end(name)
