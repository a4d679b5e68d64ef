"""The JVM's plans: Spark's trees of operators and expressions, read over py4j.

Data path   a text, a frame -> Spark's parser and analyser -> **Plan**, **walk_expression** -> who asks about a query
Owns        Scala's sequences; the order in which a plan is walked; what a WITH names and what a subquery holds
Leaves      what an operator means for state, keys and output modes to the caller

A plan is walked from the result inward, left to right. What a WITH names stands where it is used, as often as it is:
this is also the order in which a checkpoint counts its sources.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

_OPTIMIZER: Final = "org.apache.spark.sql.catalyst.optimizer"


def scala_seq(found: Any) -> list[Any]:
    """The elements of a Scala Seq."""
    return [found.apply(place) for place in range(found.size())]


def kind_of(node: Any) -> str:
    """The name of an operator's or expression's class: `Aggregate`, `AttributeReference`."""
    return str(node.getClass().getSimpleName()).removesuffix("$")


def id_of(attribute: Any) -> int:
    """The number by which Spark tells a named expression from all others."""
    return int(attribute.exprId().id())


def parse_plan(session: SparkSession, text: str) -> Any:
    """What Spark's parser makes of a text; nothing in it is looked up. Raises Spark's ParseException."""
    return session._jsparkSession.sessionState().sqlParser().parsePlan(text)


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
    made = jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plain_plan(spark, plan))
    return DataFrame(made, spark)


def plain_plan(spark: SparkSession, plan: Any) -> Any:
    """`plain_query` of an analysed plan, by the rules of Spark's own optimiser."""
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.sql.catalyst.optimizer.ReplaceDistinctWithAggregate.apply(_inlined(spark, plan))


def _inlined(spark: SparkSession, plan: Any) -> Any:
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    rule = jvm.java.lang.Class.forName(f"{_OPTIMIZER}.InlineCTE").getConstructors()[0]
    flags = gateway.new_array(jvm.java.lang.Object, rule.getParameterCount())
    for place in range(rule.getParameterCount()):
        flags[place] = place == 0  # the first: always, not only where a name is used once
    return rule.newInstance(flags).apply(plan)


class Plan:
    """An analysed or optimised plan. Operators are the JVM's own objects."""

    def __init__(self, root: Any) -> None:
        self.root = root

    @cached_property
    def definitions(self) -> dict[int, Any]:
        """The query of each name of a WITH, by its id, in whatever part of the plan the WITH stands."""
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


def without_alias(expression: Any) -> Any:
    """What an alias names."""
    return without_alias(expression.child()) if kind_of(expression) == "Alias" else expression
