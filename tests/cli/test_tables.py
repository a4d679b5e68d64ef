"""tables: flags become a table and a pipeline that agents keep, and are shown together."""

import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from streamhouse.cli.dependencies import Dependencies
from streamhouse.cli.main import app
from streamhouse.client.http import Http
from streamhouse.sql.parser import parse
from streamhouse.sql.statements import CreatePipeline, CreateTable

TOPIC = {"name": "orders", "connector": "topic"}
LAKE = {"name": "lake", "connector": "iceberg", "options": {"location": "/lake", "mode": "upsert"}}
WRITER = {
    "name": "writer",
    "target": "lake",
    "wish": "run",
    "owner": {"supervisor": "first"},
    "status": {"phase": "running", "lag_records": 7, "dead_letters": 2},
}


class MadeUpAgents(Dependencies):
    """Agents that know some tables, and keep what is put to them; `columns` are those of every topic."""

    def __init__(
        self,
        *tables: dict[str, Any],
        pipelines: tuple[dict[str, Any], ...] = (),
        topics: tuple[dict[str, Any], ...] = (),
        store: str = "file:///srv/data/objects",
        columns: tuple[str, ...] | None = None,
    ) -> None:
        self.kept = {
            "tables": {each["name"]: each for each in tables},
            "pipelines": {each["name"]: each for each in pipelines},
            "topics": {each["name"]: each for each in topics},
        }
        self.store, self.columns, self.refuses_pipelines = store, columns, False
        self.requests: list[tuple[str, str, Any]] = []

    def http(self, address: str) -> AbstractAsyncContextManager[Http]:
        return Http(address, transport=httpx.MockTransport(self._answer))

    def topic_columns(self, agents: str, topic: str) -> tuple[str, ...] | None:
        return self.columns

    def _answer(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else None
        if request.url.path == "/v1/read-plans":
            return httpx.Response(200, json={"store": self.store})
        _, _, what, *names = request.url.path.split("/")
        kept = self.kept[what]
        if request.method == "GET" and not names:
            return httpx.Response(200, json={what: list(kept.values())})
        if request.method == "GET":
            result = kept.get(names[0])
            return httpx.Response(404 if result is None else 200, json=result or {"detail": "unknown"})
        self.requests.append((request.method, request.url.path, body))
        if request.method == "PUT" and what == "pipelines" and self.refuses_pipelines:
            return httpx.Response(422, json={"detail": "too many pipelines"})
        if request.method == "PUT" and body is not None:
            return httpx.Response(200, json=self._put(what, names[0], body))
        return httpx.Response(200, json={})

    def _put(self, what: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """The response is the definition of a table, or the outcome of a pipeline."""
        before, after = self.kept[what].get(name), {"name": name, **body}
        self.kept[what][name] = {"wish": "run", "status": {}, **after} if what == "pipelines" else after
        if what == "tables":
            return after
        is_same = before is not None and before["text"] == after["text"]
        return {"outcome": "created" if before is None else "unchanged" if is_same else "changed"}


def run(deps: MadeUpAgents, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["tables", *arguments, "--agents", "127.0.0.1:1"], obj=deps)


def said(result: Result) -> str:
    """On one line, however wide the terminal is."""
    return " ".join(result.output.replace("│", " ").split())


def create(deps: MadeUpAgents, *flags: str, name: str = "lake") -> Result:
    given = flags if "--format" in flags else ("--format", "iceberg", *flags)
    return run(deps, "create", name, "--topic", "orders", *given)


def test_a_table_is_a_definition_and_a_pipeline_that_fills_it() -> None:
    deps = MadeUpAgents(TOPIC)
    result = run(
        deps,
        *("create", "ORDERS", "--topic", "orders", "--format", "iceberg", "--mode", "upsert", "--key", "id"),
        *("--partition-by", "day(ts)", "--location", "s3://lake/orders", "--commit-interval", "30s"),
        *("--file-size", "64MiB", "--expire-snapshots", "2d", "--dead-letters", "odd"),
    )
    assert result.exit_code == 0, result.output
    (_, where, table), (_, _, pipeline) = deps.requests
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
    ("flags", "message"),
    [
        (("--format", "hudi"), "hudi"),
        (("--format", "delta", "--mode", "upsert"), "--mode upsert needs"),
        (("--format", "delta", "--mode", "upsert", "--key", ","), "--mode upsert needs"),
        (("--format", "delta", "--key", "id"), "--key needs --mode upsert"),
        (("--format", "parquet", "--mode", "upsert", "--key", "id"), "iceberg or delta"),
        (("--format", "delta", "--partition-by", "bucket(4, id)"), "only Iceberg"),
        (("--format", "delta", "--location", "gs://lake/orders"), "s3://bucket/prefix"),
        (("--format", "delta", "--partition-by", "week(ts)"), "day(ts)"),
        (("--format", "delta", "--commit-interval", "soon"), "1m"),
        (("--format", "delta", "--file-size", "big"), "128MiB"),
    ],
)
def test_flags_that_cant_be_are_reported_before_anything_is_asked(flags: tuple[str, ...], message: str) -> None:
    deps = MadeUpAgents(TOPIC)
    result = run(deps, "create", "lake", "--topic", "orders", *flags)
    assert result.exit_code == 2
    assert message in said(result)
    assert deps.requests == []


def test_a_table_needs_a_topic_and_a_name_of_its_own() -> None:
    deps = MadeUpAgents(TOPIC)
    assert "no such topic" in run(deps, "create", "lake", "--topic", "none", "--format", "delta").output
    assert "the name is taken" in run(deps, "create", "orders", "--topic", "orders", "--format", "delta").output
    assert deps.requests == []


def test_tables_are_listed_with_those_who_write_them() -> None:
    result = run(MadeUpAgents(TOPIC, LAKE, pipelines=(WRITER,)), "list", "--json")
    (table,) = json.loads(result.output)
    assert (table["name"], table["format"], table["mode"]) == ("lake", "iceberg", "upsert")
    assert table["pipeline"]["name"] == "writer"
    assert "running" in run(MadeUpAgents(TOPIC, LAKE, pipelines=(WRITER,)), "list").output


def test_dropping_a_table_ends_its_pipeline_and_leaves_its_files() -> None:
    deps = MadeUpAgents(LAKE, pipelines=(WRITER,))
    result = run(deps, "drop", "lake", "--yes")
    assert [(method, path) for method, path, _ in deps.requests] == [
        ("DELETE", "/v1/pipelines/writer"),
        ("DELETE", "/v1/tables/lake"),
    ]
    assert "/lake" in result.output
    assert run(deps, "drop", "other", "--yes").exit_code == 1


def test_a_table_that_cant_be_looked_at_from_here_is_described_all_the_same() -> None:
    result = run(MadeUpAgents(LAKE, pipelines=(WRITER,)), "describe", "lake", "--json")
    reported = json.loads(result.stdout)
    assert reported["contents"] is None
    assert reported["unknown"] == "no commit yet"
    assert "no commit yet" in run(MadeUpAgents(LAKE, pipelines=(WRITER,)), "describe", "lake").output
    alone = json.loads(run(MadeUpAgents(LAKE), "describe", "lake", "--json").stdout)
    assert alone["unknown"] == "no table found; location=/lake"


def test_a_table_that_nobody_made_is_said_in_one_sentence() -> None:
    result = run(MadeUpAgents(LAKE), "describe", "nope")
    assert result.exit_code == 1
    assert said(result).count("see which there are with") == 1
    assert "do=" not in result.output


# --- what is there already


UPSERT = ("--mode", "upsert", "--key", "id", "--location", "/lake")


def test_the_same_again_is_unchanged_and_nothing_is_restarted() -> None:
    deps = MadeUpAgents(TOPIC)
    assert "created table lake at /lake" in said(create(deps, *UPSERT))
    deps.requests.clear()
    assert "unchanged table lake at /lake" in said(create(deps, *UPSERT))
    assert "unchanged table lake at /lake" in said(create(deps, "--mode", "upsert", "--key", "id"))
    assert {path for _, path, _ in deps.requests} == {"/v1/pipelines/lake"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--format", "delta", *UPSERT), "format is iceberg, not delta"),
        (("--mode", "append"), "mode is upsert, not append"),
        (("--mode", "upsert", "--key", "id,country"), "key is id, not id, country"),
        ((*UPSERT, "--partition-by", "day(ts)"), "partition_by is none, not day(ts)"),
        (("--mode", "upsert", "--key", "id", "--location", "/other"), "location is /lake, not /other"),
        ((*UPSERT, "--topic", "clicks"), "topic is orders, not clicks"),
        ((*UPSERT, "--from", "latest"), "streamhouse pipelines restart lake --from latest"),
    ],
)
def test_a_table_that_would_be_another_is_refused_and_stays_as_it_is(flags: tuple[str, ...], message: str) -> None:
    deps = MadeUpAgents(TOPIC, {**TOPIC, "name": "clicks"})
    create(deps, *UPSERT)
    deps.requests.clear()
    result = create(deps, *flags)
    assert result.exit_code == 1
    assert message in said(result)
    assert "unchanged" not in result.output
    assert deps.requests == []


@pytest.mark.parametrize(
    "flags",
    [("--commit-interval", "5s"), ("--dead-letters", "odd"), ("--file-size", "1MiB"), ("--expire-snapshots", "1d")],
)
def test_what_may_change_is_changed_and_its_pipeline_begins_with_it(flags: tuple[str, ...]) -> None:
    deps = MadeUpAgents(TOPIC)
    create(deps, *UPSERT)
    deps.requests.clear()
    assert said(create(deps, *UPSERT, *flags)).startswith("changed table lake at /lake")
    is_of_table = flags[0] in ("--file-size", "--expire-snapshots")
    restarts = [body for _, path, body in deps.requests if path == "/v1/pipelines/lake/restart"]
    assert restarts == ([{"from": None}] if is_of_table else [])
    assert ("PUT" in {method for method, path, _ in deps.requests if path == "/v1/tables/lake"}) == is_of_table


def test_a_paused_pipeline_stays_paused_when_its_table_is_changed() -> None:
    deps = MadeUpAgents(TOPIC)
    create(deps, *UPSERT)
    deps.kept["pipelines"]["lake"]["wish"] = "pause"
    assert said(create(deps, *UPSERT, "--file-size", "1MiB")).startswith("changed")
    assert "/v1/pipelines/lake/restart" not in {path for _, path, _ in deps.requests}


def test_a_table_that_was_made_in_sql_is_left_to_its_owner() -> None:
    written = MadeUpAgents(TOPIC, LAKE, pipelines=(WRITER,))
    declared = MadeUpAgents(TOPIC, {**LAKE, "columns": [{"name": "id", "type": "INT"}]})
    elsewhere = MadeUpAgents(TOPIC, pipelines=({**WRITER, "name": "lake", "target": "other"},))
    text = "CREATE PIPELINE lake AS INSERT INTO lake SELECT id FROM STREAM(orders)"
    queried = MadeUpAgents(TOPIC, LAKE, pipelines=({**WRITER, "name": "lake", "key": ["id"], "text": text},))
    assert "another pipeline writes it" in said(create(written, *UPSERT))
    assert "declared with its columns" in said(create(declared, *UPSERT))
    assert "writes elsewhere" in said(create(elsewhere, *UPSERT))
    assert "topic is a query of its own, not orders" in said(create(queried, *UPSERT))
    assert not any((written.requests, declared.requests, elsewhere.requests, queried.requests))


def test_a_table_whose_pipeline_is_refused_is_not_left_behind() -> None:
    deps = MadeUpAgents(TOPIC)
    deps.refuses_pipelines = True
    result = create(deps, *UPSERT)
    assert result.exit_code == 1
    assert "too many pipelines" in said(result)
    assert [(method, path) for method, path, _ in deps.requests] == [
        ("PUT", "/v1/tables/lake"),
        ("PUT", "/v1/pipelines/lake"),
        ("DELETE", "/v1/tables/lake"),
    ]


# --- columns and places


def test_a_key_or_a_partition_of_no_column_is_refused_where_columns_are_known() -> None:
    deps = MadeUpAgents(TOPIC, columns=("order_id", "amount"))
    assert "--key names no column of the topic; column=id" in said(create(deps, *UPSERT))
    assert "--partition-by names no column" in said(create(deps, "--partition-by", "day(ts)"))
    assert deps.requests == []
    assert create(deps, "--mode", "upsert", "--key", "order_id").exit_code == 0
    assert create(MadeUpAgents(TOPIC, columns=None), *UPSERT).exit_code == 0


@pytest.mark.parametrize(
    ("store", "location"),
    [
        ("file:///srv/data/objects", "/srv/data/lake/orders_lake"),
        ("file:///srv/my%20store", "/srv/my store/lake/orders_lake"),
        ("s3://bucket/prefix", "s3://bucket/prefix/lake/orders_lake"),
    ],
)
def test_a_table_without_a_location_is_with_the_agents_store_wherever_the_command_is_run(
    store: str, location: str
) -> None:
    deps = MadeUpAgents(TOPIC, store=store)
    result = run(deps, "create", "orders_lake", "--topic", "orders", "--format", "delta", "--json")
    assert json.loads(result.stdout)["location"] == location
    assert deps.kept["tables"]["orders_lake"]["options"]["location"] == location


@pytest.mark.parametrize("store", ["gs://bucket/prefix", "az://container", "memory:"])
def test_a_store_that_has_no_room_for_tables_needs_a_location(store: str) -> None:
    deps = MadeUpAgents(TOPIC, store=store)
    result = create(deps)
    assert result.exit_code == 1
    assert "do=give --location" in said(result)
    assert deps.requests == []


def test_a_relative_location_is_whole_at_once_and_shown(tmp_path: Path) -> None:
    deps = MadeUpAgents(TOPIC)
    result = create(deps, "--location", "here/orders", "--json")
    assert json.loads(result.stdout)["location"] == str(tmp_path.resolve() / "here" / "orders")


def test_records_without_a_value_are_no_rows_of_a_table_that_is_only_appended_to() -> None:
    deps = MadeUpAgents(TOPIC)
    create(deps)
    (writer,) = parse(deps.kept["pipelines"]["lake"]["text"])
    assert isinstance(writer, CreatePipeline)
    assert writer.select == "SELECT * FROM STREAM(`orders`) WHERE NOT _deleted"


# --- what the settings of topics ask for


ASKING = {"name": "orders", "settings": {"table.format": "iceberg"}}
MADE = {
    "name": "orders_lake",
    "connector": "iceberg",
    "options": {"location": "/lake", "mode": "append", "settings_of": "orders"},
}
FILLING = {
    "name": "orders_lake",
    "target": "orders_lake",
    "wish": "run",
    "text": "CREATE PIPELINE orders_lake AS INSERT INTO orders_lake SELECT * FROM STREAM(`orders`) WHERE NOT _deleted",
    "options": {"trigger": "60000 milliseconds"},
    "status": {"phase": "running"},
}


def test_a_table_that_nobody_has_made_yet_is_listed_with_what_it_waits_for() -> None:
    deps = MadeUpAgents(TOPIC, topics=(ASKING,))
    (table,) = json.loads(run(deps, "list", "--json").output)
    assert (table["name"], table["asked_by"], table["pipeline"]) == ("orders_lake", "orders", None)
    assert "streamhouse pipelines run" in table["refused"]
    assert "the settings of orders" in said(run(deps, "describe", "orders_lake"))


def test_a_change_of_settings_that_is_refused_is_shown_with_the_table() -> None:
    changed = {"name": "orders", "settings": {"table.format": "delta"}}
    deps = MadeUpAgents(TOPIC, MADE, pipelines=(FILLING,), topics=(changed,))
    (table,) = json.loads(run(deps, "list", "--json").output)
    assert "format is iceberg, not delta" in table["refused"]
    assert "format is iceberg, not delta" in said(run(deps, "describe", "orders_lake"))
    fine = MadeUpAgents(TOPIC, MADE, pipelines=(FILLING,), topics=(ASKING,))
    (table,) = json.loads(run(fine, "list", "--json").output)
    assert (table["asked_by"], table["refused"]) == ("orders", None)


def test_a_table_that_its_topics_settings_ask_for_is_changed_and_dropped_by_settings() -> None:
    deps = MadeUpAgents(TOPIC, MADE, pipelines=(FILLING,), topics=(ASKING,))
    dropped = run(deps, "drop", "orders_lake", "--yes")
    assert dropped.exit_code == 1
    assert "streamhouse topics alter orders --delete-config table.format" in said(dropped)
    changed = create(deps, "--commit-interval", "5s", name="orders_lake")
    assert changed.exit_code == 1
    assert "streamhouse topics alter orders --config" in said(changed)
    assert deps.requests == []


def test_a_table_that_settings_have_left_behind_can_be_dropped() -> None:
    deps = MadeUpAgents(MADE, pipelines=(FILLING,))
    assert run(deps, "drop", "orders_lake", "--yes").exit_code == 0
    assert [(method, path) for method, path, _ in deps.requests] == [
        ("DELETE", "/v1/pipelines/orders_lake"),
        ("DELETE", "/v1/tables/orders_lake"),
    ]
