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
_GAP: Final = re.compile(r"cast\(([\w ]+) as interval\)")


def shape_of(frame: DataFrame, reads: Iterable[Read] = ()) -> Shape:
    """`reads` tell which columns a join keeps; without them a join is known by its condition alone."""
    plan = frame._jdf.queryExecution().analyzed()
    nodes = list(_walk(plan, {}))
    streams = [_stream_of(node) for node in nodes if _is_stream(node)]
    kept = {read.name.lower(): [column.name for column in read.table.columns or ()] for read in reads}
    state = [text for node in nodes if node.isStreaming() and (text := _state_of(node, kept)) is not None]
    return Shape(streams=tuple(streams), state=tuple(state))


# --- the plan


def _walk(node: Any, defined: dict[int, Any]) -> Iterator[Any]:
    """From the top, left to right, each WITH where it is used: the order in which a checkpoint counts sources."""
    kind = node.nodeName()
    if kind == "WithCTE":
        known = {each.id(): each.child() for each in _seq(node.cteDefs())}
        yield from _walk(node.plan(), {**defined, **known})
        return
    if kind == "CTERelationRef":
        if node.cteId() in defined:
            yield from _walk(defined[node.cteId()], defined)
        return
    yield node
    if kind != "View":
        for child in _seq(node.children()):
            yield from _walk(child, defined)


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


def _state_of(node: Any, kept: dict[str, list[str]]) -> str | None:
    kind = node.nodeName()
    if kind == "Aggregate":
        functions = [text for each in _seq(node.aggregateExpressions()) for text in _functions_in(each)]
        return (
            f"aggregate by {_keys(node, node.groupingExpressions())}: {', '.join(dict.fromkeys(functions)) or 'none'}"
        )
    if kind == "Distinct":
        return f"aggregate by {_typed(_seq(node.output()))}: none"
    if kind.startswith("Deduplicate"):
        return f"{'deduplicate within watermark' if 'Within' in kind else 'deduplicate'} by {_typed(_seq(node.keys()))}"
    if kind == "Join" and node.left().isStreaming() and node.right().isStreaming():
        return _join(node, kept)
    return kind if kind == "GlobalLimit" or "WithState" in kind else None


def _join(node: Any, kept: dict[str, list[str]]) -> str:
    condition = _plain(node.condition().get().toString()) if node.condition().isDefined() else "nothing"
    names = [_stream_of(each) for each in _walk(node, {}) if _is_stream(each)]
    columns = [f"{name}({', '.join(kept[name])})" for name in dict.fromkeys(names) if kept.get(name)]
    return " ".join([f"join {node.joinType().toString().lower()} on {condition}", *columns])


def _keys(node: Any, keys: Any) -> str:
    """The keys with their types; of a window also how long it is, which its type doesn't tell."""
    return (
        ", ".join(
            f"{_plain(each.toString())} {each.dataType().simpleString()}{_length_of(node, each)}" for each in _seq(keys)
        )
        or "nothing"
    )


def _length_of(node: Any, key: Any) -> str:
    if not _plain(key.toString()).startswith(("window", "session_window")):
        return ""
    wanted = key.exprId().id()
    for below in _walk(node.child(), {}):
        if below.nodeName() != "Project":
            continue
        for each in _seq(below.projectList()):
            if each.exprId().id() == wanted and each.nodeName() == "Alias":
                return _length_in(_plain(each.child().toString()))
    return ""


def _length_in(definition: str) -> str:
    gaps = dict.fromkeys(_GAP.findall(definition))
    if gaps:
        return f" of {', '.join(gaps)}"
    times = sorted({int(number) for number in _MICROSECONDS.findall(definition)}, reverse=True)
    return f" of {', '.join(f'{each / 1e6:g} s' for each in times)}" if times else ""


def _typed(attributes: Sequence[Any]) -> str:
    return ", ".join(f"{each.name()} {each.dataType().simpleString()}" for each in attributes)


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
