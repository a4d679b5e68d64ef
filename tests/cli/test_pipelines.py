"""pipelines: files are read and put to agents in order, what runs is shown, and mistakes have a place."""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from streamhouse.cli.dependencies import Dependencies
from streamhouse.cli.main import app
from streamhouse.client.http import Http
from streamhouse.spark.agents.definition_applier import DefinitionFile, FileDiagnostic, Validated, validated

SQL = """
CREATE TABLE orders (id BIGINT) WITH (connector = 'topic');
CREATE PIPELINE copies WITH (key = 'id') AS INSERT INTO copies SELECT id FROM STREAM(orders);
CREATE MATERIALIZED VIEW totals KEY (id) AS SELECT id, count(*) AS n FROM STREAM(orders) GROUP BY id;
"""
PYTHON = """
@pipeline(into="big", trigger="1 second")
def big(tables):
    return tables.stream("orders")
"""
RUNNING = {
    "name": "copies",
    "kind": "sql",
    "text": "CREATE PIPELINE …",
    "options": {"key": "id"},
    "target": "copies",
    "columns": [{"name": "id", "type": "BIGINT"}],
    "shape": {"streams": ["orders"], "state": [], "target": "copies"},
    "revision": 2,
    "generation": 1,
    "query_id": "q",
    "wish": "run",
    "owner": {"supervisor": "first-1", "host": "vm", "epoch": 3, "expires_at_ms": 1},
    "status": {
        "phase": "running",
        "rows_in": 12345,
        "input_rate": 321.4,
        "lag_records": 17,
        "batch_ms": 120,
        "restarts": 1,
        "error": None,
        "told_at_ms": 1_700_000_000_000,
    },
}


class MadeUpAgents(Dependencies):
    """Agents that keep what is put to them, and a Spark that finds what the test says."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}
        self.requests: list[tuple[str, str, Any]] = []
        self.checked: list[dict[str, Any]] = []
        self.wrong: list[dict[str, Any]] = []
        self.conflicts: set[str] = set()
        self.pipelines: list[dict[str, Any]] = []
        self.supervisors: list[dict[str, Any]] = []
        self.shown: dict[str, Any] = {}

    def http(self, address: str) -> AbstractAsyncContextManager[Http]:
        return Http(address, transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        path, body = request.url.path, json.loads(request.content) if request.content else None
        if request.method != "GET":
            self.requests.append((request.method, path, body))
        if path == "/v1/pipelines":
            return httpx.Response(200, json={"pipelines": self.pipelines})
        if path.endswith("/events"):
            return httpx.Response(200, json={"events": [{"at_ms": 0, "level": "error", "text": "a bad day"}]})
        if request.method == "PUT":
            return self._put(path, body)
        if request.method == "DELETE":
            return httpx.Response(204 if self.kept.pop(path, None) else 404, json={"detail": "unknown"})
        if path == "/v1/supervisors":
            return httpx.Response(200, json={"supervisors": self.supervisors})
        if path in self.shown:
            shown = self.shown[path]
            return httpx.Response(200, json=shown.pop(0) if isinstance(shown, list) else shown)
        if path in self.kept or request.method == "POST":
            return httpx.Response(200, json=self.kept.get(path, {}))
        return httpx.Response(404, json={"detail": f"unknown; path={path}"})

    def _put(self, path: str, body: Any) -> httpx.Response:
        if path in self.conflicts and not body.get("fresh"):
            return httpx.Response(
                409,
                json={"detail": "the changed pipeline can't continue from its checkpoint; why=it keeps other state"},
            )
        known = self.kept.get(path)
        self.kept[path] = body
        outcome = "created" if known is None else "changed" if known != body else "unchanged"
        return httpx.Response(200, json={"outcome": outcome, "pipeline": {}})

    async def validate_definitions(
        self, files: Sequence[DefinitionFile], agents: str, *, on_wait: Any
    ) -> tuple[list[DefinitionFile], list[FileDiagnostic]]:
        async def validate(text: str, python: Sequence[Mapping[str, Any]]) -> Validated:
            return self.checked, {each["name"]: self.wrong for each in python if self.wrong}

        return await validated(files, validate)


@pytest.fixture
def agents() -> MadeUpAgents:
    return MadeUpAgents()


def call(agents: MadeUpAgents, *args: str) -> Result:
    return CliRunner().invoke(app, ["pipelines", *args], obj=agents, prog_name="streamhouse")


def test_python_that_is_wrong_is_refused_before_anything_changes(agents: MadeUpAgents, tmp_path: Path) -> None:
    (tmp_path / "more.py").write_text(PYTHON)
    agents.wrong = [{"line": 5, "column": 1, "text": "there is no column nope", "hint": "there are id"}]
    result = call(agents, "apply", str(tmp_path))
    assert result.exit_code == 1
    assert "more.py:5:1: there is no column nope (there are id)" in result.stderr
    assert agents.requests == []
    assert call(agents, "apply", str(tmp_path), "--no-validate").exit_code == 0


def test_a_folders_files_are_applied_in_order(agents: MadeUpAgents, tmp_path: Path) -> None:
    (tmp_path / "2-more.py").write_text(PYTHON)
    (tmp_path / "1-first.sql").write_text(SQL)
    (tmp_path / "notes.txt").write_text("not a pipeline")
    result = call(agents, "apply", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "created table orders",
        "created pipeline copies",
        "created view totals",
        "created pipeline big",
    ]
    assert agents.kept["/v1/tables/orders"]["columns"] == [{"name": "id", "type": "BIGINT"}]
    copies = agents.kept["/v1/pipelines/copies"]
    assert (copies["kind"], copies["target"], copies["key"]) == ("sql", "copies", ["id"])
    assert copies["text"].startswith("CREATE PIPELINE copies")
    totals = agents.kept["/v1/pipelines/totals"]
    assert (totals["kind"], totals["target"], totals["key"]) == ("view", "totals", ["id"])
    big = agents.kept["/v1/pipelines/big"]
    assert (big["kind"], big["text"], big["options"]) == ("python", PYTHON, {"trigger": "1 second"})


def test_what_spark_says_of_a_pipeline_is_kept_with_it(agents: MadeUpAgents, tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text(SQL)
    shape = {"streams": ["orders"], "state": [], "target": "copies"}
    agents.checked = [{"name": "copies", "columns": [{"name": "id", "type": "BIGINT"}], "shape": shape, "problems": []}]
    assert call(agents, "apply", str(tmp_path / "a.sql")).exit_code == 0
    assert agents.kept["/v1/pipelines/copies"]["shape"] == shape


def test_what_is_written_as_before_keeps_what_records_held_then(agents: MadeUpAgents, tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text(SQL)
    shape = {"streams": ["orders"], "state": ["aggregate by id"], "target": "copies"}
    results = {"name": "copies", "columns": [{"name": "id", "type": "STRING"}], "shape": shape, "problems": []}
    agents.checked = [{**results, "notes": ["columns of orders inferred from 8 JSON records"]}]
    path = "/v1/pipelines/copies"
    assert call(agents, "apply", str(tmp_path / "a.sql")).exit_code == 0
    assert agents.kept[path]["shape"] == shape
    assert call(agents, "apply", str(tmp_path / "a.sql")).exit_code == 0
    assert (agents.kept[path]["columns"], agents.kept[path]["shape"]) == (None, None)
    (tmp_path / "a.sql").write_text(SQL.replace("SELECT", "SELECT DISTINCT"))
    assert call(agents, "apply", str(tmp_path / "a.sql")).exit_code == 0
    assert agents.kept[path]["shape"] == shape


def test_a_problem_has_the_place_in_its_own_file_and_nothing_is_changed(agents: MadeUpAgents, tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text(SQL)
    (tmp_path / "b.sql").write_text("\nCREATE PIPELINE x AS INSERT INTO y\nSELECT amont FROM STREAM(orders)")
    line = SQL.rstrip().count("\n") + 1 + 3
    agents.checked = [
        {"name": "x", "problems": [{"line": line, "column": 8, "text": "no column amont", "hint": "amount?"}]}
    ]
    result = call(agents, "apply", str(tmp_path))
    assert result.exit_code == 1
    assert f"{tmp_path / 'b.sql'}:3:8: no column amont (amount?)" in result.stderr
    assert agents.requests == []
    reported = json.loads(call(agents, "validate", str(tmp_path), "--json").stdout)
    assert reported["problems"][0]["line"] == 3


def test_a_statement_that_cannot_be_read_is_reported_without_a_spark(agents: MadeUpAgents, tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("CREATE PIPELINE x AS\nINSERT y SELECT 1")
    result = call(agents, "validate", str(tmp_path / "a.sql"))
    assert result.exit_code == 1
    assert "a.sql:2:" in result.stderr


def test_a_request_is_no_definition(agents: MadeUpAgents, tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("SELECT 1")
    result = call(agents, "apply", str(tmp_path / "a.sql"), "--no-validate")
    assert "streamhouse sql" in result.stderr


def test_a_change_that_loses_its_place_needs_a_new_beginning(agents: MadeUpAgents, tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text(SQL)
    file = str(tmp_path / "a.sql")
    assert call(agents, "apply", file, "--no-validate").exit_code == 0
    agents.conflicts = {"/v1/pipelines/copies"}
    result = call(agents, "apply", file, "--no-validate")
    assert result.exit_code == 1
    assert "it keeps other state" in result.stderr
    assert "refused pipeline copies" in result.stdout
    assert call(agents, "apply", file, "--no-validate", "--from", "latest").exit_code == 0
    assert agents.kept["/v1/pipelines/copies"]["fresh"] is True
    assert agents.kept["/v1/pipelines/copies"]["starting"] == "latest"
    assert agents.kept["/v1/pipelines/totals"]["fresh"] is False


def test_drops_are_applied_too(agents: MadeUpAgents, tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text(SQL)
    call(agents, "apply", str(tmp_path / "a.sql"), "--no-validate")
    (tmp_path / "b.sql").write_text("DROP PIPELINE copies; DROP PIPELINE IF EXISTS copies; DROP PIPELINE copies;")
    result = call(agents, "apply", str(tmp_path / "b.sql"), "--no-validate")
    assert result.stdout.splitlines() == [
        "deleted pipeline copies",
        "absent pipeline copies",
        "refused pipeline copies",
    ]
    assert result.exit_code == 1


def test_pipelines_are_listed_with_their_figures(agents: MadeUpAgents) -> None:
    assert "no pipelines yet" in call(agents, "list").stdout
    agents.pipelines = [RUNNING, {**RUNNING, "name": "idle", "wish": "pause", "owner": None}]
    head, copies, idle = call(agents, "list").stdout.splitlines()
    assert head.split()[:4] == ["name", "phase", "target", "rows/s"]
    assert copies.split()[:7] == ["copies", "running", "copies", "321", "17", "120", "ms"]
    assert idle.split()[:2] == ["idle", "paused"]
    assert json.loads(call(agents, "list", "--json").stdout) == agents.pipelines


def test_it_is_said_when_nobody_runs_pipelines(agents: MadeUpAgents) -> None:
    agents.pipelines = [RUNNING]
    assert call(agents, "list").stderr == ""
    agents.pipelines = [{**RUNNING, "owner": None}]
    assert "no supervisor is running" in call(agents, "list").stderr
    assert call(agents, "list", "--json").stderr == ""


def test_it_is_said_when_supervisors_have_no_room_for_a_pipeline(agents: MadeUpAgents) -> None:
    agents.pipelines = [RUNNING, {**RUNNING, "name": "more", "owner": None}]
    agents.supervisors = [{"slots": 1, "pipelines": ["copies"]}]
    assert "raise their --slots" in call(agents, "list").stderr
    agents.supervisors = [{"slots": 2, "pipelines": ["copies"]}]
    assert call(agents, "list").stderr == ""


def test_one_pipeline_is_described(agents: MadeUpAgents) -> None:
    agents.kept["/v1/pipelines/copies"] = RUNNING
    shown = call(agents, "describe", "copies").stdout
    assert "first-1 on vm" in shown
    assert "12,345" in shown
    assert "orders" in shown
    missing = call(agents, "describe", "nope")
    assert missing.exit_code == 1
    assert "unknown" in missing.stderr


def test_logs_are_lines(agents: MadeUpAgents) -> None:
    assert call(agents, "logs", "copies").stdout == "1970-01-01 00:00:00.000Z  error    a bad day\n"
    assert json.loads(call(agents, "logs", "copies", "--json").stdout)["text"] == "a bad day"


def test_verbs_reach_the_pipeline(agents: MadeUpAgents) -> None:
    agents.kept["/v1/pipelines/copies"] = RUNNING
    assert call(agents, "pause", "copies").stdout == "paused copies\n"
    assert call(agents, "resume", "copies").stdout == "resumed copies\n"
    assert call(agents, "restart", "copies").stdout == "restarted copies from its checkpoint\n"
    assert call(agents, "restart", "copies", "--from", "earliest").stdout == "restarted copies from earliest\n"
    assert call(agents, "delete", "copies", "--yes").stdout == "deleted copies\n"
    assert [(method, path.rpartition("/")[2], body) for method, path, body in agents.requests] == [
        ("POST", "pause", {}),
        ("POST", "resume", {}),
        ("POST", "restart", {"from": None}),
        ("POST", "restart", {"from": "earliest"}),
        ("DELETE", "copies", None),
    ]


@pytest.mark.parametrize(("phase", "code"), [("running", 0), ("done", 0), ("failed", 1)])
def test_apply_may_wait_until_pipelines_run(agents: MadeUpAgents, tmp_path: Path, phase: str, code: int) -> None:
    (tmp_path / "a.py").write_text(PYTHON)
    agents.shown["/v1/pipelines/big"] = {**RUNNING, "name": "big", "status": {"phase": phase, "error": "a bad day"}}
    result = call(agents, "apply", str(tmp_path / "a.py"), "--wait")
    assert result.exit_code == code
    assert (f"{phase} big" in result.stdout) is (code == 0)
    assert ("big failed: a bad day" in result.stderr) is (code == 1)


@pytest.mark.parametrize("before", ["running", "failed", "done"])
def test_the_status_of_the_revision_before_ends_no_waiting(agents: MadeUpAgents, tmp_path: Path, before: str) -> None:
    (tmp_path / "a.py").write_text(PYTHON)
    reported = [(before, 1), ("starting", 2), ("running", 2)]
    shown = [
        {**RUNNING, "name": "big", "status": {"phase": phase, "revision": revision, "error": "a bad day"}}
        for phase, revision in reported
    ]
    agents.shown["/v1/pipelines/big"] = [RUNNING, *shown]  # the first is for whoever applies
    result = call(agents, "apply", str(tmp_path / "a.py"), "--wait")
    assert result.exit_code == 0, result.stderr
    assert "running big" in result.stdout
    assert agents.shown["/v1/pipelines/big"] == []


@pytest.mark.parametrize(("wish", "message"), [("run", "restarted pipeline copies"), ("pause", "")])
def test_a_pipeline_begins_again_when_only_its_lake_table_was_changed(
    agents: MadeUpAgents, tmp_path: Path, wish: str, message: str
) -> None:
    file = tmp_path / "lake.sql"
    agents.pipelines = [{**RUNNING, "target": "lake", "wish": wish}, {**RUNNING, "name": "other", "wish": "run"}]
    for size in ("1MiB", "1MiB", "2MiB"):
        agents.requests.clear()
        file.write_text(f"CREATE TABLE lake WITH (connector = 'delta', location = '/lake', file_size = '{size}');")
        shown = call(agents, "apply", str(file), "--no-validate").stdout
    assert shown.splitlines() == ["changed table lake", *filter(None, [message])]
    restarts = [path for method, path, _ in agents.requests if method == "POST"]
    assert restarts == (["/v1/pipelines/copies/restart"] if message else [])


def test_a_pipeline_that_was_changed_with_its_lake_table_begins_once(agents: MadeUpAgents, tmp_path: Path) -> None:
    file = tmp_path / "lake.sql"
    for size in ("1MiB", "2MiB"):
        agents.pipelines = [{**RUNNING, "target": "lake"}]
        file.write_text(
            f"CREATE TABLE lake WITH (connector = 'delta', location = '/lake', file_size = '{size}');\n"
            f"CREATE PIPELINE copies WITH (trigger = '{size[0]} seconds') AS INSERT INTO lake SELECT * FROM STREAM(a);"
        )
        shown = call(agents, "apply", str(file), "--no-validate").stdout
    assert shown.splitlines() == ["changed table lake", "changed pipeline copies"]
    assert not [path for method, path, _ in agents.requests if method == "POST"]
