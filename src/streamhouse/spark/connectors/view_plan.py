"""View plan: what a view's query tells of its key, and of how its rows change.

Data path   a frame's analysed plan -> **view plan** -> columns of a key, an output mode
Owns        tracing columns of the result down to the columns that an aggregate groups by
Leaves      rows to `view`, what may change without a new beginning to `sql.shapes`
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql import DataFrame

from streamhouse.errors import Rejected
from streamhouse.spark.connectors.output_modes import unsupported
from streamhouse.spark.jvm import Plan, analyzed_plan, id_of, kind_of, scala_seq, without_alias

_TRANSPARENT: Final = (
    *("Project", "SubqueryAlias", "Filter", "Sort", "GlobalLimit", "LocalLimit", "View", "ResolvedHint"),
    *("EventTimeWatermark", "UpdateEventTimeWatermarkColumn", "Repartition", "RepartitionByExpression"),
    *("WithCTE", "CTERelationRef"),
)
"""Operators that a key passes: what is below them by one row is above them by one at most."""
_HANDS_ON: Final = (
    *("Project", "SubqueryAlias", "View", "ResolvedHint", "EventTimeWatermark", "UpdateEventTimeWatermarkColumn"),
    *("Repartition", "RepartitionByExpression", "WithCTE", "CTERelationRef", "Union"),
)
"""Operators that leave out no row of what is below them; any other one may, a filter, a limit or a join."""
_DECIDING: Final = ("_key", "_partition")
_STATEFUL: Final = ("Aggregate", "Distinct", "Deduplicate", "DeduplicateWithinWatermark", "Join")
_OTHER_STATE: Final = ("State", "FlatMapGroups")


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the result, as an operator below has it: an attribute by its id, or a field of one."""

    name: str
    attribute: int
    field: str | None = None


def key_of(frame: DataFrame) -> tuple[str, ...] | None:
    """The columns that hold what the outermost aggregate groups by: one row for each of their values.

    None where there is no aggregate; none at all where it has no GROUP BY. Raises `Rejected` where a column that it
    groups by isn't in the result.
    """
    plan = analyzed_plan(frame)
    node = plan.root
    columns = [_Column(each.name(), id_of(each)) for each in scala_seq(node.output())]
    while True:
        kind = kind_of(node)
        if kind == "Aggregate":
            return _grouped(node, columns)
        if kind == "Distinct":
            return tuple(column.name for column in columns)
        if kind.startswith("Deduplicate"):
            return _kept([id_of(each) for each in scala_seq(node.keys())], columns)
        if kind not in _TRANSPARENT:
            return None
        if kind == "Project":
            columns = _below(columns, node.projectList())
        elif kind == "CTERelationRef":
            columns = _entered(plan.entered(node), columns)
        node = plan.inputs(node)[0]


def partition_columns(frame: DataFrame, key: Sequence[str]) -> tuple[str, ...]:
    """The columns of a key that decide in which partition its records are: `_key` or `_partition` of a stream.

    Only where operators between the result and the stream hand columns on as they are.
    """
    plan = analyzed_plan(frame)
    node = plan.root
    columns = [_Column(each.name(), id_of(each)) for each in scala_seq(node.output()) if each.name() in key]
    found: set[str] = set()
    while kind_of(node) in _TRANSPARENT:
        if kind_of(node) == "View":
            names = {id_of(each): each.name() for each in scala_seq(node.output())}
            found = {each.name for each in columns if names.get(each.attribute) in _DECIDING and each.field is None}
            break
        if kind_of(node) == "Project":
            columns = _below(columns, node.projectList())
        elif kind_of(node) == "CTERelationRef":
            columns = _entered(plan.entered(node), columns)
        node = plan.inputs(node)[0]
    return tuple(name for name in key if name in found)


def mode_of(frame: DataFrame) -> str:
    """The output mode that keeps a view right.

    Spark tells in mode update which rows are new or other, never which are gone. So where a row of an aggregate can go
    (HAVING, LIMIT, a filter or a join above it, sessions that merge), the whole result comes every time; where Spark
    can't do that either, it refuses the query. Results of several steps that keep state are only told once they are
    final, if they ever are.
    """
    plan = analyzed_plan(frame)
    nodes = [(node, kind_of(node)) for node in plan.walk() if node.isStreaming()]
    steps = [kind for node, kind in nodes if _keeps_state(node, kind)]
    changing = "complete" if _loses_rows(plan, plan.root) else "update"
    if not steps or any(kind not in ("Aggregate", "Distinct") for kind in steps) or len(steps) > 1:
        # A join that never forgets feeds an aggregate that never ends: its rows change, they don't become final.
        return changing if unsupported(frame, ("append",)) and not unsupported(frame, ("update",)) else "append"
    has_sessions = "session_window" in plan.root.toString()
    if has_sessions:
        return "append" if any(kind == "EventTimeWatermark" for _, kind in nodes) else "complete"
    return changing


def _keeps_state(node: Any, kind: str) -> bool:
    if kind == "Join":
        return all(each.isStreaming() for each in scala_seq(node.children()))
    return kind in _STATEFUL or any(word in kind for word in _OTHER_STATE)


def _loses_rows(plan: Plan, node: Any, *, is_above: bool = True) -> bool:
    """Whether an operator between the result and a streaming aggregate can leave out a row that the aggregate changed.

    Decided from the result inward. `is_above`: all operators so far hand every row on.
    """
    kind = kind_of(node)
    if not node.isStreaming():
        return False
    if kind in ("Aggregate", "Distinct"):
        return not is_above
    hands_on = is_above and kind in _HANDS_ON
    return any(_loses_rows(plan, each, is_above=hands_on) for each in plan.inputs(node))


# --- tracing


def _below(columns: list[_Column], made: Any) -> list[_Column]:
    """The columns as the operator below has them; those that are computed here are of no key."""
    known = {id_of(each): each for each in scala_seq(made)}
    found = []
    for column in columns:
        expression = known.get(column.attribute)
        if expression is None:
            continue
        traced = _traced(column, expression)
        if traced is not None:
            found.append(traced)
    return found


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


def _grouped(aggregate: Any, columns: list[_Column]) -> tuple[str, ...]:
    """For each expression that it groups by, the column that has it, else those that have fields of it."""
    made = {id_of(each): each for each in scala_seq(aggregate.aggregateExpressions())}
    key: list[str] = []
    for expression in scala_seq(aggregate.groupingExpressions()):
        whole = [column.name for column in columns if _is(made.get(column.attribute), expression) and not column.field]
        parts = [column.name for column in columns if _is_part(made.get(column.attribute), column, expression)]
        if not whole and not parts:
            raise _not_selected(expression.sql())
        key += [name for name in (whole[:1] or parts) if name not in key]
    return tuple(key)


def _is(made: Any, grouped: Any) -> bool:
    return made is not None and bool(without_alias(made).semanticEquals(grouped))


def _is_part(made: Any, column: _Column, grouped: Any) -> bool:
    """A field of a window: `window.start AS begins`, here or above."""
    if made is None:
        return False
    expression = without_alias(made)
    if column.field is not None:
        return bool(expression.semanticEquals(grouped))
    return kind_of(expression) == "GetStructField" and bool(expression.child().semanticEquals(grouped))


def _kept(attributes: list[int], columns: list[_Column]) -> tuple[str, ...]:
    by_attribute = {column.attribute: column.name for column in columns if column.field is None}
    if not all(each in by_attribute for each in attributes):
        raise _not_selected("a column that rows are told apart by")
    return tuple(by_attribute[each] for each in attributes)


def _not_selected(what: str) -> Rejected:
    return Rejected(
        f"a view's row is found by what it is grouped by; missing={what} do=select it as well, or say KEY (…) yourself"
    )
