"""Shapes: what a streaming query reads and keeps, which decides whether a changed one may go on from a checkpoint.

Data path   a frame -> Spark's analysed plan -> **shape_of** -> `model.pipeline.Shape`, kept with the definition
Owns        which operators have state, and what of them their state depends on
Leaves      what follows from a changed shape to `model.pipeline.loses_place`

A checkpoint knows its sources by their order, and state by the types of its keys and values. Names that Spark makes up
are left out, so that the same query always has the same shape.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame

from streamhouse.model.pipeline import Shape
from streamhouse.spark.sql.binding import Read

_ID: Final = re.compile(r"#\d+L?(?:-T\d+ms)?")
_MICROSECONDS: Final = re.compile(r"(?<![\w#])(\d{4,})(?![\w#])")
_WINDOW: Final = "struct<start:timestamp,end:timestamp>"
_GAP: Final = re.compile(r"cast\(([\w ]+) as interval\)")


def shape_of(frame: DataFrame, reads: Iterable[Read] = ()) -> Shape:
    """`reads` tell which columns a join keeps; without them a join is known by its condition alone."""
    plan = _Plan(frame._jdf.queryExecution().analyzed())
    nodes = list(plan.walk())
    streams = [_stream_of(node) for node in nodes if _is_stream(node)]
    kept = {read.name.lower(): [column.name for column in read.table.columns or ()] for read in reads}
    state = [text for node in nodes if node.isStreaming() and (text := _state_of(plan, node, kept)) is not None]
    return Shape(streams=tuple(streams), state=tuple(state))


# --- the plan


class _Plan:
    """An analysed plan, each WITH where it is used: the order in which a checkpoint counts sources."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._defined = {each.id(): each.child() for each in _definitions(root)}

    def walk(self, node: Any = None) -> Iterator[Any]:
        """From the top, left to right; what a view is made of is left to whoever made it."""
        node = self._root if node is None else node
        yield node
        for child in self._below(node):
            yield from self.walk(child)

    def _below(self, node: Any) -> list[Any]:
        kind = node.nodeName()
        if kind == "WithCTE":
            return [node.plan()]
        if kind == "CTERelationRef":
            return [self._defined[node.cteId()]] if node.cteId() in self._defined else []
        return [] if kind == "View" else _seq(node.children())

    def definition(self, node: Any, wanted: int) -> str:
        """What an attribute is made of, by whatever operator below makes it."""
        for below in self.walk(node):
            kind = below.nodeName()
            if kind == "Expand" and _has(below.output(), wanted) and not _has(below.child().output(), wanted):
                return _plain(below.projections().toString())
            if kind == "CTERelationRef" and (inner := self._inner(below, wanted)) not in (None, wanted):
                return self.definition(self._defined[below.cteId()], inner or wanted)
            for each in _made(below):
                if each.nodeName() == "Alias" and each.exprId().id() == wanted:
                    source = each.child()
                    is_renamed = source.nodeName() == "AttributeReference"
                    return self.definition(below, source.exprId().id()) if is_renamed else _plain(source.toString())
        return ""

    def _inner(self, reference: Any, wanted: int) -> int | None:
        """The attribute of a WITH that one of a reference to it stands for: they agree by position."""
        outer, defined = _seq(reference.output()), self._defined.get(reference.cteId())
        inner = _seq(defined.output()) if defined is not None else []
        pairs = zip(outer, inner, strict=False)
        return next((each.exprId().id() for one, each in pairs if one.exprId().id() == wanted), None)


def _definitions(node: Any) -> Iterator[Any]:
    if node.nodeName() == "WithCTE":
        yield from _seq(node.cteDefs())
    for child in _seq(node.children()):
        yield from _definitions(child)


def _is_stream(node: Any) -> bool:
    kind = node.nodeName()
    return bool(kind in ("View", "StreamingRelationV2", "StreamingRelation") and _streams(node))


def _streams(node: Any) -> bool:
    return bool(node.child().isStreaming() if node.nodeName() == "View" else node.isStreaming())


def _stream_of(node: Any) -> str:
    if node.nodeName() == "View":
        return str(node.desc().identifier().table())
    options = node.extraOptions() if node.nodeName() == "StreamingRelationV2" else {}
    return str(options.get("topic") or options.get("path") or node.sourceName())


def _state_of(plan: _Plan, node: Any, kept: dict[str, list[str]]) -> str | None:
    kind = node.nodeName()
    if kind == "Aggregate":
        functions = dict.fromkeys(text for each in _seq(node.aggregateExpressions()) for text in _functions_in(each))
        return f"aggregate by {_keys(plan, node, _seq(node.groupingExpressions()))}: {', '.join(functions) or 'none'}"
    if kind == "Distinct":
        return f"aggregate by {_keys(plan, node, _seq(node.output()))}: none"
    if kind.startswith("Deduplicate"):
        how = "deduplicate within watermark" if "Within" in kind else "deduplicate"
        return f"{how} by {_keys(plan, node, _seq(node.keys()))}"
    if kind == "Join" and node.left().isStreaming() and node.right().isStreaming():
        return _join(plan, node, kept)
    return kind if kind == "GlobalLimit" or "WithState" in kind else None


def _join(plan: _Plan, node: Any, kept: dict[str, list[str]]) -> str:
    condition = _plain(node.condition().get().toString()) if node.condition().isDefined() else "nothing"
    names = [_stream_of(each) for each in plan.walk(node) if _is_stream(each)]
    columns = [f"{name}({', '.join(kept[name])})" for name in dict.fromkeys(names) if kept.get(name)]
    return " ".join([f"join {node.joinType().toString().lower()} on {condition}", *columns])


def _keys(plan: _Plan, node: Any, keys: Sequence[Any]) -> str:
    """The keys with their types; of a window also how long it is, which its type doesn't tell."""
    typed = (f"{_plain(each.toString())} {_type_of(each)}{_length_of(plan, node, each)}" for each in keys)
    return ", ".join(typed) or "nothing"


def _type_of(key: Any) -> str:
    kind = str(key.dataType().simpleString())
    return "window" if kind == _WINDOW else kind


def _length_of(plan: _Plan, node: Any, key: Any) -> str:
    if key.dataType().simpleString() != _WINDOW or key.nodeName() != "AttributeReference":
        return ""
    return _length_in(plan.definition(node, key.exprId().id()))


def _made(node: Any) -> list[Any]:
    kind = node.nodeName()
    if kind == "Project":
        return _seq(node.projectList())
    return _seq(node.aggregateExpressions()) if kind == "Aggregate" else []


def _has(attributes: Any, wanted: int) -> bool:
    return any(each.exprId().id() == wanted for each in _seq(attributes))


def _length_in(definition: str) -> str:
    gaps = dict.fromkeys(_GAP.findall(definition))
    if gaps:
        return f" of {', '.join(gaps)}"
    # Of a window that slides there are all multiples of the slide: the longest is its length, the shortest the slide.
    times = [int(number) for number in _MICROSECONDS.findall(definition)]
    edges = dict.fromkeys((max(times), min(times))) if times else {}
    return f" of {', '.join(f'{each / 1e6:g} s' for each in edges)}" if edges else ""


def _functions_in(expression: Any) -> Iterator[str]:
    if expression.nodeName() == "AggregateExpression":
        yield _plain(expression.toString())
        return
    for child in _seq(expression.children()):
        yield from _functions_in(child)


def _plain(text: str) -> str:
    return _ID.sub("", text)


def _seq(found: Any) -> list[Any]:
    return [found.apply(index) for index in range(found.size())]
