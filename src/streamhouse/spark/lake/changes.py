"""Changes: rows of a micro-batch as what becomes of a table's rows: the latest of each key, or its end.

Data path   a micro-batch -> **changes** -> one row for each key, with `_deleted`
Owns        which columns of a row are about its record and not of the table; keys of records without a value; who is
            the latest
Leaves      applying them to `writing`

A record without a value is the end of its key. It has no columns either, so the key is read from the record's own:
the text of one column, a JSON array of several, or a JSON object with their names, as pipelines and others write them.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, MapType, StringType

from streamhouse.errors import Misconfigured
from streamhouse.model.identifiers import quote_identifier
from streamhouse.spark.connectors.topic import ABOUT

DELETED: Final = "_deleted"
_PLACE: Final = ("_partition", "_offset")
_LATEST: Final = "_sh_latest"
_ROW: Final = "_sh_row"


def own_columns(frame: DataFrame) -> list[str]:
    """Those that are stored: what is about a record is not, unless it is given a name of its own."""
    return [name for name in frame.columns if name not in ABOUT]


def told_once(frame: DataFrame) -> DataFrame:
    """`SELECT *, _offset` has a column about the record twice; the first one is as good as the second."""
    seen: set[str] = set()
    names, kept = [], []
    for place, name in enumerate(frame.columns):
        twice = name in seen and name in ABOUT
        names.append(f"{name}_{place}" if twice else name)
        kept += [] if twice else [name]
        seen.add(name)
    return frame if len(kept) == len(names) else frame.toDF(*names).select(*[quote_identifier(name) for name in kept])


def keyed(frame: DataFrame, key: Sequence[str]) -> DataFrame:
    """The same rows; those that are an end have the key of their record."""
    for name in key:
        if name not in frame.columns:
            raise Misconfigured(f"the key names no column; key={name} columns={', '.join(own_columns(frame))}")
    if DELETED not in frame.columns or "_key" not in frame.columns:
        return frame
    record = F.col("_key").cast("string")
    for place, name in enumerate(key):
        kind = frame.schema[name].dataType
        found = _from_record(record, place, name, kind, is_only=len(key) == 1)
        frame = frame.withColumn(name, F.when(F.col(DELETED), found).otherwise(F.col(quote_identifier(name))))
    return frame


def _from_record(record: Column, place: int, name: str, kind: DataType, *, is_only: bool) -> Column:
    """A column's value, out of the text of a record's key; null where it isn't there."""
    fields = F.from_json(record, MapType(StringType(), StringType()))
    in_object = F.try_element_at(fields, F.lit(name))
    if not is_only:
        texts = F.coalesce(F.get_json_object(record, f"$[{place}]"), in_object)
        return _read(texts, kind)
    is_object = record.startswith("{")
    return F.when(is_object, _read(in_object, kind)).otherwise(_read(record, kind))


def _read(text: Column, kind: DataType) -> Column:
    return text.cast(kind) if isinstance(kind, StringType | BinaryType) else text.try_cast(kind)


def has_key(key: Sequence[str]) -> Column:
    """Whether a row can be told from others."""
    found = F.lit(True)
    for name in key:
        found = found & F.col(quote_identifier(name)).isNotNull()
    return found


def latest(frame: DataFrame, key: Sequence[str]) -> DataFrame:
    """One row for each key, the one with the last partition and offset: columns of the table, and `_deleted`.

    Records of a key are in one partition, in their order, as long as the number of partitions stays what it is.
    """
    own = own_columns(frame)
    is_placed = all(name in frame.columns for name in _PLACE)
    by = [F.col(name) for name in _PLACE] if is_placed else [F.monotonically_increasing_id()]
    row = F.struct(*[F.col(quote_identifier(name)) for name in own], _is_end(frame).alias(DELETED))
    rows = frame.where(has_key(key)).select(
        *[F.col(quote_identifier(name)) for name in key], row.alias(_ROW), F.struct(*by).alias(_LATEST)
    )
    found = rows.groupBy(*[F.col(quote_identifier(name)) for name in key]).agg(F.max_by(_ROW, _LATEST).alias(_ROW))
    return found.select(f"{_ROW}.*")


def _is_end(frame: DataFrame) -> Column:
    return F.coalesce(F.col(DELETED), F.lit(False)) if DELETED in frame.columns else F.lit(False)
