"""Files: folders of Parquet, JSON lines or CSV, read whole or as they come, and written by Spark's own sink.

Data path   folders of any file system that Spark knows -> **files** -> rows; rows -> Spark's file sink
Owns        options of such tables; what would go wrong silently: a folder that another query has written
Leaves      files, and that each row is in one of them, to Spark

Spark's sink remembers micro-batches in the folder, by number. A query that starts over counts from 0 again, and would
be taken for one that has written all of this before, so it is refused; so is one whose checkpoint was rolled back.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

from streamhouse.errors import CheckpointMismatch, Misconfigured, Rejected
from streamhouse.model.identifiers import quote_identifier
from streamhouse.model.table import Table
from streamhouse.spark.connectors import ReadContext, WriteContext
from streamhouse.spark.runtime.jvm import is_there, newest_number

Reader = TypeVar("Reader", DataFrameReader, DataStreamReader)

FORMATS: Final = ("parquet", "json", "csv")
OPTIONS: Final = ("path", "format", "header")
SINK_LOG: Final = "_spark_metadata"
_TIMES: Final[Mapping[str, str]] = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


def read(spark: SparkSession, table: Table, reading: ReadContext) -> DataFrame:
    """`WITH (connector = 'files', path = '/data/orders', format = 'parquet')`."""
    path, fmt = _path_and_format(table)
    _check_there(spark, table, path)
    frame = _with_columns(spark.read, table).options(**_read_options(table, fmt)).load(path, format=fmt)
    return _narrowed(frame, table)


def read_stream(spark: SparkSession, table: Table, reading: ReadContext) -> DataFrame:
    """Files that are there, and those that will be; each one once."""
    path, fmt = _path_and_format(table)
    _check_there(spark, table, path)
    if reading.starting == "latest":
        raise Rejected(
            f"files are read from the first one; table={table.name} starting=latest do=starting = 'earliest'"
        )
    reader = spark.readStream.schema(read(spark, table, reading).schema)  # a stream must know it before it begins
    return reader.options(**_read_options(table, fmt)).load(path, format=fmt)


def write_stream(frame: DataFrame, table: Table, writing: WriteContext) -> DataStreamWriter:
    path, fmt = _path_and_format(table)
    if writing.mode != "append":
        raise Rejected(
            f"rows in files don't change; table={table.name} output={writing.mode}"
            " do=give the pipeline a watermark, so that rows become final, or write to a view, a topic or PostgreSQL"
        )
    _check_ours(frame.sparkSession, table, path, writing.checkpoint)
    return (
        frame.writeStream.format(fmt)
        .outputMode("append")
        .options(**_write_options(table, fmt))
        .option("path", path)
        .option("checkpointLocation", writing.checkpoint)
    )


# --- options


def _path_and_format(table: Table) -> tuple[str, str]:
    unknown = [name for name in table.options if name not in (*OPTIONS, "connector")]
    if unknown:
        raise Misconfigured(f"unknown option; table={table.name} option={unknown[0]} do=known are {', '.join(OPTIONS)}")
    path, fmt = table.options.get("path", ""), table.options.get("format", FORMATS[0]).lower()
    if not path:
        raise Misconfigured(f"files need a path; table={table.name} do=path = '/data/{table.name}'")
    if fmt not in FORMATS:
        raise Misconfigured(f"unknown format; table={table.name} format={fmt} do=one of {', '.join(FORMATS)}")
    return path, fmt


def _read_options(table: Table, fmt: str) -> dict[str, str]:
    return {"header": table.options.get("header", "true"), "inferSchema": "true"} if fmt == "csv" else {}


def _write_options(table: Table, fmt: str) -> dict[str, str]:
    if fmt == "parquet":
        return {}
    return {**_TIMES, "header": table.options.get("header", "true")} if fmt == "csv" else dict(_TIMES)


# --- columns


def _with_columns(reader: Reader, table: Table) -> Reader:
    """Those of a CSV file go by their position, so none may be left out: `_narrowed` does it behind the read."""
    if not table.columns:
        return reader
    return reader.schema(", ".join(f"{quote_identifier(each.name)} {each.type}" for each in table.columns))


def _narrowed(frame: DataFrame, table: Table) -> DataFrame:
    return frame.select([]) if table.columns == () else frame


# --- folders


def _check_there(spark: SparkSession, table: Table, path: str) -> None:
    if not is_there(spark, path):
        raise Rejected(f"no such folder; table={table.name} path={path} do=create it, or correct the option path")


def _check_ours(spark: SparkSession, table: Table, path: str, checkpoint: str) -> None:
    """A query that continues has written down where it is, and one that begins has not.

    Raises `CheckpointMismatch` where the files are ahead of the checkpoint: Spark's sink would pass over what has the
    number of a micro-batch that it knows, whatever is in it.
    """
    written = newest_number(spark, f"{path.rstrip('/')}/{SINK_LOG}")
    begun = newest_number(spark, f"{checkpoint.rstrip('/')}/offsets")
    if written is not None and begun is None:
        raise Rejected(
            f"another query has written these files; table={table.name} path={path}"
            f" do=name another path, or remove the folder {SINK_LOG} there: its files stay, and rows come again"
        )
    if written is not None and begun is not None and written > begun:
        raise CheckpointMismatch(f"{table.name} path={path}", batch=begun + 1, last=written, committed=None, now=None)
