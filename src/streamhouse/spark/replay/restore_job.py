"""Restore job: writes Parquet files, or a lake table, into a topic.

Data path   pieces of a source -> Spark -> **restore_job** -> the sink's tasks -> a topic
Owns        which columns of a row become key, value, timestamp and headers of a record; which pieces are a step
Leaves      reading pieces to `restore_sources`, commits and resuming to `resumable_job`

A table with the columns that records have is taken as records. Of any other a row becomes a JSON object, or what that
is in a schema of the registry.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, ShortType, StringType, StructType

from streamhouse.client.schemas import Schemas
from streamhouse.errors import Misconfigured, UnknownSchema, UnknownSubject
from streamhouse.format.schema_id import prefix_of
from streamhouse.spark.agents.client import AgentClient
from streamhouse.spark.agents.resources import check_partitions, create_topic, find_topic
from streamhouse.spark.columns.record_schema import TYPES
from streamhouse.spark.columns.typed_decoder import writer_schema
from streamhouse.spark.connectors.topic_writer import JSON_OPTIONS
from streamhouse.spark.datasource.write_options import WriteOptions
from streamhouse.spark.maintenance.job import STARTING, OnProgress
from streamhouse.spark.replay.copy_job import expression
from streamhouse.spark.replay.restore_sources import Kind, Reference, find_kind, open_cached, open_source
from streamhouse.spark.replay.resumable_job import (
    STEP_BYTES,
    Job,
    JobState,
    ReplayResult,
    check_rows,
    count_steps,
    describe_failure,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from streamhouse.client.loop_thread import LoopThread

SPLIT_BYTES: Final = 32 * 1024 * 1024
"""Bytes of compressed files per task."""
TIMES: Final = ("timestamp", "timestamp_ntz", "bigint")
PARTITION: Final = "partition"
KEPT: Final = ("key", "value", "timestamp", "headers", PARTITION)
"""Columns of records that are restored; their old offsets are not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreSpec:
    """A restore. Expressions are Spark's SQL over the table's columns; None: see the module."""

    source: str
    topic: str
    kind: Kind | None = None
    where: str | None = None
    key: str | None = None
    value: str | None = None
    timestamp: str | None = None
    partitions: int | None = None
    subject: str | None = None
    """Rows are written with the latest schema of this subject, instead of as JSON."""


class RestorePlan(msgspec.Struct, frozen=True):
    kind: Kind
    version: str
    step_bytes: int


def run(
    spec: RestoreSpec,
    *,
    agents: str,
    start: "Callable[[], SparkSession]",
    loop: "LoopThread",
    job_id: str | None = None,
    step_bytes: int = STEP_BYTES,
    on_progress: OnProgress = lambda at: None,
) -> ReplayResult:
    """Restore, or resume a restore with this job id; Spark is started when there is something to do."""
    options = WriteOptions(agents=agents, topic=spec.topic)
    job = Job("restore", job_id, msgspec.to_builtins(spec), options=options)
    memory = loop.run(_stored_plan(job, agents)) or _plan(job, spec, step_bytes)
    plan = msgspec.convert(memory.plan, RestorePlan)
    reference = Reference(plan.kind, spec.source, plan.version)
    source = open_source(reference)
    sizes, schema = source.sizes, spark_schema(source.schema)
    if memory.done >= memory.steps or not sizes:
        return ReplayResult(job=job.job_id, topic=spec.topic, steps=memory.steps, resumed_at=memory.done)
    schema_id = None if spec.subject is None else loop.run(_schema_id(agents, spec.subject))
    written = None if schema_id is None else Written(agents, schema_id)
    on_progress(STARTING)
    spark = start()

    def rows(pieces: range, columns: Sequence[str] | None) -> "DataFrame":
        tasks = -(-sum(sizes[piece] for piece in pieces) // SPLIT_BYTES)
        return rows_of(spark, reference, schema, pieces, tasks=tasks, columns=columns)

    def records(step: int) -> "DataFrame":
        return records_of(rows(step_pieces(sizes, step, memory.steps), needed_columns(schema, spec)), spec, written)

    def highest() -> int | None:
        return highest_partition(rows(range(len(sizes)), [PARTITION])) if keeps_partition(schema, spec) else None

    check_rows(lambda: records(memory.done), topic=spec.topic)
    topic = loop.run(_prepared(spec, agents, highest))
    return job.run(memory, records, on_progress=on_progress, topic=topic)


async def _schema_id(address: str, subject: str) -> int:
    async with AgentClient(address) as agents:
        try:
            return (await Schemas(agents.http).latest(subject)).id
        except (UnknownSubject, UnknownSchema):
            raise Misconfigured(
                f"no schema is registered; subject={subject} do=register one: streamhouse schemas register"
            ) from None


async def _stored_plan(job: Job, address: str) -> JobState | None:
    async with AgentClient(address) as agents:
        await agents.check_agent()
        return await job.remembered(agents)


def _plan(job: Job, spec: RestoreSpec, step_bytes: int) -> JobState:
    kind = spec.kind or find_kind(spec.source)
    source = open_source(Reference(kind, spec.source))
    plan = RestorePlan(kind=kind, version=source.version, step_bytes=step_bytes)
    total = sum(source.sizes)
    steps = min(count_steps(total, step_bytes), max(1, len(source.sizes)))
    return JobState(spec_digest=job.spec_digest, steps=steps, done=0, total_bytes=total, plan=msgspec.to_builtins(plan))


async def _prepared(spec: RestoreSpec, address: str, highest: Callable[[], int | None]) -> str:
    """Create the topic if it doesn't exist, with the spec's number of partitions, or as many as the rows name."""
    async with AgentClient(address) as agents:
        topic = await find_topic(agents, spec.topic)
        if topic is None:
            named = highest()
            partitions = spec.partitions if named is None else named + 1
            topic = await create_topic(agents, spec.topic, partitions=partitions, settings={})
        check_partitions(topic, spec.partitions)
        return topic.name


# --- rows


def step_pieces(sizes: Sequence[int], step: int, steps: int) -> range:
    """The pieces of a step: neighbours, about as many bytes in each. Together the steps have each piece once."""
    ends = list(accumulate(sizes))
    total = max(1, ends[-1])
    bounds = [bisect_left(ends, -(-total * part // steps)) for part in (step, step + 1)]
    return range(bounds[0] if step else 0, bounds[1] if step + 1 < steps else len(sizes))


def rows_of(
    spark: "SparkSession",
    reference: Reference,
    schema: StructType,
    pieces: range,
    *,
    tasks: int,
    columns: Sequence[str] | None = None,
) -> "DataFrame":
    """Rows of pieces, in their order: a task has neighbours, and tasks are in order."""
    numbers = spark.range(pieces.start, pieces.stop, 1, max(1, min(len(pieces), tasks)))
    selected = schema if columns is None else StructType([schema[name] for name in columns])
    names = None if columns is None else list(columns)
    return numbers.mapInArrow(_reading(reference, to_arrow_schema(selected, timezone="UTC"), names), selected)


def needed_columns(schema: StructType, spec: RestoreSpec) -> list[str] | None:
    """The columns to read; None for all, if an expression may name any of them."""
    has_expressions = any(text is not None for text in (spec.where, spec.key, spec.value, spec.timestamp))
    if has_expressions or spec.subject is not None or not is_records(schema):
        return None
    return [name for name in schema.fieldNames() if name in KEPT]


def _reading(
    reference: Reference, shape: pa.Schema, columns: list[str] | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source = open_cached(reference)
        for batch in batches:
            for piece in batch.column(0).to_pylist():
                for rows in source.read(piece, columns):
                    if rows.num_rows:
                        yield shaped(rows, shape)

    return read


def shaped(rows: pa.RecordBatch, shape: pa.Schema) -> pa.RecordBatch:
    """Columns with the types that Spark expects, however the file had them."""
    arrays = [rows.column(field.name).cast(field.type, safe=False) for field in shape]
    return pa.RecordBatch.from_arrays(arrays, schema=shape)


def spark_schema(schema: pa.Schema) -> StructType:
    """All columns, each of which may be null."""
    plain = pa.schema([pa.field(field.name, _plain_type(field.type)) for field in schema])
    try:
        return from_arrow_schema(plain)
    except PySparkException as error:
        raise Misconfigured(f"Spark has no type for a column; why={error}") from None


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}.get(kind, kind)


def is_records(schema: StructType) -> bool:
    """Whether a table's columns are those of records."""
    types = {field.name: field.dataType for field in schema.fields}
    return set(types) <= set(TYPES) and isinstance(types.get("value"), StringType | BinaryType)


def keeps_partition(schema: StructType, spec: RestoreSpec) -> bool:
    kind = schema[PARTITION].dataType if PARTITION in schema.fieldNames() else None
    is_number = isinstance(kind, IntegerType | LongType | ShortType)
    return is_records(schema) and is_number and spec.key is None and spec.partitions is None


def highest_partition(frame: "DataFrame") -> int | None:
    """The largest partition that rows name."""
    with describe_failure():
        (row,) = frame.select(functions.max(PARTITION)).collect()
    return None if row[0] is None else int(row[0])


def records_of(frame: "DataFrame", spec: RestoreSpec, written: "Written | None" = None) -> "DataFrame":
    """Convert rows to the columns that the sink writes."""
    if spec.where is not None:
        frame = frame.where(spec.where)
    schema, columns = frame.schema, [_value(frame, spec, written)]
    names = schema.fieldNames()
    if spec.key is not None or "key" in names:
        columns.append(expression(frame, spec.key or "key", "key"))
    if (time := _time(frame, spec)) is not None:
        columns.append(time.alias("timestamp"))
    if is_records(schema) and "headers" in names:
        columns.append(functions.col("headers").cast(TYPES["headers"]).alias("headers"))
    if keeps_partition(schema, spec):
        columns.append(functions.col("partition").cast("int").alias("partition"))
    return frame.select(*columns)


class Written(NamedTuple):
    """The registered schema with which rows are encoded."""

    agents: str
    schema_id: int

    def encoded(self, text: str | None) -> bytes | None:
        if text is None:
            return None
        return prefix_of(self.schema_id) + writer_schema(self.agents, self.schema_id).encode(json.loads(text))


def _value(frame: "DataFrame", spec: RestoreSpec, written: Written | None) -> "Column":
    if written is None and (spec.value is not None or is_records(frame.schema)):
        column: Column = expression(frame, spec.value or "value", "value")
        return column
    row = functions.to_json(functions.struct("*") if spec.value is None else functions.expr(spec.value), JSON_OPTIONS)
    if written is None:
        return row.alias("value")
    # Without type hints, which Spark would take for those of a function of whole columns.
    return functions.udf(lambda each: written.encoded(each), BinaryType())(row).alias("value")


def _time(frame: "DataFrame", spec: RestoreSpec) -> Any:
    """The timestamp of the spec, or a timestamp column; None for the time of the restore."""
    if spec.timestamp is not None:
        column = functions.expr(spec.timestamp)
        kind = frame.select(column.alias("timestamp")).schema[0].dataType.simpleString()
        return column if kind in TIMES else column.cast("timestamp")
    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    return functions.col("timestamp") if kinds.get("timestamp") in TIMES else None
