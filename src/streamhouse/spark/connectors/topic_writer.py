"""Topic sink: rows of a query as records of a topic, each once.

Data path   a streaming frame -> **topic sink** -> key and value columns -> `format("streamhouse")`
Owns        how a row becomes a record: value, key, what the columns `_key`, `_timestamp` and `_headers` mean
Leaves      exactly once to `datasource.data_writer`, the topic's being there to `pipelines.pipeline_tables`

JSON keeps nulls: who infers columns from records should see those that are empty.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import BinaryType, StringType

from streamhouse.errors import Misconfigured
from streamhouse.model.identifiers import quote_identifier
from streamhouse.model.table import Table
from streamhouse.spark.agents.address import address_options
from streamhouse.spark.connectors import WriteContext
from streamhouse.spark.runtime.jvm import batch_offsets, is_local

FORMAT: Final = "streamhouse"
APPEND: Final = "append"
RAW: Final = "raw"
JSON_OPTIONS: Final = {"ignoreNullFields": "false"}
_OF_RECORDS: Final = {"_key": "key", "_timestamp": "timestamp", "_headers": "headers"}


def write_stream(frame: DataFrame, table: Table, writing: WriteContext) -> DataStreamWriter:
    """A writer that commits rows to the topic, fenced by the pipeline's epoch; progress is stored with them."""
    options = {
        **address_options(writing.agents),
        "topic": topic_of(table),
        "fence": f"{writing.pipeline}:{writing.epoch}",
        "progressFrom": writing.checkpoint,
    }
    writer = records_of(frame, key=writing.key or table.key, fmt=writing.fmt).writeStream.outputMode(writing.mode)
    writer = writer.option("checkpointLocation", writing.checkpoint)
    if writing.mode == APPEND and is_local(frame.sparkSession, writing.checkpoint):
        return writer.format(FORMAT).options(**options)
    return writer.foreachBatch(_batches(options, writing))


def _batches(options: Mapping[str, str], writing: WriteContext) -> Callable[[DataFrame, int], None]:
    """Each micro-batch is written under its number: Spark gives rows that change to no sink in Python, and what commits
    for a sink has no way to a checkpoint that isn't a folder of this machine."""

    def write(batch: DataFrame, batch_id: int) -> None:
        named = {**options, "queryId": writing.query_id, "epochId": str(batch_id)}
        offsets = batch_offsets(batch.sparkSession, writing.checkpoint, batch_id)
        if offsets is not None:
            named["covers"] = offsets.covers
            named |= {} if offsets.progress is None else {"progress": json.dumps(offsets.progress)}
        batch.write.format(FORMAT).mode(APPEND).options(**named).save()

    return write


def topic_of(table: Table) -> str:
    return table.options.get("topic", table.name)


def records_of(frame: DataFrame, *, key: Sequence[str] = (), fmt: str = "json") -> DataFrame:
    """The columns that the sink knows, made of a row's."""
    own = [name for name in frame.columns if name not in _OF_RECORDS]
    special = [F.col(quote_identifier(name)).alias(_OF_RECORDS[name]) for name in frame.columns if name in _OF_RECORDS]
    if not own:
        raise Misconfigured("rows have no column to be a record's value; do=select one")
    value = _raw_value(frame, own) if fmt == RAW else F.to_json(_struct(own), JSON_OPTIONS)
    keyed = [] if not key or "_key" in frame.columns else [key_of(frame, key).alias("key")]
    return frame.select(*special, *keyed, value.alias("value"))


def key_of(frame: DataFrame, key: Sequence[str]) -> Column:
    """The text of one column, a JSON array of several."""
    for name in key:
        if name not in frame.columns:
            raise Misconfigured(f"the key names no column; key={name} columns={', '.join(frame.columns)}")
    if len(key) == 1:
        kind = frame.schema[key[0]].dataType
        column = F.col(quote_identifier(key[0]))
        if isinstance(kind, BinaryType):
            return column
        return column.cast("string") if kind.typeName() not in ("struct", "array", "map") else F.to_json(column)
    # An array has one type of element: every column as the JSON that it is in an object.
    whole = [F.coalesce(_json_of(name), F.lit("null")) for name in key]
    return F.concat(F.lit("["), F.concat_ws(",", *whole), F.lit("]"))


def _json_of(name: str) -> Column:
    """`{"v":1}` without what is around the value."""
    text = F.to_json(F.struct(F.col(quote_identifier(name)).alias("v")), JSON_OPTIONS)
    return F.substring(text, F.lit(6), F.length(text) - F.lit(6))


def _raw_value(frame: DataFrame, own: Sequence[str]) -> Column:
    """The column `value`, or the only one there is."""
    name = "value" if "value" in own else own[0]
    if len(own) > 1 and "value" not in own:
        raise Misconfigured(
            f"format raw needs a column value, or a single one; columns={', '.join(own)} do=name one: … AS value"
        )
    if not isinstance(frame.schema[name].dataType, BinaryType | StringType):
        return F.col(quote_identifier(name)).cast("string")
    return F.col(quote_identifier(name))


def _struct(names: Sequence[str]) -> Column:
    return F.struct(*[F.col(quote_identifier(name)) for name in names])
