"""Answering: a question in SQL becomes batches of rows; one that runs can be cancelled.

Data path   serving -> **answering** -> binding -> Spark -> Arrow batches
Owns        what a question and an answer are; a job group for each query; rows beyond the limit
Leaves      names to `binding`, words for mistakes to `problems`, live queries to `tailing`, formats to `results`

Everything here blocks and runs in threads; PySpark pins each to a thread of the JVM, which carries the job group.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.types import (
    AnsiIntervalType,
    CalendarIntervalType,
    DataType,
    GeographyType,
    GeometryType,
    StructField,
    TimeType,
    VariantType,
)

from streamhouse.errors import StatementError
from streamhouse.format.statements import Statement, parse_all, position
from streamhouse.model.table import Column
from streamhouse.spark.sql.limits import SqlLimits
from streamhouse.spark.sql.results import columns_of, unlike
from streamhouse.spark.sql.tailing import Tail

log = logging.getLogger(__name__)

AS_TEXT: Final[tuple[type[DataType], ...]] = (
    AnsiIntervalType,
    CalendarIntervalType,
    GeographyType,
    GeometryType,
    TimeType,
    VariantType,
)
"""Types that Arrow, or a file of rows, doesn't have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`max_rows` None: as many as usual. `starting` is where a live query begins: latest or earliest."""

    sql: str
    max_rows: int | None = None
    starting: str = "latest"
    is_guest: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Rows as they come; `is_live`: they come until somebody closes it. `truncated`: there are more."""

    columns: tuple[Column, ...]
    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    notes: tuple[str, ...] = ()
    truncated: bool = False
    is_live: bool = False


@dataclass(slots=True)
class _Running:
    is_cancelled: bool = False
    tails: list[Tail] = field(default_factory=list)


class Answering:
    """One Spark, many questions."""

    def __init__(self, spark: SparkSession, *, agents: str, limits: SqlLimits) -> None:
        self._spark, self._agents, self._limits = spark, agents, limits
        self._running: dict[str, _Running] = {}
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"<Answering agents={self._agents} running={len(self._running)}>"

    def ask(self, question: Question, query_id: str) -> Reply:
        """Blocks until the answer is there, or, of a live query, until it runs. Call `release` when done with it."""
        with self._lock:
            self._running[query_id] = _Running()
        self._spark.sparkContext.setJobGroup(query_id, "streamhouse sql", interruptOnCancel=True)
        frame = self._spark.newSession().sql(question.sql)
        return self._tail(frame, question, query_id) if frame.isStreaming else self._collect(frame, question)

    def cancel(self, query_id: str) -> bool:
        """End what the query does; it fails, or its rows end. False where there is no such query."""
        with self._lock:
            running = self._running.get(query_id)
            if running is None:
                return False
            running.is_cancelled, tails = True, tuple(running.tails)
        for tail in tails:
            tail.stop()
        self._spark.sparkContext.cancelJobGroup(query_id)
        return True

    def release(self, query_id: str) -> None:
        """The query is over, whoever ended it."""
        with self._lock:
            running = self._running.pop(query_id, None)
        for tail in running.tails if running is not None else ():
            tail.stop()

    def validate(self, text: str) -> list[dict[str, Any]]:
        """Every statement of a file, with what is wrong."""
        statements, errors = parse_all(text)
        checked = [_told(each, position(text, each.span[0])[0], ()) for each in statements]
        wrong = [_told(None, each.line, (each,)) for each in errors]
        return sorted(checked + wrong, key=lambda each: int(each["line"]))

    def complete(self) -> dict[str, Any]:
        """Names to complete with."""
        return {"tables": [], "functions": []}

    def _collect(self, frame: DataFrame, question: Question) -> Reply:
        wanted = min(question.max_rows or self._limits.rows, self._limits.max_rows)
        frame, columns = presentable(frame)
        table = frame.limit(wanted + 1).toArrow()
        return Reply(
            columns=columns,
            schema=table.schema,
            batches=iter(table.slice(0, wanted).to_batches()),
            truncated=table.num_rows > wanted,
        )

    def _tail(self, frame: DataFrame, question: Question, query_id: str) -> Reply:
        frame, columns = presentable(frame)
        tail = Tail(frame, name=query_id, waiting_batches=self._limits.tail_batches)
        with self._lock:
            self._running[query_id].tails.append(tail)
        tail.start()
        return Reply(columns=columns, schema=tail.schema, batches=iter(tail), is_live=True)


def presentable(frame: DataFrame) -> tuple[DataFrame, tuple[Column, ...]]:
    """The frame with names that differ, and text where Arrow has no type; and the columns as they were."""
    names = unlike(frame.columns)
    frame = frame if names == frame.columns else frame.toDF(*names)
    columns = columns_of(frame.schema)
    if any(isinstance(each.dataType, AS_TEXT) for each in frame.schema.fields):
        frame = frame.select(*(_shown(each) for each in frame.schema.fields))
    return frame, columns


def _shown(field: StructField) -> SparkColumn:
    found = col(_quoted(field.name))
    return found.cast("string").alias(field.name) if isinstance(field.dataType, AS_TEXT) else found


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _told(statement: Statement | None, line: int, problems: Sequence[StatementError]) -> dict[str, Any]:
    return {
        "kind": "" if statement is None else type(statement).__name__,
        "name": getattr(statement, "name", ""),
        "line": line,
        "columns": None,
        "shape": None,
        "problems": [
            {"line": each.line, "column": each.column, "text": each.text, "hint": each.hint} for each in problems
        ],
    }
