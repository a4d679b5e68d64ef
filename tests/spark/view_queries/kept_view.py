"""A view that a test keeps: the statement is validated, bound and run as a supervisor would, its rows end up here.

Data path   statement -> `validate` -> `resolve` -> the view's `write_stream` -> parts -> **KeptRows**
Owns        what agents do with parts of a micro-batch; that the view is compared when all of them are there
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamhouse.client.http import HttpResponse
from streamhouse.format.metadata_values import view_lookup_key
from streamhouse.model.table import Column, Connector, Table
from streamhouse.spark.connectors import ReadContext, WriteContext, find, materialized_view
from streamhouse.spark.query.catalog import Catalog
from streamhouse.spark.query.error_messages import SqlDiagnostic
from streamhouse.spark.query.resolver import resolve
from streamhouse.spark.query.validation import validate
from streamhouse.sql.options import pipeline_options
from streamhouse.sql.parser import parse
from streamhouse.sql.statements import CreateView
from streamhouse.wire.http.routes.views import PartRequest
from tests.spark.query.fakes import FakeBackend
from tests.spark.view_queries.records import COLUMNS, PEOPLE, STREAMS, Batch, lines, people

QUERY_ID = "00000000-0000-4000-8000-000000000000"


@dataclass(slots=True)
class KeptRows:
    """Rows by key, as agents have them after the parts that came so far."""

    rows: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)

    def take(self, address: str, method: str, path: str, body: object = None) -> HttpResponse:
        part = msgspec.json.decode(msgspec.json.encode(body), type=PartRequest)
        for each in part.upserts:
            self.rows[view_lookup_key(each.key)] = (part.batch, msgspec.json.decode(each.row))
        for key in part.deletes:
            self.rows.pop(view_lookup_key(key), None)
        if part.complete and part.part == part.parts - 1:
            self.rows = {key: kept for key, kept in self.rows.items() if kept[0] == part.batch}
        return HttpResponse(status=200, content=b"{}")

    def all(self) -> list[dict[str, Any]]:
        return [row for _, row in self.rows.values()]


class Folders:
    """Streams and a table as folders of JSON lines, that `feed` adds a micro-batch to."""

    def __init__(self, root: Path) -> None:
        self._root, self._numbers = root, itertools.count()
        for name in (*STREAMS, "people"):
            (root / name).mkdir(parents=True)
        (root / "people" / "0.json").write_text(lines(people()))

    def feed(self, batch: Batch) -> None:
        number = next(self._numbers)
        for name in STREAMS:
            made = self._root / f"{name}.{number}"
            made.write_text(lines(batch[name]))
            made.rename(self._root / name / f"{number}.json")

    def catalog(self) -> Catalog:
        return Catalog("nowhere:1", backend=FakeBackend(*(self._table(name) for name in (*STREAMS, "people"))))

    def _table(self, name: str) -> Table:
        results = [each.split(" ") for each in (PEOPLE if name == "people" else COLUMNS).split(", ")]
        columns = tuple(Column(name=name, type=kind) for name, kind in results)
        options = {"path": str(self._root / name), "format": "json"}
        return Table(name=name, connector=Connector.FILES, columns=columns, options=options)


def refused(spark: SparkSession, catalog: Catalog, statement: str) -> SqlDiagnostic | None:
    """Why it isn't applied."""
    [checked] = validate(spark, catalog, statement)
    return next(iter(checked.problems), None)


@contextmanager
def running(spark: SparkSession, catalog: Catalog, statement: str, checkpoint: Path) -> Iterator["Running"]:
    [parsed] = parse(statement)
    assert isinstance(parsed, CreateView)
    options = pipeline_options(parsed.options)
    reading = ReadContext(agents="nowhere:1", watermarks=options.watermarks)
    kept = KeptRows()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(materialized_view, "_send", kept.take)
        bound = resolve(spark, parsed.select, catalog, reading)
        table = Table(name="v", connector=Connector.VIEW, key=parsed.key)
        mode = options.output or "update"
        writing = WriteContext(
            agents="nowhere:1", pipeline="v", epoch=1, query_id=QUERY_ID, checkpoint=str(checkpoint), mode=mode
        )
        query = find(Connector.VIEW).write_stream(bound.frame, table, writing).start()
        try:
            yield Running(query, kept)
        finally:
            query.stop()


def refreshed(spark: SparkSession, catalog: Catalog, statement: str, checkpoint: Path) -> list[dict[str, Any]]:
    """The rows of a view that reads no stream, after it was computed once."""
    [parsed] = parse(statement)
    assert isinstance(parsed, CreateView)
    kept = KeptRows()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(materialized_view, "_send", kept.take)
        frame = resolve(spark, parsed.select, catalog, ReadContext(agents="nowhere:1")).frame
        table = Table(name="v", connector=Connector.VIEW, key=parsed.key)
        writing = WriteContext(
            agents="nowhere:1", pipeline="v", epoch=1, query_id=QUERY_ID, checkpoint=str(checkpoint), mode="append"
        )
        step, frame = materialized_view._batch_writer(frame, table, writing, mode="complete")
        step.send(frame, 0, fresh_at_ms=1)
    return kept.all()


@dataclass(frozen=True, slots=True)
class Running:
    query: StreamingQuery
    kept: KeptRows

    def settled(self) -> list[dict[str, Any]]:
        """The rows when all that is there was read."""
        self.query.processAllAvailable()
        return self.kept.all()
