"""View plan: what a view's query tells of its key, and of how its rows change.

Data path   a frame's analysed plan -> **view plan** -> columns of a key, an output mode
Owns        tracing columns of the result down to the columns that an aggregate groups by
Leaves      rows to `view`, what may change without a new beginning to `sql.shapes`
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame

from streamhouse.errors import Rejected
from streamhouse.spark.connectors.output_modes import unsupported

_TRANSPARENT: Final = (
    *("Project", "SubqueryAlias", "Filter", "Sort", "GlobalLimit", "LocalLimit", "View", "ResolvedHint"),
    *("EventTimeWatermark", "UpdateEventTimeWatermarkColumn", "Repartition", "RepartitionByExpression", "WithCTE"),
)
"""Operators that a key passes: what is below them by one row is above them by one at most."""
_HANDS_ON: Final = (
    *("Project", "SubqueryAlias", "View", "ResolvedHint", "EventTimeWatermark", "UpdateEventTimeWatermarkColumn"),
    *("Repartition", "RepartitionByExpression", "WithCTE", "CTERelationRef", "Union"),
)
"""Operators that leave out no row of what is below them; any other one may, a filter, a limit or a join."""
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
    plan = frame._jdf.queryExecution().analyzed()
    columns = [_Column(each.name(), each.exprId().id()) for each in _seq(plan.output())]
    definitions: dict[int, Any] = {}
    while True:
        kind = plan.nodeName()
        if kind == "Aggregate":
            return _grouped(plan, columns)
        if kind == "Distinct":
            return tuple(column.name for column in columns)
        if kind.startswith("Deduplicate"):
            return _kept([each.exprId().id() for each in _seq(plan.keys())], columns)
        if kind == "CTERelationRef":
            plan, columns = _entered(plan, definitions, columns)
            continue
        if kind not in _TRANSPARENT:
            return None
        if kind == "Project":
            columns = _below(columns, plan.projectList())
        if kind == "WithCTE":
            definitions |= {each.id(): each for each in _seq(plan.cteDefs())}
            plan = plan.plan()
        else:
            plan = plan.children().apply(0)


def mode_of(frame: DataFrame) -> str:
    """The output mode that keeps a view right.

    Spark tells in mode update which rows are new or other, never which are gone. So where a row of an aggregate can go
    (HAVING, LIMIT, a filter or a join above it, sessions that merge), the whole result comes every time; where Spark
    can't do that either, it refuses the query. Results of several steps that keep state are only told once they are
    final, if they ever are.
    """
    plan = frame._jdf.queryExecution().analyzed()
    nodes = [(node, node.nodeName()) for node in _walk(plan, _definitions(plan)) if node.isStreaming()]
    steps = [kind for node, kind in nodes if _keeps_state(node, kind)]
    changing = "complete" if _loses_rows(plan, _definitions(plan)) else "update"
    if not steps or any(kind not in ("Aggregate", "Distinct") for kind in steps) or len(steps) > 1:
        # A join that never forgets feeds an aggregate that never ends: its rows change, they don't become final.
        return changing if unsupported(frame, ("append",)) and not unsupported(frame, ("update",)) else "append"
    has_sessions = "session_window" in plan.toString()
    if has_sessions:
        return "append" if any(kind == "EventTimeWatermark" for _, kind in nodes) else "complete"
    return changing


def _keeps_state(node: Any, kind: str) -> bool:
    if kind == "Join":
        return all(each.isStreaming() for each in _seq(node.children()))
    return kind in _STATEFUL or any(word in kind for word in _OTHER_STATE)


def _loses_rows(node: Any, definitions: Mapping[int, Any], *, is_above: bool = True) -> bool:
    """Whether an operator between the result and a streaming aggregate can leave out a row that the aggregate changed.

    Decided from the result inward. `is_above`: all operators so far hand every row on.
    """
    kind = node.nodeName()
    if not node.isStreaming():
        return False
    if kind in ("Aggregate", "Distinct"):
        return not is_above
    hands_on = is_above and kind in _HANDS_ON
    return any(_loses_rows(each, definitions, is_above=hands_on) for each in _below_of(node, definitions))


# --- tracing


def _below(columns: list[_Column], made: Any) -> list[_Column]:
    """The columns as the operator below has them; those that are computed here are of no key."""
    known = {each.exprId().id(): each for each in _seq(made)}
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
    kind = _kind(expression)
    if kind == "Alias":
        return _traced(column, expression.child())
    if kind == "AttributeReference":
        return _Column(column.name, expression.exprId().id(), column.field)
    if kind == "GetStructField" and column.field is None and _kind(expression.child()) == "AttributeReference":
        return _Column(column.name, expression.child().exprId().id(), expression.extractFieldName())
    return None


def _entered(reference: Any, definitions: dict[int, Any], columns: list[_Column]) -> tuple[Any, list[_Column]]:
    """What a name of a WITH stands for; its columns are the same, in the same places."""
    plan = definitions[reference.cteId()].child()
    places = {each.exprId().id(): place for place, each in enumerate(_seq(reference.output()))}
    below = [each.exprId().id() for each in _seq(plan.output())]
    return plan, [_Column(each.name, below[places[each.attribute]], each.field) for each in columns]


def _grouped(aggregate: Any, columns: list[_Column]) -> tuple[str, ...]:
    """For each expression that it groups by, the column that has it, else those that have fields of it."""
    made = {each.exprId().id(): each for each in _seq(aggregate.aggregateExpressions())}
    key: list[str] = []
    for expression in _seq(aggregate.groupingExpressions()):
        whole = [column.name for column in columns if _is(made.get(column.attribute), expression) and not column.field]
        parts = [column.name for column in columns if _is_part(made.get(column.attribute), column, expression)]
        if not whole and not parts:
            raise _not_selected(expression.sql())
        key += [name for name in (whole[:1] or parts) if name not in key]
    return tuple(key)


def _is(made: Any, grouped: Any) -> bool:
    return made is not None and bool(_plain(made).semanticEquals(grouped))


def _is_part(made: Any, column: _Column, grouped: Any) -> bool:
    """A field of a window: `window.start AS begins`, here or above."""
    if made is None:
        return False
    expression = _plain(made)
    if column.field is not None:
        return bool(expression.semanticEquals(grouped))
    return _kind(expression) == "GetStructField" and bool(expression.child().semanticEquals(grouped))


def _kept(attributes: list[int], columns: list[_Column]) -> tuple[str, ...]:
    by_attribute = {column.attribute: column.name for column in columns if column.field is None}
    if not all(each in by_attribute for each in attributes):
        raise _not_selected("a column that rows are told apart by")
    return tuple(by_attribute[each] for each in attributes)


def _not_selected(what: str) -> Rejected:
    return Rejected(
        f"a view's row is found by what it is grouped by; missing={what} do=select it as well, or say KEY (…) yourself"
    )


# --- the JVM's trees


def _plain(expression: Any) -> Any:
    return _plain(expression.child()) if _kind(expression) == "Alias" else expression


def _kind(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())


def _definitions(plan: Any) -> dict[int, Any]:
    """The queries of every WITH, by id."""
    found: dict[int, Any] = {}
    if plan.nodeName() == "WithCTE":
        found |= {each.id(): each for each in _seq(plan.cteDefs())}
    for child in _seq(plan.children()):
        found |= _definitions(child)
    return found


def _walk(node: Any, definitions: Mapping[int, Any]) -> Iterator[Any]:
    """Every operator, from the result inward; what a WITH names stands where it is used, as often as it is."""
    yield node
    for child in _below_of(node, definitions):
        yield from _walk(child, definitions)


def _below_of(node: Any, definitions: Mapping[int, Any]) -> list[Any]:
    kind = node.nodeName()
    if kind == "WithCTE":
        return [node.plan()]
    if kind == "CTERelationRef":
        return [definitions[node.cteId()].child()] if node.cteId() in definitions else []
    return _seq(node.children())


def _seq(found: Any) -> list[Any]:
    return [found.apply(place) for place in range(found.size())]
