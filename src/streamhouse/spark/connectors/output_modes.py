"""Output modes: whether Spark would start a query in one.

Data path   a frame's analysed plan -> **output modes** -> why not
Owns        asking Spark before anything is started
Leaves      which mode is right to `view_query` and to `pipelines.building`
"""

from collections.abc import Sequence
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from streamhouse.errors import Rejected
from streamhouse.spark.jvm import kind_of, plain_plan, scala_seq, walk_everything

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


def check_plan(frame: DataFrame) -> None:
    """Raise `Rejected` for what Spark only refuses when it runs: sessions by nothing else, joins on no equality."""
    spark = frame.sparkSession
    jvm: Any = spark._jvm
    plan = plain_plan(spark, frame._jdf.queryExecution().analyzed())
    if any(_has_sessions_alone(node) for node in walk_everything(plan)):
        raise Rejected(
            "session windows are those of a group, and the query groups by nothing else; do=GROUP BY a column"
            " as well: sessions of all records together can only be had in a view that names its tables without STREAM"
        )
    if not any(joins_streams(node) for node in walk_everything(plan)):
        return
    plan = spark._jsparkSession.sessionState().optimizer().execute(plan)  # a condition may stand in WHERE
    equalities = jvm.org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys
    if any(joins_streams(node) and equalities.unapply(node).isEmpty() for node in walk_everything(plan)):
        raise Rejected(
            "streams are joined by columns that are equal, and these are joined by none; do=JOIN … ON a.id = b.id, or"
            " name one of them without STREAM"
        )


def _has_sessions_alone(node: Any) -> bool:
    if kind_of(node) != "Aggregate" or not node.isStreaming():
        return False
    groups = scala_seq(node.groupingExpressions())
    return len(groups) == 1 and is_session(groups[0])


def is_session(expression: Any) -> bool:
    """Whether an expression that is grouped by is a session window."""
    return kind_of(expression) == "AttributeReference" and bool(expression.metadata().contains(_SESSION))


def joins_streams(node: Any) -> bool:
    return kind_of(node) == "Join" and all(each.isStreaming() for each in scala_seq(node.children()))
