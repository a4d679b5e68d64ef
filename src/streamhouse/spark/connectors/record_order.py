"""Record order: of which records a row was made, so that of several rows of a key the newest is known.

Data path   topics with a VERSION column -> a query that doesn't name it -> **with_versions** -> the rows of a view
Owns        what is newer: time, then partition and offset; how versions pass the operators of a query; their texts
Leaves      reading to `topic`, what is kept of a key to the agents

A query's text has no versions. So its analysed plan is made anew, with the column in every projection between
the stream and the result. A row of a join has the version of each of its records, and is as new as the newest of them.
"""

import zlib
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streamhouse.model.identifiers import quote_identifier
from streamhouse.spark.runtime.jvm import id_of, kind_of, scala_seq

VERSION: Final = "_sh_version"
"""A struct of a record's time in microseconds, its partition, its offset, and the number of its topic."""
_TYPE: Final = "STRUCT<time: BIGINT, partition: INT, offset: BIGINT, topic: BIGINT>"
_TRANSPARENT: Final = (
    *("SubqueryAlias", "Filter", "Sort", "GlobalLimit", "LocalLimit", "Offset", "Sample", "Window", "Generate"),
    *("EventTimeWatermark", "UpdateEventTimeWatermarkColumn", "Repartition", "RepartitionByExpression"),
    *(
        "ResolvedHint",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "PipeOperator",
        "LateralJoin",
        "RebalancePartitions",
    ),
)
"""Operators that hand on all columns of a row, and do nothing else with those that they don't name."""
_SIGN: Final = -(2**63)


def version_of(topic: str, time: str, partition: str, offset: str) -> Column:
    """The version of a record, from the columns that have its timestamp, partition and offset."""
    return F.struct(
        F.unix_micros(F.col(time)).alias("time"),
        F.col(partition).alias("partition"),
        F.col(offset).alias("offset"),
        F.lit(zlib.crc32(topic.encode())).cast("bigint").alias("topic"),
    )


def with_versions(frame: DataFrame) -> tuple[DataFrame, tuple[str, ...]]:
    """The frame with the versions of its records besides, and the names of these columns.

    None where no column VERSION reaches the result: no stream has one, or rows are made of many records.
    """
    spark = frame.sparkSession
    rewriter = _Rewriter(spark, is_streaming=frame.isStreaming)
    plan = frame._jdf.queryExecution().analyzed()
    plan = rewriter.rewritten(_without_ctes(spark, plan))
    version_columns = rewriter.versions_in(plan)
    if not version_columns:
        return frame, ()
    columns = [each.name() for each in scala_seq(plan.output())]
    own, names = iter(frame.columns), [f"{VERSION}_{number}" for number in range(len(version_columns))]
    versions = iter(names)
    renamed = [next(versions) if name == VERSION else next(own) for name in columns]
    made = rewriter.frame(plan).toDF(*renamed)
    return made.select(*[made[quote_identifier(name)] for name in (*frame.columns, *names)]), tuple(names)


def newest_first(versions: Sequence[str]) -> Column:
    """The versions of a row, the newest first: rows are compared by it."""
    return F.sort_array(F.array_compact(F.array(*[F.col(name) for name in versions])), asc=False)


def version_text(ordered: Column, tie_breaker: Column, *, by_offset: Column) -> Column:
    """`newest_first` as a text that sorts in the same way; `by_offset`: whether offsets decide in one partition.

    Behind the versions there is one of no record, lower than any other, for rows of the same records: `tie_breaker`,
    16 hex digits. A row of no record at all has a version of zeros, and the last of them that was read is the newest.
    """
    digits = F.array_join(F.transform(ordered, _digits), "")
    last = F.when(F.size(ordered) > 0, F.lpad(tie_breaker, 48, "0")).otherwise(F.lit("0" * 48))
    return F.concat(F.when(by_offset, F.lit("o")).otherwise(F.lit("t")), digits, last)


def _digits(version: Column) -> Column:
    """Upper-case hex digits, whose order is that of the numbers."""
    time = F.hex(version.getField("time").bitwiseXOR(F.lit(_SIGN)))
    others = ((version.getField("partition"), 8), (version.getField("offset"), 16), (version.getField("topic"), 8))
    return F.concat(F.lpad(time, 16, "0"), *[F.lpad(F.hex(number), width, "0") for number, width in others])


# --- plans


class _Rewriter:
    """Puts the versions of streams into every projection above them; of tables too where there are no streams."""

    def __init__(self, spark: SparkSession, *, is_streaming: bool) -> None:
        self._spark, self._is_streaming = spark, is_streaming
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._plans = jvm.org.apache.spark.sql.catalyst.plans.logical
        self._expressions = jvm.org.apache.spark.sql.catalyst.expressions

    def frame(self, plan: Any) -> DataFrame:
        dataset = self._jvm.org.apache.spark.sql.classic.Dataset
        return DataFrame(dataset.ofRows(self._spark._jsparkSession, plan), self._spark)

    def versions_in(self, plan: Any) -> list[Any]:
        return [each for each in scala_seq(plan.output()) if each.name() == VERSION]

    def rewritten(self, node: Any) -> Any:
        """The same operator over inputs that have versions."""
        if self._is_streaming and not node.isStreaming():
            return node
        inputs = [self.rewritten(each) for each in scala_seq(node.children())]
        if not any(map(self.versions_in, inputs)):
            return node
        match kind_of(node):
            case "Project":
                return self._project(scala_seq(node.projectList()), inputs[0])
            case "View":
                return inputs[0]
            case "Expand":
                return self._expand(node, inputs[0])
            case "Union":
                return node.withNewChildren(self._seq(self._of_one_width(inputs)))
            case "Join":
                return node.withNewChildren(self._seq(self._distinct(*inputs)))
            case kind if kind in _TRANSPARENT:
                return node.withNewChildren(self._seq(inputs))
        return node  # one row of it is made of many records, or it goes by all columns

    def _project(self, listed: list[Any], below: Any) -> Any:
        known = {id_of(each) for each in listed}
        more = [each for each in self.versions_in(below) if id_of(each) not in known]
        return self._plans.Project(self._seq([*listed, *more]), below)

    def _expand(self, node: Any, below: Any) -> Any:
        """The versions of UNPIVOT: several rows for one, each by a projection of its own."""
        versions = self.versions_in(below)
        projections = [self._seq([*scala_seq(each), *versions]) for each in scala_seq(node.projections())]
        output = self._seq([*scala_seq(node.output()), *versions])
        return self._plans.Expand(self._seq(projections), output, below)

    def _of_one_width(self, inputs: list[Any]) -> list[Any]:
        """A union goes by position: versions at the end, as many everywhere."""
        width = max(len(self.versions_in(each)) for each in inputs)
        made = []
        for each in inputs:
            versions = self.versions_in(each)
            own = [column for column in scala_seq(each.output()) if column.name() != VERSION]
            nothing = F.lit(None).cast(_TYPE)
            missing = [self._alias(self._expression(nothing)) for _ in range(width - len(versions))]
            made.append(self._plans.Project(self._seq([*own, *versions, *missing]), each))
        return made

    def _distinct(self, left: Any, right: Any) -> list[Any]:
        """A stream that is joined with itself would have both versions in the same column."""
        known = {id_of(each) for each in self.versions_in(left)}
        if known.isdisjoint(id_of(each) for each in self.versions_in(right)):
            return [left, right]
        listed = [
            self._alias(each) if each.name() == VERSION and id_of(each) in known else each
            for each in scala_seq(right.output())
        ]
        return [left, self._plans.Project(self._seq(listed), right)]

    def _expression(self, column: Column) -> Any:
        return self._spark.range(0).select(column)._jdf.queryExecution().analyzed().projectList().head().child()

    def _alias(self, expression: Any) -> Any:
        option, identity = self._jvm.scala.Option.empty(), self._expressions.NamedExpression.newExprId()
        return self._expressions.Alias(expression, VERSION, identity, self._seq([]), option, self._seq([]))

    def _seq(self, elements: Sequence[Any]) -> Any:
        return self._jvm.PythonUtils.toSeq(list(elements))


def _without_ctes(spark: SparkSession, plan: Any) -> Any:
    """Inline each CTE, as Spark's own optimizer does."""
    jvm: Any = spark._jvm
    rule = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.optimizer.InlineCTE").getConstructors()[0]
    gateway: Any = spark.sparkContext._gateway
    flags = gateway.new_array(jvm.java.lang.Object, rule.getParameterCount())
    for index in range(rule.getParameterCount()):
        flags[index] = index == 0  # the first: always, not only where it is used once
    return rule.newInstance(flags).apply(plan)
