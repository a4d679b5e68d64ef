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
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from streamhouse.client.http import HttpResponse
from streamhouse.clock import Clock, SystemClock
from streamhouse.errors import AccessDenied, Rejected, Unavailable
from streamhouse.model.identifiers import quote_identifier
from streamhouse.model.table import MADE_BY, Column, Connector, Table
from streamhouse.spark.agents.address import AgentAddress
from streamhouse.spark.agents.client import connect, error_detail
from streamhouse.spark.columns.column_types import type_text
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
    for name, pinned in json.loads(text).items():
        columns = tuple(Column(name=column, type=kind) for column, kind in pinned["columns"])
        known.add(Table(name=name, connector=Connector.TOPIC, columns=columns, options=pinned["options"]))
    return known


def pin_columns(catalog: Catalog, folder: Folder, revision: int, reads: Iterable[TableRef]) -> None:
    """Write down what was inferred, if anything was."""
    names = dict.fromkeys(r.name for r in reads if r.origin.startswith("inferred") or r.name in catalog.kept)
    tables = {name: table for name in names if (table := catalog.find(name)) is not None}
    if not tables:
        return
    pinned = {
        name: {
            "columns": [[column.name, column.type] for column in table.columns or ()],
            "options": dict(table.options),
        }
        for name, table in tables.items()
    }
    text = json.dumps(pinned)
    if folder.read(_name(revision)) != text:
        folder.write(_name(revision), text)


def _name(revision: int) -> str:
    return f"columns-{revision}.json"


LOOK_EVERY_S: Final = 1.0
INFERRED: Final = "inferred"


def grown_catalog(known: Catalog, anew: Catalog, names: Iterable[str]) -> Catalog:
    """A catalog with columns that were kept and those that records have besides, now."""
    overlay = OverlayCatalog(known)
    for name in names:
        old, new = known.find(name), anew.find(name)
        if old is not None and new is not None and anew.origin(name).startswith(INFERRED):
            overlay.add(merged(old, new))
    return overlay


def merged(old: Table, new: Table) -> Table:
    """What was inferred, and what is inferred now; a topic that had no columns of its own takes those of now."""
    if old.options.get("format") != new.options.get("format"):
        return new
    columns = merge_lenient(_struct(old), _struct(new))
    if columns.names == [each.name for each in old.columns or ()] and columns == _struct(old):
        return old
    types = tuple(Column(name=each.name, type=type_text(each.dataType)) for each in columns.fields)
    return Table(name=old.name, connector=old.connector, columns=types, key=old.key, options=old.options, text=old.text)


def _struct(table: Table) -> StructType:
    fields = ", ".join(f"{quote_identifier(each.name)} {each.type}" for each in table.columns or ())
    parsed = StructType.fromDDL(fields) if fields else StructType([])
    assert isinstance(parsed, StructType)
    return parsed


def check_known(reads: Iterable[TableRef]) -> None:
    """A table's columns can't change later, so they are not inferred from an empty topic."""
    for read in reads:
        if read.is_stream and read.origin == EMPTY_TOPIC:
            raise Unavailable(f"its columns aren't known before there are records; stream={read.name}")


class ColumnWatcher:
    """Called before each micro-batch; `bound` is the catalog that the query was bound with."""

    def __init__(self, bound: Catalog, anew: Catalog, reads: Iterable[TableRef], *, clock: Clock | None = None) -> None:
        self._bound = {
            read.name: table
            for read in reads
            if read.is_stream and read.table.connector is Connector.TOPIC and (table := bound.find(read.name))
        }
        self._anew, self._clock = anew, clock or SystemClock()
        self._checked_at_s: float | None = None

    def check(self) -> None:
        """Raises `Unavailable` where the query must begin again."""
        now_s = self._clock.monotonic()
        if self._checked_at_s is not None and now_s - self._checked_at_s < LOOK_EVERY_S:
            return
        self._anew.invalidate()
        for name, table in self._bound.items():
            current = self._anew.find(name)
            if current is not None and self._differs(name, table, current):
                raise Unavailable(f"a stream has other columns now, and it begins again with them; stream={name}")
        self._checked_at_s = now_s

    def _differs(self, name: str, bound: Table, current: Table) -> bool:
        if self._anew.origin(name).startswith(INFERRED):
            return merged(bound, current) != bound
        is_raw = current.options.get("format") == "raw" and bound.options.get("format") != "raw"
        return not is_raw and current.columns != bound.columns


class TargetTables:
    def __init__(self, agents: AgentAddress) -> None:
        self._agents = agents

    def topic(self, job: PipelineJob, stored: Table | None, frame: DataFrame, options: PipelineOptions) -> Table:
        """The target as a table over a topic that exists."""
        table = stored or Table(name=job.target, connector=Connector.TOPIC)
        self.ensure_topic(topic_of(table), options.partitions)
        if table.text is None and options.fmt == "json":
            self._define(job, table, frame)
        return table

    def ensure_topic(self, name: str, partitions: int | None = None) -> None:
        if self._send("GET", f"/v1/topics/{_quoted(name)}").status == 200:
            return  # the right to write to a topic does not include the right to create it
        body = {"name": name} if partitions is None else {"name": name, "partitions": partitions}
        response = self._send("POST", "/v1/topics", body)
        if response.status >= 400 and self._send("GET", f"/v1/topics/{_quoted(name)}").status != 200:
            raise Rejected(f"a topic can't be made; topic={name} error={error_detail(response)}")

    def last_commit(self, query_id: str) -> LastCommit:
        response = self._send("GET", f"/v1/commits/{query_id}")
        if response.status >= 400:
            return LastCommit()
        commit = msgspec.json.decode(response.content)
        return LastCommit(epoch=commit["epoch"], progress=commit["progress"])

    def _define(self, job: PipelineJob, table: Table, frame: DataFrame) -> None:
        """Declare the columns of its records, unless they are declared or registered already."""
        path = f"/v1/tables/{_quoted(table.name)}"
        response = self._send("GET", path)
        table_json = msgspec.json.decode(response.content) if response.status == 200 else {}
        if table_json.get("columns") is not None and (table_json.get("options") or {}).get(MADE_BY) != job.name:
            return
        columns = [{"name": each.name, "type": type_text(each.dataType)} for each in _own(frame)]
        if columns == table_json.get("columns"):
            return
        body = {
            "connector": Connector.TOPIC.value,
            "columns": columns,
            "key": list(job.key),
            "options": {"format": "json", MADE_BY: job.name},
            "text": None,
        }
        with suppress(AccessDenied):  # without it, columns are inferred from records
            self._send("PUT", path, body)

    def _send(self, method: str, path: str, body: Any = None) -> HttpResponse:
        return connect(self._agents).send(method, path, body=body)


def _own(frame: DataFrame) -> list[Any]:
    return [each for each in frame.schema.fields if not each.name.startswith("_")]


def _quoted(name: str) -> str:
    return quote(name, safe="")
