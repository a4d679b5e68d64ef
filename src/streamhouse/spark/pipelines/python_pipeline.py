"""`@pipeline(into=…)`, and running a pipeline's function: the DataFrame that it returns is the query.

Data path   a definition's text -> **run_python** -> the function of its name, with `Tables` -> a DataFrame
Owns        the decorator; running a user's file; the tables that functions get
Leaves      finding pipelines without running code to `sql.definitions`, names to `query.catalog`

User code runs here: in the pipeline's runner and, over empty tables, in the SQL worker of the user who applies it.
"""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql import DataFrame, SparkSession

from streamhouse.errors import Misconfigured
from streamhouse.model.table import Column, Table
from streamhouse.spark.columns.column_types import type_text
from streamhouse.spark.connectors import ReadContext, find
from streamhouse.spark.query.catalog import Catalog, metadata_columns_of
from streamhouse.spark.query.resolver import ResolvedQuery, TableRef, analyze, cloned_session, resolve, watermarked
from streamhouse.spark.query.table_references import EmptyRelations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

F = TypeVar("F", bound=Callable[..., "DataFrame"])


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFunction:
    name: str
    function: Callable[[Any], "DataFrame"]


LOADING: Final[ContextVar[list[PipelineFunction] | None]] = ContextVar("loading", default=None)
"""Set while a file is run: decorated functions register themselves here."""


def pipeline(*, into: str, name: str | None = None, **options: str | int) -> Callable[[F], F]:
    """Make a function a pipeline that writes the rows it returns to `into`.

        @pipeline(into="big-orders", trigger="1 second", key="id")
        def big_orders(tables):
            return tables.stream("orders").where("amount > 100")

    Options are those of CREATE PIPELINE. Values are written out: `streamhouse pipelines apply` reads them without
    running the file. The function is called where the pipeline runs.
    """

    def decorate(function: F) -> F:
        noted = LOADING.get()
        if noted is not None:
            noted.append(PipelineFunction(name=name or function.__name__, function=function))
        return function

    return decorate


class Tables:
    """The argument of a pipeline's function: `tables.stream("orders")`, `tables.table("products")`, `tables.sql(…)`."""

    def __init__(self, session: SparkSession, catalog: Catalog, reading: ReadContext) -> None:
        self.spark = session
        self._catalog, self._reading = catalog, reading
        self.reads: list[TableRef] = []

    def __repr__(self) -> str:
        return f"<Tables read={[read.name for read in self.reads]}>"

    def stream(self, name: str, *columns: str) -> DataFrame:
        """A table's rows, without an end; with `columns` these only, those about a record (`_key`, `_timestamp`) among
        them.

        All columns are read that are not left out here: naming those that are needed saves work.
        """
        table = self._lookup(name, columns)
        self._note(name, table, is_stream=True)
        frame = find(table.connector).read_stream(self.spark, table, self._reading)
        return watermarked(frame, self._reading.watermarks)

    def table(self, name: str, *columns: str) -> DataFrame:
        """A table's rows as they are."""
        table = self._lookup(name, columns)
        self._note(name, table, is_stream=False)
        return find(table.connector).read(self.spark, table, replace(self._reading, starting="earliest"))

    def sql(self, text: str) -> DataFrame:
        """A query in SQL; `STREAM(orders)` is the stream of a table.

        It knows the functions and temporary views that were registered on `tables.spark` before.
        """
        bound = resolve(cloned_session(self.spark), text, self._catalog, self._reading, is_own=True)
        self.reads += bound.reads
        return bound.frame

    def _note(self, name: str, table: Table, *, is_stream: bool) -> None:
        origin = self._catalog.origin(name)
        self.reads.append(TableRef(name=name, table=table, is_stream=is_stream, origin=origin))

    def _lookup(self, name: str, columns: tuple[str, ...]) -> Table:
        table = self._catalog.find(name, anew=True)
        if table is None:
            near = self._catalog.suggestions(name)
            hint = f"did you mean {' or '.join(near)}" if near else f"there are {', '.join(self._catalog.names()[:10])}"
            raise Misconfigured(f"there is no table or topic {name}; do={hint}")
        return table if not columns else replace(table, columns=tuple(_column(table, each) for each in columns))


class EmptyTables(Tables):
    """The same tables without rows: what a function makes of them is analysed, and nothing is read."""

    def stream(self, name: str, *columns: str) -> DataFrame:
        return watermarked(self._empty(name, columns, is_stream=True), self._reading.watermarks)

    def table(self, name: str, *columns: str) -> DataFrame:
        return self._empty(name, columns, is_stream=False)

    def sql(self, text: str) -> DataFrame:
        bound = analyze(cloned_session(self.spark), text, self._catalog, self._reading, is_own=True)
        self.reads += bound.reads
        return bound.frame

    def _empty(self, name: str, columns: tuple[str, ...], *, is_stream: bool) -> DataFrame:
        table = self._lookup(name, columns)
        self._note(name, table, is_stream=is_stream)
        known = table.columns
        if known is None:  # only the source itself has them
            read = find(table.connector)
            frame = (read.read_stream if is_stream else read.read)(self.spark, table, self._reading)
            known = tuple(Column(name=field.name, type=type_text(field.dataType)) for field in frame.schema.fields)
        return EmptyRelations(self.spark).frame(name, known, is_stream=is_stream)


def _column(table: Table, name: str) -> Column:
    known = {column.name: column for column in (*(table.columns or ()), *metadata_columns_of(table))}
    if name not in known:
        raise Misconfigured(f"{table.name} has no column {name}; columns={', '.join(known)}")
    return known[name]


def run_python(session: SparkSession, text: str, name: str, catalog: Catalog, reading: ReadContext) -> ResolvedQuery:
    """The frame of the pipeline of this name in a file."""
    return _frame_of(Tables(session, catalog, reading), text, name)


def check_python(session: SparkSession, text: str, name: str, catalog: Catalog, reading: ReadContext) -> ResolvedQuery:
    """The same over tables without rows; raises what running it would raise, Spark's errors among it."""
    return _frame_of(EmptyTables(session, catalog, reading), text, name)


def _frame_of(tables: Tables, text: str, name: str) -> ResolvedQuery:
    frame = load(text, name).function(tables)
    if not isinstance(frame, DataFrame):
        raise Misconfigured(f"the function returned no DataFrame; pipeline={name} type={type(frame).__name__}")
    return ResolvedQuery(frame=frame, reads=tuple(tables.reads))


def load(text: str, name: str) -> PipelineFunction:
    """Run a file, and find the function in it."""
    noted: list[PipelineFunction] = []
    token = LOADING.set(noted)
    try:
        exec(compile(text, f"{name}.py", "exec"), {"__name__": "streamhouse_pipeline", "__file__": f"{name}.py"})
    finally:
        LOADING.reset(token)
    for each in noted:
        if each.name == name:
            return each
    raise Misconfigured(f"the file has no pipeline of this name any more; name={name}")
