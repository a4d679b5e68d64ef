"""Partition directories of Delta and Hive tables: values as directory names, and files that lack these columns.

Data path   rows of a task -> **hive_layout** -> directories; a Parquet file -> **FolderReader** -> rows with all
            columns
Owns        partition values as texts; plans of such files; columns that a file lacks (partitions, later additions)
Leaves      transforms' syntax (`day(ts)`) to `sql.options`, Iceberg's values to `iceberg_metadata`

Times are UTC. Iceberg hides a transform behind the column; Delta and Parquet get another column (`ts_day`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from streamhouse.errors import Misconfigured
from streamhouse.model.table import IDENTITY, WITH_NUMBER, Partition
from streamhouse.spark.lake.table import FilePlan, Layout, Progress, begins_of
from streamhouse.spark.lake.table_options import file_system, within

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
    """The type of a partition's column."""
    if partition.transform == IDENTITY:
        return source
    return {"year": pa.int32(), "day": pa.date32()}.get(partition.transform, pa.string())


def folder_texts(partition: Partition, values: pa.Array) -> pa.Array:
    """Values as texts of Delta's log and of Hive's directories; null stays null."""
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
    """Apply a Python function, once for each distinct value."""
    encoded = values.dictionary_encode()
    results = [None if value is None else transform(value) for value in encoded.dictionary.to_pylist()]
    return [None if index is None else results[index] for index in encoded.indices.to_pylist()]


def folder_plan(root: str, layout: Layout, columns: StructType, progress: Progress) -> FilePlan:
    """The plan of a micro-batch's data files."""
    return FilePlan(
        data=root,
        begins=begins_of(progress),
        schema=to_arrow_schema(columns, timezone="UTC"),
        partitions=layout.partitions,
        values=folder_values,
        drops=tuple(each.column for each in layout.partitions if each.transform == IDENTITY),
        is_hive=True,
        file_size_bytes=layout.file_size_bytes,
    )


def with_partitions(schema: pa.Schema, partitions: Iterable[Partition]) -> pa.Schema:
    """The columns of a table, followed by those of its partition transforms."""
    for each in partitions:
        if each.transform != IDENTITY:
            schema = schema.append(pa.field(each.name, folder_type(each, schema.field(each.column).type)))
    return schema


READ_ROWS: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderReader:
    """`schema` is the table's; a token is a path, and the partition values of its directories."""

    schema: pa.Schema

    def batches(self, token: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        path, values = token
        with file_system(path).open_input_file(within(path)) as source:
            file = pq.ParquetFile(source)
            present = [name for name in columns if name in file.schema_arrow.names]
            for batch in file.iter_batches(READ_ROWS, columns=present):
                yield self._whole(batch, columns, values)

    def _whole(self, batch: pa.RecordBatch, columns: Sequence[str], values: Mapping[str, Any]) -> pa.RecordBatch:
        fields = [self.schema.field(name) for name in columns]
        arrays = [
            batch.column(field.name).cast(field.type)
            if field.name in batch.schema.names
            else pa.repeat(pa.scalar(values.get(field.name)).cast(field.type), batch.num_rows)
            for field in fields
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
