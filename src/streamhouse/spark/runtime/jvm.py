"""The py4j bridge: Spark's plans, Hadoop's file systems, and checks of output modes.

Data path   a text, a DataFrame -> Spark's parser and analyzer -> **Plan**, **walk_expression** -> callers
Owns        Scala sequences; the order in which a plan is walked; small files on Hadoop's file systems; whether Spark
            would start a query in an output mode
Leaves      what an operator means for state, keys and output modes to the callers

A plan is walked from the result inward, left to right, and a CTE at each use: the order in which a
checkpoint counts its sources.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar, Final

from py4j.java_collections import JavaArray  # type: ignore[import-untyped]
from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from streamhouse.errors import Rejected, StatementError
from streamhouse.spark.runtime.checkpoint import BatchOffsets, read_batch_offsets

_OPTIMIZER: Final = "org.apache.spark.sql.catalyst.optimizer"


def scala_seq(sequence: Any) -> list[Any]:
    """The elements of a Scala Seq."""
    return [sequence.apply(index) for index in range(sequence.size())]


def kind_of(node: Any) -> str:
    """The name of an operator's or expression's class: `Aggregate`, `AttributeReference`."""
    return str(node.getClass().getSimpleName()).removesuffix("$")


def id_of(attribute: Any) -> int:
    """The number that identifies a named expression in Spark."""
    return int(attribute.exprId().id())


def parse_plan(session: SparkSession, text: str) -> Any:
    """The unresolved plan of a text by Spark's parser. Raises Spark's ParseException, and
    `StatementError` for statements that are allowed only in scripts."""
    try:
        return session._jsparkSession.sessionState().sqlParser().parsePlan(text)
    except Py4JJavaError as error:
        if kind_of(error.java_exception) != "SqlScriptingException":
            raise
        raise StatementError(1, 1, "this is a statement of a script, and there are none here", "SELECT …") from None


def analyzed_plan(frame: DataFrame) -> "Plan":
    return Plan(frame._jdf.queryExecution().analyzed())


def optimized_plan(frame: DataFrame) -> "Plan":
    return Plan(frame._jdf.queryExecution().optimizedPlan())


def plain_query(frame: DataFrame) -> DataFrame:
    """The same query without WITH and DISTINCT, which are what they are made of: subqueries and aggregates.

    When it starts a stream Spark looks for aggregates before it has done so itself, and would find none.
    """
    plan = frame._jdf.queryExecution().analyzed()
    if not any(kind_of(node) in ("WithCTE", "Distinct") for node in walk_everything(plan)):
        return frame
    spark = frame.sparkSession
    jvm: Any = spark._jvm
    rows = jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plain_plan(spark, plan))
    return DataFrame(rows, spark)


def plain_plan(spark: SparkSession, plan: Any) -> Any:
    """`plain_query` of an analysed plan, by the rules of Spark's own optimiser."""
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.sql.catalyst.optimizer.ReplaceDistinctWithAggregate.apply(_inlined(spark, plan))


def _inlined(spark: SparkSession, plan: Any) -> Any:
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    rule = jvm.java.lang.Class.forName(f"{_OPTIMIZER}.InlineCTE").getConstructors()[0]
    flags = gateway.new_array(jvm.java.lang.Object, rule.getParameterCount())
    for index in range(rule.getParameterCount()):
        flags[index] = index == 0  # the first: always, not only where a name is used once
    return rule.newInstance(flags).apply(plan)


class Plan:
    """An analysed or optimised plan. Operators are the JVM's own objects."""

    def __init__(self, root: Any) -> None:
        self.root = root

    @cached_property
    def definitions(self) -> dict[int, Any]:
        """The query of each name of a WITH, by its id, in whatever part of the plan the WITH is."""
        return {each.id(): each.child() for each in walk_everything(self.root) if kind_of(each) == "CTERelationDef"}

    def inputs(self, node: Any) -> list[Any]:
        """The operators whose rows an operator gets; those of subqueries in its expressions are not among them."""
        kind = kind_of(node)
        if kind == "WithCTE":
            return [node.plan()]
        if kind == "CTERelationRef":
            defined = self.definitions.get(node.cteId())
            return [] if defined is None else [defined]
        return scala_seq(node.children())

    def subqueries(self, node: Any) -> list[Any]:
        """The plans within an operator's expressions: scalar subqueries, IN, EXISTS."""
        return scala_seq(node.subqueries())

    def walk(self, node: Any = None, *, into_views: bool = True, into_subqueries: bool = False) -> Iterator[Any]:
        """Every operator from the result, or from `node`, inward.

        `into_views`: what a view is made of as well. `into_subqueries`: those of an operator, before its inputs.
        """
        node = self.root if node is None else node
        yield node
        below = self.subqueries(node) if into_subqueries else []
        if into_views or kind_of(node) != "View":
            below += self.inputs(node)
        for each in below:
            yield from self.walk(each, into_views=into_views, into_subqueries=into_subqueries)

    def entered(self, reference: Any) -> dict[int, int]:
        """For each column of a `CTERelationRef` the column of its definition: by id, they agree by position."""
        defined = self.definitions.get(reference.cteId())
        if defined is None:
            return {}
        pairs = zip(scala_seq(reference.output()), scala_seq(defined.output()), strict=False)
        return {id_of(outer): id_of(inner) for outer, inner in pairs}


def walk_everything(node: Any) -> Iterator[Any]:
    """Every operator of any plan, also of one that was only parsed, with those of WITHs and subqueries."""
    yield node
    for each in (*scala_seq(node.children()), *scala_seq(node.innerChildren())):
        yield from walk_everything(each)


def walk_expression(expression: Any) -> Iterator[Any]:
    """An expression and those within it; plans of subqueries are left out."""
    yield expression
    for child in scala_seq(expression.children()):
        yield from walk_expression(child)


_OPERATOR: Final = "operator"
_EXPRESSION: Final = "expression"
_COLLECTION: Final = "collection"
_PRODUCT: Final = "product"
_LEAF: Final = "leaf"
_FOLLOWED: Final = (
    (_OPERATOR, "org.apache.spark.sql.catalyst.plans.QueryPlan"),
    (_EXPRESSION, "org.apache.spark.sql.catalyst.trees.TreeNode"),
    (_COLLECTION, "scala.collection.Iterable"),
    (_PRODUCT, "scala.Product"),
)


class ParsedTree:
    """A plan as the parser made it: every operator and expression of it, in whatever field it is kept.

    Operators of parsed plans keep expressions, and with them whole subqueries, in fields that Spark's own walks through
    children and expressions leave out until the analyser has replaced them (`WINDOW w AS`, `|> SET`, EXCEPT of a star).
    So all fields are followed, through sequences, maps, options and tuples.
    """

    _kinds: ClassVar[dict[str, tuple[str, int]]] = {}
    """By class: what is done with its objects, and how many fields they have."""

    def __init__(self, session: SparkSession, root: Any) -> None:
        jvm: Any = session._jvm
        self._classes = [(kind, jvm.java.lang.Class.forName(name)) for kind, name in _FOLLOWED]
        self._seen = jvm.java.util.IdentityHashMap()
        self._root = root

    def nodes(self) -> Iterator[tuple[bool, Any]]:
        """Each once, with whether it is an operator."""
        waiting = [self._root]
        while waiting:
            value = waiting.pop()
            if isinstance(value, JavaArray):
                waiting += value
                continue
            if not isinstance(value, JavaObject):  # a number or a text
                continue
            kind, fields = self._kind_of(value)
            if kind == _LEAF or self._seen.put(value, True) is not None:
                continue
            if kind in (_OPERATOR, _EXPRESSION):
                yield kind == _OPERATOR, value
            waiting += (
                reversed(scala_seq(value.toSeq()))
                if kind == _COLLECTION
                else [value.productElement(index) for index in range(fields - 1, -1, -1)]
            )

    def _kind_of(self, value: Any) -> tuple[str, int]:
        name = str(value.getClass().getName())
        if name not in self._kinds:
            kind = next((kind for kind, each in self._classes if each.isInstance(value)), _LEAF)
            fields = 0 if kind in (_LEAF, _COLLECTION) else int(value.productArity())
            self._kinds[name] = kind, fields
        return self._kinds[name]


def without_alias(expression: Any) -> Any:
    """The expression without its aliases."""
    return without_alias(expression.child()) if kind_of(expression) == "Alias" else expression


def is_there(spark: SparkSession, path: str) -> bool:
    """Whether there is a file or a folder; `path` may be a pattern."""
    files, hadoop_path = _opened(spark, path)
    return bool(files.globStatus(hadoop_path))


def newest_number(spark: SparkSession, path: str) -> int | None:
    """The largest number that a file of a folder is named after, as Spark's logs of micro-batches are; None without."""
    files, hadoop_path = _opened(spark, f"{path.rstrip('/')}/*")
    names = [str(each.getPath().getName()).removesuffix(".compact") for each in files.globStatus(hadoop_path) or ()]
    return max((int(name) for name in names if name.isdigit()), default=None)


def read_text(spark: SparkSession, path: str) -> str | None:
    """A small file; None where there is none."""
    files, hadoop_path = _opened(spark, path)
    if not files.exists(hadoop_path):
        return None
    assert spark._jvm is not None
    stream = files.open(hadoop_path)
    try:
        return str(spark._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


def is_local(spark: SparkSession, path: str) -> bool:
    """Whether a path is on this machine's own file system, as Spark understands it."""
    assert spark._jvm is not None
    jvm: Any = spark._jvm
    default = jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(spark.sparkContext._jsc.hadoopConfiguration())
    return str(jvm.org.apache.hadoop.fs.Path(path).toUri().getScheme() or default.getScheme()) == "file"


def batch_offsets(spark: SparkSession, checkpoint: str, batch_id: int) -> BatchOffsets | None:
    """Where a micro-batch ends, by a checkpoint on any file system; None where that isn't written down."""
    return read_batch_offsets(lambda name: read_text(spark, f"{checkpoint.rstrip('/')}/{name}"), batch_id)


def _opened(spark: SparkSession, path: str) -> tuple[Any, Any]:
    assert spark._jvm is not None
    hadoop_path: Any = spark._jvm.org.apache.hadoop.fs.Path(path)
    return hadoop_path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), hadoop_path


_WINDOW: Final = "spark.timeWindow"
_SESSION: Final = "spark.sessionWindow"
"""In the metadata of a column that is one."""


def unsupported(frame: DataFrame, modes: Sequence[str]) -> PySparkException | None:
    """Why Spark would not start the query in any of these modes; None where it would.

    A DISTINCT is an aggregate here, as it is when it runs: Spark's own check takes it for none.
    """
    spark = frame.sparkSession
    jvm: Any = spark._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    plan, first = plain_plan(spark, frame._jdf.queryExecution().analyzed()), None
    for mode in modes:
        try:
            checker.checkForStreaming(plan, getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode.capitalize())())
        except PySparkException as error:
            first = first or error
        else:
            return None
    return first


def unsupported_pipeline(frame: DataFrame, output: str | None) -> PySparkException | None:
    """Why Spark would not start a pipeline's query, in this output mode if it has one.

    Where mode append lacks a watermark and mode update doesn't work either, the error is that of mode update: what it
    is about has to be changed in any case.
    """
    error = unsupported(frame, ("append", "update") if output is None else (output,))
    if error is None or not str(error.getCondition() or "").startswith("STREAMING_OUTPUT_MODE"):
        return error
    return unsupported(frame, ("update",)) or error


def check_subqueries(frame: DataFrame) -> None:
    """Raise `Rejected` for a subquery that Spark's optimizer makes a join of the stream with its own distinct values.

    These come again with every record, and are joined with all records before: rows would be there several times.
    """
    spark = frame.sparkSession
    plan = plain_plan(spark, frame._jdf.queryExecution().analyzed())
    nodes = list(walk_everything(plan))
    if not any(kind_of(node) == "LateralJoin" or node.subqueries().nonEmpty() for node in nodes):
        return
    optimized = spark._jsparkSession.sessionState().optimizer().execute(plan)
    if sum(map(joins_streams, walk_everything(optimized))) > sum(map(joins_streams, nodes)):
        raise Rejected(
            "an aggregate in a subquery for each row of a stream can't be kept up to date; do=JOIN (SELECT id, count(*)"
            " … GROUP BY id) b ON a.id = b.id, or, in a view, name its tables without STREAM"
        )


def check_plan(frame: DataFrame) -> None:
    """Raise `Rejected` for what Spark only refuses when it runs: sessions by nothing else, joins on no equality; and
    for subqueries that it answers wrongly."""
    check_subqueries(frame)
    spark = frame.sparkSession
    jvm: Any = spark._jvm
    plan = plain_plan(spark, frame._jdf.queryExecution().analyzed())
    if any(_has_sessions_alone(node) for node in walk_everything(plan)):
        raise Rejected(
            "session windows are those of a group, and the query groups by nothing else; do=GROUP BY a column"
            " as well: sessions of all records together can only be had in a view that names its tables without STREAM"
        )
    if any(_has_collated_keys(jvm, node) for node in walk_everything(plan)):
        raise Rejected(
            "a stream can't be grouped or joined by texts that are equal by a collation, because state is kept by their"
            " bytes; do=GROUP BY lower(column) COLLATE UTF8_BINARY, or name its tables without STREAM, in a view"
        )
    if not any(joins_streams(node) for node in walk_everything(plan)):
        return
    plan = spark._jsparkSession.sessionState().optimizer().execute(plan)  # a condition may stand in WHERE
    equalities = jvm.org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys
    if any(joins_streams(node) and equalities.unapply(node).isEmpty() for node in walk_everything(plan)):
        raise Rejected(
            "streams are joined by columns that are equal, and these are joined by none; do=JOIN … ON a.id = b.id, or"
            " name one of them without STREAM, in a view WITH (lookup = 'on arrival')"
        )


def _has_collated_keys(jvm: Any, node: Any) -> bool:
    """Whether an operator with state compares texts otherwise than by their bytes."""
    if kind_of(node) == "Aggregate" and node.isStreaming():
        keys = scala_seq(node.groupingExpressions())
    elif kind_of(node).startswith("Deduplicate") and node.isStreaming():
        keys = scala_seq(node.keys())
    elif joins_streams(node) and node.condition().isDefined():
        keys = [each for each in walk_expression(node.condition().get()) if kind_of(each) != "Literal"]
    else:
        return False
    return not all(has_binary_equality(jvm, key) for key in keys)


def has_binary_equality(jvm: Any, expression: Any) -> bool:
    """Whether values of an expression are equal only if their bytes are: no text in it has another collation."""
    return bool(jvm.org.apache.spark.sql.catalyst.util.UnsafeRowUtils.isBinaryStable(expression.dataType()))


def _has_sessions_alone(node: Any) -> bool:
    if kind_of(node) != "Aggregate" or not node.isStreaming():
        return False
    groups = scala_seq(node.groupingExpressions())
    return len(groups) == 1 and is_session(groups[0])


def is_session(expression: Any) -> bool:
    """Whether an expression that is grouped by is a session window."""
    return kind_of(expression) == "AttributeReference" and bool(expression.metadata().contains(_SESSION))


def is_window(expression: Any) -> bool:
    """Whether an expression that is grouped by is a window of time, or a session window."""
    is_named = kind_of(expression) == "AttributeReference"
    return is_named and any(bool(expression.metadata().contains(each)) for each in (_WINDOW, _SESSION))


def joins_streams(node: Any) -> bool:
    return kind_of(node) == "Join" and all(each.isStreaming() for each in scala_seq(node.children()))
