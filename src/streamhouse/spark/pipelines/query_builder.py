"""Builds and starts the Spark queries of a pipeline; refreshes views that read no stream.

Data path   a PipelineJob -> resolve -> **PipelineBuilder** -> target, checkpoint, dead letters -> started queries
Owns        the order of these steps; output mode, trigger and pool of a query; when a view is refreshed
Leaves      names to `query.resolver`, Python to `python_pipeline`, targets to `pipeline_tables`, watching to
            `query_run`

A refresh runs the whole query again when a table that it reads has changed. It serves what streams can't do (ranks,
averages of maxima) and views of views, and costs as much as its tables are large.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamhouse.errors import AccessDenied, Internal, Misconfigured, Rejected, StatementError
from streamhouse.model.names import TopicPartition
from streamhouse.model.pipeline import Kind, Shape
from streamhouse.model.table import LAKE, Connector, Table
from streamhouse.spark.agents.address import AgentAddress
from streamhouse.spark.agents.client import connect
from streamhouse.spark.agents.pipeline_owner import OwnerCheck
from streamhouse.spark.connectors import ReadContext, WriteContext, find
from streamhouse.spark.connectors.materialized_view import (
    RefreshResult,
    needs_versions,
    view_version,
    write_full_refresh,
)
from streamhouse.spark.connectors.view_key import key_of
from streamhouse.spark.connectors.view_query import check_tables
from streamhouse.spark.lake.table_options import lake_options
from streamhouse.spark.pipelines.checkpoint_query import check_query
from streamhouse.spark.pipelines.dead_letters import dead_letter_streams
from streamhouse.spark.pipelines.pipeline_tables import (
    ColumnWatcher,
    TargetTables,
    check_known,
    grown_catalog,
    pin_columns,
    with_pinned,
)
from streamhouse.spark.pipelines.python_pipeline import run_python
from streamhouse.spark.pipelines.query_stop import stop_all
from streamhouse.spark.pipelines.runner_protocol import PipelineJob
from streamhouse.spark.query.catalog import Catalog
from streamhouse.spark.query.error_messages import diagnostics_of
from streamhouse.spark.query.resolver import ResolvedQuery, TableRef, own_session, resolve
from streamhouse.spark.query.state_signature import Rows, state_signature
from streamhouse.spark.query.untrusted_sql import of_definition
from streamhouse.spark.runtime.checkpoint_folder import (
    HadoopFolder,
    LastCommit,
    check_versions,
    checkpoint_path,
    prepare,
)
from streamhouse.spark.runtime.jvm import unsupported
from streamhouse.sql.lexer import without_layout
from streamhouse.sql.options import AVAILABLE_NOW, ONCE, PipelineOptions
from streamhouse.sql.parser import parse
from streamhouse.sql.statements import CreatePipeline, CreateView

VARYING: Final = re.compile(
    r"\b(now|today|tomorrow|yesterday|current_(time|timestamp|date)|curdate|localtimestamp|unix_timestamp"
    r"|rand|randn|random|randstr|uniform|uuid|shuffle)\b",
    re.IGNORECASE,
)
"""Words of queries whose result changes by itself. A column of such a name costs a needless computation."""


def varies(select: str) -> bool:
    """Whether a query's result may change though its tables don't."""
    return VARYING.search(select) is not None


def refresh_clock(spark: SparkSession) -> DataFrame:
    """A stream that always has something new, so that every trigger has its micro-batch."""
    return spark.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", 1).load()


@dataclass(slots=True)
class ViewRefresh:
    """`resolve` makes the query's frame, of the tables as they are now.

    `varies`: its result may change though they don't.
    """

    bind: Callable[[], ResolvedQuery]
    agents: AgentAddress
    varies: bool = False
    _seen: Hashable = field(default=None)

    def __call__(self) -> RefreshResult:
        bound = self.bind()
        state, fresh_at_ms = self._state(bound.reads)
        if state is not None and state == self._seen:
            return RefreshResult(frame=None, fresh_at_ms=fresh_at_ms)
        return RefreshResult(frame=bound.frame, fresh_at_ms=fresh_at_ms, on_written=lambda: self._written(state))

    def _written(self, state: Hashable) -> None:
        """Only what agents have taken counts as seen."""
        self._seen = state

    def _state(self, reads: Iterable[TableRef]) -> tuple[Hashable, int | None]:
        """A fingerprint of the tables' definitions and contents, None if it is unknown; and the time up to which all
        are complete."""
        states: list[Hashable] = [None] if self.varies else []
        fresh_ms: list[int] = []
        for read in reads:
            states.append(str(read.table))
            if read.table.connector is Connector.TOPIC:
                states.append(self._ends(read.table))
            elif read.table.connector is Connector.VIEW:
                state, fresh_at_ms = view_version(self.agents, read.table.name)
                states.append(str(state))
                fresh_ms += [] if fresh_at_ms is None else [fresh_at_ms]
            else:
                states.append(None)
        return None if None in states else tuple(states), min(fresh_ms, default=None)

    def _ends(self, table: Table) -> Hashable:
        topic = table.options.get("topic", table.name)
        agents = connect(self.agents)
        partitions = agents.topics().get(topic, 0)
        log_bounds = agents.log_bounds([TopicPartition(topic, number) for number in range(partitions)])
        parts = (
            (partition.partition, each.topic_id, each.log_start, each.end) for partition, each in log_bounds.items()
        )
        return topic, tuple(sorted(parts))


REFRESH_EVERY: Final = "10 seconds"
"""How often a view without streams is refreshed by default: each refresh runs the whole query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedPipeline:
    """The running queries: the pipeline's own, and those of its dead letters.

    `versions`: the newest versions of the lake table that it writes, the newest first; replaced after each commit.
    `ui`: the address of Spark's web UI; empty where it is off.
    """

    main: StreamingQuery
    others: tuple[StreamingQuery, ...] = ()
    notes: tuple[str, ...] = ()
    versions: list[Mapping[str, Any]] = field(default_factory=list)
    ui: str = ""


class PipelineBuilder:
    """May be used from several threads at once."""

    def __init__(self, spark: SparkSession, *, agents: AgentAddress, checkpoints: str) -> None:
        self._spark, self._agents, self._checkpoints = spark, agents, checkpoints
        self._targets = TargetTables(agents)

    def acting_as(self, login: AgentAddress) -> "PipelineBuilder":
        """A builder that reads and writes as another user."""
        return PipelineBuilder(self._spark, agents=login, checkpoints=self._checkpoints)

    def build(self, job: PipelineJob) -> StartedPipeline:
        """Start a pipeline's queries; raises for what is wrong with it."""
        options = _options(job)
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", job.lineage or job.name)
        path = checkpoint_path(self._checkpoints, job.name, job.query_id, job.generation)
        folder = HadoopFolder(self._spark, path)
        anew = Catalog(self._agents)
        catalog = with_pinned(anew, folder, job.revision)
        target = catalog.find_target(job.target) if job.kind is not Kind.VIEW else None
        is_lake = target is not None and target.connector in LAKE
        if is_lake:
            catalog = grown_catalog(catalog, anew, catalog.kept)
        reading = ReadContext(
            agents=self._agents,
            starting=job.starting_position,
            max_records_per_trigger=options.max_records_per_trigger,
            watermarks=options.watermarks,
        )
        bound = self._bound(job, catalog, reading)
        if not bound.frame.isStreaming and job.kind is Kind.VIEW:
            _check_query(folder, job, state_signature(bound.frame, bound.reads))
            return self._recomputed(job, catalog, reading, options, path)
        if not bound.frame.isStreaming:
            raise Misconfigured("it reads no stream, so it would be over at once; do=read one: FROM STREAM(orders)")
        code = job.text if job.kind is Kind.PYTHON else None
        shape = state_signature(bound.frame, bound.reads, rows=rows_of(job, bound.frame), code=code)
        if job.kind is Kind.VIEW and not job.has_run:  # one that has run was accepted before this check existed
            check_tables(bound.streams, bound.tables, options.lookup)
        if job.kind is Kind.VIEW and needs_versions(bound.frame, job.key):
            check_versions(folder, shape.state, name=job.name, has_run=job.has_run)
            bound = self._bound(job, catalog, replace(reading, with_versions=True))
        table = self._target(job, catalog, bound.frame, options)
        note = prepare(folder, query_id=job.query_id, state=shape.state, before=self._before(job, table))
        _check_query(folder, job, shape)
        pin_columns(catalog, folder, job.revision, bound.reads)
        writing = self._writing(job, options, path, mode=output_mode(job, options, bound.frame))
        versions: list[Mapping[str, Any]] = []
        if is_lake:
            check_known(bound.reads)
            watcher = ColumnWatcher(catalog, Catalog(self._agents), bound.reads)
            on_commit = partial(versions.__setitem__, slice(None))
            writing = replace(writing, before_batch=watcher.check, on_commit=on_commit)
        _activate(bound.frame.sparkSession)
        main = find(table.connector).write_stream(bound.frame, table, writing)
        queries = [_started(main, job.name, options)]
        try:
            queries += self._dead_letters(job, bound, reading, replace(writing, key=key_in(table, writing)), options)
        except BaseException:
            stop_all(queries)
            raise
        notes = ((note,) if note else ()) + bound.notes
        ui = self._spark.sparkContext.uiWebUrl or ""
        return StartedPipeline(main=queries[0], others=tuple(queries[1:]), notes=notes, versions=versions, ui=ui)

    def _recomputed(
        self, job: PipelineJob, catalog: Catalog, reading: ReadContext, options: PipelineOptions, path: str
    ) -> StartedPipeline:
        table = Table(name=job.name, connector=Connector.VIEW, key=job.key)
        before = LastCommit(has_run=job.has_run)
        prepare(HadoopFolder(self._spark, path), query_id=job.query_id, state=(), before=before)
        session = own_session(self._spark)
        is_varying = varies(statement_of(job).select)
        versioned = replace(reading, with_versions=bool(job.key))
        compute = ViewRefresh(lambda: self._bound(job, catalog, versioned), self._agents, is_varying)
        _activate(session)
        writing = self._writing(job, options, path, mode="append")
        main = write_full_refresh(refresh_clock(session), table, writing, compute)
        if "trigger" not in job.given:
            options = replace(options, trigger=REFRESH_EVERY)
        return StartedPipeline(main=_started(main, job.name, options), ui=self._spark.sparkContext.uiWebUrl or "")

    def _bound(self, job: PipelineJob, catalog: Catalog, reading: ReadContext) -> ResolvedQuery:
        if job.kind is Kind.PYTHON:
            return run_python(own_session(self._spark), job.text, job.name, catalog, reading)
        statement = statement_of(job)
        try:
            # Any client that reaches an agent can define a pipeline.
            bound = resolve(self._spark, statement.select, catalog, reading, is_untrusted=True)
        except (AnalysisException, ParseException, StatementError) as error:
            raise _wrong(of_definition(error), job.text, statement.select_start) from error
        if isinstance(statement, CreatePipeline) and statement.columns:
            return replace(bound, frame=renamed(bound.frame, statement.columns))
        return bound

    def _target(self, job: PipelineJob, catalog: Catalog, frame: DataFrame, options: PipelineOptions) -> Table:
        if job.kind is Kind.VIEW:
            return Table(name=job.name, connector=Connector.VIEW, key=job.key)
        target = catalog.find_target(job.target)
        if target is not None and target.connector is not Connector.TOPIC:
            return target
        return self._targets.topic(job, target, frame, options)

    def _before(self, job: PipelineJob, table: Table) -> LastCommit:
        if table.connector is not Connector.TOPIC:
            return LastCommit(has_run=job.has_run)
        return replace(self._targets.last_commit(job.query_id), has_run=job.has_run)

    def _writing(self, job: PipelineJob, options: PipelineOptions, path: str, *, mode: str) -> WriteContext:
        return WriteContext(
            agents=self._agents,
            pipeline=job.name,
            epoch=job.epoch,
            query_id=job.query_id,
            lineage=job.lineage,
            checkpoint=path,
            mode=mode,
            fmt=options.fmt,
            key=job.key or options.key,
            partitions=options.partitions,
            before_commit=OwnerCheck(agents=self._agents, pipeline=job.name, query_id=job.query_id, epoch=job.epoch),
        )

    def _dead_letters(
        self,
        job: PipelineJob,
        bound: ResolvedQuery,
        reading: ReadContext,
        writing: WriteContext,
        options: PipelineOptions,
    ) -> list[StreamingQuery]:
        topic = options.dead_letters_of(job.name)
        if topic is None:
            return []
        queries = []
        for query in dead_letter_streams(bound.frame.sparkSession, topic, bound.reads, reading, writing):
            self._ensure_dead_letter_topic(topic)
            before = self._targets.last_commit(query.writing.query_id)
            folder = HadoopFolder(self._spark, query.writing.checkpoint)
            prepare(folder, query_id=query.writing.query_id, state=(), before=before)
            queries.append(_started(query.writer(), f"{job.name} dead letters of {query.stream}", options))
        return queries

    def _ensure_dead_letter_topic(self, topic: str) -> None:
        try:
            self._targets.ensure_topic(topic)
        except AccessDenied as error:
            raise Rejected(
                f"there is no topic for records that can't be decoded; topic={topic} why={error} "
                "do=allow the pipeline's owner to create and write it, or set dead_letters = 'none'"
            ) from None


def _check_query(folder: HadoopFolder, job: PipelineJob, shape: Shape) -> None:
    shape = replace(shape, target=job.target)
    text = job.text if job.kind is Kind.PYTHON else without_layout(job.text)
    check_query(folder, name=job.name, text=text, shape=shape, has_run=job.has_run)


def rows_of(job: PipelineJob, frame: DataFrame) -> Rows | None:
    """The options that determine the rows of a view besides its query; None if it is not a view."""
    if job.kind is not Kind.VIEW:
        return None
    try:
        key = job.key or key_of(frame)
    except Rejected:  # reported when the view is written
        key = None
    return Rows(key=key or (), output=job.options.output, starting=job.options.starting)


def key_in(table: Table, writing: WriteContext) -> tuple[str, ...]:
    """Columns that no row of the target can be without."""
    return lake_options(table, writing.key).key if table.connector in LAKE else ()


def _options(job: PipelineJob) -> PipelineOptions:
    try:
        return job.options
    except ValueError as error:
        raise Misconfigured(f"an option can't be; it may be {error}") from None


def statement_of(job: PipelineJob) -> CreatePipeline | CreateView:
    (statement,) = parse(job.text)
    if not isinstance(statement, CreatePipeline | CreateView):
        raise Internal(f"a pipeline's text is no pipeline; name={job.name}")
    return statement


def _wrong(error: Exception, text: str, select_start: int) -> Misconfigured:
    """Spark's error in short, with its position in the statement."""
    (problem,) = diagnostics_of(error, text, select_start)
    hint = f" do={problem.hint}" if problem.hint else ""
    return Misconfigured(f"{problem.text}; line={problem.line} column={problem.column}{hint}")


def renamed(frame: DataFrame, columns: tuple[str, ...]) -> DataFrame:
    """`INSERT INTO target (a, b) SELECT …`: names by position."""
    if len(columns) != len(frame.columns):
        raise Misconfigured(
            f"INSERT INTO names {len(columns)} columns, and the SELECT has {len(frame.columns)};"
            f" named={', '.join(columns)} selected={', '.join(frame.columns)}"
        )
    return frame.toDF(*columns)


def output_mode(job: PipelineJob, options: PipelineOptions, frame: DataFrame) -> str:
    """The option's output mode; else append if rows become final, else update."""
    if options.output is not None:
        return options.output
    if job.kind is Kind.VIEW:
        return "update"
    return "append" if unsupported(frame, ("append",)) is None else "update"


def _activate(session: SparkSession) -> None:
    """Spark looks for a sink's format in the thread's session, and a new thread has none."""
    jvm: Any = session._jvm
    SparkSession._get_j_spark_session_class(jvm).setActiveSession(session._jsparkSession)


def _started(writer: DataStreamWriter, name: str, options: PipelineOptions) -> StreamingQuery:
    return writer.queryName(name).trigger(**trigger_of(options.trigger)).start()


def trigger_of(text: str) -> Mapping[str, Any]:
    if text == AVAILABLE_NOW:
        return {"availableNow": True}
    return {"once": True} if text == ONCE else {"processingTime": text}
