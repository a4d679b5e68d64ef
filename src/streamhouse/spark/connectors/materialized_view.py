"""Materialized views: rows that agents keep by key, written by the view's query and read by any other.

Data path   a micro-batch -> JSON rows -> **view** -> requests to agents; pages of agents -> **view** -> rows
Owns        which rows of a micro-batch are sent, in how many requests; the JSON of values; the view's freshness
Leaves      keys to `view_key`, output modes to `view_query`, deduplication of batches to the agents

Times are in UTC. Decimals that no double holds are JSON texts. Changed rows are collected on the driver: at most as
many as a view may have.
"""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as st
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from streamhouse.client.http import HttpResponse
from streamhouse.clock import SystemClock
from streamhouse.errors import Rejected, Unavailable
from streamhouse.model.identifiers import quote_identifier
from streamhouse.model.table import Table
from streamhouse.spark.agents.address import AgentAddress
from streamhouse.spark.agents.client import connect, error_detail
from streamhouse.spark.columns.column_types import type_text
from streamhouse.spark.connectors import ReadContext, WriteContext
from streamhouse.spark.connectors.record_order import newest_first, version_text, with_versions
from streamhouse.spark.connectors.view_key import key_of, partition_columns, view_key
from streamhouse.spark.connectors.view_query import mode_of
from streamhouse.spark.runtime.checkpoint import BatchOffsets
from streamhouse.spark.runtime.checkpoint_sync import sync_checkpoint
from streamhouse.spark.runtime.jvm import batch_offsets, unsupported

EXACT_DIGITS: Final = 15
"""Decimals with more of them are texts: JSON's readers make doubles of numbers."""
_WHOLE: Final = {"ignoreNullFields": "false", "timeZone": "UTC"}
_MICROSECONDS: Final = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
ONLY: Final = "[0]"
"""The key of the only row, where a query has but one."""
KEY, ROW, CHANGE, ORDER, NUMBER = "_sh_key", "_sh_row", "_sh_change", "_sh_order", "_sh_number"
_ORDINAL, _BY_OFFSET, _LOG, _HASH = "_sh_ordinal", "_sh_by_offset", "_sh_log", "_sh_hash"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """How a view's rows are identified, and which of a key is the newest.

    `is_unique`: a key has one row. `versions`: columns that say of which records a row was made. `by_offset`: columns
    of the key; where none of them is null, a key's records are in one partition, and their offsets decide.
    """

    key: tuple[str, ...]
    columns: tuple[str, ...]
    is_unique: bool
    versions: tuple[str, ...] = ()
    by_offset: tuple[str, ...] = ()


def changes(frame: DataFrame, rows: Rows, *, with_version: bool) -> DataFrame:
    """CHANGE, `{"key":[…],"row":{…}}`, for each key: its newest row, or the last that was read if there is no version.

    Where a key can have several rows also KEY and NUMBER, how many there were. `with_version`: CHANGE has it too, and
    where offsets decide, a key has a row for each of its partitions: agents know what was in them before.
    """
    texts = [_text(_field(frame, name, in_key=True)) for name in rows.key]
    row = F.to_json(F.struct(*(_field(frame, name).alias(name) for name in rows.columns)), _WHOLE)
    key = F.concat(F.lit("["), F.concat_ws(",", *texts), F.lit("]")) if rows.key else F.lit(ONLY)
    if rows.is_unique:
        return frame.select(_change(key, row).alias(CHANGE))
    result = _versioned(frame, rows, key=key, row=row)
    if rows.by_offset:
        result = _newest_in_partitions(result)
    if not rows.by_offset or not with_version:
        result = _greatest(result, (KEY,), _AGE)
    version = None
    if with_version and rows.versions:
        version = version_text(F.col(ORDER), F.col(_HASH), by_offset=F.col(_BY_OFFSET))
    return result.select(KEY, NUMBER, _change(F.col(KEY), F.col(ROW), version).alias(CHANGE))


def _change(key: Column, row: Column, version: Column | None = None) -> Column:
    more = [] if version is None else [F.lit(',"version":"'), version, F.lit('"')]
    return F.concat(F.lit('{"key":'), key, F.lit(',"row":'), row, *more, F.lit("}"))


_AGE: Final = (ORDER, _HASH, _ORDINAL)
"""What decides, in this order: the records of a row, then its text, and of rows without records which is read last."""


def _versioned(frame: DataFrame, rows: Rows, *, key: Column, row: Column) -> DataFrame:
    by_offset = F.lit(bool(rows.by_offset))
    for name in rows.by_offset:
        by_offset = by_offset & F.col(quote_identifier(name)).isNotNull()
    ordered = newest_first(rows.versions) if rows.versions else F.array()
    result = frame.select(
        key.alias(KEY),
        row.alias(ROW),
        ordered.alias(ORDER),
        by_offset.alias(_BY_OFFSET),
        F.monotonically_increasing_id().alias(_ORDINAL),
        F.lit(1).alias(NUMBER),
    )
    return result.withColumn(_HASH, F.when(F.size(ORDER) > 0, F.lpad(F.hex(F.xxhash64(ROW)), 16, "0")))


def _newest_in_partitions(frame: DataFrame) -> DataFrame:
    """For each key, the row with the greatest offset in each of its partitions; its time is the latest there. Rows
    whose key decides no partition stay the newest by time."""
    first = F.col(ORDER)[0]
    frame = frame.withColumn(_LOG, F.when(F.col(_BY_OFFSET), first.getField("partition")))
    offset = F.when(F.col(_BY_OFFSET), first.getField("offset"))
    latest = _greatest(frame, (KEY, _LOG), (offset, *_AGE), latest=F.max(first.getField("time")))
    late = F.transform(ORDER, lambda version: version.withField("time", F.col("latest")))
    return latest.withColumn(ORDER, F.when(F.col(_BY_OFFSET), late).otherwise(F.col(ORDER))).drop("latest")


def _greatest(frame: DataFrame, key: Sequence[str], by: Sequence[str | Column], **more: Column) -> DataFrame:
    kept = F.struct(ROW, ORDER, _BY_OFFSET, _HASH, _ORDINAL)
    aggregates = [each.alias(name) for name, each in more.items()]
    newest = frame.groupBy(*key).agg(
        F.max_by(kept, F.struct(*by)).alias("kept"), F.sum(NUMBER).alias(NUMBER), *aggregates
    )
    return newest.select(*key, NUMBER, *more, "kept.*")


def _field(frame: DataFrame, name: str, *, in_key: bool = False) -> Column:
    return to_json_type(F.col(quote_identifier(name)), frame.schema[name].dataType, in_key=in_key)


def _text(value: Column) -> Column:
    """One value as JSON: an array of it, without the brackets."""
    array = F.to_json(F.array(value), _WHOLE)
    return F.substring(array, F.lit(2), F.length(array) - 2)


def to_json_type(value: Column, kind: st.DataType, *, in_key: bool = False) -> Column:
    """A value of a type that `to_json` writes as we want it; `in_key`: other values become other texts."""
    if not _is_changed(kind, in_key=in_key):
        return value
    match kind:
        case st.TimestampType():
            return F.concat(_moment(value, "timestampFormat"), F.lit("Z"))
        case st.TimestampNTZType():
            return _moment(value, "timestampNTZFormat")
        case st.StringType():
            return _distinct_text(value.cast("string"))
        case st.StructType():
            fields = (
                to_json_type(value.getField(each.name), each.dataType, in_key=in_key).alias(each.name)
                for each in kind.fields
            )
            return F.when(value.isNotNull(), F.struct(*fields))
        case st.ArrayType():
            return F.transform(value, lambda each: to_json_type(each, kind.elementType, in_key=in_key))
        case st.MapType():
            return _to_json_map(value, kind, in_key=in_key)
        case _:
            return value.cast("string")


def _to_json_map(value: Column, kind: st.MapType, *, in_key: bool) -> Column:
    """With texts as keys: `to_json` writes Spark's inner numbers for dates. In a key they are in order."""
    keyed = F.transform_keys(value, lambda each, _: _to_map_key(each, kind.keyType, in_key=in_key))
    result = F.transform_values(keyed, lambda _, each: to_json_type(each, kind.valueType, in_key=in_key))
    return F.map_from_entries(F.array_sort(F.map_entries(result), _by_key)) if in_key else result


def _by_key(one: Column, other: Column) -> Column:
    first, second = one.getField("key"), other.getField("key")
    return F.when(first < second, -1).when(first > second, 1).otherwise(0)


def _to_map_key(value: Column, kind: st.DataType, *, in_key: bool) -> Column:
    match kind:
        case st.TimestampType() | st.TimestampNTZType():
            return to_json_type(value, kind)
        case st.StringType():
            return to_json_type(value, kind, in_key=in_key)
        case st.BinaryType():
            return F.base64(value)
        case st.StructType() | st.ArrayType():
            return F.to_json(to_json_type(value, kind, in_key=in_key), _WHOLE)
        case _:
            return value.cast("string")


def _from_map_key(text: Column, kind: st.DataType) -> Column:
    match kind:
        case st.BinaryType():
            return F.unbase64(text)
        case st.StructType() | st.ArrayType():
            return F.from_json(text, kind, {"timeZone": "UTC"})
        case _:
            return text.cast(kind)


def _is_changed(kind: st.DataType, *, in_key: bool) -> bool:
    match kind:
        case st.TimestampType() | st.TimestampNTZType():
            return True
        case st.StringType():
            return in_key
        case st.DecimalType():
            return kind.precision > EXACT_DIGITS
        case st.StructType():
            return any(_is_changed(each.dataType, in_key=in_key) for each in kind.fields)
        case st.ArrayType():
            return _is_changed(kind.elementType, in_key=in_key)
        case st.MapType():
            return in_key or _has_no_texts(kind) or _is_changed(kind.valueType, in_key=in_key)
        case _:
            return False


def _has_no_texts(kind: st.MapType) -> bool:
    """Whether its keys are no texts, as all names in JSON are."""
    return not isinstance(kind.keyType, st.StringType)


def _distinct_text(text: Column) -> Column:
    """Bytes that are no UTF-8, as of a binary key, are one and the same sign in JSON: such a text is written as hex
    digits behind that sign, and so is one that looks like it."""
    is_odd = ~F.is_valid_utf8(text) | text.rlike("^\ufffd([0-9A-F]{2})+$")
    return F.when(is_odd, F.concat(F.lit("\ufffd"), F.hex(text))).otherwise(text)


def _moment(value: Column, option: str) -> Column:
    """`2026-01-02T03:04:05.5`; to_json alone knows other zones than the session's."""
    array = F.to_json(F.array(value), {option: _MICROSECONDS, "timeZone": "UTC"})
    text = F.substring(array, F.lit(3), F.length(array) - 4)
    return F.when(value.isNotNull(), F.rtrim(F.rtrim(text, F.lit("0")), F.lit(".")))


def rows(frame: DataFrame, schema: st.StructType) -> DataFrame:
    """From one column of JSON texts to columns."""
    parsed = frame.select(F.from_json(F.col(frame.columns[0]), _in_json(schema), {"timeZone": "UTC"}).alias("row"))
    row = F.col("row")
    return parsed.select(*(_restored(row.getField(each.name), each.dataType).alias(each.name) for each in schema))


def _in_json(kind: Any) -> Any:
    """A type as `from_json` takes it: keys of maps are texts."""
    match kind:
        case st.StructType():
            return st.StructType([st.StructField(each.name, _in_json(each.dataType)) for each in kind.fields])
        case st.ArrayType():
            return st.ArrayType(_in_json(kind.elementType))
        case st.MapType():
            return st.MapType(st.StringType(), _in_json(kind.valueType))
        case _:
            return kind


def _restored(value: Column, kind: st.DataType) -> Column:
    """A value of this type, whose maps have texts as keys."""
    if _in_json(kind) == kind:
        return value
    match kind:
        case st.StructType():
            fields = (_restored(value.getField(each.name), each.dataType).alias(each.name) for each in kind.fields)
            return F.when(value.isNotNull(), F.struct(*fields))
        case st.ArrayType():
            return F.transform(value, lambda each: _restored(each, kind.elementType))
        case st.MapType():
            keyed = F.transform_keys(value, lambda each, _: _from_map_key(each, kind.keyType))
            return F.transform_values(keyed, lambda _, each: _restored(each, kind.valueType))
        case _:
            return value


log = logging.getLogger(__name__)

PART_ROWS: Final = 5000
PART_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of one part; agents accept twice as much."""
PAGE_ROWS: Final = 1000
TEXT: Final = "row"


class _Page(msgspec.Struct):
    rows: list[msgspec.Raw]
    cursor: str | None = None


# --- reading


def read(spark: SparkSession, table: Table, reading: ReadContext) -> DataFrame:
    """The view's rows as they are when they are needed; again in every micro-batch of a stream that looks them up."""
    schema = _schema(table, reading.agents)
    agents, name = reading.agents, table.name

    def fetch(tick: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in tick:
            if batch.num_rows:
                yield from _pages(agents, name)

    return rows(spark.range(0, 1, 1, 1).mapInArrow(fetch, f"{TEXT} string"), schema)


def read_stream(spark: SparkSession, table: Table, reading: ReadContext) -> DataFrame:
    raise Rejected(
        f"a view is not a stream; view={table.name} do=name it without STREAM,"
        " or make its query a pipeline that writes a topic, and stream that"
    )


def _pages(agents: AgentAddress, name: str) -> Iterator[pa.RecordBatch]:
    cursor: str | None = None
    while True:
        path = f"{_path(name)}/rows?limit={PAGE_ROWS}" + (f"&cursor={quote(cursor, safe='')}" if cursor else "")
        page = msgspec.json.decode(_check_response(_send(agents, "GET", path), name).content, type=_Page)
        if page.rows:
            yield pa.RecordBatch.from_pydict({TEXT: [bytes(each).decode() for each in page.rows]})
        cursor = page.cursor
        if cursor is None:
            return


def _schema(table: Table, agents: AgentAddress) -> StructType:
    columns = [(each.name, each.type) for each in table.columns or ()]
    if table.columns is None:
        view = msgspec.json.decode(_check_response(_send(agents, "GET", _path(table.name)), table.name).content)
        columns = [(each["name"], each["type"]) for each in view["columns"] or ()]
        if not columns:
            raise Unavailable(
                f"a view's columns aren't known before it has run; view={table.name} do=wait until it has"
            )
    schema = StructType.fromDDL(", ".join(f"{quote_identifier(name)} {kind}" for name, kind in columns))
    assert isinstance(schema, StructType)
    return schema


# --- writing


def write_stream(frame: DataFrame, table: Table, writing: WriteContext) -> DataStreamWriter:
    """In the mode that keeps it right; the requested mode decides if several do."""
    key = _key(frame, table, writing)
    mode = mode_of(frame, key, writing.mode)
    if (error := unsupported(frame, (mode,))) is not None:
        raise error
    step, frame = _batch_writer(frame, table, writing, mode=mode)
    return frame.writeStream.outputMode(mode).option("checkpointLocation", writing.checkpoint).foreachBatch(step.write)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshResult:
    """A view's whole result as it was at a time; no frame: it is what it was. `on_written`: agents have it."""

    frame: DataFrame | None
    fresh_at_ms: int | None = None
    on_written: Callable[[], None] = lambda: None


Compute = Callable[[], RefreshResult]


def write_full_refresh(ticks: DataFrame, table: Table, writing: WriteContext, compute: Compute) -> DataStreamWriter:
    """A writer that, for every micro-batch of `ticks`, replaces all rows by the result.

    What is computed depends on when that is, and not on the micro-batch: one that comes again is another result. So the
    view's own batches are counted, not those of `ticks`, and every result is taken.
    """
    steps: list[ViewBatchWriter] = []

    def write(tick: DataFrame, batch_id: int) -> None:
        began_ms = SystemClock().now_ms()
        computed = compute()
        fresh_at_ms = began_ms if computed.fresh_at_ms is None else min(began_ms, computed.fresh_at_ms)
        number = _next_batch(writing.agents, table.name)
        if computed.frame is not None:
            step, frame = _batch_writer(computed.frame, table, writing, mode="complete")
            steps[:] = [step]
            step.send(frame, number, fresh_at_ms=fresh_at_ms)
            computed.on_written()
        elif steps:
            steps[0].keep(number, fresh_at_ms=fresh_at_ms)

    return ticks.writeStream.option("checkpointLocation", writing.checkpoint).foreachBatch(write)


def _key(frame: DataFrame, table: Table, writing: WriteContext) -> tuple[str, ...]:
    try:
        return view_key(frame, table.key or writing.key)
    except Rejected as error:
        what, mark, do = str(error).partition(" do=")
        raise Rejected(f"{what} view={table.name}{mark}{do}") from None


def needs_versions(frame: DataFrame, key: Sequence[str]) -> bool:
    """Whether several rows of the result may have one key, so that which record is newer decides what stays."""
    if not key:
        return False
    try:
        grouped = key_of(frame)
    except Rejected:
        return False  # rows of an aggregate, whose records are many
    return grouped is None


def _batch_writer(
    frame: DataFrame, table: Table, writing: WriteContext, *, mode: str
) -> tuple["ViewBatchWriter", DataFrame]:
    """The function for each micro-batch, and the frame of the stream."""
    key = _key(frame, table, writing)
    columns = tuple((each.name, type_text(each.dataType)) for each in frame.schema.fields)
    is_unique = key_of(frame) is not None
    versions: tuple[str, ...] = ()
    by_offset: tuple[str, ...] = ()
    if not is_unique:
        by_offset = partition_columns(frame, key)
        frame, versions = with_versions(frame)
    step = ViewBatchWriter(
        name=table.name,
        writing=writing,
        key=key,
        columns=columns,
        rows=Rows(
            key=key,
            columns=tuple(name for name, _ in columns),
            is_unique=is_unique,
            versions=versions,
            by_offset=by_offset if len(versions) == 1 else (),
        ),
        is_complete=mode == "complete",
        is_checked=not is_unique and not versions and (mode == "complete" or not needs_versions(frame, key)),
    )
    return step, frame


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewBatchWriter:
    """The function for each micro-batch."""

    name: str
    writing: WriteContext
    key: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    rows: Rows
    is_complete: bool
    is_checked: bool

    def write(self, frame: DataFrame, batch_id: int) -> None:
        offsets = batch_offsets(frame.sparkSession, self.writing.checkpoint, batch_id)
        began_ms = batch_time_ms(offsets, self.writing.checkpoint, batch_id)
        self.send(frame, batch_id, fresh_at_ms=began_ms, covers=None if offsets is None else offsets.covers)

    def send(self, frame: DataFrame, number: int, *, fresh_at_ms: int, covers: str | None = None) -> None:
        """The rows as the view's batch of this number."""
        table = changes(frame, self.rows, with_version=not self.is_complete).toArrow()
        if self.is_checked:
            self._check(table)
        parts = split_into_parts([text.encode() for text in table.column(CHANGE).to_pylist()])
        sync_checkpoint(self.writing.checkpoint)
        for part, upserts in enumerate(parts):
            self._post({**self._part(number, part, len(parts), upserts, fresh_at_ms), "covers": covers})

    def _check(self, table: pa.Table) -> None:
        """Raise `Rejected` where two rows of the result have one key, and there is no version to compare."""
        for key, number in zip(table.column(KEY).to_pylist(), table.column(NUMBER).to_pylist(), strict=True):
            if number > 1:
                raise Rejected(
                    f"several rows of the result have one key; view={self.name} key={key[:200]} rows={number}"
                    " do=name columns in KEY that identify rows, or GROUP BY the key"
                )

    def keep(self, number: int, *, fresh_at_ms: int) -> None:
        """Nothing has changed, and that is known of a later time."""
        self._post({**self._part(number, 0, 1, (), fresh_at_ms), "complete": False})

    def _part(self, batch_id: int, part: int, parts: int, upserts: Sequence[bytes], fresh_at_ms: int) -> dict[str, Any]:
        return {
            "epoch": self.writing.epoch,
            "query": self.writing.query_id,
            "batch": batch_id,
            "part": part,
            "parts": parts,
            "upserts": [msgspec.Raw(each) for each in upserts],
            "deletes": [],
            "fresh_at_ms": fresh_at_ms,
            "complete": self.is_complete,
            "key": list(self.key),
            "columns": [{"name": name, "type": kind} for name, kind in self.columns],
        }

    def _post(self, body: dict[str, Any]) -> None:
        _check_response(_send(self.writing.agents, "POST", f"{_path(self.name)}/rows", body), self.name)


def split_into_parts(texts: Sequence[bytes]) -> list[list[bytes]]:
    """In parts that agents take; one without rows where there are none, since that is news as well."""
    parts: list[list[bytes]] = [[]]
    size = 0
    for text in texts:
        if parts[-1] and (len(parts[-1]) >= PART_ROWS or size + len(text) > PART_BYTES):
            parts.append([])
            size = 0
        parts[-1].append(text)
        size += len(text)
    return parts


def batch_time_ms(offsets: BatchOffsets | None, checkpoint: str, batch_id: int) -> int:
    """When Spark decided what is in a micro-batch; also for one that comes again much later."""
    for line in ("" if offsets is None else offsets.text).splitlines()[1:2]:
        try:
            return int(json.loads(line)["batchTimestampMs"])
        except (ValueError, TypeError, KeyError):
            break
    log.warning("when a micro-batch began isn't known; checkpoint=%s batch=%d", checkpoint, batch_id)
    return SystemClock().now_ms()


# --- agents


def view_version(
    address: AgentAddress, name: str
) -> tuple[tuple[str | None, int | None, int, bool | None], int | None]:
    """A view's last change as agents know it, and the time up to which it is right. Another query counts its batches
    anew."""
    view = msgspec.json.decode(_check_response(_send(address, "GET", _path(name)), name).content)
    return (view.get("query"), view.get("batch"), view.get("rows"), view.get("whole")), view.get("fresh_at_ms")


def _next_batch(address: AgentAddress, name: str) -> int:
    """The number behind the view's last batch: only its owner changes it."""
    (_, batch, *_), _ = view_version(address, name)
    return 0 if batch is None else batch + 1


def _send(address: AgentAddress, method: str, path: str, body: object = None) -> HttpResponse:
    """Idempotent: a part that is sent twice counts once, so requests may be retried."""
    return connect(address).send(method, path, body=body)


def _check_response(response: HttpResponse, view: str) -> HttpResponse:
    if response.status >= 400:
        raise Rejected(f"{error_detail(response)} view={view}")
    return response


def _path(view: str) -> str:
    return f"/v1/views/{quote(view, safe='')}"
