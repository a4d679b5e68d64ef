"""Table references: the names in a query and the columns it uses, from Spark's plans.

Data path   a SELECT -> Spark's parser and optimiser -> **table_references** -> names, columns
Owns        reading plans over the bridge to the JVM; frames without rows that stand for tables
Leaves      resolving names to `resolver`; state and streams to `state_signature`

A column is used when any operator of the optimised plan refers to it, or hands it on by its position. What operators
do that aren't known here is taken for the latter: a column too many is read then, never one too few.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from streamhouse.model.identifiers import quote_identifier
from streamhouse.model.table import Column
from streamhouse.spark.runtime.jvm import id_of, kind_of, optimized_plan, parse_plan, scala_seq
from streamhouse.sql.lexer import TokenKind, tokenize

_RELATION: Final = re.compile(r"'UnresolvedRelation \[([^\]]*)\], \[[^\]]*\], (true|false)")
_DESCRIBED: Final = re.compile(r"'UnresolvedTableOrView \[([^\]]*)\]")
_CTE: Final = re.compile(r"\bCTE \[([^\]]*)\]")
_ALL_FIELDS: Final = 2**31 - 1
"""Spark's own text of a plan leaves out what is behind the first 25: of a WITH, too."""
_EXPRESSION_ID: Final = re.compile(r"#(\d+)")
_COMMAND: Final = "org.apache.spark.sql.catalyst.plans.logical.Command"
_ROW: Final = "org.apache.spark.sql.catalyst.InternalRow"
_BY_NAME: Final = frozenset(
    (
        "Aggregate",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "EventTimeWatermark",
        "Expand",
        "Filter",
        "Generate",
        "GlobalLimit",
        "Join",
        "LocalLimit",
        "Offset",
        "Project",
        "Repartition",
        "RepartitionByExpression",
        "Sample",
        "Sort",
        "Window",
    )
)
"""Operators that use columns by referring to them, and by nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """A name in a query; `is_local` where the query itself has one of that name, in a WITH."""

    parts: tuple[str, ...]
    is_stream: bool
    is_local: bool

    @property
    def name(self) -> str:
        return ".".join(self.parts)


def table_names(session: SparkSession, text: str) -> list[TableName]:
    """The tables that a query names; raises Spark's ParseException where it is none."""
    tree = parse_plan(session, text).treeString(True, False, _ALL_FIELDS, False, False)
    local = {name.strip().lower() for group in _CTE.findall(tree) for name in group.split(",")}
    # A string of the query may read like a plan; a name is also a word of the text.
    words = {token.value for token in tokenize(text) if token.kind in (TokenKind.WORD, TokenKind.NAME)}
    relations = [(parts, is_stream == "true") for parts, is_stream in _RELATION.findall(tree)]
    relations += [(parts, False) for parts in _DESCRIBED.findall(tree)]
    split = [(tuple(part.strip() for part in parts.split(",")), is_stream) for parts, is_stream in relations]
    return [
        TableName(parts=parts, is_stream=is_stream, is_local=len(parts) == 1 and parts[0].lower() in local)
        for parts, is_stream in dict.fromkeys(split)
        if words.issuperset(parts)
    ]


class StatementKind(Enum):
    """QUERY has rows. COMMAND is executed by analysis, so it must be analyzed once. WORDS is only about columns."""

    QUERY = "query"
    COMMAND = "command"
    WORDS = "words"


def statement_kind(session: SparkSession, text: str) -> StatementKind:
    plan = parse_plan(session, text)
    if not _class(session, _COMMAND).isInstance(plan):
        return StatementKind.QUERY
    return StatementKind.WORDS if kind_of(plan).startswith(("Describe", "Show", "Explain")) else StatementKind.COMMAND


def _class(session: SparkSession, name: str) -> Any:
    assert session._jvm is not None
    return session._jvm.java.lang.Class.forName(name)


class EmptyRelations:
    """Frames without rows that stand for tables, recognised in plans by the RDD that they are made of."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self.names: dict[int, str] = {}

    def frame(self, name: str, columns: Sequence[Column], *, is_stream: bool) -> DataFrame:
        jvm, spark = self._session._jvm, self._session._jsparkSession
        assert jvm is not None
        kind = jvm.scala.reflect.ClassTag.apply(_class(self._session, _ROW))
        rows = spark.sparkContext().emptyRDD(kind)
        types = ", ".join(f"{quote_identifier(column.name)} {column.type}" for column in columns)
        struct_type = jvm.org.apache.spark.sql.types.StructType
        schema = struct_type.fromDDL(types) if columns else struct_type()
        self.names[rows.id()] = name
        return DataFrame(spark.internalCreateDataFrame(rows, schema, is_stream), self._session)


def needed_columns(frame: DataFrame, placeholders: EmptyRelations) -> dict[str, frozenset[str]]:
    """The columns that a query over placeholders uses of each, for those that it reads at all."""
    plan = optimized_plan(frame)
    used = _ids(plan.root.output())
    leaves = []
    for node in plan.walk(into_subqueries=True):
        inputs = plan.inputs(node)
        if not inputs:
            leaves.append(node)
            continue
        used |= _ids(node.references().toSeq())
        by_position = plan.subqueries(node)
        if kind_of(node) not in _BY_NAME:
            by_position += inputs
        for each in by_position:
            used |= _ids(each.output())
    columns_by_name: dict[str, frozenset[str]] = {}
    for leaf in leaves:
        if kind_of(leaf) == "LogicalRDD" and (rdd := leaf.rdd().id()) in placeholders.names:
            name = placeholders.names[rdd]
            columns = {each.name() for each in scala_seq(leaf.output()) if id_of(each) in used}
            columns_by_name[name] = columns_by_name.get(name, frozenset()) | columns
    return columns_by_name


def _ids(attributes: Any) -> set[int]:
    """The numbers of attributes, in one call: `a#1, b#2L`."""
    return {int(number) for number in _EXPRESSION_ID.findall(attributes.mkString(","))}
