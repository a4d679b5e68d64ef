"""Data files: tasks write rows to Parquet files, split by partition and size, in bounded memory, and read them back.

Data path   a micro-batch's partitions -> tasks -> **data_files** -> a bucket or directory; file metadata -> the driver
Owns        names of data files, when one is full, how many are open at once, how rows are read back from files
Leaves      which files belong to the table to its commit

A file that is being written is buffered up to ROW_GROUP_BYTES. A task has MAX_OPEN files open at most: the one that
was begun first is closed for another partition's, so memory doesn't grow with the number of partitions.
"""

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from streamhouse.clock import Ids
from streamhouse.spark.columns.arrow_map import map_in_arrow
from streamhouse.spark.lake.table import DataFile, FilePlan, FileReader, NewDataFile
from streamhouse.spark.lake.table_options import file_system, within

ROW_GROUP_BYTES: Final = 16 * 1024 * 1024
"""Bytes of Arrow data that are gathered before they are written."""
MAX_OPEN: Final = 16
COMPRESSION: Final = "zstd"
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
FILE: Final = "_sh_file"
"""The column with the index of a row's file."""

_RESULT: Final = "path STRING, size BIGINT, rows BIGINT, partition BINARY, footer BINARY"


# --- writing


def write_files(frame: DataFrame, plan: FilePlan) -> list[NewDataFile]:
    """Write the rows in tasks; return one entry per file."""
    rows = map_in_arrow(frame, _task(plan), _RESULT).collect()
    return [
        NewDataFile(
            path=each["path"],
            size_bytes=each["size"],
            rows=each["rows"],
            partition=pickle.loads(each["partition"]),
            footer=bytes(each["footer"]),
        )
        for each in rows
    ]


def _task(plan: FilePlan) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        writer = _Writer(plan, task_id=0 if context is None else context.partitionId())
        for batch in batches:
            writer.write(batch)
            yield from _results(writer.take())
        writer.close()
        yield from _results(writer.take())

    return task


def _results(files: Sequence[NewDataFile]) -> Iterator[pa.RecordBatch]:
    if files:
        yield pa.RecordBatch.from_pydict(
            {
                "path": [each.path for each in files],
                "size": pa.array([each.size_bytes for each in files], pa.int64()),
                "rows": pa.array([each.rows for each in files], pa.int64()),
                "partition": pa.array([pickle.dumps(each.partition) for each in files], pa.binary()),
                "footer": pa.array([each.footer for each in files], pa.binary()),
            }
        )


@dataclass(slots=True)
class _Open:
    """A file that is being written."""

    path: str
    sink: Any
    parquet: pq.ParquetWriter
    partition: tuple[Any, ...]
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0
    rows: int = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self.waiting.append(batch)
        self.waiting_bytes += batch.nbytes
        self.rows += batch.num_rows
        if self.waiting_bytes >= ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        if self.waiting:
            self.parquet.write_table(pa.Table.from_batches(self.waiting))
        self.waiting, self.waiting_bytes = [], 0


class _Writer:
    """All files of one task."""

    def __init__(self, plan: FilePlan, *, task_id: int) -> None:
        self._plan, self._task_id = plan, task_id
        self._files = file_system(plan.data)
        self._open: dict[tuple[Any, ...], _Open] = {}
        self._done: list[NewDataFile] = []
        self._kept = [name for name in plan.schema.names if name not in plan.drops]
        self._schema = pa.schema([plan.schema.field(name) for name in self._kept])

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows with the table's columns, in any order."""
        if batch.num_rows == 0:
            return
        for partition, rows in self._parted(batch):
            file = self._open.get(partition) or self._begin(partition)
            kept = [rows.column(name).cast(self._schema.field(name).type) for name in self._kept]
            file.write(pa.RecordBatch.from_arrays(kept, schema=self._schema))
            if file.sink.tell() >= self._plan.file_size_bytes:
                self._end(partition)

    def take(self) -> list[NewDataFile]:
        """Files that were finished since the last time."""
        done, self._done = self._done, []
        return done

    def close(self) -> None:
        for partition in list(self._open):
            self._end(partition)

    def _parted(self, batch: pa.RecordBatch) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
        plan = self._plan
        if not plan.partitions or plan.values is None:
            yield (), batch
            return
        values = [plan.values(each, batch.column(each.column)) for each in plan.partitions]
        rows_by_partition: dict[tuple[Any, ...], list[int]] = {}
        for row, partition in enumerate(zip(*values, strict=True)):
            rows_by_partition.setdefault(partition, []).append(row)
        for partition, rows in rows_by_partition.items():
            yield partition, batch if len(rows_by_partition) == 1 else batch.take(pa.array(rows, pa.int64()))

    def _begin(self, partition: tuple[Any, ...]) -> _Open:
        if len(self._open) >= MAX_OPEN:
            self._end(next(iter(self._open)))
        folder = "/".join([self._plan.data, *self._folders(partition)])
        path = f"{folder}/{self._plan.begins}{self._task_id:05d}-{Ids().token()}.parquet"
        if not path.startswith("s3://"):
            self._files.create_dir(within(folder), recursive=True)
        sink = self._files.open_output_stream(within(_making(path)))
        parquet = pq.ParquetWriter(sink, self._schema, compression=COMPRESSION, store_schema=False)
        self._open[partition] = _Open(path, sink, parquet, partition)
        return self._open[partition]

    def _folders(self, partition: tuple[Any, ...]) -> list[str]:
        if not self._plan.is_hive:
            return []
        return [
            f"{each.name}={NO_VALUE if value is None else quote(value, safe=' :-_.')}"
            for each, value in zip(self._plan.partitions, partition, strict=True)
        ]

    def _end(self, partition: tuple[Any, ...]) -> None:
        file = self._open.pop(partition)
        file.flush()
        file.parquet.close()
        size_bytes = file.sink.tell()
        file.sink.close()
        if _making(file.path) != file.path:
            self._files.move(within(_making(file.path)), within(file.path))
        footer = BytesIO()
        file.parquet.writer.metadata.write_metadata_file(footer)
        self._done.append(
            NewDataFile(
                path=file.path,
                size_bytes=size_bytes,
                rows=file.rows,
                partition=partition,
                footer=footer.getvalue(),
            )
        )


def _making(path: str) -> str:
    """Path of a file while it is written: objects of a bucket appear whole, files don't."""
    return path if path.startswith("s3://") else f"{path}.making"


def footer_of(written: NewDataFile) -> pq.FileMetaData:
    return pq.read_metadata(BytesIO(written.footer))


# --- reading back


def file_rows(
    spark: SparkSession, files: Sequence[DataFile], reader: FileReader, schema: StructType, *, with_file: bool = False
) -> DataFrame:
    """Rows of these files, read in tasks; `with_file` adds the index of the file in `files`."""
    fields = [*schema.fields, *([StructField(FILE, LongType())] if with_file else [])]
    tokens = [(number, pickle.dumps(each.token)) for number, each in enumerate(files)]
    parts = max(1, min(len(tokens), 4 * spark.sparkContext.defaultParallelism))
    token_rows = spark.createDataFrame(tokens, "number BIGINT, token BINARY").repartition(parts)
    return token_rows.mapInArrow(_reading(reader, tuple(schema.names), StructType(fields)), StructType(fields))


def _reading(
    reader: FileReader, names: tuple[str, ...], schema: StructType
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrow = to_arrow_schema(schema, timezone="UTC")
        for batch in batches:
            for number, token in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                for rows in reader.batches(pickle.loads(token), names):
                    yield _cast_columns(rows, arrow, number)

    return task


def _cast_columns(rows: pa.RecordBatch, schema: pa.Schema, number: int) -> pa.RecordBatch:
    arrays = [
        pa.repeat(pa.scalar(number, pa.int64()), rows.num_rows)
        if field.name == FILE
        else rows.column(field.name).cast(field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def spark_schema(schema: pa.Schema) -> StructType:
    """Arrow's types as Spark's; without field ids and other metadata."""
    plain = json.loads(from_arrow_schema(schema.remove_metadata()).json())
    converted = StructType.fromJson(plain)
    return StructType([StructField(each.name, each.dataType, nullable=True) for each in converted.fields])
