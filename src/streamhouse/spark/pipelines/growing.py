"""Growing: streams of a lake table get columns while it is written, and the query begins again with them.

Data path   before each micro-batch -> **growing** -> catalogue -> go on, or begin again with what is there now
Owns        when a stream has other columns than the query knows; columns that were inferred only ever grow
Leaves      beginning again to the supervisor, growing the table to `spark.lake`

A query knows its columns from its start. What was declared or registered is taken as it is now. What was inferred is
what was ever seen: a field that no sample has any more stays, and a type that changed stays what it was first; records
that don't fit it are dead letters. The micro-batch that would have lost something is not written, and comes again.
"""

from collections.abc import Iterable
from typing import Final

from pyspark.sql.types import StructType

from streamhouse.clock import Clock, SystemClock
from streamhouse.errors import Unavailable
from streamhouse.model.identifiers import quote_identifier
from streamhouse.model.table import Column, Connector, Table
from streamhouse.spark.lake.schemas import widest
from streamhouse.spark.sql.binding import Read
from streamhouse.spark.sql.catalogue import NOTHING_YET, Catalogue, Extended

LOOK_EVERY_S: Final = 1.0
INFERRED: Final = "inferred"


def grown_catalogue(known: Catalogue, anew: Catalogue, names: Iterable[str]) -> Catalogue:
    """A catalogue with columns that were kept and those that records have besides, now."""
    found = Extended(known)
    for name in names:
        old, new = known.find(name), anew.find(name)
        if old is not None and new is not None and anew.origin(name).startswith(INFERRED):
            found.add(merged(old, new))
    return found


def merged(old: Table, new: Table) -> Table:
    """What was inferred, and what is inferred now; a topic that had no columns of its own takes those of now."""
    if old.options.get("format") != new.options.get("format"):
        return new
    columns = widest(_struct(old), _struct(new))
    if columns.names == [each.name for each in old.columns or ()] and columns == _struct(old):
        return old
    told = tuple(Column(name=each.name, type=each.dataType.simpleString()) for each in columns.fields)
    return Table(name=old.name, connector=old.connector, columns=told, key=old.key, options=old.options, text=old.text)


def _struct(table: Table) -> StructType:
    fields = ", ".join(f"{quote_identifier(each.name)} {each.type}" for each in table.columns or ())
    found = StructType.fromDDL(fields) if fields else StructType([])
    assert isinstance(found, StructType)
    return found


def check_known(reads: Iterable[Read]) -> None:
    """A table's columns are for good: they aren't guessed from a topic that nobody has written to."""
    for read in reads:
        if read.is_stream and read.origin == NOTHING_YET:
            raise Unavailable(f"its columns aren't known before there are records; stream={read.name}")


class Growing:
    """Asked before each micro-batch; `bound` is the catalogue that the query was bound with."""

    def __init__(self, bound: Catalogue, anew: Catalogue, reads: Iterable[Read], *, clock: Clock | None = None) -> None:
        self._bound = {
            read.name: table
            for read in reads
            if read.is_stream and read.table.connector is Connector.TOPIC and (table := bound.find(read.name))
        }
        self._anew, self._clock = anew, clock or SystemClock()
        self._looked_at_s: float | None = None

    def check(self) -> None:
        """Raises `Unavailable` where the query must begin again."""
        now_s = self._clock.monotonic()
        if self._looked_at_s is not None and now_s - self._looked_at_s < LOOK_EVERY_S:
            return
        self._anew.forget()
        for name, table in self._bound.items():
            found = self._anew.find(name)
            if found is not None and self._differs(name, table, found):
                raise Unavailable(f"a stream has other columns now, and it begins again with them; stream={name}")
        self._looked_at_s = now_s

    def _differs(self, name: str, bound: Table, found: Table) -> bool:
        if self._anew.origin(name).startswith(INFERRED):
            return merged(bound, found) != bound
        is_raw = found.options.get("format") == "raw" and bound.options.get("format") != "raw"
        return not is_raw and found.columns != bound.columns
