"""OTLP metrics: what a client pushes (KIP-714), a serialized MetricsData of opentelemetry-proto.

Data path   PushTelemetry -> **otlp_metrics** -> client_metrics
Owns        reading protobuf without trust in it: its size, its depth and the number of its fields are limited
Leaves      which metrics are kept to `client_metrics`

Sums (with delta temporality, as agents ask for) and gauges are read; attributes, histograms and summaries are not:
Kafka's clients send none of the latter.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from streamhouse.errors import InvalidRecord
from streamhouse.format.batch import Buffer

MAX_BYTES: Final = 1 << 20
"""Maximum size of one push, as in Kafka; also after decompression."""
MAX_FIELDS: Final = 100_000
"""Maximum fields of one push; ten times as many as a large client needs."""
DELTA: Final = 1

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES: Final = 10
_DOUBLE: Final = struct.Struct("<d")
_SFIXED64: Final = struct.Struct("<q")


class Point(NamedTuple):
    """A value of a metric: the increase of a counter, or a measured value."""

    metric: str
    is_increase: bool
    value: float


def read_points(data: Buffer) -> list[Point]:
    """All points, in order; raises `InvalidRecord`."""
    reader = _Reader()
    return [
        point
        for resource in reader.messages(memoryview(data), 1)
        for scope in reader.messages(resource, 2)
        for metric in reader.messages(scope, 2)
        for point in _points(reader, metric)
    ]


def _points(reader: "_Reader", metric: memoryview) -> Iterator[Point]:
    name, values, is_increase = "", list[memoryview](), False
    for number, value in reader.fields(metric):
        if number == 1:
            name = _text(value)
        elif number == 5:
            values += reader.messages(_message(value), 1)
        elif number == 7:
            points, is_increase = _sum(reader, _message(value))
            values += points
    for each in values:
        measured = _value(reader, each)
        if measured is not None:
            yield Point(name, is_increase, measured)


def _sum(reader: "_Reader", data: memoryview) -> tuple[list[memoryview], bool]:
    """The points of a sum, and whether they are increases; none of a cumulative one."""
    points, temporality, is_monotonic = list[memoryview](), 0, False
    for number, value in reader.fields(data):
        if number == 1:
            points.append(_message(value))
        elif number == 2:
            temporality = value if isinstance(value, int) else 0
        elif number == 3:
            is_monotonic = value == 1
    return (points if temporality == DELTA else []), is_monotonic


def _value(reader: "_Reader", point: memoryview) -> float | None:
    for number, value in reader.fields(point):
        if number == 4:
            return float(_DOUBLE.unpack(_eight_bytes(value))[0])
        if number == 6:
            return float(_SFIXED64.unpack(_eight_bytes(value))[0])
    return None


def _message(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise InvalidRecord("pushed metrics are malformed: a number in place of a message")
    return value


def _eight_bytes(value: int | memoryview) -> memoryview:
    if isinstance(value, int) or len(value) != _DOUBLE.size:
        raise InvalidRecord("pushed metrics are malformed: a value that has not 8 bytes")
    return value


def _text(value: int | memoryview) -> str:
    try:
        return str(_message(value), "utf-8")
    except UnicodeDecodeError:
        raise InvalidRecord("pushed metrics are malformed: a name that is not UTF-8") from None


class _Reader:
    """Reads the fields of messages, up to a limit over all of them."""

    def __init__(self) -> None:
        self._left = MAX_FIELDS

    def messages(self, data: memoryview, wanted: int) -> list[memoryview]:
        return [_message(value) for number, value in self.fields(data) if number == wanted]

    def fields(self, data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
        """Numbers and values; a varint is a number, all else are bytes."""
        position = 0
        while position < len(data):
            self._left -= 1
            if self._left < 0:
                raise InvalidRecord(f"pushed metrics have too many fields; limit={MAX_FIELDS}")
            tag, position = _varint(data, position)
            number, kind = tag >> 3, tag & 7
            if kind == _VARINT:
                value, position = _varint(data, position)
                yield number, value
                continue
            if kind == _LENGTH:
                size, position = _varint(data, position)
            elif kind == _FIXED64:
                size = 8
            elif kind == _FIXED32:
                size = 4
            else:
                raise InvalidRecord(f"pushed metrics are malformed: unknown wire type {kind}")
            if size > len(data) - position:
                raise InvalidRecord("pushed metrics are malformed: a field ends outside of its message")
            yield number, data[position : position + size]
            position += size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    result = 0
    for index, byte in enumerate(data[position : position + _VARINT_BYTES]):
        result |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return result, position + index + 1
    raise InvalidRecord("pushed metrics are malformed: a number without an end")
