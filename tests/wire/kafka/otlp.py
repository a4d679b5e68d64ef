"""OTLP metrics as clients push them, written field by field."""

import struct
from collections.abc import Mapping

DELTA, CUMULATIVE = 1, 2


def varint(value: int) -> bytes:
    result = bytearray()
    while value > 0x7F:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*result, value])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def gauge(name: str, value: float) -> bytes:
    point = field(7, b"attribute") + varint(4 << 3 | 1) + struct.pack("<d", value)
    return field(1, name.encode()) + field(5, field(1, point))


def counter(name: str, value: int, *, temporality: int = DELTA) -> bytes:
    point = varint(6 << 3 | 1) + struct.pack("<q", value)
    points = field(1, point) + varint(2 << 3) + varint(temporality) + varint(3 << 3) + varint(1)
    return field(1, name.encode()) + field(7, points)


def metrics_data(*metrics: bytes) -> bytes:
    return field(1, field(1, b"") + field(2, b"".join(field(2, each) for each in metrics)))


def pushed_metrics(gauges: Mapping[str, float] | None = None, counters: Mapping[str, int] | None = None) -> bytes:
    return metrics_data(
        *(gauge(name, value) for name, value in (gauges or {"latency.avg": 1.5}).items()),
        *(counter(name, value) for name, value in (counters or {"records.total": 7}).items()),
    )
