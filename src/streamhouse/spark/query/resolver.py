"""Resolver: the names in a query become temporary views of a session, and the query a DataFrame.

Data path   a SELECT -> Spark's parser (names) -> catalog -> **views** -> Spark's analyzer -> a DataFrame
Owns        a session per query, which names are streams, that only columns are read that the query uses
Leaves      columns to `catalog`, rows to `connectors`, names in plans to `table_references`, error texts to
            `error_messages`

A query is analyzed twice. First its names are empty views: analyzing and optimizing it shows, without reading anything,
whether it is valid and which columns it uses. Then the same names are views of the real sources, in which an unused
column is null and is not read: a Python data source can't prune columns later. So positions and types are the same in
both, and `SELECT *` means the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, NamedTuple

from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from streamhouse.errors import StatementError
from streamhouse.model.identifiers import quote_identifier
from streamhouse.model.table import LAKE, Column, Connector, Table
from streamhouse.spark.columns.column_types import type_text
from streamhouse.spark.connectors import ReadContext, find
from streamhouse.spark.datasource.data_source import register
from streamhouse.spark.query.catalog import Catalog, metadata_columns_of
from streamhouse.spark.query.table_references import (
    EmptyRelations,
    StatementKind,
    needed_columns,
    statement_kind,
    table_names,
)
from streamhouse.spark.query.untrusted_sql import UNTRUSTED_DATABASE, check_analyzed, check_untrusted
from streamhouse.spark.runtime.jvm import plain_query
from streamhouse.sql.lexer import Token, TokenKind, error_at, tokenize
from streamhouse.sql.options import Watermark

NARROWED: Final = (Connector.TOPIC, Connector.POSTGRESQL, *LAKE)
"""Connectors that read every column of their table definition, however few a query uses."""
NO_STREAMS: Final = {
    Connector.VIEW: "name it without STREAM, or write its query to a topic with CREATE PIPELINE and stream that",
    Connector.POSTGRESQL: "name it without STREAM: it is read again for every micro-batch",
    **dict.fromkeys(LAKE, "name it without STREAM, or stream the topic that it is made of"),
}
EXPLAIN_MODES: Final = ("SIMPLE", "EXTENDED", "CODEGEN", "COST", "FORMATTED")
_WRITING: Final = ("INSERT", "INTO", "OVERWRITE", "TABLE", "UPDATE", "DELETE", "FROM", "MERGE", "TRUNCATE")
_OFF: Final = "spark.sql.streaming.unsupportedOperationCheck"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRef:
    """A table of a query, with the columns that are read, and whether it is read as a stream."""

    name: str
    table: Table
    is_stream: bool
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedQuery:
    """A query that is ready to run. `streams` and `tables` are the names it reads, each once, in the order of the
    text."""

    frame: DataFrame
    reads: tuple[TableRef, ...]

    @property
    def streams(self) -> tuple[str, ...]:
        return tuple(read.name for read in self.reads if read.is_stream)

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(read.name for read in self.reads if not read.is_stream)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on tables whose columns were inferred."""
        return tuple(note_of(read) for read in self.reads if read.origin.startswith("inferred"))


def note_of(read: TableRef) -> str:
    columns = ", ".join(f"{column.name} {column.type}" for column in read.table.columns or ())
    return f"columns of {read.name} {read.origin}" + (f"; used: {columns}" if columns else "")


def resolve(
    spark: SparkSession,
    text: str,
    catalog: Catalog,
    reading: ReadContext,
    *,
    is_untrusted: bool = False,
    is_own: bool = False,
) -> ResolvedQuery:
    """Resolve a query in a session of its own; raises `StatementError` for unknown names, Spark's errors for the rest.

    `is_untrusted`: the text comes from the wire. It is checked first, and may read only tables of the catalog.
    `is_own`: the given session is for this query alone.
    """
    if (request := parse_explain(text)) is not None:
        _check_explained(spark, request)
        resolved = resolve(spark, request.query, catalog, reading, is_untrusted=is_untrusted, is_own=is_own)
        return explain(resolved, request.mode)
    session = spark if is_own else _session_for(spark, text, is_untrusted=is_untrusted)
    sources = _sources(session, text, catalog, reading, is_untrusted=is_untrusted)
    kind = statement_kind(session, text)
    _reject_writes(text, sources)
    if kind is StatementKind.QUERY:
        needed = analyze_empty(session, text, sources, reading)[1]
    else:
        needed = {source.name: source.columns for source in sources}
    used = [source for source in sources if source.name in needed]
    reads = tuple(source.read(needed[source.name]) for source in used)
    if kind is StatementKind.WORDS:
        placeholder_views(session, sources, reading)
    else:
        _make_views(session, used, reads, reading)
    frame = _query(session, text)
    if is_untrusted and kind is StatementKind.QUERY:
        check_analyzed(frame)
    return ResolvedQuery(frame=frame, reads=reads)


def analyze(
    spark: SparkSession,
    text: str,
    catalog: Catalog,
    reading: ReadContext,
    *,
    is_untrusted: bool = False,
    is_own: bool = False,
) -> ResolvedQuery:
    """Like `resolve`, but the frame has no rows, and no source is read: for validation."""
    if (request := parse_explain(text)) is not None:
        _check_explained(spark, request)
        analyzed = analyze(spark, request.query, catalog, reading, is_untrusted=is_untrusted, is_own=is_own)
        return replace(analyzed, frame=spark.createDataFrame([], "plan STRING"))
    session = spark if is_own else _session_for(spark, text, is_untrusted=is_untrusted)
    sources = _sources(session, text, catalog, reading, is_untrusted=is_untrusted)
    frame, needed = analyze_empty(session, text, sources, reading)
    if is_untrusted:
        check_analyzed(frame)
    reads = tuple(source.read(needed[source.name]) for source in sources if source.name in needed)
    return ResolvedQuery(frame=frame, reads=reads)


def _session_for(spark: SparkSession, text: str, *, is_untrusted: bool) -> SparkSession:
    """A session for the query. An untrusted text is checked first, and runs in an empty database of Spark's."""
    if is_untrusted:
        check_untrusted(spark, text)
    session = own_session(spark)
    if is_untrusted and session.catalog.databaseExists(UNTRUSTED_DATABASE):
        session.catalog.setCurrentDatabase(UNTRUSTED_DATABASE)
    return session


def own_session(spark: SparkSession) -> SparkSession:
    """A session with views of its own, in the same Spark."""
    session = spark.newSession()
    register(session)
    return session


def cloned_session(spark: SparkSession) -> SparkSession:
    """A session with copies of the functions, temporary views and settings of the given one."""
    session = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    register(session)
    return session


def watermarked(frame: DataFrame, watermarks: Iterable[Watermark]) -> DataFrame:
    """A stream with those watermarks whose columns it has; text columns are cast to timestamps."""
    for each in watermarks:
        if each.column not in frame.columns:
            continue
        if isinstance(frame.schema[each.column].dataType, StringType):
            frame = frame.withColumn(each.column, F.col(quote_identifier(each.column)).cast("timestamp"))
        frame = frame.withWatermark(quote_identifier(each.column), each.delay)
    return frame


# --- EXPLAIN


class ExplainRequest(NamedTuple):
    """The mode of EXPLAIN, and the query, at the same position as in the text."""

    mode: str
    query: str


def parse_explain(text: str) -> ExplainRequest | None:
    tokens = tokenize(text)
    if not next(tokens).is_keyword("EXPLAIN"):
        return None
    mode, first = "simple", next(tokens)
    if first.is_keyword(*EXPLAIN_MODES):
        mode, first = first.value.lower(), next(tokens)
    before = "".join(sign if sign == "\n" else " " for sign in text[: first.start])
    return ExplainRequest(mode, before + text[first.start :])


def _check_explained(spark: SparkSession, request: ExplainRequest) -> None:
    """Raise `StatementError` for a command: it has no plan without being run."""
    if statement_kind(spark, request.query) is not StatementKind.QUERY:
        start = len(request.query) - len(request.query.lstrip())
        raise error_at(request.query, start, "EXPLAIN shows the plan of a query", "EXPLAIN SELECT …")


def explain(resolved: ResolvedQuery, mode: str = "simple") -> ResolvedQuery:
    """A frame of one row and column: what is read of each name, and Spark's plan."""
    plan = resolved.frame._jdf.queryExecution()
    jvm = resolved.frame.sparkSession._jvm
    assert jvm is not None
    text = plan.explainString(jvm.org.apache.spark.sql.execution.ExplainMode.fromString(mode))
    lines = ["== What is read ==", *(_describe_table(read) for read in resolved.reads), "", text]
    frame = resolved.frame.sparkSession.createDataFrame([("\n".join(lines),)], "plan STRING")
    return replace(resolved, frame=frame)


def _describe_table(read: TableRef) -> str:
    columns = read.table.columns
    used = "all columns" if columns is None else ", ".join(each.name for each in columns) or "the number of rows"
    origin = f", columns {read.origin}" if read.origin else ""
    return f"{'stream' if read.is_stream else 'table'} {read.name} ({read.table.connector.value}{origin}): {used}"


# --- what a query reads


@dataclass(frozen=True, slots=True, kw_only=True)
class UnresolvedTable:
    """A table, before its used columns are known. `frame` is set if only reading it shows the columns."""

    name: str
    table: Table
    columns: tuple[Column, ...]
    is_stream: bool
    origin: str
    frame: DataFrame | None = None

    def read(self, columns: Sequence[Column]) -> TableRef:
        used = tuple(columns) if self.table.connector in NARROWED else self.table.columns
        return TableRef(
            name=self.name, table=replace(self.table, columns=used), is_stream=self.is_stream, origin=self.origin
        )


def _sources(
    session: SparkSession, text: str, catalog: Catalog, reading: ReadContext, *, is_untrusted: bool
) -> list[UnresolvedTable]:
    tokens = [token for token in tokenize(text) if token.kind in (TokenKind.WORD, TokenKind.NAME)]
    words = {token.value for token in tokens}
    streams: dict[str, bool] = {}
    sources: list[UnresolvedTable] = []
    for used in table_names(session, text):
        at = _index_of(used.name, tokens)
        table = catalog.find(used.name, anew=True)
        if table is None:
            if not used.is_local and (is_untrusted or not _is_sparks(session, used.parts)):
                raise unknown(text, at, used.name, catalog)
            continue
        if len(used.parts) > 1:
            raise error_at(
                text, at, f"a name with dots needs backticks: {used.name}", f"write {quote_identifier(used.name)}"
            )
        if table.connector is Connector.CONSOLE:
            raise error_at(text, at, f"{used.name} is a console, which can only be written to")
        if used.is_stream and (hint := NO_STREAMS.get(table.connector)):
            raise error_at(text, at, f"{used.name} is not a stream", hint)
        if streams.setdefault(used.name.lower(), used.is_stream) != used.is_stream:
            raise _both(text, at, table, is_local=used.is_local)
        if all(source.name.lower() != used.name.lower() for source in sources):
            sources.append(_source(session, used.name, table, used.is_stream, words, catalog, reading))
    return sources


def _source(
    session: SparkSession,
    name: str,
    table: Table,
    is_stream: bool,
    words: set[str],
    catalog: Catalog,
    reading: ReadContext,
) -> UnresolvedTable:
    frame = None
    columns = table.columns
    _check_types(session, table)
    if columns is None:
        frame = _opened(session, table, reading, is_stream=is_stream)
        columns = tuple(Column(name=f.name, type=type_text(f.dataType)) for f in frame.schema.fields)
    mentioned = {word.lower() for word in words} | {each.column.lower() for each in reading.watermarks}
    extra = tuple(column for column in metadata_columns_of(table) if column.name in mentioned)
    origin = catalog.origin(name)
    return UnresolvedTable(
        name=name, table=table, columns=(*columns, *extra), is_stream=is_stream, origin=origin, frame=frame
    )


def _check_types(session: SparkSession, table: Table) -> None:
    """A column's type is text of a request: it must be a type, and nothing else that a column list may have."""
    parser = session._jsparkSession.sessionState().sqlParser()
    for column in table.columns or ():
        try:
            parser.parseDataType(column.type)
        except ParseException:
            raise StatementError(
                1, 1, f"{table.name} has a column without a type of Spark's: {column.name} {column.type[:100]}"
            ) from None


def analyze_empty(
    session: SparkSession, text: str, sources: Sequence[UnresolvedTable], reading: ReadContext
) -> tuple[DataFrame, Mapping[str, tuple[Column, ...]]]:
    """The query over empty views, and the columns that it uses of each; tables that it doesn't read are left out."""
    placeholders = placeholder_views(session, sources, reading)
    frame = _query(session, text)
    session.conf.set(_OFF, "false")  # Spark refuses to optimize a stream that isn't started
    try:
        needed = needed_columns(frame, placeholders)
    finally:
        session.conf.unset(_OFF)
    return frame, {
        source.name: tuple(column for column in source.columns if column.name in needed.get(source.name, ()))
        for source in sources
        if source.name in needed or source.is_stream
    }


def _query(session: SparkSession, text: str) -> DataFrame:
    frame = session.sql(text)
    return plain_query(frame) if frame.isStreaming else frame


def placeholder_views(
    session: SparkSession, sources: Iterable[UnresolvedTable], reading: ReadContext
) -> EmptyRelations:
    placeholders = EmptyRelations(session)
    for source in sources:
        frame = placeholders.frame(source.name, source.columns, is_stream=source.is_stream)
        _view(frame, source.name, source.is_stream, reading)
    return placeholders


def _make_views(
    session: SparkSession, sources: Sequence[UnresolvedTable], reads: Sequence[TableRef], reading: ReadContext
) -> None:
    for source, read in zip(sources, reads, strict=True):
        frame = None if source.table.connector in NARROWED else source.frame
        frame = frame or _opened(session, read.table, reading, is_stream=source.is_stream)
        present = set(frame.columns)
        shown = [
            F.col(quote_identifier(column.name))
            if column.name in present
            else F.lit(None).cast(column.type).alias(column.name)
            for column in source.columns
        ]
        _view(frame.select(*shown), source.name, source.is_stream, reading)


def _opened(session: SparkSession, table: Table, reading: ReadContext, *, is_stream: bool) -> DataFrame:
    connector = find(table.connector)
    # Where a query starts is a matter of its streams; tables are read as a whole.
    return (
        connector.read_stream(session, table, reading)
        if is_stream
        else connector.read(session, table, replace(reading, starting="earliest"))
    )


def _view(frame: DataFrame, name: str, is_stream: bool, reading: ReadContext) -> None:
    shown = watermarked(frame, reading.watermarks) if is_stream else frame
    shown.createOrReplaceTempView(quote_identifier(name))


# --- names that are wrong


def unknown(text: str, at: int, name: str, catalog: Catalog) -> StatementError:
    near = catalog.suggestions(name)
    known = catalog.names()
    if near:
        hint = f"did you mean {' or '.join(near)}"
    else:
        hint = f"there are {', '.join(known[:10])}" if known else "there are no topics yet: streamhouse topics create"
    return error_at(text, at, f"there is no table or topic {name}", hint)


def _both(text: str, at: int, table: Table, *, is_local: bool) -> StatementError:
    if is_local:
        return error_at(text, at, f"WITH names {table.name}, and so is a stream called", "give the WITH another name")
    topic = table.options.get("topic", table.name)
    return error_at(
        text,
        at,
        f"{table.name} is read both as a stream and as a table",
        f"give it a second name: CREATE TABLE {table.name}_all WITH (connector = 'topic', topic = '{topic}')",
    )


def _reject_writes(text: str, sources: Iterable[UnresolvedTable]) -> None:
    """Raise `StatementError` for a write: Spark would see only a view of the table, and report its own plan."""
    tokens = [token for token in tokenize(text) if token.kind in (TokenKind.WORD, TokenKind.NAME)]
    if tokens and tokens[0].is_keyword("FROM"):  # FROM orders |> …
        return
    target = next((token for token in tokens if not token.is_keyword(*_WRITING)), None)
    if target is None or target is tokens[0] or target.value.lower() not in {each.name.lower() for each in sources}:
        return
    hint = f"streamhouse produce {target.value}, or CREATE PIPELINE name AS INSERT INTO {target.value} SELECT …"
    raise error_at(text, tokens[0].start, f"a query doesn't write to {target.value}", hint)


def _is_sparks(session: SparkSession, parts: Sequence[str]) -> bool:
    """Whether Spark has such a table itself; names of several parts are always Spark's."""
    return len(parts) > 1 or bool(session.catalog.tableExists(quote_identifier(parts[0])))


def _index_of(name: str, tokens: Sequence[Token]) -> int:
    """Where a query reads a name, or the name's first part: an alias before it may have the same name."""
    candidates = (name.lower(), name.split(".")[0].lower())
    read = [token for before, token in pairwise(tokens) if before.is_keyword("FROM", "JOIN", "STREAM", "DESCRIBE")]
    indexes = (
        token.start for candidate in candidates for token in (*read, *tokens) if token.value.lower() == candidate
    )
    return next(indexes, 0)
