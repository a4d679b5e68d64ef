"""Console: rows of each micro-batch as a table in the log, to look at while a query is being written.

Data path   a micro-batch -> **console** -> the log of its runner, which becomes a pipeline's events
Owns        how many rows and characters are shown
Leaves      where a log's lines go to the runner: its own output is for its supervisor

Nothing is kept: a micro-batch that comes again is shown again.
"""

import logging
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamhouse.errors import Rejected
from streamhouse.model.table import Table
from streamhouse.spark.connectors import ReadContext, WriteContext

log = logging.getLogger(__name__)

MAX_ROWS: Final = 20
MAX_WIDTH: Final = 40
"""Width of a column, in characters."""


def read(spark: SparkSession, table: Table, reading: ReadContext) -> DataFrame:
    raise _no_rows(table)


def read_stream(spark: SparkSession, table: Table, reading: ReadContext) -> DataFrame:
    raise _no_rows(table)


def _no_rows(table: Table) -> Rejected:
    return Rejected(f"a console can't be read; table={table.name} do=write to a topic, and read that")


def write_stream(frame: DataFrame, table: Table, writing: WriteContext) -> DataStreamWriter:
    def show(rows: DataFrame, batch_id: int) -> None:
        text = format_rows(rows)
        if text:
            log.info("batch %d\n%s", batch_id, text, extra={"query_id": writing.query_id})

    return (
        frame.writeStream.outputMode(writing.mode).option("checkpointLocation", writing.checkpoint).foreachBatch(show)
    )


def format_rows(rows: DataFrame) -> str:
    """The first rows as a table; nothing where there are none."""
    kept = rows.limit(MAX_ROWS + 1).toArrow()  # one job, and no more rows than are shown
    if not kept.num_rows:
        return ""
    columns = {
        field.name: [_cell(value) for value in kept.column(index).to_pylist()[:MAX_ROWS]]
        for index, field in enumerate(kept.schema)
    }
    return _table(columns) + ("\n… more rows" if kept.num_rows > MAX_ROWS else "")


def _cell(value: object) -> str:
    text = "" if value is None else " ".join(str(value).split())
    return text if len(text) <= MAX_WIDTH else text[: MAX_WIDTH - 1] + "…"


def _table(columns: dict[str, list[str]]) -> str:
    widths = {name: max(len(name), *map(len, cells)) for name, cells in columns.items()}
    head = "  ".join(name.ljust(widths[name]) for name in columns)
    rule = "  ".join("-" * width for width in widths.values())
    rows = (
        "  ".join(cell.ljust(widths[name]) for name, cell in zip(columns, row, strict=True))
        for row in zip(*columns.values(), strict=True)
    )
    return "\n".join(line.rstrip() for line in (head, rule, *rows))
