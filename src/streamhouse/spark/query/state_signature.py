"""State signature: what a streaming query reads and keeps; decides if a changed query can resume from a checkpoint.

Data path   a frame -> Spark's analysed plan -> **state_signature** -> `model.pipeline.Shape`, kept with the definition
Owns        which operators have state, and how they are described; which signature counts for a pipeline and a view
Leaves      the consequence of a change to `model.pipeline.resume_conflict`

A checkpoint knows its sources by their order, and state by the types of its keys and values. Names that Spark makes up
are left out, so that the same query always has the same signature. The description of state is for people, and for
definitions stored before there were signatures; whether a query is the same is decided by `query_signature`.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame

from streamhouse.model.pipeline import Shape
from streamhouse.model.table import Connector
from streamhouse.spark.query.query_signature import VERSION, Signature, signature_of, stream_name
from streamhouse.spark.query.resolver import TableRef
from streamhouse.spark.runtime.jvm import Plan, analyzed_plan, id_of, kind_of, scala_seq

_ID: Final = re.compile(r"#\d+L?(?:-T\d+ms)?")
_MICROSECONDS: Final = re.compile(r"(?<![\w#])(\d{4,})(?![\w#])")
_WINDOW: Final = "struct<start:timestamp,end:timestamp>"
_GAP: Final = re.compile(r"cast\(([\w ]+) as interval\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The options that determine the rows of a view besides its query: its key, and options of its definition."""

    key: tuple[str, ...] = ()
    output: str | None = None
    starting: str = ""


def state_signature(
    frame: DataFrame, reads: Iterable[TableRef] = (), *, rows: Rows | None = None, code: str | None = None
) -> Shape:
    """`reads` have the columns that a join keeps; without them a join is known by its condition alone.

    `rows`: it is a view's, whose rows are kept as well as its state. `code`: the frame was made by this text in Python,
    so views of the session may be its own; it counts itself where it has rows that no plan shows.
    """
    reads = tuple(reads)
    plan = _Plan(analyzed_plan(frame))
    nodes = list(plan.walk())
    streams = [_stream_of(node) for node in nodes if _is_stream(node)]
    columns = {read.name.lower(): [column.name for column in read.table.columns or ()] for read in reads}
    state = [text for node in nodes if node.isStreaming() and (text := _state_of(plan, node, columns)) is not None]
    signature = signature_of(frame, leaves=[read.name for read in reads] if code is None else ())
    kept = _kept(signature, rows) if frame.isStreaming else ""
    if kept and signature.is_opaque and code is not None:
        kept = _digest(f"{kept} {code}")
    sources = (source_of(read) for read in reads if kept or read.is_stream)
    return Shape(
        streams=tuple(streams),
        state=tuple(state),
        tables=tuple(sorted(dict.fromkeys(source for source in sources if source))),
        query=signature.lines if kept else (),
        signature=f"{VERSION}:{kept}",
    )


def _kept(signature: Signature, rows: Rows | None) -> str:
    if rows is None:
        return signature.state
    return _digest(f"{signature.result} {list(rows.key)} {rows.output} {rows.starting}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def source_of(read: TableRef) -> str:
    """The topic, path or table of a name; empty if it is the name itself. Addresses are not part of it."""
    table = read.table
    if table.connector is Connector.VIEW:
        return ""
    source = table.options.get("topic") or table.options.get("path") or table.options.get("table") or ""
    if table.connector is Connector.TOPIC and source in ("", read.name):
        return ""
    return f"{read.name.lower()}={table.connector.value} {source}".rstrip()


# --- the plan


class _Plan:
    """What attributes of an analysed plan are made of."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def walk(self, node: Any = None) -> Iterator[Any]:
        """The plan of a view is not followed."""
        return self._plan.walk(node, into_views=False)

    def definition(self, node: Any, attribute_id: int) -> str:
        """What an attribute is made of, by whatever operator below makes it."""
        for below in self.walk(node):
            kind = kind_of(below)
            if (
                kind == "Expand"
                and _has(below.output(), attribute_id)
                and not _has(below.child().output(), attribute_id)
            ):
                return _plain(below.projections().toString())
            if (
                kind == "CTERelationRef"
                and (inner := self._plan.entered(below).get(attribute_id, attribute_id)) != attribute_id
            ):
                return self.definition(self._plan.definitions[below.cteId()], inner)
            for each in _made(below):
                if kind_of(each) == "Alias" and id_of(each) == attribute_id:
                    source = each.child()
                    is_renamed = kind_of(source) == "AttributeReference"
                    return self.definition(below, id_of(source)) if is_renamed else _plain(source.toString())
        return ""


def _is_stream(node: Any) -> bool:
    kind = kind_of(node)
    return bool(kind in ("View", "StreamingRelationV2", "StreamingRelation") and _streams(node))


def _streams(node: Any) -> bool:
    return bool(node.child().isStreaming() if kind_of(node) == "View" else node.isStreaming())


def _stream_of(node: Any) -> str:
    return str(node.desc().identifier().table()) if kind_of(node) == "View" else stream_name(node)


def _state_of(plan: _Plan, node: Any, kept: dict[str, list[str]]) -> str | None:
    kind = kind_of(node)
    if kind == "Aggregate":
        functions = dict.fromkeys(
            text for each in scala_seq(node.aggregateExpressions()) for text in _functions_in(each)
        )
        return (
            f"aggregate by {_keys(plan, node, scala_seq(node.groupingExpressions()))}: {', '.join(functions) or 'none'}"
        )
    if kind == "Distinct":
        return f"aggregate by {_keys(plan, node, scala_seq(node.output()))}: none"
    if kind.startswith("Deduplicate"):
        how = "deduplicate within watermark" if "Within" in kind else "deduplicate"
        return f"{how} by {_keys(plan, node, scala_seq(node.keys()))}"
    if kind == "Join" and node.left().isStreaming() and node.right().isStreaming():
        return _join(plan, node, kept)
    return kind if kind == "GlobalLimit" or "WithState" in kind else None


def _join(plan: _Plan, node: Any, kept: dict[str, list[str]]) -> str:
    condition = _plain(node.condition().get().toString()) if node.condition().isDefined() else "nothing"
    names = [_stream_of(each) for each in plan.walk(node) if _is_stream(each)]
    columns = [f"{name}({', '.join(kept[name])})" for name in dict.fromkeys(names) if kept.get(name)]
    return " ".join([f"join {node.joinType().toString().lower()} on {condition}", *columns])


def _keys(plan: _Plan, node: Any, keys: Sequence[Any]) -> str:
    """The keys with their types; of a window also how long it is, which its type doesn't have."""
    typed = (f"{_plain(each.toString())} {_type_of(each)}{_length_of(plan, node, each)}" for each in keys)
    return ", ".join(typed) or "nothing"


def _type_of(key: Any) -> str:
    kind = str(key.dataType().simpleString())
    return "window" if kind == _WINDOW else kind


def _length_of(plan: _Plan, node: Any, key: Any) -> str:
    if key.dataType().simpleString() != _WINDOW or kind_of(key) != "AttributeReference":
        return ""
    return _length_in(plan.definition(node, id_of(key)))


def _made(node: Any) -> list[Any]:
    kind = kind_of(node)
    if kind == "Project":
        return scala_seq(node.projectList())
    return scala_seq(node.aggregateExpressions()) if kind == "Aggregate" else []


def _has(attributes: Any, attribute_id: int) -> bool:
    return any(id_of(each) == attribute_id for each in scala_seq(attributes))


def _length_in(definition: str) -> str:
    gaps = dict.fromkeys(_GAP.findall(definition))
    if gaps:
        return f" of {', '.join(gaps)}"
    # Of a window that slides there are all multiples of the slide: the longest is its length, the shortest the slide.
    times = [int(number) for number in _MICROSECONDS.findall(definition)]
    edges = dict.fromkeys((max(times), min(times))) if times else {}
    return f" of {', '.join(f'{each / 1e6:g} s' for each in edges)}" if edges else ""


def _functions_in(expression: Any) -> Iterator[str]:
    if kind_of(expression) == "AggregateExpression":
        yield _plain(expression.toString())
        return
    for child in scala_seq(expression.children()):
        yield from _functions_in(child)


def _plain(text: str) -> str:
    return _ID.sub("", text)
