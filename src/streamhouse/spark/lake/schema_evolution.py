"""Schema evolution: a table's columns follow the rows; impossible changes are rejected before anything is written.

Data path   columns of a micro-batch, columns of the table -> **schemas** -> columns of both
Owns        which types widen into which; that columns are only ever added
Leaves      writing it down to each kind of table

Columns that rows no longer have stay, and are null. A type that fits into the table's is widened on the way.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from streamhouse.errors import Rejected
from streamhouse.model.identifiers import quote_identifier

_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
_FRACTIONS: Final = (FloatType, DoubleType)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """The required schema changes of a table. `added` and `widened` are columns with dots for fields of structs."""

    schema: StructType
    added: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()

    @property
    def is_none(self) -> bool:
        return not (self.added or self.widened)


def stored(schema: StructType, *, has_small_numbers: bool) -> StructType:
    """Rows' columns as a table has them: any may be null, texts have no length."""
    return StructType(
        [StructField(each.name, _plain(each.dataType, has_small_numbers), nullable=True) for each in schema.fields]
    )


def _plain(kind: DataType, has_small: bool) -> DataType:
    if isinstance(kind, StructType):
        return stored(kind, has_small_numbers=has_small)
    if isinstance(kind, ArrayType):
        return ArrayType(_plain(kind.elementType, has_small), containsNull=True)
    if isinstance(kind, MapType):
        return MapType(_plain(kind.keyType, has_small), _plain(kind.valueType, has_small), valueContainsNull=True)
    if isinstance(kind, ByteType | ShortType) and not has_small:
        return IntegerType()
    return StringType() if isinstance(kind, StringType) else kind


def merge_lenient(old: StructType, new: StructType) -> StructType:
    """`old` with what `new` adds; where types don't go together, the old one stays."""
    return _struct("", "", old, new, [], [], is_lenient=True)


def evolve(table: str, old: StructType, new: StructType) -> SchemaChange:
    """A table of `old` that takes rows of `new`; raises `Rejected` with the column that can't be."""
    added: list[str] = []
    widened: list[str] = []
    schema = _struct(table, "", old, new, added, widened)
    return SchemaChange(schema=schema, added=tuple(added), widened=tuple(widened))


def _struct(
    table: str,
    path: str,
    old: StructType,
    new: StructType,
    added: list[str],
    widened: list[str],
    *,
    is_lenient: bool = False,
) -> StructType:
    coming = {each.name: each for each in new.fields}
    fields = []
    for each in old.fields:
        kind = each.dataType
        if each.name in coming:
            kind = _type(
                table, path + each.name, kind, coming[each.name].dataType, added, widened, is_lenient=is_lenient
            )
        fields.append(StructField(each.name, kind, nullable=True))
    known = set(old.names)
    fresh = [each for each in new.fields if each.name not in known]
    added += [path + each.name for each in fresh]
    return StructType([*fields, *fresh])


def _type(
    table: str,
    path: str,
    old: DataType,
    new: DataType,
    added: list[str],
    widened: list[str],
    *,
    is_lenient: bool = False,
) -> DataType:
    if old == new:
        return old
    if isinstance(old, StructType) and isinstance(new, StructType):
        return _struct(table, f"{path}.", old, new, added, widened, is_lenient=is_lenient)
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        before, after = old.elementType, new.elementType
        return ArrayType(_type(table, f"{path}.element", before, after, added, widened, is_lenient=is_lenient))
    if isinstance(old, MapType) and isinstance(new, MapType) and old.keyType == new.keyType:
        was, becomes = old.valueType, new.valueType
        value = _type(table, f"{path}.value", was, becomes, added, widened, is_lenient=is_lenient)
        return MapType(old.keyType, value)
    if _widens(old, new):
        widened.append(path)
        return new
    if is_lenient or _widens(new, old):
        return old
    raise Rejected(
        f"a column can't become this; table={table} column={path} is={old.simpleString()}"
        f" requested={new.simpleString()}"
        " do=keep the type, give the column another name, or begin another table"
    )


def _widens(narrow: DataType, wide: DataType) -> bool:
    for kinds in (_WHOLE, _FRACTIONS):
        if isinstance(narrow, kinds) and isinstance(wide, kinds):
            return kinds.index(type(narrow)) <= kinds.index(type(wide))
    if isinstance(narrow, DecimalType) and isinstance(wide, DecimalType):
        return narrow.scale == wide.scale and narrow.precision <= wide.precision
    return False


def align_columns(frame: DataFrame, schema: StructType) -> DataFrame:
    """Rows with all columns of the table, in its order; those that they don't have are null."""
    return frame.select(*_align(frame, schema))


def _align(frame: DataFrame, schema: StructType) -> Iterator[Column]:
    there = {each.name: each.dataType for each in frame.schema.fields}
    for each in schema.fields:
        name = quote_identifier(each.name)
        if each.name not in there:
            yield F.lit(None).cast(each.dataType).alias(each.name)
        elif there[each.name] == each.dataType:
            yield F.col(name)
        else:
            yield _cast(F.col(name), there[each.name], each.dataType).alias(each.name)


def _cast(value: Column, old: DataType, new: DataType) -> Column:
    """Match struct fields by name: Spark's cast matches by position."""
    if isinstance(old, StructType) and isinstance(new, StructType):
        known = {each.name: each.dataType for each in old.fields}
        fields = [
            (
                _cast(value.getField(each.name), known[each.name], each.dataType)
                if each.name in known
                else F.lit(None).cast(each.dataType)
            ).alias(each.name)
            for each in new.fields
        ]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        before, after = old.elementType, new.elementType
        return F.transform(value, lambda element: _cast(element, before, after))
    if isinstance(old, MapType) and isinstance(new, MapType):
        was, becomes = old.valueType, new.valueType
        return F.transform_values(value, lambda _, each: _cast(each, was, becomes))
    return value if old == new else value.cast(new)
