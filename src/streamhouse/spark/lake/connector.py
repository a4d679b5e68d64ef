"""Connector: lake tables as tables of SQL: written by pipelines, read by any query.

Data path   binding, pipelines -> **connector** -> files of the table's last snapshot; micro-batches -> writing
Owns        the three functions that all kinds of lake tables share
Leaves      micro-batches to `writing`, metadata to each kind of table
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from streamhouse.errors import Misconfigured, Rejected
from streamhouse.model.identifiers import quote_identifier
from streamhouse.model.table import Table
from streamhouse.spark.connectors.base import Reading, Writing
from streamhouse.spark.lake.changes import keyed, told_once
from streamhouse.spark.lake.files import file_rows
from streamhouse.spark.lake.options import open_lake, options_of
from streamhouse.spark.lake.writing import Step, check_mode


def read(spark: SparkSession, table: Table, reading: Reading) -> DataFrame:
    """The rows of the last commit, when the frame is made."""
    lake = open_lake(options_of(table, is_written=False))
    lake.last_batch("")  # the table as it is now
    schema = lake.columns()
    if table.columns is None:
        return file_rows(spark, lake.live_files(), lake.reader(), schema)
    absent = [each.name for each in table.columns if each.name not in schema.names]
    if absent:
        raise Misconfigured(
            f"the table has no such column; table={table.name} column={absent[0]} columns={','.join(schema.names)}"
        )
    # A row of no columns is still a row: it is read with the first one.
    wanted = StructType([schema[each.name] for each in table.columns] or schema.fields[:1])
    rows = file_rows(spark, lake.live_files(), lake.reader(), wanted)
    return rows.select(*[F.col(quote_identifier(each.name)).cast(each.type).alias(each.name) for each in table.columns])


def read_stream(spark: SparkSession, table: Table, reading: Reading) -> DataFrame:
    raise Rejected(f"a lake table is no stream; table={table.name} do=stream the topic that it is made of")


def write_stream(frame: DataFrame, table: Table, writing: Writing) -> DataStreamWriter:
    options = options_of(table, writing.key)
    check_mode(options, writing.mode)
    if options.key:
        keyed(told_once(frame), options.key)  # a key that is no column is told before anything starts
    step = Step(lake=open_lake(options), options=options, writing=writing)
    step.take_over(frame)
    return (
        frame.writeStream.outputMode(writing.mode)
        .option("checkpointLocation", writing.checkpoint)
        .foreachBatch(step.write)
    )
