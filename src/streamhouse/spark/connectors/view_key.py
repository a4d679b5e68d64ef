"""View key: which columns identify the rows of a view.

Data path   a frame's analysed plan -> **view plan** -> columns of a key
Owns        tracing columns of the result down to the columns that an aggregate groups by
Leaves      rows to `materialized_view`, how they change to `view_query`, what may change without a new beginning to
            `query.state_signature`
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql import DataFrame

from streamhouse.errors import Rejected
from streamhouse.model.identifiers import quote_if_needed
from streamhouse.spark.runtime.jvm import Plan, analyzed_plan, id_of, is_window, kind_of, scala_seq, without_alias

_TRANSPARENT: Final = (
    *("Project", "SubqueryAlias", "Filter", "Sort", "GlobalLimit", "LocalLimit", "Offset", "Window", "View"),
    *("ResolvedHint", "RebalancePartitions"),
    *("EventTimeWatermark", "UpdateEventTimeWatermarkColumn", "Repartition", "RepartitionByExpression"),
    *("WithCTE", "CTERelationRef", "PipeOperator"),
)
"""Operators that a key passes: what is below them by one row is above them by one at most."""
_DECIDING: Final = ("_key", "_partition")
_GROUPING_ID: Final = "spark_grouping_id"
_NO_NAME: Final = "__auto_generated_subquery_name."
_REPEATED_SET: Final = "_gen_grouping_pos"
"""What Spark groups by besides, where ROLLUP, CUBE or GROUPING SETS makes several rows of one; the same set twice."""


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the result, as an operator below has it: an attribute by its id, or a field of one."""

    name: str
    attribute: int
    field: str | None = None


def key_of(frame: DataFrame, declared: Sequence[str] = ()) -> tuple[str, ...] | None:
    """The columns that hold what the outermost aggregate groups by: one row for each of their values; of several that
    hold the same, the declared one.

    None where there is no aggregate; none at all where it has no GROUP BY. Raises `Rejected` where a column that it
    groups by isn't in the result.
    """
    plan = analyzed_plan(frame)
    node, columns = _outermost(plan)
    kind = kind_of(node)
    if kind == "Aggregate":
        return _grouped(node, columns, declared)
    if kind == "Distinct" or kind.startswith("Deduplicate"):
        return _kept(scala_seq(node.output() if kind == "Distinct" else node.keys()), columns)
    return None


def partition_columns(frame: DataFrame, key: Sequence[str]) -> tuple[str, ...]:
    """The columns of a key that decide in which partition its records are: `_key` or `_partition` of a stream.

    Only where operators between the result and the stream hand columns on as they are.
    """
    plan = analyzed_plan(frame)
    node = plan.root
    columns = [_Column(each.name(), id_of(each)) for each in scala_seq(node.output()) if each.name() in key]
    deciding: set[str] = set()
    while kind_of(node) in _TRANSPARENT:
        if kind_of(node) == "View":
            names = {id_of(each): each.name() for each in scala_seq(node.output())}
            deciding = {each.name for each in columns if names.get(each.attribute) in _DECIDING and each.field is None}
            break
        if kind_of(node) == "Project":
            columns = _below(columns, node.projectList())
        elif kind_of(node) == "CTERelationRef":
            columns = _entered(plan.entered(node), columns)
        node = plan.inputs(node)[0]
    return tuple(name for name in key if name in deciding)


def changing_key_of(frame: DataFrame) -> tuple[str, ...] | None:
    """All columns whose values a row of the outermost aggregate keeps; None where there is no aggregate."""
    plan = analyzed_plan(frame)
    node, columns = _outermost(plan)
    kind = kind_of(node)
    if kind == "Distinct":
        return tuple(column.name for column in columns)
    if kind != "Aggregate":
        return None
    aggregates = {id_of(each): each for each in scala_seq(node.aggregateExpressions())}
    groups = scala_seq(node.groupingExpressions())
    return tuple(
        column.name
        for column in columns
        if any(
            _is(aggregates.get(column.attribute), each) or _is_part(aggregates.get(column.attribute), column, each)
            for each in groups
        )
    )


def view_key(frame: DataFrame, declared: Sequence[str]) -> tuple[str, ...]:
    """The columns of a view's key: those that are declared, else what the query groups by.

    Raises `Rejected` if they don't identify the rows of the result, or two columns have one name.
    """
    _check_names(frame)
    if absent := [name for name in declared if name not in frame.columns]:
        raise Rejected(
            f"the key names no column; column={absent[0]} columns={','.join(frame.columns)} do=select it as well"
        )
    grouped = key_of(frame, declared)
    if not declared:
        if grouped is None:
            raise Rejected(
                "a view needs a key, and the query groups by nothing; do=CREATE MATERIALIZED VIEW … KEY (column) AS …"
            )
        return grouped
    if grouped is not None and not set(grouped) <= set(declared):
        raise Rejected(
            f"several rows of the result can have one key; key={','.join(declared)} rows_by={','.join(grouped)}"
            f" do=KEY ({', '.join(map(quote_if_needed, grouped))}), or GROUP BY the columns of the key alone"
        )
    return tuple(declared)


def _check_names(frame: DataFrame) -> None:
    seen: set[str] = set()
    for name in frame.columns:
        if name.lower() in seen:
            raise Rejected(f"two columns are called {name.lower()}; do=give one another name: … AS other")
        seen.add(name.lower())


# --- tracing


def _outermost(plan: Plan) -> tuple[Any, list[_Column]]:
    """The first operator from the result inward that a key doesn't pass, and the result's columns as it has them."""
    node = plan.root
    columns = [_Column(each.name(), id_of(each)) for each in scala_seq(node.output())]
    while kind_of(node) in _TRANSPARENT:
        if kind_of(node) == "Project":
            columns = _below(columns, node.projectList())
        elif kind_of(node) == "CTERelationRef":
            columns = _entered(plan.entered(node), columns)
        node = plan.inputs(node)[0]
    return node, columns


def _below(columns: list[_Column], aggregates: Any) -> list[_Column]:
    """The columns as the operator below has them; those that are computed here are of no key."""
    known = {id_of(each): each for each in scala_seq(aggregates)}
    traced_columns = []
    for column in columns:
        expression = known.get(column.attribute)
        if expression is None:
            continue
        traced = _traced(column, expression)
        if traced is not None:
            traced_columns.append(traced)
    return traced_columns


def _traced(column: _Column, expression: Any) -> _Column | None:
    kind = kind_of(expression)
    if kind == "Alias":
        return _traced(column, expression.child())
    if kind == "AttributeReference":
        return _Column(column.name, id_of(expression), column.field)
    if kind == "GetStructField" and column.field is None and kind_of(expression.child()) == "AttributeReference":
        return _Column(column.name, id_of(expression.child()), expression.extractFieldName())
    return None


def _entered(inner: Mapping[int, int], columns: list[_Column]) -> list[_Column]:
    """The columns as the query that a WITH names has them."""
    return [replace(each, attribute=inner[each.attribute]) for each in columns]


def _grouped(aggregate: Any, columns: list[_Column], declared: Sequence[str]) -> tuple[str, ...]:
    """For each expression that it groups by, the column that has it; of a window a field of it is enough. Fields of
    another struct aren't: it may have more of them, and be NULL itself."""
    aggregates = {id_of(each): each for each in scala_seq(aggregate.aggregateExpressions())}
    key: list[str] = []
    groups = scala_seq(aggregate.groupingExpressions())
    if any(_REPEATED_SET in each.sql() for each in groups):
        raise Rejected(
            "two grouping sets are the same, and so are their rows; do=name each set once,"
            " and SELECT grouping_id() AS level as well"
        )
    for expression in groups:
        whole = [
            column.name for column in columns if _is(aggregates.get(column.attribute), expression) and not column.field
        ]
        parts = [
            column.name
            for column in columns
            if is_window(expression) and _is_part(aggregates.get(column.attribute), column, expression)
        ]
        if not whole and not parts:
            raise _not_selected(expression.sql().replace(_NO_NAME, ""))
        chosen = [name for name in (*whole, *parts) if name in declared][:1] or whole[:1] or parts
        key += [name for name in chosen if name not in key]
    return tuple(key)


def _is(aggregates: Any, grouped: Any) -> bool:
    return aggregates is not None and bool(without_alias(aggregates).semanticEquals(grouped))


def _is_part(aggregates: Any, column: _Column, grouped: Any) -> bool:
    """A field of a window: `window.start AS begins`, here or above."""
    if aggregates is None:
        return False
    expression = without_alias(aggregates)
    if column.field is not None:
        return bool(expression.semanticEquals(grouped))
    return kind_of(expression) == "GetStructField" and bool(expression.child().semanticEquals(grouped))


def _kept(attributes: list[Any], columns: list[_Column]) -> tuple[str, ...]:
    by_attribute = {column.attribute: column.name for column in columns if column.field is None}
    if missing := [each.name() for each in attributes if id_of(each) not in by_attribute]:
        raise _not_selected(",".join(missing))
    return tuple(by_attribute[id_of(each)] for each in attributes)


def _not_selected(what: str) -> Rejected:
    if _GROUPING_ID in what:
        return Rejected(
            "rows of ROLLUP, CUBE and GROUPING SETS are identified by their level, since a column can be NULL as well;"
            " do=SELECT grouping_id() AS level as well, and where there is a KEY, name level in it"
        )
    return Rejected(
        f"a view's row is identified by its grouping columns; missing={what}"
        " do=select it as well, and where there is a KEY, name it there"
    )
