"""Source columns and target topics of a pipeline.

Data path   query_builder -> **pipeline_tables** -> a file beside the checkpoint; agents: topics, tables, last commits
Owns        pinned columns; when a stream has columns that the query does not know; topics and definitions of targets
Leaves      inference to `query.schema_inference`, restarts to the supervisor, columns of lake tables to `lake`

Inferred columns are pinned per revision: another type would not fit the query's state. A changed pipeline infers them
again. For lake tables, inferred columns only grow: a field that no sample has stays, and a type stays what it was
first; records that don't fit become dead letters. A micro-batch that would lose a column is not written, and runs
again after the restart. A target's definition that a user wrote stays; one that the pipeline made follows its
columns.
"""

import json
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from streamhouse.client.http import HttpResponse
from streamhouse.clock import Clock, SystemClock
from streamhouse.errors import Rejected, Unavailable
from streamhouse.model.identifiers import quote_identifier
from streamhouse.model.table import MADE_BY, Column, Connector, Table
from streamhouse.spark.agents.client import ask, error_detail
from streamhouse.spark.connectors.topic_writer import topic_of
from streamhouse.spark.lake.schema_evolution import merge_lenient
from streamhouse.spark.pipelines.runner_protocol import PipelineJob
from streamhouse.spark.query.catalog import EMPTY_TOPIC, Catalog, OverlayCatalog
from streamhouse.spark.query.resolver import TableRef
from streamhouse.spark.runtime.checkpoint_folder import Folder, LastCommit
from streamhouse.sql.options import PipelineOptions


def with_pinned(catalog: Catalog, folder: Folder, revision: int) -> Catalog:
    """The catalog, in which the tables of this revision are as they were."""
    text = folder.read(_name(revision))
    if text is None:
        return catalog
    known = OverlayCatalog(catalog)
    for name, told in json.loads(text).items():
        columns = tuple(Column(name=column, type=kind) for column, kind in told["columns"])
        known.add(Table(name=name, connector=Connector.TOPIC, columns=columns, options=told["options"]))
    return known


def pin_columns(catalog: Catalog, folder: Folder, revision: int, reads: Iterable[TableRef]) -> None:
    """Write down what was inferred, if anything was."""
    names = dict.fromkeys(r.name for r in reads if r.origin.startswith("inferred") or r.name in catalog.kept)
    found = {name: table for name in names if (table := catalog.find(name)) is not None}
    if not found:
        return
    told = {
        name: {
            "columns": [[column.name, column.type] for column in table.columns or ()],
            "options": dict(table.options),
        }
        for name, table in found.items()
    }
    text = json.dumps(told)
    if folder.read(_name(revision)) != text:
        folder.write(_name(revision), text)


def _name(revision: int) -> str:
    return f"columns-{revision}.json"


LOOK_EVERY_S: Final = 1.0
INFERRED: Final = "inferred"


def grown_catalog(known: Catalog, anew: Catalog, names: Iterable[str]) -> Catalog:
    """A catalog with columns that were kept and those that records have besides, now."""
    found = OverlayCatalog(known)
    for name in names:
        old, new = known.find(name), anew.find(name)
        if old is not None and new is not None and anew.origin(name).startswith(INFERRED):
            found.add(merged(old, new))
    return found


def merged(old: Table, new: Table) -> Table:
    """What was inferred, and what is inferred now; a topic that had no columns of its own takes those of now."""
    if old.options.get("format") != new.options.get("format"):
        return new
    columns = merge_lenient(_struct(old), _struct(new))
    if columns.names == [each.name for each in old.columns or ()] and columns == _struct(old):
        return old
    told = tuple(Column(name=each.name, type=each.dataType.simpleString()) for each in columns.fields)
    return Table(name=old.name, connector=old.connector, columns=told, key=old.key, options=old.options, text=old.text)


def _struct(table: Table) -> StructType:
    fields = ", ".join(f"{quote_identifier(each.name)} {each.type}" for each in table.columns or ())
    found = StructType.fromDDL(fields) if fields else StructType([])
    assert isinstance(found, StructType)
    return found


def check_known(reads: Iterable[TableRef]) -> None:
    """A table's columns are for good: they aren't guessed from a topic that nobody has written to."""
    for read in reads:
        if read.is_stream and read.origin == EMPTY_TOPIC:
            raise Unavailable(f"its columns aren't known before there are records; stream={read.name}")


class ColumnWatcher:
    """Asked before each micro-batch; `bound` is the catalog that the query was bound with."""

    def __init__(self, bound: Catalog, anew: Catalog, reads: Iterable[TableRef], *, clock: Clock | None = None) -> None:
        self._bound = {
            read.name: table
            for read in reads
            if read.is_stream and read.table.connector is Connector.TOPIC and (table := bound.find(read.name))
        }
        self._anew, self._clock = anew, clock or SystemClock()
        self._looked_at_s: float | None = None

    def check(self) -> None:
        """Raises `Unavailable` where the query must begin again."""
        now_s = self._clock.monotonic()
        if self._looked_at_s is not None and now_s - self._looked_at_s < LOOK_EVERY_S:
            return
        self._anew.invalidate()
        for name, table in self._bound.items():
            found = self._anew.find(name)
            if found is not None and self._differs(name, table, found):
                raise Unavailable(f"a stream has other columns now, and it begins again with them; stream={name}")
        self._looked_at_s = now_s

    def _differs(self, name: str, bound: Table, found: Table) -> bool:
        if self._anew.origin(name).startswith(INFERRED):
            return merged(bound, found) != bound
        is_raw = found.options.get("format") == "raw" and bound.options.get("format") != "raw"
        return not is_raw and found.columns != bound.columns


class TargetTables:
    def __init__(self, agents: str) -> None:
        self._agents = agents

    def topic(self, job: PipelineJob, found: Table | None, frame: DataFrame, options: PipelineOptions) -> Table:
        """The target as a table over a topic that exists."""
        table = found or Table(name=job.target, connector=Connector.TOPIC)
        self.ensure_topic(topic_of(table), options.partitions)
        if table.text is None and options.fmt == "json":
            self._define(job, table, frame)
        return table

    def ensure_topic(self, name: str, partitions: int | None = None) -> None:
        body = {"name": name} if partitions is None else {"name": name, "partitions": partitions}
        answer = self._asked("POST", "/v1/topics", body)
        if answer.status >= 400 and self._asked("GET", f"/v1/topics/{_quoted(name)}").status != 200:
            raise Rejected(f"a topic can't be made; topic={name} why={error_detail(answer)}")

    def last_commit(self, query_id: str) -> LastCommit:
        answer = self._asked("GET", f"/v1/commits/{query_id}")
        if answer.status >= 400:
            return LastCommit()
        told = msgspec.json.decode(answer.content)
        return LastCommit(epoch=told["epoch"], progress=told["progress"])

    def _define(self, job: PipelineJob, table: Table, frame: DataFrame) -> None:
        """Say which columns its records have, unless somebody said so, or a registered schema does."""
        path = f"/v1/tables/{_quoted(table.name)}"
        answer = self._asked("GET", path)
        told = msgspec.json.decode(answer.content) if answer.status == 200 else {}
        if told.get("columns") is not None and (told.get("options") or {}).get(MADE_BY) != job.name:
            return
        columns = [{"name": each.name, "type": each.dataType.simpleString()} for each in _own(frame)]
        if columns == told.get("columns"):
            return
        body = {
            "connector": Connector.TOPIC.value,
            "columns": columns,
            "key": list(job.key),
            "options": {"format": "json", MADE_BY: job.name},
            "text": None,
        }
        self._asked("PUT", path, body)  # without it, columns are inferred from records

    def _asked(self, method: str, path: str, body: Any = None) -> HttpResponse:
        return ask(self._agents, method, path, body)


def _own(frame: DataFrame) -> list[Any]:
    return [each for each in frame.schema.fields if not each.name.startswith("_")]


def _quoted(name: str) -> str:
    return quote(name, safe="")
