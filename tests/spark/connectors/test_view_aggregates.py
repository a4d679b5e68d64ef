"""Every aggregate function of Spark's: a view has it only if its result doesn't depend on the order of the rows."""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from streamhouse.errors import Rejected
from streamhouse.spark.connectors.view_query import mode_of
from streamhouse.spark.runtime.jvm import plain_query

pytestmark = pytest.mark.spark

COLUMNS: Final = "id INT, user STRING, n INT, d DOUBLE, b BOOLEAN, bits BINARY"
SHUFFLES: Final = 4

EXACT: Final[Mapping[str, str]] = {
    **{name: f"{name}(b)" for name in ("any", "bool_and", "bool_or", "count_if", "every", "some")},
    **{name: f"{name}(n)" for name in ("avg", "bit_and", "bit_or", "bit_xor", "count", "max", "mean", "median", "min")},
    **{name: f"{name}(n)" for name in ("sum", "try_avg", "try_sum", "approx_count_distinct")},
    **{name: f"{name}(user, id)" for name in ("max_by", "min_by")},  # an id is there once
    **{name: f"round({name}(n), 6)" for name in ("kurtosis", "skewness", "std", "stddev", "stddev_pop")},
    **{name: f"round({name}(n), 6)" for name in ("stddev_samp", "var_pop", "var_samp", "variance")},
    **{name: f"round({name}(n, id), 6)" for name in ("corr", "covar_pop", "covar_samp", "regr_avgx", "regr_avgy")},
    **{name: f"round({name}(n, id), 6)" for name in ("regr_count", "regr_intercept", "regr_r2", "regr_slope")},
    **{name: f"round({name}(n, id), 6)" for name in ("regr_sxx", "regr_sxy", "regr_syy")},
    **{name: f"{name}(bits)" for name in ("bitmap_and_agg", "bitmap_or_agg")},
    "bitmap_construct_agg": "bitmap_construct_agg(n)",
    "percentile": "percentile(n, 0.3)",
    "percentile_cont": "percentile_cont(0.3) WITHIN GROUP (ORDER BY n)",
    "percentile_disc": "percentile_disc(0.3) WITHIN GROUP (ORDER BY n)",
}
"""By name, a call of each aggregate that is the same whatever the order of its rows."""

BY_ORDER: Final[Mapping[str, tuple[str, str]]] = {
    "any_value": ("any_value(user)", "min_by(user, id)"),
    "first": ("first(user)", "min_by(user, id)"),
    "first_value": ("first_value(user)", "min_by(user, id)"),
    "last": ("last(user)", "max_by(user, id)"),
    "last_value": ("last_value(user)", "max_by(user, id)"),
    "array_agg": ("array_agg(user)", "sort_array(array_agg(user))"),
    "collect_list": ("collect_list(user)", "array_max(collect_list(user))"),
    "collect_set": ("collect_set(user)", "sort_array(collect_set(user))"),
    "collect_union": ("collect_union(array(user))", "cardinality(collect_union(array(user)))"),
    "listagg": ("listagg(user, ',') WITHIN GROUP (ORDER BY n)", "listagg(n, ',') WITHIN GROUP (ORDER BY n)"),
    "string_agg": ("string_agg(user, ',')", "string_agg(user, ',') WITHIN GROUP (ORDER BY n, user)"),
    "mode": ("mode(user)", "mode() WITHIN GROUP (ORDER BY user)"),
}
"""By name, what is refused, and the same with an order."""

ESTIMATES: Final = {
    *("approx_percentile", "approx_top_k", "approx_top_k_accumulate", "approx_top_k_combine", "count_min_sketch"),
    *("histogram_numeric", "hll_sketch_agg", "hll_union_agg", "percentile_approx"),
    *(f"kll_{what}_agg_{kind}" for what in ("merge", "sketch") for kind in ("bigint", "double", "float")),
    *(f"theta_{what}_agg" for what in ("intersection", "sketch", "union")),
    *(f"tuple_{what}_agg_{kind}" for what in ("intersection", "sketch", "union") for kind in ("double", "integer")),
}
"""Whose results, by what Spark says of them, are close to the right one; a view has such an estimate, too."""
NO_AGGREGATES: Final = {"grouping", "grouping_id", "measure"}
"""Of levels, and of views that Spark itself has."""


def test_every_aggregate_of_this_spark_was_decided_on(spark: SparkSession) -> None:
    jvm = spark._jvm
    assert jvm is not None
    registry = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
    names = [registry.listFunction().apply(index) for index in range(registry.listFunction().size())]
    known = {each.funcName() for each in names if registry.lookupFunction(each).get().getGroup() == "agg_funcs"}
    assert known == EXACT.keys() | BY_ORDER.keys() | ESTIMATES | NO_AGGREGATES


def orders(spark: SparkSession) -> list[DataFrame]:
    """The same rows, in several orders and partitions: equally frequent users, many of them, and equal numbers."""
    rows = [
        (number, f"u{number % 200}", number % 97, number / 7, number % 3 == 0, bytes([number % 256]))
        for number in range(400)
    ]
    shuffled = [random.Random(seed).sample(rows, len(rows)) for seed in range(SHUFFLES)]
    made = [spark.createDataFrame(each, COLUMNS) for each in (rows, rows[::-1], *shuffled)]
    return [frame.coalesce(1) if number < 2 else frame.repartition(3) for number, frame in enumerate(made)]


def results(spark: SparkSession, calls: Mapping[str, str]) -> dict[str, set[str]]:
    """By name, what a call returns over the same rows in different orders."""
    made = [f"{call} AS `{name}`" for name, call in calls.items()]
    returned = [frame.selectExpr(*made).collect()[0].asDict() for frame in orders(spark)]
    return {name: {str(each[name]) for each in returned} for name in calls}


def stream(spark: SparkSession, folder: Path) -> None:
    spark.readStream.schema(COLUMNS).json(str(folder)).createOrReplaceTempView("plays")


def test_what_a_view_has_does_not_depend_on_the_order_of_rows(spark: SparkSession, tmp_path: Path) -> None:
    calls = {**EXACT, **{name: call for name, (_, call) in BY_ORDER.items()}}
    different = {name: each for name, each in results(spark, calls).items() if len(each) > 1}
    assert not different
    stream(spark, tmp_path)
    for call in calls.values():
        assert mode_of(plain_query(spark.sql(f"SELECT b, {call} AS x FROM plays GROUP BY b"))) == "update", call


def test_what_depends_on_the_order_of_rows_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    calls = {name: call for name, (call, _) in BY_ORDER.items()}
    assert {name for name, each in results(spark, calls).items() if len(each) == 1} == set()
    stream(spark, tmp_path)
    for call in calls.values():
        with pytest.raises(Rejected, match="goes by the order in which rows are read; do="):
            mode_of(plain_query(spark.sql(f"SELECT b, {call} AS x FROM plays GROUP BY b")))


def test_a_list_within_an_expression_is_found(spark: SparkSession, tmp_path: Path) -> None:
    stream(spark, tmp_path)
    inside = ("element_at(collect_set(user), 1)", "concat(mode(user), '')", "array_join(array_agg(user), ',')")
    outside = ("SELECT b, x FROM (SELECT b, collect_set(user) AS x FROM plays GROUP BY b)",)
    for text in (*(f"SELECT b, {each} AS x FROM plays GROUP BY b" for each in inside), *outside):
        with pytest.raises(Rejected, match="goes by the order in which rows are read"):
            mode_of(plain_query(spark.sql(text)))
