"""Plans of Spark are walked in one way: what a WITH names where it is used, and what a subquery holds."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from streamhouse.spark.runtime.jvm import (
    analyzed_plan,
    id_of,
    kind_of,
    parse_plan,
    scala_seq,
    walk_everything,
    walk_expression,
)

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def orders(spark: SparkSession) -> Iterator[None]:
    spark.sql("SELECT 1 AS id, 2 AS amount").createOrReplaceTempView("walked_orders")
    yield
    spark.catalog.dropTempView("walked_orders")


def kinds(spark: SparkSession, text: str, **how: bool) -> list[str]:
    return [kind_of(node) for node in analyzed_plan(spark.sql(text)).walk(**how)]


def test_what_a_with_names_stands_where_it_is_used_as_often_as_it_is(spark: SparkSession) -> None:
    text = "WITH c AS (SELECT DISTINCT id FROM walked_orders) SELECT * FROM c AS a JOIN c AS b ON a.id = b.id"
    assert kinds(spark, text).count("Distinct") == 2
    assert "CTERelationDef" not in kinds(spark, text)


def test_views_are_entered_or_not(spark: SparkSession) -> None:
    text = "SELECT id FROM walked_orders"
    assert kinds(spark, text, into_views=False)[-1] == "View"
    assert kinds(spark, text)[-1] == "OneRowRelation"


@pytest.mark.parametrize(
    "condition",
    [
        "id IN (SELECT max(id) FROM walked_orders)",
        "EXISTS (SELECT max(id) FROM walked_orders)",
        "id = (SELECT max(id) FROM walked_orders)",
        "id IN (WITH c AS (SELECT max(id) FROM walked_orders) SELECT * FROM c)",
    ],
)
def test_plans_of_subqueries_are_found(spark: SparkSession, condition: str) -> None:
    text = f"SELECT id FROM walked_orders WHERE {condition}"
    assert kinds(spark, text, into_subqueries=True).count("Aggregate") == 1
    assert "Aggregate" not in kinds(spark, text)


def test_a_subquery_sees_the_with_around_it(spark: SparkSession) -> None:
    text = "WITH c AS (SELECT max(id) AS id FROM walked_orders) SELECT 1 WHERE 1 IN (SELECT id FROM c)"
    assert kinds(spark, text, into_subqueries=True).count("Aggregate") == 1


def test_columns_of_a_with_are_entered_by_position(spark: SparkSession) -> None:
    plan = analyzed_plan(
        spark.sql("WITH c (a, b) AS (SELECT id, amount FROM walked_orders) SELECT x.b FROM c JOIN c AS x ON c.a = x.a")
    )
    for reference in (node for node in plan.walk() if kind_of(node) == "CTERelationRef"):
        inner = [id_of(each) for each in scala_seq(plan.definitions[reference.cteId()].output())]
        assert list(plan.entered(reference).values()) == inner


def test_a_parsed_plan_is_walked_with_its_withs_and_subqueries(spark: SparkSession) -> None:
    text = "WITH c AS (SELECT DISTINCT id FROM a) SELECT * FROM c WHERE id IN (SELECT id FROM b LIMIT 1)"
    results = [kind_of(node) for node in walk_everything(parse_plan(spark, text))]
    assert {"Distinct", "GlobalLimit"} <= set(results)


def test_expressions_are_walked_from_the_outermost(spark: SparkSession) -> None:
    (made,) = scala_seq(analyzed_plan(spark.sql("SELECT abs(id + 1) AS x FROM walked_orders")).root.projectList())
    assert [kind_of(each) for each in walk_expression(made)] == ["Alias", "Abs", "Add", "AttributeReference", "Literal"]
