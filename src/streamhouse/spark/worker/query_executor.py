"""Query executor: runs a SQL query and returns batches of rows; a running query can be cancelled.

Data path   http_app -> **query_executor** -> resolver -> Spark -> Arrow batches
Owns        limits of a worker; requests and results; a job group for each query; truncation
Leaves      names to `resolver`, texts of errors to `error_messages`, live queries to `live_query`, formats to
            `result_formats`

Everything here blocks and runs in threads; PySpark pins each to a thread of the JVM, which carries the job group.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from threading import Lock
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.types import (
    AnsiIntervalType,
    CalendarIntervalType,
    DataType,
    GeographyType,
    GeometryType,
    StructField,
    TimeType,
    VariantType,
)

from streamhouse.errors import BadSql, Mistake, QueryCancelled, QueryFailed, Rejected, StatementError, StreamhouseError
from streamhouse.model.identifiers import quote_identifier
from streamhouse.model.table import Column
from streamhouse.spark.agents.address import AgentAddress, as_caller
from streamhouse.spark.connectors import ReadContext
from streamhouse.spark.pipelines.python_validation import is_allowed, validate_python
from streamhouse.spark.query.catalog import Catalog, OverlayCatalog
from streamhouse.spark.query.error_messages import diagnostics_of
from streamhouse.spark.query.resolver import resolve
from streamhouse.spark.query.validation import ValidatedStatement, validate, validate_known
from streamhouse.spark.worker.ddl import apply_ddl, show
from streamhouse.spark.worker.live_query import LiveQuery
from streamhouse.spark.worker.result_formats import columns_of, unique_names
from streamhouse.sql.definitions import PythonPipeline
from streamhouse.sql.lexer import position
from streamhouse.sql.parser import parse
from streamhouse.sql.statements import Query, Show, Statement

log = logging.getLogger(__name__)

AS_TEXT: Final[tuple[type[DataType], ...]] = (
    AnsiIntervalType,
    CalendarIntervalType,
    GeographyType,
    GeometryType,
    TimeType,
    VariantType,
)
"""Types that Arrow, or a file of rows, doesn't have."""

MAX_COMPLETION_TABLES: Final = 50
"""Maximum number of tables whose columns a shell gets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlLimits:
    """Given on the command line of `streamhouse sql serve`."""

    concurrency: int = 8  # queries at once; further ones are rejected
    rows: int = 10_000  # of a result, unless the request has a limit
    max_rows: int = 1_000_000  # of a result, whatever the request says
    max_result_bytes: int = 512 * 1024 * 1024  # of a result in the driver
    timeout_s: float = 300.0  # of a query that is not live, unless the request has a timeout
    max_timeout_s: float = 86_400.0  # of any query, a live one too
    max_body_bytes: int = 1024 * 1024  # of a request
    tail_batches: int = 16  # of a live query that wait for a slow reader
    tail_records: int = 10_000  # of a live query's micro-batch
    idle_s: float = 1800.0  # without a request, until the worker exits
    memory: str = "2g"  # of the JVM


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCaller:
    """The user for whom an agent sends a query. With the token the worker acts as that user; empty: no logins."""

    name: str = ""
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRequest:
    """`max_rows` None: as many as usual. `starting` is where a live query begins: latest or earliest.

    `caller` None: the worker's own user. `read_only`: statements that change something are rejected.
    """

    sql: str
    max_rows: int | None = None
    starting: str = "latest"
    caller: QueryCaller | None = None
    read_only: bool = False

    @property
    def is_untrusted(self) -> bool:
        return self.caller is not None or self.read_only


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """Rows as they come; `is_live`: they come until it is closed. `truncated`: there are more."""

    columns: tuple[Column, ...]
    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    notes: tuple[str, ...] = ()
    truncated: bool = False
    is_live: bool = False


@dataclass(slots=True)
class _Running:
    is_cancelled: bool = False
    tails: list[LiveQuery] = field(default_factory=list)


class QueryExecutor:
    """Runs queries on one Spark."""

    def __init__(self, spark: SparkSession, *, agents: str, limits: SqlLimits) -> None:
        self._spark, self._agents, self._limits = spark, agents, limits
        self._catalog = Catalog(agents)
        self._function_names: tuple[str, ...] = ()
        self._running: dict[str, _Running] = {}
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"<Answering agents={self._agents} running={len(self._running)}>"

    def execute(self, request: QueryRequest, query_id: str) -> QueryResult:
        """Block until the result is there, or until a live query runs. Call `release` when done with it."""
        with self._lock:
            self._running[query_id] = _Running()
        self._spark.sparkContext.setJobGroup(query_id, "streamhouse sql", interruptOnCancel=True)
        try:
            return self._execute(request, query_id)
        except Exception as error:
            raise self._words(error, request.sql, query_id) from error

    def _execute(self, request: QueryRequest, query_id: str) -> QueryResult:
        statement = only(request.sql)
        agents = self._agents_for(request.caller)
        if isinstance(statement, Show):
            return _text_result(show(agents, statement))
        if not isinstance(statement, Query):
            if request.read_only:
                raise Rejected("a read-only request runs queries and SHOW only; do=send it without read_only")
            return self._change(statement, request)
        reading = ReadContext(
            agents=agents, starting=request.starting, max_records_per_trigger=self._limits.tail_records
        )
        text = request.sql[: statement.span[1]]
        catalog = self._catalog_for(request.caller)
        bound = resolve(self._spark, text, catalog, reading, is_untrusted=request.is_untrusted)
        if bound.frame.isStreaming:
            return self._tail(bound.frame, query_id, bound.notes)
        return self._collect(bound.frame, request, bound.notes)

    def _change(self, statement: Statement, request: QueryRequest) -> QueryResult:
        checked = self.validate(request.sql, request.caller)
        try:
            return _text_result(apply_ddl(self._agents_for(request.caller), statement, request.sql, checked))
        finally:
            self._catalog.invalidate()

    def _agents_for(self, caller: QueryCaller | None) -> AgentAddress:
        return self._agents if caller is None or not caller.token else as_caller(self._agents, token=caller.token)

    def _catalog_for(self, caller: QueryCaller | None) -> Catalog:
        """Callers see different tables, which may change from one query to the next: nothing is cached for those with a
        token."""
        return self._catalog if caller is None or not caller.token else Catalog(self._agents_for(caller))

    def _words(self, error: Exception, text: str, query_id: str) -> Exception:
        """The diagnostics of an error, with positions."""
        if isinstance(error, StatementError):
            return BadSql([Mistake(error.line, error.column, error.text, error.hint)])
        if isinstance(error, StreamhouseError):
            return error
        with self._lock:
            running = self._running.get(query_id)
        if running is not None and running.is_cancelled:
            return QueryCancelled("cancelled")
        problems = diagnostics_of(error, text)
        mistakes = [Mistake(each.line, each.column, each.text, each.hint) for each in problems]
        if isinstance(error, AnalysisException | ParseException):
            return BadSql(mistakes)
        return QueryFailed(mistakes[0].text)

    def warm(self) -> None:
        """Read a topic, if there is one, so that classes and Python processes are ready for the first query."""
        try:
            for name in self._catalog.names()[:1]:
                text = f"SELECT * FROM {quote_identifier(name)} LIMIT 1"
                resolve(self._spark, text, self._catalog, ReadContext(agents=self._agents)).frame.toArrow()
        except Exception as error:
            log.debug("not warmed", exc_info=error)

    def cancel(self, query_id: str) -> bool:
        """End what the query does; it fails, or its rows end. False where there is no such query."""
        with self._lock:
            running = self._running.get(query_id)
            if running is None:
                return False
            running.is_cancelled, tails = True, tuple(running.tails)
        for tail in tails:
            tail.stop()
        self._spark.sparkContext.cancelJobGroup(query_id)
        return True

    def release(self, query_id: str) -> None:
        """Called once when the query is over."""
        with self._lock:
            running = self._running.pop(query_id, None)
        for tail in running.tails if running is not None else ():
            tail.stop()

    def validate(self, text: str, caller: QueryCaller | None) -> list[dict[str, Any]]:
        """Every statement of a file, with what is wrong."""
        catalog = self._catalog_for(caller)
        catalog.refresh()  # tables that were created a moment ago, by others, count
        checked = validate(self._spark, catalog, text, is_untrusted=caller is not None)
        return [checked_view(each) for each in checked]

    def validate_python(self, text: str, pipelines: Sequence[PythonPipeline]) -> dict[str, list[dict[str, Any]]]:
        """For each pipeline in Python what is wrong with it; it knows what `text`, in SQL, creates.

        None if agents accept no Python; they reject it themselves.
        """
        if not is_allowed(self._agents):
            return {}
        self._catalog.refresh()
        known = OverlayCatalog(self._catalog)
        validate_known(self._spark, known, text)
        diagnostics = validate_python(self._spark, known, pipelines)
        return {name: [asdict(each) for each in problems] for name, problems in diagnostics.items()}

    def complete(self, caller: QueryCaller | None) -> dict[str, Any]:
        """Names for completion; columns of the first `MAX_COMPLETION_TABLES` tables."""
        catalog = self._catalog_for(caller)
        names = catalog.names()
        tables = [{"name": name, "columns": _columns(catalog, name)} for name in names[:MAX_COMPLETION_TABLES]]
        tables += [{"name": name, "columns": []} for name in names[MAX_COMPLETION_TABLES:]]
        return {"tables": tables, "functions": list(self._functions())}

    def _functions(self) -> tuple[str, ...]:
        if not self._function_names:
            rows = self._spark.sql("SHOW FUNCTIONS").collect()
            self._function_names = tuple(row[0] for row in rows if row[0][:1].isalpha())
        return self._function_names

    def _collect(self, frame: DataFrame, request: QueryRequest, notes: tuple[str, ...]) -> QueryResult:
        max_rows = min(request.max_rows or self._limits.rows, self._limits.max_rows)
        frame, columns = presentable(frame)
        table = frame.limit(max_rows + 1).toArrow()
        return QueryResult(
            columns=columns,
            schema=table.schema,
            batches=iter(table.slice(0, max_rows).to_batches()),
            truncated=table.num_rows > max_rows,
            notes=notes,
        )

    def _tail(self, frame: DataFrame, query_id: str, notes: tuple[str, ...]) -> QueryResult:
        frame, columns = presentable(frame)
        tail = LiveQuery(frame, name=query_id, waiting_batches=self._limits.tail_batches)
        with self._lock:
            self._running[query_id].tails.append(tail)
        tail.start()
        return QueryResult(columns=columns, schema=tail.schema, batches=iter(tail), is_live=True, notes=notes)


def _columns(catalog: Catalog, name: str) -> list[str]:
    try:
        table = catalog.find(name)
    except StreamhouseError:
        return []
    return [] if table is None else [column.name for column in table.columns or ()]


def presentable(frame: DataFrame) -> tuple[DataFrame, tuple[Column, ...]]:
    """The frame with names that differ, and text where Arrow has no type; and the columns as they were."""
    names = unique_names(frame.columns)
    frame = frame if names == frame.columns else frame.toDF(*names)
    columns = columns_of(frame.schema)
    if any(isinstance(each.dataType, AS_TEXT) for each in frame.schema.fields):
        frame = frame.select(*(_shown(each) for each in frame.schema.fields))
    return frame, columns


def _shown(field: StructField) -> SparkColumn:
    column = col(quote_identifier(field.name))
    return column.cast("string").alias(field.name) if isinstance(field.dataType, AS_TEXT) else column


def only(text: str) -> Statement:
    """The one statement of a query."""
    statements = parse(text)
    if len(statements) == 1:
        return statements[0]
    if not statements:
        raise StatementError(1, 1, "there is no statement")
    line, column = position(text, statements[1].span[0])
    raise StatementError(line, column, "one statement at a time", "send each by itself")


def _text_result(table: pa.Table) -> QueryResult:
    columns = tuple(Column(name=name, type="STRING") for name in table.column_names)
    return QueryResult(columns=columns, schema=table.schema, batches=iter(table.to_batches()))


def checked_view(checked: ValidatedStatement) -> dict[str, Any]:
    """A validated statement as JSON."""
    columns, shape = checked.columns, checked.shape
    return {
        "kind": checked.kind,
        "name": checked.name,
        "line": checked.line,
        "columns": None if columns is None else [{"name": each.name, "type": each.type} for each in columns],
        "key": list(checked.key),
        "shape": None if shape is None else asdict(shape),
        "problems": [asdict(each) for each in checked.problems],
        "notes": list(checked.notes),
    }
