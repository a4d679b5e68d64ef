"""tables: flags become a table and a pipeline that agents keep, and are shown together."""

import json
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from streamhouse.cli.doors import Doors
from streamhouse.cli.main import app
from streamhouse.client.http import Http
from streamhouse.format.statements import CreatePipeline, CreateTable, parse

TOPIC = {"name": "orders", "connector": "topic"}
LAKE = {"name": "lake", "connector": "iceberg", "options": {"location": "/lake", "mode": "upsert"}}
WRITER = {
    "name": "writer",
    "target": "lake",
    "wish": "run",
    "owner": {"supervisor": "first"},
    "status": {"phase": "running", "lag_records": 7, "dead_letters": 2},
}


class MadeUpAgents(Doors):
    """Agents that know some tables, and keep what is put to them."""

    def __init__(self, *tables: dict[str, Any], pipelines: tuple[dict[str, Any], ...] = ()) -> None:
        self.tables, self.pipelines = tables, pipelines
        self.asked: list[tuple[str, str, Any]] = []

    def http(self, address: str) -> AbstractAsyncContextManager[Http]:
        return Http(address, transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else None
        if request.method != "GET":
            self.asked.append((request.method, request.url.path, body))
            return httpx.Response(200, json={"outcome": "created"})
        if request.url.path == "/v1/tables":
            return httpx.Response(200, json={"tables": self.tables})
        if request.url.path == "/v1/pipelines":
            return httpx.Response(200, json={"pipelines": self.pipelines})
        return httpx.Response(404, json={"detail": "unknown"})


def run(doors: MadeUpAgents, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["tables", *arguments, "--agents", "127.0.0.1:1"], obj=doors)


def test_a_table_is_a_definition_and_a_pipeline_that_fills_it() -> None:
    doors = MadeUpAgents(TOPIC)
    result = run(
        doors,
        *("create", "ORDERS", "--topic", "orders", "--format", "iceberg", "--mode", "upsert", "--key", "id"),
        *("--partition-by", "day(ts)", "--location", "s3://lake/orders", "--commit-interval", "30s"),
        *("--file-size", "64MiB", "--expire-snapshots", "2d", "--dead-letters", "odd"),
    )
    assert result.exit_code == 0, result.output
    (_, where, table), (_, _, pipeline) = doors.asked
    assert where == "/v1/tables/ORDERS"
    assert table["connector"] == "iceberg"
    assert table["options"] == {
        "location": "s3://lake/orders",
        "mode": "upsert",
        "partition_by": "day(ts)",
        "file_size": "64MiB",
        "expire_snapshots": "2d",
    }
    assert pipeline["options"] == {"trigger": "30000 milliseconds", "key": "id", "dead_letters": "odd"}
    assert pipeline["target"] == "ORDERS"
    definition, writer = parse(table["text"] + ";" + pipeline["text"])
    assert isinstance(definition, CreateTable)
    assert isinstance(writer, CreatePipeline)
    assert "STREAM(`orders`)" in writer.select


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--format", "hudi"), "hudi"),
        (("--format", "delta", "--mode", "upsert"), "--key"),
        (("--format", "delta", "--key", "id"), "--key"),
        (("--format", "delta", "--partition-by", "week(ts)"), "day(ts)"),
        (("--format", "delta", "--commit-interval", "soon"), "1m"),
        (("--format", "delta", "--file-size", "big"), "128MiB"),
    ],
)
def test_flags_that_cant_be_are_told_before_anything_is_asked(flags: tuple[str, ...], told: str) -> None:
    doors = MadeUpAgents(TOPIC)
    result = run(doors, "create", "lake", "--topic", "orders", *flags)
    assert result.exit_code == 2
    assert told in result.output
    assert doors.asked == []


def test_a_table_needs_a_topic_and_a_name_of_its_own() -> None:
    doors = MadeUpAgents(TOPIC)
    assert "no such topic" in run(doors, "create", "lake", "--topic", "none", "--format", "delta").output
    assert "the name is taken" in run(doors, "create", "orders", "--topic", "orders", "--format", "delta").output
    assert doors.asked == []


def test_tables_are_listed_with_those_who_write_them() -> None:
    result = run(MadeUpAgents(TOPIC, LAKE, pipelines=(WRITER,)), "list", "--json")
    (table,) = json.loads(result.output)
    assert (table["name"], table["format"], table["mode"]) == ("lake", "iceberg", "upsert")
    assert table["pipeline"]["name"] == "writer"
    assert "running" in run(MadeUpAgents(TOPIC, LAKE, pipelines=(WRITER,)), "list").output


def test_dropping_a_table_ends_its_pipeline_and_leaves_its_files() -> None:
    doors = MadeUpAgents(LAKE, pipelines=(WRITER,))
    result = run(doors, "drop", "lake", "--yes")
    assert [(method, path) for method, path, _ in doors.asked] == [
        ("DELETE", "/v1/pipelines/writer"),
        ("DELETE", "/v1/tables/lake"),
    ]
    assert "/lake" in result.output
    assert run(doors, "drop", "other", "--yes").exit_code == 1


def test_a_table_that_cant_be_looked_at_from_here_is_described_all_the_same() -> None:
    result = run(MadeUpAgents(LAKE, pipelines=(WRITER,)), "describe", "lake", "--json")
    told = json.loads(result.stdout)
    assert told["contents"] is None
    assert "no such Iceberg table" in told["unknown"]
