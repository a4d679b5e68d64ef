"""Validation of a file of statements, before any of them is executed.

Data path   a file -> statements -> `resolver.analyze` -> **ValidatedStatement**: columns, signature, diagnostics
Owns        what a statement must be besides correct SQL: a stream to read, a target that accepts it, keys that exist
Leaves      execution to the agents and to `pipelines`

Nothing is read but names, schemas and samples. Tables, targets and views of earlier statements are known to later ones.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, TypeAlias

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from streamhouse.errors import Rejected, StatementError, StreamhouseError
from streamhouse.model.pipeline import Shape
from streamhouse.model.table import Column, Connector, Table
from streamhouse.spark.columns.column_types import type_text
from streamhouse.spark.connectors import ReadContext
from streamhouse.spark.connectors.topic import METADATA_COLUMNS
from streamhouse.spark.connectors.view_key import view_key
from streamhouse.spark.connectors.view_query import NAMED_TIMES, RECOMPUTE, check_tables, mode_of
from streamhouse.spark.query.catalog import Catalog, OverlayCatalog, metadata_columns_of
from streamhouse.spark.query.error_messages import STREAM_IN_SUBQUERY, SqlDiagnostic, diagnostics_of
from streamhouse.spark.query.resolver import ResolvedQuery, analyze
from streamhouse.spark.query.state_signature import Rows, state_signature
from streamhouse.spark.query.table_references import StatementKind, statement_kind
from streamhouse.spark.query.untrusted_sql import check_untrusted, of_definition
from streamhouse.spark.runtime.jvm import check_plan, unsupported, unsupported_pipeline
from streamhouse.sql.lexer import TokenKind, position, tokenize
from streamhouse.sql.options import PipelineOptions, pipeline_options
from streamhouse.sql.parser import parse_all
from streamhouse.sql.statements import CreatePipeline, CreateTable, CreateView, Drop, Query, Show, Statement

Continuous: TypeAlias = CreatePipeline | CreateView

_KINDS: Final = {
    CreateTable: "table",
    CreatePipeline: "pipeline",
    CreateView: "view",
    Drop: "drop",
    Show: "show",
    Query: "query",
}
_AS_VIEW: Final = (
    "keep the result as a view of tables without STREAM, which is computed anew when they change:"
    " CREATE MATERIALIZED VIEW … KEY (column) AS …"
)
_OF_EACH_BATCH: Final = "use a time of the records, or now() and current_date(), which are those of each micro-batch"
_BY_PARTS: Final = "run the SELECT without STREAM in `streamhouse sql`, part by part, until Spark takes it"
_OF_RECORDS: Final = ("_key", "_timestamp", "_headers")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedStatement:
    """`kind`: table, pipeline, view, drop, show, query, or empty for a syntax error.

    `columns` are those of the result, `shape` is set for pipelines and views.
    """

    kind: str
    name: str
    line: int
    columns: tuple[Column, ...] = ()
    shape: Shape | None = None
    key: tuple[str, ...] = ()
    problems: tuple[SqlDiagnostic, ...] = ()
    notes: tuple[str, ...] = ()


def validate(
    spark: SparkSession, catalog: Catalog, text: str, *, is_untrusted: bool = False
) -> list[ValidatedStatement]:
    """Every statement of a file, in the order of the file. `is_untrusted`: queries are checked by `untrusted_sql`
    first."""
    return validate_known(spark, OverlayCatalog(catalog), text, is_untrusted=is_untrusted)


def validate_known(
    spark: SparkSession, known: OverlayCatalog, text: str, *, is_untrusted: bool = False
) -> list[ValidatedStatement]:
    """Like `validate`, but adds what the file creates to `known`."""
    statements, errors = parse_all(text)
    checked = [_checked(spark, known, statement, text, is_untrusted) for statement in statements]
    checked = [
        replace(each, problems=(*each.problems, *_duplicate_names(n, statements, text)))
        for n, each in enumerate(checked)
    ]
    return sorted([*checked, *map(_syntax_error, errors)], key=lambda each: each.line)


def _duplicate_names(index: int, statements: Sequence[Statement], text: str) -> list[SqlDiagnostic]:
    """Diagnose a pipeline or view with the name of an earlier one, which it would replace."""
    statement = statements[index]
    if not isinstance(statement, CreatePipeline | CreateView) or statement.is_replace:
        return []
    earlier = [each for each in statements[:index] if getattr(each, "name", None) == statement.name]
    taken = next((each for each in reversed(earlier) if not isinstance(each, CreateTable)), None)
    if taken is None or isinstance(taken, Drop):
        return []
    hint = "give one another name, or write CREATE OR REPLACE"
    return [_problem(text, _index_of(statement, statement.name), f"{statement.name} is created a second time", hint)]


def _syntax_error(error: StatementError) -> ValidatedStatement:
    problem = SqlDiagnostic(line=error.line, column=error.column, text=error.text, hint=error.hint)
    return ValidatedStatement(kind="", name="", line=error.line, problems=(problem,))


def _checked(
    spark: SparkSession, known: OverlayCatalog, statement: Statement, text: str, is_untrusted: bool
) -> ValidatedStatement:
    line = position(text, statement.span[0])[0]
    kind, name = _KINDS[type(statement)], getattr(statement, "name", "")
    start = getattr(statement, "select_start", statement.span[0])
    is_untrusted = is_untrusted or isinstance(statement, CreatePipeline | CreateView)  # supervisors trust no definition
    try:
        if is_untrusted and (query := _query_of(statement)) is not None:
            check_untrusted(spark, query)
        if isinstance(statement, CreateTable):
            return _table(spark, known, statement, text, line)
        if isinstance(statement, CreatePipeline | CreateView):
            return _continuous(spark, known, statement, text, line)
        if isinstance(statement, Query):
            if statement_kind(spark, statement.text) is StatementKind.COMMAND:  # looking at it would do it
                return ValidatedStatement(kind=kind, name="", line=line)
            bound = analyze(spark, statement.text, known, ReadContext(agents=known.agents), is_untrusted=is_untrusted)
            return ValidatedStatement(kind=kind, name="", line=line, columns=columns_of(bound.frame), notes=bound.notes)
    except (StreamhouseError, PySparkException) as error:
        fitting = error if isinstance(statement, Query) else of_definition(error)
        problems = diagnostics_of(fitting, text, start)
        if isinstance(statement, CreateView):
            problems = tuple(map(_recomputing, problems))
        if isinstance(statement, CreatePipeline | CreateView):
            problems = tuple(replace(each, hint=each.hint or _BY_PARTS) for each in problems)
        return ValidatedStatement(kind=kind, name=name, line=line, problems=problems)
    return ValidatedStatement(kind=kind, name=name, line=line)


def _recomputing(problem: SqlDiagnostic) -> SqlDiagnostic:
    """Adapt an error to views: with a changing table in a stream's subquery, rows would depend on their arrival
    times."""
    if problem.hint != STREAM_IN_SUBQUERY:
        return problem
    return replace(problem, hint=f"join the streams, or {RECOMPUTE}")


def _query_of(statement: Statement) -> str | None:
    if isinstance(statement, CreatePipeline | CreateView):
        return statement.select
    return statement.text if isinstance(statement, Query) else None


def columns_of(frame: DataFrame) -> tuple[Column, ...]:
    return tuple(Column(name=field.name, type=type_text(field.dataType)) for field in frame.schema.fields)


# --- tables


def _table(
    spark: SparkSession, known: OverlayCatalog, statement: CreateTable, text: str, line: int
) -> ValidatedStatement:
    columns = statement.table.columns or ()
    problems = [each for column in columns if (each := _type_problem(spark, column, statement, text)) is not None]
    problems += [each for column in columns if (each := _reserved_problem(column, statement, text)) is not None]
    if not problems:
        known.add(statement.table)
    return ValidatedStatement(
        kind="table", name=statement.name, line=line, columns=columns, key=statement.table.key, problems=tuple(problems)
    )


def _type_problem(spark: SparkSession, column: Column, statement: CreateTable, text: str) -> SqlDiagnostic | None:
    try:
        spark._jsparkSession.sessionState().sqlParser().parseDataType(column.type)
    except PySparkException:
        index = text.find(column.type, *statement.span)
        line, at = position(text, max(index, statement.span[0]))
        hint = "STRING, BIGINT, DOUBLE, DECIMAL(9, 2), BOOLEAN, TIMESTAMP, DATE, ARRAY<…>, STRUCT<a: INT>, MAP<…>"
        return SqlDiagnostic(line=line, column=at, text=f"there is no type {column.type}", hint=hint)
    return None


def _reserved_problem(column: Column, statement: CreateTable, text: str) -> SqlDiagnostic | None:
    """Diagnose a field of a record's value with the name of a metadata column: it is ambiguous."""
    if statement.table.connector is not Connector.TOPIC or column.name not in METADATA_COLUMNS:
        return None
    what = f"{column.name} is known of every record, and can't be a field of its value"
    hint = "leave it out: it is there when a query names it; a field of this name is read with format = 'raw'"
    return _problem(text, max(text.find(column.name, *statement.span), statement.span[0]), what, hint)


# --- pipelines and views


def _continuous(
    spark: SparkSession, known: OverlayCatalog, statement: Continuous, text: str, line: int
) -> ValidatedStatement:
    options = pipeline_options(statement.options)
    reading = ReadContext(agents=known.agents, watermarks=options.watermarks)
    bound = analyze(spark, statement.select, known, reading, is_untrusted=True)
    columns = columns_of(bound.frame)
    key: tuple[str, ...] = ()
    rows: Rows | None = None
    if isinstance(statement, CreatePipeline):
        columns, problems = _named(columns, statement, text)
        key, target = options.key, statement.target
        problems += _target_problems(known, statement, columns, text)
        known.add(_target(known, statement, columns, options))
    else:
        key, target, problems = statement.key, statement.name, []
        if not _key_problems(statement, key, columns, text):
            key, problems = _identified(bound.frame, statement, text)
        rows = Rows(key=key, output=options.output, starting=options.starting)
        known.add(Table(name=statement.name, connector=Connector.VIEW, columns=columns, key=key))
    problems += _key_problems(statement, key, columns, text)
    problems += _watermark_problems(known, statement, options, bound, text)
    problems = [*_stream_problems(bound, options, statement, text), *problems]
    problems += _lookup_problems(bound, options, statement, text)
    shape = replace(state_signature(bound.frame, bound.reads, rows=rows), target=target)
    return ValidatedStatement(
        kind=_KINDS[type(statement)],
        name=statement.name,
        line=line,
        columns=columns,
        shape=shape,
        key=key,
        problems=tuple(problems),
        notes=bound.notes,
    )


def _named(
    columns: tuple[Column, ...], statement: CreatePipeline, text: str
) -> tuple[tuple[Column, ...], list[SqlDiagnostic]]:
    """The result's columns, under the names that the INSERT gives them."""
    names = statement.columns
    if names and len(names) != len(columns):
        what = f"INSERT names {len(names)} columns, SELECT has {len(columns)}"
        return columns, [_problem(text, statement.select_start, what, f"SELECT has {_listed(columns)}")]
    renamed = (
        tuple(Column(name=name, type=each.type) for name, each in zip(names, columns, strict=True))
        if names
        else columns
    )
    return renamed, [
        _problem(text, statement.select_start, f"two columns are called {name}", "give one another name: … AS other")
        for name in _twice(renamed)
    ]


def _twice(columns: Iterable[Column]) -> list[str]:
    counts = Counter(column.name.lower() for column in columns)
    return [name for name, count in counts.items() if count > 1]


def _target_problems(
    known: OverlayCatalog, statement: CreatePipeline, columns: Sequence[Column], text: str
) -> list[SqlDiagnostic]:
    table = known.find_target(statement.target)
    if table is not None and table.connector is Connector.VIEW:
        what = f"{table.name} is a view, which is written by its own query"
        hint = "INSERT INTO a topic, or change the view's own query"
        return [_problem(text, _index_of(statement, statement.target), what, hint)]
    if table is None or table.text is None or not table.columns:
        return []
    names = [column.name for column in table.columns]
    return [
        _problem(
            text,
            _index_of(statement, column.name, after=statement.select_start),
            f"table {table.name} has no column {column.name}",
            f"there are {', '.join(names)}",
        )
        for column in columns
        if column.name not in names and column.name not in _OF_RECORDS
    ]


def _target(
    known: OverlayCatalog, statement: CreatePipeline, columns: Iterable[Column], options: PipelineOptions
) -> Table:
    """The target as later statements see it: its own definition, or the topic that it will be."""
    table = known.find_target(statement.target)
    if table is not None and (table.text is not None or table.connector is not Connector.TOPIC):
        return table
    own = tuple(column for column in columns if column.name not in _OF_RECORDS)
    return Table(name=statement.target, connector=Connector.TOPIC, columns=own, options={"format": options.fmt})


def _key_problems(
    statement: Continuous, key: Sequence[str], columns: Sequence[Column], text: str
) -> list[SqlDiagnostic]:
    names = [column.name for column in columns]
    return [
        _problem(text, _index_of(statement, name), f"the key names no column: {name}", f"there are {', '.join(names)}")
        for name in key
        if name not in names
    ]


def _watermark_problems(
    known: OverlayCatalog, statement: Continuous, options: PipelineOptions, bound: ResolvedQuery, text: str
) -> list[SqlDiagnostic]:
    """Watermarks whose column no stream has: nothing would come of them, and a window never be final."""
    tables = [table for name in bound.streams if (table := known.find(name)) is not None]
    if not tables or any(table.columns is None for table in tables):  # only the source itself has them
        return []
    there = _listed(column for table in tables for column in table.columns or ())
    names = {column.name for table in tables for column in (*(table.columns or ()), *metadata_columns_of(table))}
    return [
        _problem(text, _index_of(statement, each.column), f"no stream has the watermark's column {each.column}", hint)
        for hint in (f"there are {there}",)
        for each in options.watermarks
        if each.column not in names
    ]


def _identified(frame: DataFrame, statement: CreateView, text: str) -> tuple[tuple[str, ...], list[SqlDiagnostic]]:
    """The key of a view, or why it has none: shown beside what is wrong with its query, as both have to be changed."""
    try:
        return view_key(frame, statement.key), []
    except Rejected as error:
        return statement.key, list(diagnostics_of(error, text, statement.select_start))


def _stream_problems(
    bound: ResolvedQuery, options: PipelineOptions, statement: Continuous, text: str
) -> list[SqlDiagnostic]:
    try:
        return _kept_problems(bound, options, statement, text)
    except Rejected as error:
        return list(diagnostics_of(error, text, statement.select_start))


def _kept_problems(
    bound: ResolvedQuery, options: PipelineOptions, statement: Continuous, text: str
) -> list[SqlDiagnostic]:
    if not bound.frame.isStreaming and isinstance(statement, CreateView):  # computed anew when its tables change
        return []
    if not bound.frame.isStreaming:
        name = bound.tables[0] if bound.tables else "orders"
        what = "it reads no stream, so it would be over at once"
        return [_problem(text, statement.select_start, what, f"FROM STREAM({name})")]
    if isinstance(statement, CreatePipeline) and statement.target in _topics_of(bound):
        what = f"it writes the topic that it reads, {statement.target}: it would never be done"
        return [_problem(text, _index_of(statement, statement.target), what, "INSERT INTO another topic")]
    if problem := _named_time_problem(statement, text):
        return [problem]
    check_plan(bound.frame)
    if isinstance(statement, CreatePipeline):
        error = unsupported_pipeline(bound.frame, options.output)
        problems = () if error is None else diagnostics_of(error, text, statement.select_start)
        return [replace(each, hint=each.hint or _AS_VIEW) for each in problems]
    error = unsupported(bound.frame, (mode_of(bound.frame, statement.key, options.output),))
    problems = () if error is None else diagnostics_of(error, text, statement.select_start)
    return [replace(each, hint=f"{each.hint}, or {RECOMPUTE}" if each.hint else RECOMPUTE) for each in problems]


def _named_time_problem(statement: Continuous, text: str) -> SqlDiagnostic | None:
    """Diagnose `TIMESTAMP 'today'`: Spark's parser makes the time of each start of it, so that the query changes."""
    for word, token in pairwise(tokenize(statement.select)):
        if (
            token.kind is TokenKind.TEXT
            and word.is_keyword("DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ")
            and NAMED_TIMES.match(token.value)
        ):
            named = f"{word.value.upper()} '{token.value.strip()}'"
            what = f"{named} is the time at which the query starts, another one after every restart"
            is_view = isinstance(statement, CreateView)
            hint = f"use a time of the records, or {RECOMPUTE}" if is_view else _OF_EACH_BATCH
            return _problem(text, statement.select_start + word.start, what, hint)
    return None


def _lookup_problems(
    bound: ResolvedQuery, options: PipelineOptions, statement: Continuous, text: str
) -> list[SqlDiagnostic]:
    """Shown beside what else is wrong: both have to be changed."""
    try:
        if isinstance(statement, CreateView):
            check_tables(bound.streams, bound.tables, options.lookup)
    except Rejected as error:
        return list(diagnostics_of(error, text, _index_of(statement, bound.tables[0], after=statement.select_start)))
    return []


def _topics_of(bound: ResolvedQuery) -> set[str]:
    """The names and topics of the streams that a query reads."""
    streams = [read.table for read in bound.reads if read.is_stream and read.table.connector is Connector.TOPIC]
    return {each for table in streams for each in (table.name, table.options.get("topic", table.name))}


# --- positions


def _problem(text: str, index: int, what: str, hint: str = "") -> SqlDiagnostic:
    line, column = position(text, index)
    return SqlDiagnostic(line=line, column=column, text=what, hint=hint)


def _index_of(statement: Continuous, name: str, *, after: int = 0) -> int:
    """Index of the first occurrence of a name in a statement; of the SELECT if there is none."""
    start, lower_name = statement.span[0], name.lower()
    for token in tokenize(statement.text):
        parts = [part.strip().lower() for part in token.value.split(",")]
        # `at 10 seconds` names a column as well
        if start + token.start >= after and any(lower_name in (part, part.partition(" ")[0]) for part in parts):
            return start + token.start
    return statement.select_start


def _listed(columns: Iterable[Column]) -> str:
    return ", ".join(column.name for column in columns)
