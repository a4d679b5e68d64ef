"""Dead letters: malformed records go to a topic, with the error and their bytes; the pipeline continues.

Data path   a pipeline's stream -> **dead letters** -> a second, small query -> `NAME.dead-letters`
Owns        which streams have one, what such a record looks like, the id and the checkpoint of its query
Leaves      what can't be decoded to `connectors.topic`, exactly once to `datasource.data_writer`

The value is the record's value as it was, byte by byte, the key its key; headers have its position and the error.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID, uuid5

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamhouse.model.table import Column, Connector, Table
from streamhouse.spark.connectors import ReadContext, WriteContext, find
from streamhouse.spark.connectors.topic import DELETED, ERROR, METADATA_COLUMNS, VALUE
from streamhouse.spark.lake.connector import fill_tombstone_keys, has_key
from streamhouse.spark.pipelines.query_metrics import DEAD_LETTERS
from streamhouse.spark.query.resolver import TableRef

NO_KEY: Final = "the record has no key for the table: a column of it is null"
DECODED: Final = ("json", "registry")
_METADATA: Final = ("_key", "_topic", "_partition", "_offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterQuery:
    """One stream's; `writing` has the checkpoint and the id of this query alone."""

    stream: str
    frame: DataFrame
    topic: str
    writing: WriteContext

    def writer(self) -> DataStreamWriter:
        table = Table(name=self.topic, connector=Connector.TOPIC)
        return find(Connector.TOPIC).write_stream(self.frame, table, self.writing)


def dead_letter_streams(
    session: SparkSession, topic: str, reads: tuple[TableRef, ...], reading: ReadContext, writing: WriteContext
) -> Iterator[DeadLetterQuery]:
    """A query for each stream in which something may be wrong; `writing.key`: what no row can be without."""
    for number, read in enumerate(each for each in reads if can_have(each)):
        own = replace(
            writing,
            query_id=str(uuid5(UUID(writing.query_id), f"dead letters of {read.name}")),
            checkpoint=f"{writing.checkpoint}/dead-letters-{number}",
            mode="append",
            fmt="raw",
            key=(),
            before_batch=None,
        )
        frame = _dead_letters(session, read.table, reading, writing.pipeline, key=writing.key)
        yield DeadLetterQuery(stream=read.name, frame=frame, topic=topic, writing=own)


def can_have(read: TableRef) -> bool:
    """Whether values of this stream are decoded at all."""
    is_decoded = read.table.connector is Connector.TOPIC and read.table.options.get("format") in DECODED
    return (
        read.is_stream
        and is_decoded
        and any(column.name not in METADATA_COLUMNS for column in read.table.columns or ())
    )


def _dead_letters(
    session: SparkSession, table: Table, reading: ReadContext, pipeline: str, *, key: tuple[str, ...] = ()
) -> DataFrame:
    """The same columns are decoded as in the pipeline: what it leaves out is what comes here.

    `key`: columns that no row of the target can be without. Where the stream has them, records without come too.
    """
    own = [column for column in table.columns or () if column.name not in METADATA_COLUMNS]
    needs_key = bool(key) and {column.name for column in own}.issuperset(key)
    names = (*_METADATA, DELETED) if needs_key else _METADATA
    metadata = [Column(name=name, type="BINARY" if name == "_key" else METADATA_COLUMNS[name]) for name in names]
    source = replace(table, columns=(*own, *metadata), options={**table.options, "key_format": "raw"})
    everything = replace(reading, include_malformed=True, include_values=needs_key, watermarks=())
    rows = find(Connector.TOPIC).read_stream(session, source, everything)
    if needs_key:
        is_lost = F.col(ERROR).isNull() & ~has_key(key)
        rows = fill_tombstone_keys(rows, key).withColumn(ERROR, F.when(is_lost, F.lit(NO_KEY)).otherwise(F.col(ERROR)))
    malformed = rows.where(F.col(ERROR).isNotNull()).select(
        F.col("_key"), F.col(VALUE).alias("value"), _headers(pipeline).alias("_headers")
    )
    return malformed.observe(DEAD_LETTERS, F.count(F.lit(1)).alias("rows"))


def _headers(pipeline: str) -> Expression:
    headers = {
        "sh.pipeline": F.lit(pipeline),
        "sh.topic": F.col("_topic"),
        "sh.partition": F.col("_partition"),
        "sh.offset": F.col("_offset"),
        "sh.error": F.col(ERROR),
    }
    return F.array(
        *[
            F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
            for name, value in headers.items()
        ]
    )
