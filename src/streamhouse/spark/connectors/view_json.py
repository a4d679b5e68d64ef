"""View JSON: rows as JSON and back, made and read in the JVM.

Data path   a micro-batch -> **view JSON** -> one text for each row -> an agent; pages of rows -> **view JSON** -> rows
Owns        how values look: times in UTC without needless zeros, decimals that no double holds as texts
Leaves      keys' order and their texts in URLs to the agents
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as st

from streamhouse.model.identifiers import quote_identifier

EXACT_DIGITS: Final = 15
"""Decimals with more of them are texts: JSON's readers make doubles of numbers."""
_WHOLE: Final = {"ignoreNullFields": "false", "timeZone": "UTC"}
_MICROSECONDS: Final = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
ONLY: Final = "[0]"
"""The key of the only row, where a query has but one."""
KEY, CHANGE, ORDINAL = "_sh_key", "_sh_change", "_sh_ordinal"


def changes(frame: DataFrame, key: tuple[str, ...], *, is_unique: bool) -> DataFrame:
    """One column: `{"key":[…],"row":{…}}` for each key; the last row of each unless there is but one."""
    texts = [_text(_field(frame, name)) for name in key]
    row = F.to_json(F.struct(*(_field(frame, name).alias(name) for name in frame.columns)), _WHOLE)
    key_text = F.concat(F.lit("["), F.concat_ws(",", *texts), F.lit("]")) if key else F.lit(ONLY)
    change = F.concat(F.lit('{"key":'), key_text, F.lit(',"row":'), row, F.lit("}"))
    if is_unique:
        return frame.select(change.alias(CHANGE))
    numbered = frame.select(key_text.alias(KEY), change.alias(CHANGE), F.monotonically_increasing_id().alias(ORDINAL))
    return numbered.groupBy(KEY).agg(F.max_by(CHANGE, ORDINAL).alias(CHANGE)).select(CHANGE)


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
