"""View query: in which output mode a view is kept right, or why its query can't be kept.

Data path   a frame's analysed plan, its key -> **view query** -> an output mode, or `Rejected` with what to do instead
Owns        how rows of each operator change, decided from the result inward; what no stream can be kept right with
Leaves      which columns are the key to `view_key`, what Spark can't start to `jvm`

A view is right when it has the rows of the batch query over the same records after every micro-batch. Spark emits in
mode append which rows are new, in mode update which are new or other, never which are gone; in mode complete it emits
the whole result. An operator that isn't known here is refused.
"""

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, Final

from pyspark.sql import DataFrame

from streamhouse.errors import Rejected
from streamhouse.spark.connectors.view_key import changing_key_of
from streamhouse.spark.runtime.jvm import (
    Plan,
    analyzed_plan,
    check_subqueries,
    has_binary_equality,
    is_session,
    joins_streams,
    kind_of,
    scala_seq,
    unsupported,
    walk_expression,
)
from streamhouse.sql.options import ON_ARRIVAL

RECOMPUTE: Final = "name its tables without STREAM, then all of it is computed anew when they change"
"""A fallback for all queries: the view is computed as a batch query."""
_SAME_ROWS: Final = (
    *("Project", "SubqueryAlias", "ResolvedHint", "EventTimeWatermark", "UpdateEventTimeWatermarkColumn"),
    *("Repartition", "RepartitionByExpression", "RebalancePartitions", "WithCTE", "CTERelationRef"),
    "PipeOperator",
)
"""A row of the result for each row of the input."""
_BY_ROW: Final = ("Filter", "Generate", "Expand", "LateralJoin")
"""None, one or several rows of the result for each row of the input, whatever the others are."""
_ORDERED: Final = ("Sort", "GlobalLimit", "LocalLimit", "Offset")
_SOURCES: Final = ("View", "StreamingRelation", "StreamingRelationV2", "LogicalRDD", "StreamingDataSourceV2Relation")
"""Whether a view only passes records on, one by one: Spark wraps each table name of a query in a View."""
_INNER: Final = ("INNER", "CROSS", "LEFT SEMI")
_TIMES: Final = ("CurrentTimestamp", "Now", "CurrentDate", "LocalTimestamp", "CurrentTime", "CurrentTimestampLike")
_TO_MOMENTS: Final = ("Cast", "ParseToTimestamp", "ParseToDate")
_MOMENTS: Final = ("date", "timestamp", "timestamp_ntz")
NAMED_TIMES: Final = re.compile(r"\s*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
"""Texts that Spark reads as a time of its own clock when they become one."""
_BY_ARRIVAL: Final = ("First", "Last", "AnyValue")
_BY_ORDER: Final = {
    "CollectList": "sort_array(collect_list(column))",
    "CollectSet": "sort_array(collect_set(column))",
    "CollectUnion": "sort_array(collect_union(column))",
    "ListAgg": "listagg(column, ', ') WITHIN GROUP (ORDER BY column)",
    "Mode": "mode() WITHIN GROUP (ORDER BY column)",
}
"""Aggregates whose result depends on the order in which rows are read (elements of an array, equally frequent values),
and how to write them with an order."""
_UNORDERED: Final = (
    *("SortArray", "ArraySort", "Size", "ArrayContains", "ArrayExists", "ArrayForAll", "ArrayMax", "ArrayMin"),
)
"""Functions of an array whose result doesn't depend on its order."""
_SORTED: Final = ("SortArray", "ArraySort", "ArrayMax", "ArrayMin")
"""Those of them that compare elements: which of equal ones is first depends on the order."""
_COMPARING: Final = ("Max", "Min", "Mode", "ListAgg")
"""Aggregates that compare values, and have one of those that are equal."""
_COMPARISONS: Final = ("LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual")
_WATERMARK: Final = "spark.watermarkDelayMs"
"""In the metadata of a column that has one."""


class Change(Enum):
    """How the rows of an operator change from one micro-batch to the next."""

    ADDED = "added"
    """Rows come, each in the micro-batch of the last record that it is made of, and stay as they are."""
    CHANGED = "changed"
    """Rows come and change; what they are grouped by stays."""
    REPLACED = "replaced"
    """Rows come, change and go: only the whole result is right."""


class _Changing(Rejected):
    """Rows that change would be the input of an operator that counts on rows that don't."""


def mode_of(frame: DataFrame, key: Sequence[str] = (), output: str | None = None) -> str:
    """The output mode that keeps a view right; `output` is what its options say. Raises `Rejected` where none does.

    `output` append is taken as it is: rows that come once they are final, if Spark can emit them. Mode update is chosen
    where every row that changes has the key it had.
    """
    plan = analyzed_plan(frame)
    _check_expressions(plan, frame.sparkSession._jvm)
    check_subqueries(frame)
    if output == "append":
        return output
    try:
        change = _change(plan, plan.root)
    except _Changing as error:
        raise Rejected(f"{error}; do={_final(frame)}{RECOMPUTE}") from None
    if change is Change.ADDED:
        return "complete" if output == "complete" else "append"
    if output == "complete" or change is Change.REPLACED or _has_sessions(plan):
        return "complete"
    stays = changing_key_of(frame)
    return "update" if stays is not None and set(key) <= set(stays) else "complete"


def check_tables(streams: Sequence[str], tables: Sequence[str], lookup: str | None) -> None:
    """Raise `Rejected` for a stream beside a table, which may change after rows were made with it, unless the
    statement says that this is meant."""
    if streams and tables and lookup is None:
        named = ", ".join(tables)
        raise Rejected(
            f"rows that were made with {named} stay as they are when {named} changes later; do={RECOMPUTE}; or, if rows"
            f" are to have what is in {named} when they arrive, WITH (lookup = '{ON_ARRIVAL}')"
        )


def _final(frame: DataFrame) -> str:
    """A further hint, if Spark can emit rows when they are final."""
    is_final = unsupported(frame, ("append",)) is None
    return "WITH (output = 'append') the view has rows once they are final; or " if is_final else ""


def _change(plan: Plan, node: Any) -> Change:
    kind = kind_of(node)
    if kind in _SOURCES:
        return Change.ADDED
    if kind in _SAME_ROWS:
        return _change(plan, plan.inputs(node)[0])
    if kind in _BY_ROW:
        return _replaced(_change(plan, plan.inputs(node)[0]))
    if kind in _ORDERED:
        return _ordered(plan, node, kind)
    if kind in ("Aggregate", "Distinct"):
        return _aggregated(plan, node)
    if kind == "Join":
        return _joined(plan, node)
    if kind == "Union":
        return _united(plan, node)
    if kind == "Window":
        raise _rejection("rows that depend on the rows around them, as OVER (…) has them,")
    raise _rejection(f"the result of {kind.upper()}")


def _replaced(change: Change) -> Change:
    """The change of an operator that can leave out a row when the row changes."""
    return Change.ADDED if change is Change.ADDED else Change.REPLACED


def _ordered(plan: Plan, node: Any, kind: str) -> Change:
    below = _change(plan, plan.inputs(node)[0])
    if below is Change.ADDED:
        raise _rejection("the order of a stream's rows, or a number of them,")
    if kind == "GlobalLimit" and not _is_sorted(plan, node):
        raise Rejected(
            "LIMIT without ORDER BY may be any rows, other ones every time; do=ORDER BY columns that identify rows"
        )
    return Change.REPLACED


def _is_sorted(plan: Plan, node: Any) -> bool:
    while kind_of(node) in (*_SAME_ROWS, "GlobalLimit", "LocalLimit", "Offset", "Filter"):
        node = plan.inputs(node)[0]
    return kind_of(node) == "Sort"


def _aggregated(plan: Plan, node: Any) -> Change:
    """The change of an aggregate. Its input rows must not change: each version of a row would be counted."""
    if _change(plan, plan.inputs(node)[0]) is Change.ADDED:
        _check_times(plan, node)
        return Change.CHANGED
    raise _Changing("an aggregate, or DISTINCT, of rows that change themselves can't be kept up to date on a stream")


def _check_times(plan: Plan, node: Any) -> None:
    """Raise where an aggregate by time would leave out rows of a join, though none of its records is late."""
    if kind_of(node) != "Aggregate" or not any(map(_has_watermark, _groups(node))):
        return
    if any(joins_streams(each) and not _is_within_time(each) for each in plan.walk(node, into_views=False)):
        raise Rejected(
            "a row of a join can be older than the watermark though its records aren't late, and would be left out;"
            " do=join within a time, AND b.at BETWEEN a.at AND a.at + INTERVAL 1 HOUR, or leave the watermark out"
        )


def _is_within_time(join: Any) -> bool:
    """Whether its condition bounds the times of both streams: from below and above, or they are equal."""
    if not join.condition().isDefined():
        return False
    kinds = [
        kind_of(each)
        for each in walk_expression(join.condition().get())
        if kind_of(each) in (*_COMPARISONS, "Between", "EqualTo") and _compares_times(join, each)
    ]
    return "EqualTo" in kinds or "Between" in kinds or len(kinds) > 1


def _compares_times(join: Any, comparison: Any) -> bool:
    times = [each for each in walk_expression(comparison) if _has_watermark(each)]
    return all(any(side.outputSet().contains(each) for each in times) for side in (join.left(), join.right()))


def _has_watermark(expression: Any) -> bool:
    return kind_of(expression) == "AttributeReference" and bool(expression.metadata().contains(_WATERMARK))


def _joined(plan: Plan, node: Any) -> Change:
    streams = [each for each in plan.inputs(node) if each.isStreaming()]
    changes = [_change(plan, each) for each in streams]
    if len(streams) == 1:
        return _replaced(changes[0])
    if any(change is not Change.ADDED for change in changes):
        raise _Changing("a join of a stream with rows that change can't be kept up to date")
    kind = str(node.joinType().sql())
    if kind == "LEFT ANTI":
        raise _rejection("LEFT ANTI JOIN of streams, whose rows go when a partner comes,")
    if kind not in _INNER:
        raise Rejected(
            f"{kind} JOIN of streams has rows without a partner only when none can come any more; do=give both streams"
            " a watermark, join within a time, AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR, and say"
            f" WITH (output = 'append'), or {RECOMPUTE}"
        )
    return Change.ADDED


def _united(plan: Plan, node: Any) -> Change:
    changes = {_change(plan, each) for each in plan.inputs(node)}
    if changes == {Change.ADDED}:
        return Change.ADDED
    if Change.ADDED in changes:
        raise _rejection("a UNION of rows that change and of rows that only come")
    return Change.REPLACED


def _has_sessions(plan: Plan) -> bool:
    """Sessions merge, so that rows go."""
    groups = (each for node in plan.walk() if kind_of(node) == "Aggregate" for each in _groups(node))
    return any(map(is_session, groups))


def _groups(aggregate: Any) -> list[Any]:
    return scala_seq(aggregate.groupingExpressions())


# --- expressions


def _check_expressions(plan: Plan, jvm: Any) -> None:
    """Raise for an expression that is not deterministic, or depends on the order in which rows arrive."""
    for expression in _expressions(plan):
        kind = kind_of(expression)
        if kind in _TIMES:
            raise Rejected(
                f"{expression.prettyName()} is another time in every micro-batch, and rows of earlier ones stay as they"
                f" are; do=use a time of the records, or {RECOMPUTE}"
            )
        if kind in _TO_MOMENTS and _is_named_time(expression):
            text = expression.children().head().sql()
            raise Rejected(
                f"the text {text} is another time in every micro-batch, and rows of earlier ones stay as they are;"
                f" do=use a time of the records, or {RECOMPUTE}"
            )
        if kind in _BY_ARRIVAL:
            name = expression.prettyName()
            raise Rejected(
                f"{name} goes by the order in which rows are read; do=min_by(column, at) or max_by(column, at)"
            )
        if kind in _BY_ORDER and not _has_order(expression):
            raise Rejected(f"{expression.prettyName()} goes by the order in which rows are read; do={_BY_ORDER[kind]}")
        if _compares(expression) and not all(
            has_binary_equality(jvm, each) for each in scala_seq(expression.children())
        ):
            raise Rejected(
                f"of texts that are equal by a collation, {expression.prettyName()} takes the one that is read first;"
                " do=compare them by their bytes, column COLLATE UTF8_BINARY"
            )
        if kind == "ArraySort" and _sorts_rows(expression) and not _has_default_order(jvm, expression):
            raise Rejected(
                "array_sort keeps elements that its function holds to be equal in the order in which rows are read;"
                " do=sort_array(collect_list(struct(at, id))), by everything in which elements differ"
            )
        if not expression.deterministic() and all(each.deterministic() for each in scala_seq(expression.children())):
            raise Rejected(f"{expression.prettyName()} is something else every time; do=leave it out, or {RECOMPUTE}")


def _is_named_time(cast: Any) -> bool:
    text = cast.children().head()
    if cast.dataType().typeName() not in _MOMENTS or text.dataType().typeName() != "string" or not text.foldable():
        return False
    return NAMED_TIMES.match(str(text.eval(None))) is not None


def _expressions(plan: Plan) -> Iterator[Any]:
    for node in plan.walk(into_views=False, into_subqueries=True):
        for each in scala_seq(node.expressions()):
            yield from _walk_ordered(each)


def _walk_ordered(expression: Any) -> Iterator[Any]:
    """An expression and all in it, except for arrays of which only what doesn't depend on their order is taken."""
    yield expression
    for child in scala_seq(expression.children()):
        if kind_of(expression) in _UNORDERED and kind_of(child) == "AggregateExpression":
            yield from (each for each in walk_expression(child) if not kind_of(each).startswith("Collect"))
        else:
            yield from _walk_ordered(child)


def _has_order(expression: Any) -> bool:
    """Whether it says itself which of several values comes first, or stays. A list has an order only if what is listed
    is in it: rows that are equal by other columns may come in any."""
    if kind_of(expression) == "Mode":
        return bool(expression.reverseOpt().isDefined())
    if kind_of(expression) != "ListAgg":
        return False
    listed = expression.child()
    value = listed.child() if kind_of(listed) == "Cast" else listed  # numbers are listed as texts
    ordered = [each.child() for each in scala_seq(expression.orderExpressions())]
    return any(order.semanticEquals(each) for order in ordered for each in (listed, value))


def _compares(expression: Any) -> bool:
    return kind_of(expression) in _COMPARING or _sorts_rows(expression)


def _sorts_rows(expression: Any) -> bool:
    """Whether the elements of an array that it sorts are of several rows."""
    return kind_of(expression) in _SORTED and kind_of(scala_seq(expression.children())[0]) == "AggregateExpression"


def _has_default_order(jvm: Any, array_sort: Any) -> bool:
    compare = array_sort.function()
    first, second = scala_seq(compare.arguments())
    comparators = getattr(getattr(jvm.org.apache.spark.sql.catalyst.expressions, "ArraySort$"), "MODULE$")
    return bool(comparators.comparator(first, second).semanticEquals(compare.function()))


def _rejection(what: str) -> Rejected:
    return Rejected(f"{what} can't be kept up to date on a stream; do={RECOMPUTE}")
