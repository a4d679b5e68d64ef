"""Transforms: which partition of a table a row belongs to.

Data path   a task's rows -> **transforms** -> values for each row
Owns        values as texts, for folders of Delta and Hive
Leaves      the words (`day(ts)`) to `format.lake_options`, values of Iceberg to `iceberg_partitions`

Times are UTC. Iceberg hides a transform behind the column; Delta and Parquet get a column of their own (`ts_day`).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.errors import Misconfigured
from streamhouse.format.lake_options import IDENTITY, WITH_NUMBER, Partition

_FORMATS: Final[Mapping[str, str]] = {"year": "%Y", "month": "%Y-%m", "day": "%Y-%m-%d", "hour": "%Y-%m-%d-%H"}

# --- values as folders of Delta and Hive have them


def check_folders(partitions: tuple[Partition, ...], table: str) -> None:
    for each in partitions:
        if each.transform in WITH_NUMBER:
            raise Misconfigured(
                f"only Iceberg knows this transform; table={table} partition_by={each}"
                " do=partition by a column, year, month, day or hour"
            )


def folder_type(partition: Partition, source: pa.DataType) -> pa.DataType:
    """The type of the column that a partition is, in a table that has one for it."""
    if partition.transform == IDENTITY:
        return source
    return {"year": pa.int32(), "day": pa.date32()}.get(partition.transform, pa.string())


def folder_texts(partition: Partition, values: pa.Array) -> pa.Array:
    """Values as the texts that Delta's log and Hive's folders have; null where a value is."""
    if partition.transform == IDENTITY:
        return _texts(values)
    return pc.strftime(_utc(values), format=_FORMATS[partition.transform])


def folder_values(partition: Partition, values: pa.Array) -> list[Any]:
    return list(folder_texts(partition, values).to_pylist())


def _texts(values: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(values.type):
        return pc.strftime(_utc(values), format="%Y-%m-%d %H:%M:%S")
    if pa.types.is_binary(values.type) or pa.types.is_nested(values.type):
        raise Misconfigured(f"nothing can be partitioned by a column of this type; type={values.type}")
    return values.cast(pa.string())


def _utc(values: pa.Array) -> pa.Array:
    """Microseconds without a zone, in UTC."""
    if pa.types.is_date(values.type):
        return values.cast(pa.timestamp("us"))
    if not pa.types.is_timestamp(values.type):
        raise Misconfigured(f"only times have years, months, days and hours; type={values.type}")
    return values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64()).cast(pa.timestamp("us"))


# --- values as Iceberg has them


def mapped(values: pa.Array, transform: Callable[[Any], Any]) -> list[Any]:
    """A function of Python's over values, called once for each that is different."""
    encoded = values.dictionary_encode()
    results = [None if value is None else transform(value) for value in encoded.dictionary.to_pylist()]
    return [None if place is None else results[place] for place in encoded.indices.to_pylist()]
