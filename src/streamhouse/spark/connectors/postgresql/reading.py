"""Reading: a table's rows as Arrow, out of one COPY.

Data path   PostgreSQL -> COPY as CSV -> a pipe -> **reading** -> Arrow batches -> Spark
Owns        the COPY, its thread, and its end when nobody reads on
Leaves      how a column travels to `types`

One COPY is one snapshot of the table. Rows are never objects of Python: the server writes CSV, Arrow reads it.
"""

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.csv as csv

from streamhouse.errors import Rejected, StreamhouseError
from streamhouse.model.identifiers import quote_identifier, quote_postgresql_identifier
from streamhouse.spark.connectors.postgresql.connections import STATEMENT_TIMEOUT_S, opened, run
from streamhouse.spark.connectors.postgresql.tables import FoundTable
from streamhouse.spark.connectors.postgresql.types import UTC_MICROSECONDS, OutType, out_type

BLOCK_BYTES: Final = 8 * 1024 * 1024
"""Of CSV, read at once; a row can't be larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extract:
    """What a task needs to read a table: names and types, no credentials."""

    connection: str
    table: str
    columns: tuple[tuple[str, OutType], ...]

    @staticmethod
    def of(table: FoundTable) -> "Extract":
        columns = tuple(
            (column.name, out_type(column.typname, column.typmod, element=column.element)) for column in table.columns
        )
        return Extract(connection=table.connection, table=table.sql_name, columns=columns)

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
        copying = _Copying(self, os.fdopen(sink, "wb"))
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
class _Copying:
    """Brings rows into a pipe, on a thread of its own."""

    extract: Extract
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
                self.error = None  # whoever read has seen enough

    async def _copy(self) -> None:
        texts = [name for name, kind in self.extract.columns if kind.is_quoted]
        async with opened(self.extract.connection) as link:
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


def _restamped(batch: pa.RecordBatch, columns: tuple[tuple[str, OutType], ...]) -> pa.RecordBatch:
    arrays = [
        array.view(kind.arrow) if array.type != kind.arrow else array
        for array, (_, kind) in zip(batch.columns, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in columns])


def arrow_schema(extract: Extract) -> str:
    """What `batches` yields, as Spark's SQL says it."""
    types = {pa.string(): "string", UTC_MICROSECONDS: "timestamp", pa.timestamp("us"): "timestamp_ntz"}
    told = ((name, types.get(kind.arrow) or kind.spark.simpleString()) for name, kind in extract.columns)
    return ", ".join(f"{quote_identifier(name)} {kind}" for name, kind in told)
