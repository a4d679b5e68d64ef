"""Signatures of queries: whether two queries have the same result and the same state, by Spark's analyzed plan.

Data path   an analyzed plan -> **Signature** -> `state_signature` -> stored with a definition and beside a checkpoint
Owns        which parts of a plan decide its result, and which its state; signatures of Python functions
Leaves      the walk through plans to `runtime.jvm`, what a difference means to `model.pipeline`

Columns are traced to their sources, so names, aliases, comments, unused columns and Spark's ids have no effect.
Conditions joined by AND or OR count in any order. A Python function counts by its code, constants, defaults and what
it refers to; modules count by their names; comments, annotations and positions do not count.

Spark moves conditions on grouping keys below an aggregate, and drops functions whose results are unused. So an
aggregate's state depends on those too. A join of two streams, deduplication and a limit depend on the whole query:
Spark decides by all of it which rows and columns it keeps.
"""

import hashlib
import itertools
import logging
import pickle
import re
from collections.abc import Callable, Collection, Iterable
from enum import Enum
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple

from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from streamhouse.spark.runtime.jvm import Plan, analyzed_plan, id_of, kind_of, scala_seq, walk_expression

_UNPICKLABLE: Final = (pickle.PickleError, AttributeError, EOFError, ImportError, TypeError, ValueError)
_DEPTH: Final = 6
"""How deep calls of other functions are followed."""


def function_text(function: Any) -> str:
    """The digest of a PythonFunction of the JVM, which has the pickled function."""
    sent = bytes(int(byte) & 0xFF for byte in function.command().mkString(",").split(","))
    try:
        unpickled = cloudpickle.loads(sent)
    except _UNPICKLABLE:
        return hashlib.sha256(sent).hexdigest()
    return hashlib.sha256(_describe(unpickled, _DEPTH).encode()).hexdigest()


def _describe(value: Any, depth: int) -> str:
    if isinstance(value, FunctionType):
        return _function(value, depth) if depth else value.__qualname__
    if isinstance(value, CodeType):
        constants = [_describe(each, depth) for each in value.co_consts]
        return f"code({value.co_code.hex()}, {value.co_names}, {value.co_varnames}, {constants})"
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}({', '.join(_describe(each, depth) for each in value)})"
    if isinstance(value, set | frozenset):
        return f"set({sorted(_describe(each, depth) for each in value)})"
    if isinstance(value, dict):
        return f"dict({[(_describe(key, depth), _describe(each, depth)) for key, each in value.items()]})"
    if isinstance(value, str | bytes | int | float | bool | complex | type(None)):
        return repr(value)
    return _pickled(value)


def _function(function: FunctionType, depth: int) -> str:
    cells = [_describe(cell.cell_contents, depth - 1) for cell in function.__closure__ or ()]
    used = {name: function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__}
    defaults = (function.__defaults__, function.__kwdefaults__)
    parts = [
        _describe(function.__code__, depth - 1),
        *cells,
        _describe(defaults, depth - 1),
        _describe(used, depth - 1),
    ]
    return f"function({', '.join(parts)})"


def _pickled(value: Any) -> str:
    try:
        return hashlib.sha256(bytes(cloudpickle.dumps(value))).hexdigest()  # type: ignore[no-untyped-call]
    except _UNPICKLABLE:
        return type(value).__qualname__


log = logging.getLogger(__name__)

VERSION: Final = "1"
"""Version of the rendering: signatures of different versions can't be compared."""

_LONG: Final = 120
_MAX_LINE: Final = 160
_MAX_LINES: Final = 30
_UNSTABLE: Final = re.compile(r"#\d+L?(?:-T\d+ms)?|@[0-9a-f]{4,}|\$\$Lambda[^,)\s]*")
_PASSED: Final = frozenset(
    (
        *("SubqueryAlias", "ResolvedHint", "Repartition", "RepartitionByExpression", "RebalancePartitions"),
        *("WithCTE", "View", "UpdateEventTimeWatermarkColumn"),
    )
)
"""Operators that change no row."""
_LIGHT: Final = _PASSED | {"Project", "Filter", "Sort", "CTERelationRef", "Union"}
"""Operators above an aggregate that leave its state what it is, conditions on its keys aside."""
_GROUPS: Final = frozenset(("Aggregate", "Distinct"))
_OTHER_STATE: Final = ("Deduplicate", "GlobalLimit", "State", "FlatMapGroups")
_SUBQUERIES: Final = frozenset(("ScalarSubquery", "ListQuery", "Exists", "LateralSubquery"))
_SEEDED: Final = {"Rand": 0, "Randn": 0, "Uuid": 0, "Shuffle": 1, "RandStr": 1, "Uniform": 2}
"""Expressions with a seed that Spark chooses, and how many arguments stand before it."""
_PLAIN: Final = frozenset(
    (
        *("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual", "Not"),
        *("IsNotNull", "IsNull", "In", "CaseWhen", "If", "Coalesce", "Concat", "Upper", "Lower"),
    )
)
"""Expressions that their arguments alone define."""
_NAMES: Final = frozenset((("Generate", 3), ("UnionLoop", 0), ("UnionLoopRef", 0)))
"""Elements that are only names."""
_SKIPPED: Final = ("ExprId", "Metadata", "AtomicReference", "CatalogTable", "UUID", "Origin")


class Signature(NamedTuple):
    """`result` is the digest of everything that decides the rows, `state` of what decides the state; empty without
    state.

    `lines` are the operators for people to read, from the result inward. `is_opaque`: the query has rows of its own
    that its plan doesn't show, so that a different one may have the same signature.
    """

    result: str
    state: str
    lines: tuple[str, ...]
    is_opaque: bool = False


def signature_of(frame: DataFrame, *, leaves: Collection[str] = ()) -> Signature:
    """The signature of a query. `leaves` are names of views that stand for tables: their plans aren't part of the
    query.

    For a plan that can't be walked, Spark's text of it is used, in which names count as well.
    """
    plan = analyzed_plan(frame)
    try:
        return _rendered(frame, plan, leaves)
    except (Py4JError, PySparkException, LookupError) as error:
        log.warning("a query's plan can't be walked, its text is used; error=%s", str(error)[:_MAX_LINE])
        digest = _digest(_stable(plan.root.toString()))
        return Signature(result=digest, state=digest, lines=_lines(plan))


def _rendered(frame: DataFrame, plan: Plan, leaves: Collection[str]) -> Signature:
    rendering = _Rendering(plan, frozenset(name.lower() for name in leaves), _Categories(frame.sparkSession._jvm))
    text = rendering.relation(plan.root, _ABOVE)
    output = scala_seq(plan.root.output())
    meanings = [rendering.attribute(each) for each in output]
    named = [f"{each.name()} {each.dataType().simpleString()}" for each in output]
    result = _digest("\n".join((text, *named, *(each.text for each in meanings))))
    state = rendering.state(text, meanings)
    kept = _digest(state) if state else ""
    return Signature(result=result, state=kept, lines=_lines(plan), is_opaque=rendering.is_opaque)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _lines(plan: Plan) -> tuple[str, ...]:
    nodes = (node for node in plan.walk(into_views=False, into_subqueries=True))
    shown = (node for node in nodes if kind_of(node) not in _PASSED and kind_of(node) != "CTERelationRef")
    return tuple(_stable(node.simpleString(25)).lstrip("~")[:_MAX_LINE] for node in itertools.islice(shown, _MAX_LINES))


def _stable(text: str) -> str:
    return _UNSTABLE.sub("", str(text))


class _Meaning(NamedTuple):
    """An expression in terms of source columns, and its aggregate functions."""

    text: str
    functions: frozenset[str] = frozenset()


class _Position(NamedTuple):
    """Whether an operator has only light operators above it, and whether it is within one that keeps state."""

    is_above: bool
    is_kept: bool


_ABOVE: Final = _Position(is_above=True, is_kept=False)
_BETWEEN: Final = _Position(is_above=False, is_kept=False)
_KEPT: Final = _Position(is_above=False, is_kept=True)


class _Rendering:
    """One walk through a plan. Operators are rendered inputs first, so that every column is known where it is used."""

    def __init__(self, plan: Plan, leaves: frozenset[str], categories: "_Categories") -> None:
        self._plan, self._leaves, self._categories = plan, leaves, categories
        self._meanings: dict[int, _Meaning] = {}
        self._numbers = itertools.count(1)
        self._has_state = any(_keeps_state(node) for node in plan.walk(into_views=not leaves))
        self._is_whole = False
        self.is_opaque = False
        self._groups: list[str] = []
        self._pushed: list[str] = []
        self._used: set[str] = set()
        self._operators: dict[str, Callable[[Any, _Position], str]] = {
            **dict.fromkeys(_PASSED, self._passed),
            "View": self._view,
            "CTERelationRef": self._reference,
            "Project": self._project,
            "Filter": self._filter,
            "Aggregate": self._aggregate,
            "Distinct": self._distinct,
            "Join": self._join,
            "EventTimeWatermark": self._watermark,
            **dict.fromkeys(("Union", "Intersect", "Except"), self._set_operation),
            **dict.fromkeys(("StreamingRelationV2", "StreamingRelation"), self._stream),
            "LogicalRDD": self._rows,
            "LogicalRelation": self._files,
        }

    def state(self, text: str, output: Iterable[_Meaning]) -> str:
        if not self._has_state:
            return ""
        if self._is_whole:
            return "\n".join((text, *(each.text for each in output)))
        used = self._used.union(*(each.functions for each in output))
        return "\n".join((*self._groups, *sorted(self._pushed), *sorted(used)))

    # --- operators

    def relation(self, node: Any, position: _Position) -> str:
        kind = kind_of(node)
        below = position if kind in _LIGHT else _Position(is_above=False, is_kept=position.is_kept)
        if _keeps_state(node) and not position.is_kept:
            if not (position.is_above and kind in _GROUPS):
                self._is_whole = True
            below = _KEPT
        render = self._operators.get(kind, self._other)
        text = render(node, below)
        if kind in _GROUPS and below is _KEPT and position.is_above:
            self._groups.append(text)
        return _short(text)

    def _input(self, node: Any, position: _Position) -> str:
        return self.relation(self._plan.inputs(node)[0], position)

    def _passed(self, node: Any, position: _Position) -> str:
        return self._input(node, position)

    def _view(self, node: Any, position: _Position) -> str:
        name = str(node.desc().identifier().table())
        if name.lower() not in self._leaves:
            return self._input(node, position)
        text = self._leaf(node, name)
        marks = [each for each in self._plan.walk(node) if kind_of(each) == "EventTimeWatermark"]
        watermarks = [f"{each.eventTime().name()} {each.delay().toString()}" for each in marks]
        return f"{text} watermark {watermarks}" if watermarks and self._has_state else text

    def _stream(self, node: Any, _: _Position) -> str:
        return self._leaf(node, stream_name(node))

    def _rows(self, node: Any, _: _Position) -> str:
        self.is_opaque = True
        return self._leaf(node, "rows")

    def _files(self, node: Any, _: _Position) -> str:
        relation = node.relation()
        is_folder = kind_of(relation) == "HadoopFsRelation"
        paths = relation.location().rootPaths().mkString(",") if is_folder else ""
        return self._leaf(node, f"{_stable(relation.toString())} {paths}")

    def _leaf(self, node: Any, name: str) -> str:
        text = f"{name.lower()}@{next(self._numbers)}"
        for each in scala_seq(node.output()):
            source = f"{text}.{each.name()}:{each.dataType().simpleString()}"
            self._meanings[id_of(each)] = _Meaning(source)
        return text

    def _reference(self, node: Any, position: _Position) -> str:
        if not self._plan.inputs(node):
            return self._leaf(node, "recursion")
        # What a WITH names is walked as often as it is used, and has the same ids each time.
        before = dict(self._meanings)
        text = self._input(node, position)
        self._meanings = before | {outer: self._meanings[inner] for outer, inner in self._plan.entered(node).items()}
        return text

    def _project(self, node: Any, position: _Position) -> str:
        text = self._input(node, position)
        self._define(node.projectList())
        return text

    def _define(self, named: Any, scope: str = "") -> None:
        results = {id_of(each): self.expression(each) for each in scala_seq(named) if kind_of(each) == "Alias"}
        for number, meaning in results.items():
            functions = frozenset(f"{scope}{each}" for each in meaning.functions) if scope else meaning.functions
            text = f"{scope}{meaning.text}" if meaning.functions else meaning.text
            self._meanings[number] = _Meaning(_short(text), functions)

    def _filter(self, node: Any, position: _Position) -> str:
        text = self._input(node, position)
        parts = [self.expression(each) for each in _flat(node.condition(), "And")]
        if position.is_above:
            self._pushed += [each.text for each in parts if not each.functions]
            self._used.update(*(each.functions for each in parts))
        return f"filter {sorted(each.text for each in parts)} ({text})"

    def _aggregate(self, node: Any, position: _Position) -> str:
        text = self._input(node, position)
        scope = f"{next(self._numbers)}:"
        keys = [self.expression(each).text for each in scala_seq(node.groupingExpressions())]
        results = [part for each in scala_seq(node.aggregateExpressions()) for part in walk_expression(each)]
        functions = [self.expression(each).text for each in results if kind_of(each) == "AggregateExpression"]
        self._define(node.aggregateExpressions(), scope)
        return f"aggregate {scope} {keys} {list(dict.fromkeys(functions))} ({text})"

    def _distinct(self, node: Any, position: _Position) -> str:
        text = self._input(node, position)
        return f"distinct {self._outputs(node)} ({text})"

    def _outputs(self, node: Any) -> list[str]:
        return [self.attribute(each).text for each in scala_seq(node.output())]

    def _join(self, node: Any, position: _Position) -> str:
        texts = [self.relation(each, position) for each in self._plan.inputs(node)]
        condition = node.condition()
        parts = _flat(condition.get(), "And") if condition.isDefined() else []
        conditions = sorted(self.expression(each).text for each in parts)
        return f"join {_stable(node.joinType().toString())} {conditions} {texts}"

    def _watermark(self, node: Any, position: _Position) -> str:
        text = self._input(node, position)
        if not self._has_state:
            return text
        return f"watermark {self.attribute(node.eventTime()).text} {node.delay().toString()} ({text})"

    def _set_operation(self, node: Any, position: _Position) -> str:
        texts, outputs = [], []
        for each in self._plan.inputs(node):
            texts.append(self.relation(each, position))
            outputs.append([self.attribute(column) for column in scala_seq(each.output())])
        number = next(self._numbers)
        inputs = [f"({text}) {[each.text for each in output]}" for text, output in zip(texts, outputs, strict=True)]
        for index, column in enumerate(scala_seq(node.output())):
            functions = frozenset[str]().union(*(output[index].functions for output in outputs))
            self._meanings[id_of(column)] = _Meaning(f"{number}.{index}", functions)
        extra = [] if kind_of(node) == "Union" else [node.isAll()]
        return f"{kind_of(node)} {extra} {number} {inputs}"

    def _other(self, node: Any, position: _Position) -> str:
        """Any operator by all that it is made with; columns that it adds are identified by their position."""
        texts = [self.relation(each, position) for each in self._plan.inputs(node)]
        below = {id_of(column) for each in self._plan.inputs(node) for column in scala_seq(each.output())}
        kind, number = kind_of(node), next(self._numbers)
        added = [each for each in scala_seq(node.output()) if id_of(each) not in below]
        for index, each in enumerate(added):
            column = f"{kind}{number}.{index}:{each.dataType().simpleString()}"
            self._meanings[id_of(each)] = _Meaning(column)
        parts = self._elements(node)
        functions = frozenset[str]().union(*(each.functions for each in parts))
        self._used |= functions
        return f"{kind}{number} {[each.text for each in parts]} {texts}"

    # --- expressions

    def attribute(self, attribute: Any) -> _Meaning:
        number = id_of(attribute)
        if number not in self._meanings:
            name = "" if kind_of(attribute) == "NamedLambdaVariable" else attribute.name()
            self._meanings[number] = _Meaning(f"variable {next(self._numbers)} {name}")
        return self._meanings[number]

    def expression(self, expression: Any) -> _Meaning:
        kind = kind_of(expression)
        if kind in ("AttributeReference", "NamedLambdaVariable"):
            return self.attribute(expression)
        if kind in ("Alias", "OuterReference"):
            return self.expression(expression.child() if kind == "Alias" else expression.e())
        if kind == "Literal":
            return _Meaning(f"{expression.sql()}:{expression.dataType().simpleString()}")
        if kind in ("And", "Or"):
            parts = sorted(self.expression(each) for each in _flat(expression, kind))
        elif kind in _SEEDED:
            parts = [self.expression(each) for each in scala_seq(expression.children())[: _SEEDED[kind]]]
        elif kind in _SUBQUERIES:
            parts = [self._subquery(expression)]
        elif kind in _PLAIN:
            parts = [self.expression(each) for each in scala_seq(expression.children())]
        else:
            parts = self._elements(expression)
        text = _short(f"{kind}({', '.join(each.text for each in parts)})")
        if kind == "AggregateExpression":
            return _Meaning(text, frozenset((text,)))
        return _Meaning(text, frozenset[str]().union(*(each.functions for each in parts)))

    def _subquery(self, expression: Any) -> _Meaning:
        plan = expression.plan()
        text = self.relation(plan, _BETWEEN)
        return _Meaning(f"{text} {self._outputs(plan)}")

    # --- whatever else an operator or expression is made with

    def _elements(self, node: Any) -> list[_Meaning]:
        positions = (position for position in range(node.productArity()) if (kind_of(node), position) not in _NAMES)
        elements = (self._element(node.productElement(position)) for position in positions)
        return [each for each in elements if each is not None]

    def _element(self, value: Any) -> _Meaning | None:
        if not isinstance(value, JavaObject):
            return _Meaning(repr(value))
        category = self._categories.of(value)
        if category is _Category.SKIPPED:
            return None
        if category is _Category.EXPRESSION:
            return self.expression(value)
        if category is _Category.FUNCTION:
            return _Meaning(function_text(value))
        if category is _Category.OTHER:
            return _Meaning(_stable(value.toString()))
        parts = [each for each in map(self._element, _inner(value, category)) if each is not None]
        functions = frozenset[str]().union(*(each.functions for each in parts))
        return _Meaning(f"[{', '.join(each.text for each in parts)}]", functions)


class _Category(Enum):
    EXPRESSION = "org.apache.spark.sql.catalyst.expressions.Expression"
    PLAN = "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan"
    FUNCTION = "org.apache.spark.api.python.PythonFunction"
    SEQ = "scala.collection.Seq"
    OPTION = "scala.Option"
    TUPLE = "scala.Tuple2"
    SKIPPED = ""
    OTHER = "java.lang.Object"


class _Categories:
    """The category of a JVM element, cached by class."""

    def __init__(self, jvm: Any) -> None:
        self._classes = [(each, jvm.java.lang.Class.forName(each.value)) for each in _Category if each.value]
        self._known: dict[str, _Category] = {}

    def of(self, value: Any) -> _Category:
        name = str(value.getClass().getName())
        if name not in self._known:
            category = next(candidate for candidate, kind in self._classes if kind.isInstance(value))
            is_skipped = category is _Category.PLAN or name.rpartition(".")[2].startswith(_SKIPPED)
            self._known[name] = _Category.SKIPPED if is_skipped else category
        return self._known[name]


def _inner(value: Any, category: _Category) -> list[Any]:
    if category is _Category.SEQ:
        return scala_seq(value)
    if category is _Category.OPTION:
        return [value.get()] if value.isDefined() else []
    return [value.productElement(position) for position in range(value.productArity())]


def stream_name(node: Any) -> str:
    """The topic or folder of a stream, else what Spark calls its source."""
    options = node.extraOptions() if kind_of(node) == "StreamingRelationV2" else {}
    return str(options.get("topic") or options.get("path") or node.sourceName())


def _keeps_state(node: Any) -> bool:
    kind = kind_of(node)
    if kind == "Join":
        return bool(node.left().isStreaming() and node.right().isStreaming())
    has_state = kind in _GROUPS or any(word in kind for word in _OTHER_STATE)
    return has_state and bool(node.isStreaming())


def _flat(expression: Any, kind: str) -> list[Any]:
    """The conditions that are joined by AND, or by OR."""
    if kind_of(expression) != kind:
        return [expression]
    return [part for each in scala_seq(expression.children()) for part in _flat(each, kind)]


def _short(text: str) -> str:
    return text if len(text) <= _LONG else f"~{_digest(text)}"
