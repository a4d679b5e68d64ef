"""Iceberg's partitions: values of its transforms, as manifests have them.

Data path   a task's rows -> **values** -> which file a row goes to, and what the manifest says of it
Owns        ordinals of times, representations of plain values
Leaves      hashes and prefixes to PyIceberg
"""

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.transforms import parse_transform

from streamhouse.format.lake_options import IDENTITY, Partition
from streamhouse.spark.lake.transforms import mapped

_DAY_US: Final = 24 * 3600 * 1_000_000
_HOUR_US: Final = 3600 * 1_000_000


def values_of(partition: Partition, values: pa.Array) -> list[Any]:
    """One for each row: ordinals from 1970 on for times, PyIceberg's for the rest."""
    if partition.transform in ("day", "hour"):
        return _floored(values, _DAY_US if partition.transform == "day" else _HOUR_US)
    if partition.transform in ("year", "month"):
        return _calendar(values, partition.transform)
    plain = _represented(values)
    if partition.transform == IDENTITY:
        return list(plain.to_pylist())
    schema = _pyarrow_to_schema_without_ids(pa.schema([("value", values.type)]))
    transform = parse_transform(f"{partition.transform}[{partition.width}]")
    return mapped(plain, transform.transform(schema.fields[0].field_type))


def _represented(values: pa.Array) -> pa.Array:
    """Dates and times are numbers in manifests."""
    if pa.types.is_date(values.type):
        return values.cast(pa.date32()).cast(pa.int32())
    if pa.types.is_timestamp(values.type):
        return _micros(values)
    return values


def _micros(values: pa.Array) -> pa.Array:
    if pa.types.is_date(values.type):
        return values.cast(pa.timestamp("us")).cast(pa.int64())
    return values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())


def _floored(values: pa.Array, unit_us: int) -> list[Any]:
    """Downwards, also before 1970."""
    return [None if each is None else each // unit_us for each in _micros(values).to_pylist()]


def _calendar(values: pa.Array, transform: str) -> list[Any]:
    times = _micros(values).cast(pa.timestamp("us"))
    years = pc.subtract(pc.year(times), 1970)
    if transform == "year":
        return list(years.to_pylist())
    return list(pc.add(pc.multiply(years, 12), pc.subtract(pc.month(times), 1)).to_pylist())
