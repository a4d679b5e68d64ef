"""The connector of PostgreSQL tables.

Data path   PostgreSQL -> COPY as CSV -> a pipe -> Arrow batches -> Spark; rows of a micro-batch -> `writer` in a task
Owns        options of such tables; the COPY and its thread; the writer of micro-batches
Leaves      statements that write to `writer`, catalogs and types to `table_schema`

A DataFrame is one task that reads, so a query that joins a stream with it reads the table in every micro-batch, and
sees its changes. A Python data source would be planned each time, in another process. One COPY is one snapshot of the
table. The server writes CSV and Arrow reads it: no row becomes a Python object.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.csv as csv
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

import streamhouse.errors as errors
from streamhouse.errors import Misconfigured, Rejected, StreamhouseError
from streamhouse.model.identifiers import quote_identifier, quote_postgresql_identifier
from streamhouse.model.table import Table
from streamhouse.spark.columns.arrow_map import map_in_arrow
from streamhouse.spark.connectors import ReadContext, WriteContext
from streamhouse.spark.connectors.postgresql.connection import STATEMENT_TIMEOUT_S, connect, run
from streamhouse.spark.connectors.postgresql.table_schema import (
    UTC_MICROSECONDS,
    ReadType,
    TableInfo,
    check_readable,
    check_writable,
    find_table,
    missing_table,
    read_type,
    staging_type,
)
from streamhouse.spark.connectors.postgresql.writer import (
    ORDINAL,
    MicroBatch,
    TargetColumn,
    WriteTable,
    prepare_progress,
    take_over,
    write_batch,
)
from streamhouse.spark.runtime.checkpoint_sync import sync_checkpoint
from streamhouse.spark.runtime.jvm import batch_offsets

BLOCK_BYTES: Final = 8 * 1024 * 1024
"""Bytes of CSV that are read at once; a row can't be larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyQuery:
    """The state with which a task reads a table: names and types, no credentials."""

    connection: str
    table: str
    columns: tuple[tuple[str, ReadType], ...]

    @staticmethod
    def of(table: TableInfo) -> "CopyQuery":
        columns = tuple(
            (column.name, read_type(column.typname, column.typmod, element=column.element)) for column in table.columns
        )
        return CopyQuery(connection=table.connection, table=table.sql_name, columns=columns)

    @property
    def query(self) -> str:
        chosen = (
            kind.select.replace("{}", quote_postgresql_identifier(name)) + f" AS {quote_postgresql_identifier(name)}"
            for name, kind in self.columns
        )
        return f"SELECT {', '.join(chosen)} FROM {self.table}"

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as they are now; columns that Arrow can't make are texts, to be restored by Spark."""
        source, sink = os.pipe()
        copying = _CopyThread(self, os.fdopen(sink, "wb"))
        copying.start()
        try:
            with os.fdopen(source, "rb") as lines:
                yield from self._decoded(lines)
        finally:
            copying.join()
        if copying.error is not None:
            raise copying.error

    def _decoded(self, lines: Any) -> Iterator[pa.RecordBatch]:
        if not lines.peek(1):
            return
        try:
            for batch in csv.open_csv(lines, *self._options()):
                yield _restamped(batch, self.columns)
        except pa.ArrowInvalid as error:
            raise Rejected(f"rows can't be read; table={self.table} why={error}") from None

    def _options(self) -> tuple[csv.ReadOptions, csv.ParseOptions, csv.ConvertOptions]:
        types = {name: _carried(kind.arrow) for name, kind in self.columns}
        return (
            csv.ReadOptions(column_names=list(types), block_size=BLOCK_BYTES, use_threads=False),
            csv.ParseOptions(newlines_in_values=True),
            csv.ConvertOptions(
                column_types=types,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                true_values=["t"],
                false_values=["f"],
            ),
        )


@dataclass(slots=True)
class _CopyThread:
    """Brings rows into a pipe, on a thread of its own."""

    extract: CopyQuery
    sink: BinaryIO
    error: StreamhouseError | None = None
    _thread: threading.Thread | None = field(default=None, init=False)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="streamhouse-copy", daemon=True)
        self._thread.start()

    def join(self) -> None:
        assert self._thread is not None
        self._thread.join()

    def _work(self) -> None:
        try:
            run(self._copy())
        except StreamhouseError as error:
            self.error = error
        finally:
            try:
                self.sink.close()
            except BrokenPipeError:
                self.error = None  # the reader stopped early

    async def _copy(self) -> None:
        texts = [name for name, kind in self.extract.columns if kind.is_quoted]
        async with connect(self.extract.connection) as link:
            await link.copy_from_query(
                self.extract.query,
                output=self.sink,
                format="csv",
                force_quote=texts or None,
                timeout=STATEMENT_TIMEOUT_S,
            )


def _carried(arrow: Any) -> Any:
    """Dates and times come as numbers."""
    if pa.types.is_timestamp(arrow):
        return pa.int64()
    return pa.int32() if pa.types.is_date32(arrow) else arrow


def _restamped(batch: pa.RecordBatch, columns: tuple[tuple[str, ReadType], ...]) -> pa.RecordBatch:
    arrays = [
        array.view(kind.arrow) if array.type != kind.arrow else array
        for array, (_, kind) in zip(batch.columns, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in columns])


def arrow_schema(extract: CopyQuery) -> str:
    """The schema of `batches`, as Spark's DDL."""
    types = {pa.string(): "string", UTC_MICROSECONDS: "timestamp", pa.timestamp("us"): "timestamp_ntz"}
    columns = ((name, types.get(kind.arrow) or kind.spark.simpleString()) for name, kind in extract.columns)
    return ", ".join(f"{quote_identifier(name)} {kind}" for name, kind in columns)


CONNECTION, TABLE = "connection", "table"
OPTIONS: Final = (CONNECTION, TABLE)
BROADCAST_BYTES: Final = 32 * 1024 * 1024
"""Larger tables are joined by sorting; smaller ones are sent to every task, which Spark takes all of them for."""

_OUTCOME: Final = pa.schema([("kind", pa.string()), ("text", pa.string())])


def read(spark: SparkSession, table: Table, reading: ReadContext) -> DataFrame:
    """`WITH (connector = 'postgresql', connection = 'warehouse', table = 'sales.orders')`."""
    connection, name = _connection_and_name(table)
    info = run(find_table(connection, name))
    if info is None:
        raise missing_table(connection, name)
    check_readable(info)
    return _as_declared(_frame(spark, _chosen(info, table)), table)


def read_stream(spark: SparkSession, table: Table, reading: ReadContext) -> DataFrame:
    raise Rejected(
        f"a PostgreSQL table is not a stream; table={table.name}"
        " do=name it without STREAM: it is read again for every micro-batch"
    )


def write_stream(frame: DataFrame, table: Table, writing: WriteContext) -> DataStreamWriter:
    target = find_target(frame, table, writing)
    run(prepare_progress(target))
    step = PostgresBatchWriter(target=target, writing=writing)
    run(take_over(target, step.micro_batch(-1)))
    return (
        frame.writeStream.outputMode(writing.mode)
        .option("checkpointLocation", writing.checkpoint)
        .foreachBatch(step.write)
    )


def find_target(frame: DataFrame, table: Table, writing: WriteContext) -> WriteTable:
    """Where rows go; raises `Rejected` for whatever would stop the first of them."""
    connection, name = _connection_and_name(table)
    key = writing.key or table.key
    if not key and writing.mode != "append":
        raise Rejected(
            f"rows that change need a key; table={table.name} output={writing.mode}"
            " do=declare PRIMARY KEY (…), or give the pipeline the option key"
        )
    info = run(find_table(connection, name))
    if info is None:
        raise missing_table(connection, name, frame.schema, key)
    unique = check_writable(info, frame.schema, key)
    by_name = {column.name: column for column in info.columns}
    return WriteTable(
        connection=connection,
        schema=info.schema,
        table=info.name,
        columns=tuple(
            TargetColumn(name=each, type=by_name[each].type, is_array=by_name[each].element is not None)
            for each in frame.columns
        ),
        key=tuple(key),
        nulls_match=unique is not None and unique.nulls_match,
    )


def _connection_and_name(table: Table) -> tuple[str, str]:
    unknown = [name for name in table.options if name not in (*OPTIONS, "connector")]
    if unknown:
        raise Misconfigured(f"unknown option; table={table.name} option={unknown[0]} do=known are {', '.join(OPTIONS)}")
    connection = table.options.get(CONNECTION, "")
    if not connection or "://" in connection:
        raise Misconfigured(
            f"a connection is named, not written out; table={table.name}"
            " do=connection = 'warehouse', and the DSN in STREAMHOUSE_CONNECTION_WAREHOUSE"
        )
    return connection, table.options.get(TABLE) or table.name


# --- reading


def _chosen(info: TableInfo, table: Table) -> TableInfo:
    """With the columns of the declaration alone, if it has any; other columns aren't read."""
    if table.columns is None:
        return info
    known = {column.name: column for column in info.columns}
    for column in table.columns:
        if column.name not in known:
            raise Rejected(
                f"the table has no such column; {info.description} column={column.name} columns={','.join(known)}"
            )
    # A row of no columns is still a row: it is read with the first one.
    return replace(info, columns=tuple(known[each.name] for each in table.columns) or info.columns[:1])


def _frame(spark: SparkSession, info: TableInfo) -> DataFrame:
    extract = CopyQuery.of(info)

    def rows(tick: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in tick:
            if batch.num_rows:
                yield from extract.batches()

    frame = spark.range(0, 1, 1, 1).mapInArrow(rows, arrow_schema(extract))
    restored = [
        f"{kind.restore.format(quote_identifier(name))} AS {quote_identifier(name)}"
        if kind.restore
        else quote_identifier(name)
        for name, kind in extract.columns
    ]
    frame = frame.selectExpr(*restored)
    return frame.hint("merge") if info.size_bytes > BROADCAST_BYTES else frame


def _as_declared(frame: DataFrame, table: Table) -> DataFrame:
    if table.columns is None:
        return frame
    # A type is text of a request: `cast` parses it as a type and nothing else.
    return frame.select(
        *(F.col(quote_identifier(each.name)).cast(each.type).alias(each.name) for each in table.columns)
    )


# --- writing


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresBatchWriter:
    """The function for each micro-batch: one task takes all rows, and writes them in one transaction."""

    target: WriteTable
    writing: WriteContext

    def micro_batch(self, batch_id: int, covers: str | None = None) -> MicroBatch:
        return MicroBatch(
            pipeline=self.writing.pipeline,
            query_id=self.writing.query_id,
            batch_id=batch_id,
            epoch=self.writing.epoch,
            covers=covers,
            lineage=self.writing.lineage,
        )

    def write(self, frame: DataFrame, batch_id: int) -> None:
        offsets = batch_offsets(frame.sparkSession, self.writing.checkpoint, batch_id)
        micro_batch = self.micro_batch(batch_id, None if offsets is None else offsets.covers)
        columns = [staging_type(field.name, field.dataType) for field in frame.schema.fields]
        rows = frame.selectExpr(*columns)
        if self.target.key:
            rows = rows.withColumn(ORDINAL, F.monotonically_increasing_id())
        task = _task(self.target, micro_batch, self.writing.before_commit)
        sync_checkpoint(self.writing.checkpoint)
        rows_of_errors = map_in_arrow(rows.repartition(1), task, "kind string, text string").collect()
        sync_checkpoint(self.writing.checkpoint)  # state of this micro-batch, before Spark notes that it is done
        for kind, text in rows_of_errors:
            raise _error_of(kind, text)


def _error_of(kind: str, text: str) -> StreamhouseError:
    """The error of a task, whatever it was made of there."""
    error_class: type[StreamhouseError] = getattr(errors, kind)
    error = error_class.__new__(error_class)
    StreamhouseError.__init__(error, text)
    return error


def _task(
    target: WriteTable, micro_batch: MicroBatch, before_commit: Callable[[], None]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """An error is a row: raised here it would be a page of traces, and lose what kind it is."""
        remaining = iter(batches)
        try:
            run(write_batch(target, micro_batch, remaining, before_commit=before_commit))
        except StreamhouseError as error:
            kind = next(each.__name__ for each in type(error).__mro__ if hasattr(errors, each.__name__))
            yield pa.RecordBatch.from_pylist([{"kind": kind, "text": str(error)}], schema=_OUTCOME)
        # Spark wants its rows taken, also those of a micro-batch that was written before. After a timeout a thread may
        # still wait for the next ones, and has the iterator to itself: then they are left where they are.
        with suppress(ValueError):
            deque(remaining, maxlen=0)

    return task
