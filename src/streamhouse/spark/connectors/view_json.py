"""View JSON: rows as JSON and back, made and read in the JVM.

Data path   a micro-batch -> **view JSON** -> one text for each row -> an agent; pages of rows -> **view JSON** -> rows
Owns        how values look: times in UTC without needless zeros, decimals that no double holds as texts
Leaves      keys' order and their texts in URLs to the agents
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as st

from streamhouse.model.identifiers import quote_identifier
from streamhouse.spark.connectors.record_order import newest_first, version_text

EXACT_DIGITS: Final = 15
"""Decimals with more of them are texts: JSON's readers make doubles of numbers."""
_WHOLE: Final = {"ignoreNullFields": "false", "timeZone": "UTC"}
_MICROSECONDS: Final = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
ONLY: Final = "[0]"
"""The key of the only row, where a query has but one."""
KEY, ROW, CHANGE, ORDER, NUMBER = "_sh_key", "_sh_row", "_sh_change", "_sh_order", "_sh_number"
_ORDINAL, _BY_OFFSET, _LOG = "_sh_ordinal", "_sh_by_offset", "_sh_log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """How a view's rows are told apart, and which of a key is the newest.

    `is_unique`: a key has one row. `versions`: columns that say of which records a row was made. `by_offset`: columns
    of the key; where none of them is null, a key's records are in one partition, and their offsets decide.
    """

    key: tuple[str, ...]
    columns: tuple[str, ...]
    is_unique: bool
    versions: tuple[str, ...] = ()
    by_offset: tuple[str, ...] = ()


def changes(frame: DataFrame, rows: Rows, *, with_version: bool) -> DataFrame:
    """CHANGE, `{"key":[…],"row":{…}}`, for each key: its newest row, or the last that was read where nothing says more.

    Where a key can have several rows also KEY and NUMBER, how many there were. `with_version`: CHANGE has it too.
    """
    texts = [_text(_field(frame, name)) for name in rows.key]
    row = F.to_json(F.struct(*(_field(frame, name).alias(name) for name in rows.columns)), _WHOLE)
    key = F.concat(F.lit("["), F.concat_ws(",", *texts), F.lit("]")) if rows.key else F.lit(ONLY)
    if rows.is_unique:
        return frame.select(_change(key, row).alias(CHANGE))
    found = _newest(frame, rows, key=key, row=row)
    version = version_text(F.col(ORDER), by_offset=F.col(_BY_OFFSET)) if with_version and rows.versions else None
    return found.select(KEY, NUMBER, _change(F.col(KEY), F.col(ROW), version).alias(CHANGE))


def _change(key: Column, row: Column, version: Column | None = None) -> Column:
    more = [] if version is None else [F.lit(',"version":"'), version, F.lit('"')]
    return F.concat(F.lit('{"key":'), key, F.lit(',"row":'), row, *more, F.lit("}"))


def _newest(frame: DataFrame, rows: Rows, *, key: Column, row: Column) -> DataFrame:
    """A row for each key: in one partition by offset where that decides, then by all of the version."""
    by_offset = F.lit(bool(rows.by_offset))
    for name in rows.by_offset:
        by_offset = by_offset & F.col(quote_identifier(name)).isNotNull()
    ordered = newest_first(rows.versions) if rows.versions else F.lit(0)
    made = frame.select(
        key.alias(KEY),
        row.alias(ROW),
        ordered.alias(ORDER),
        by_offset.alias(_BY_OFFSET),
        F.monotonically_increasing_id().alias(_ORDINAL),
    ).withColumn(NUMBER, F.lit(1))
    if rows.by_offset:
        first = F.col(ORDER)[0]
        made = made.withColumn(_LOG, F.when(F.col(_BY_OFFSET), first.getField("partition")))
        offset = F.when(F.col(_BY_OFFSET), first.getField("offset"))
        made = _greatest(made, (KEY, _LOG), F.struct(offset, F.col(ORDER), F.col(_ORDINAL)))
    return _greatest(made, (KEY,), F.struct(F.col(ORDER), F.col(_ORDINAL)))


def _greatest(frame: DataFrame, key: Sequence[str], by: Column) -> DataFrame:
    kept = F.struct(ROW, ORDER, _BY_OFFSET, _ORDINAL)
    found = frame.groupBy(*key).agg(F.max_by(kept, by).alias("kept"), F.sum(NUMBER).alias(NUMBER))
    return found.select(*key, NUMBER, "kept.*")


def _field(frame: DataFrame, name: str) -> Column:
    return plain(F.col(quote_identifier(name)), frame.schema[name].dataType)


def _text(value: Column) -> Column:
    """One value as JSON: an array of it, without the brackets."""
    array = F.to_json(F.array(value), _WHOLE)
    return F.substring(array, F.lit(2), F.length(array) - 2)


def plain(value: Column, kind: st.DataType) -> Column:
    """A value of a type that `to_json` writes as we want it."""
    if not _is_touched(kind):
        return value
    match kind:
        case st.TimestampType():
            return F.concat(_moment(value, "timestampFormat"), F.lit("Z"))
        case st.TimestampNTZType():
            return _moment(value, "timestampNTZFormat")
        case st.StructType():
            fields = (plain(value.getField(each.name), each.dataType).alias(each.name) for each in kind.fields)
            return F.when(value.isNotNull(), F.struct(*fields))
        case st.ArrayType():
            return F.transform(value, lambda each: plain(each, kind.elementType))
        case st.MapType():
            return F.transform_values(value, lambda _, each: plain(each, kind.valueType))
        case _:
            return value.cast("string")


def _is_touched(kind: st.DataType) -> bool:
    match kind:
        case st.TimestampType() | st.TimestampNTZType():
            return True
        case st.DecimalType():
            return kind.precision > EXACT_DIGITS
        case st.StructType():
            return any(_is_touched(each.dataType) for each in kind.fields)
        case st.ArrayType():
            return _is_touched(kind.elementType)
        case st.MapType():
            return _is_touched(kind.valueType)
        case _:
            return False


def _moment(value: Column, option: str) -> Column:
    """`2026-01-02T03:04:05.5`; to_json alone knows other zones than the session's."""
    array = F.to_json(F.array(value), {option: _MICROSECONDS, "timeZone": "UTC"})
    text = F.substring(array, F.lit(3), F.length(array) - 4)
    return F.when(value.isNotNull(), F.rtrim(F.rtrim(text, F.lit("0")), F.lit(".")))


def rows(frame: DataFrame, schema: st.StructType) -> DataFrame:
    """From one column of JSON texts to columns."""
    found = frame.select(F.from_json(F.col(frame.columns[0]), schema, {"timeZone": "UTC"}).alias("row"))
    return found.select("row.*")
