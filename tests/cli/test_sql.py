"""sql: anything but a command is a statement; rows are written in the requested format."""

import io
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner, Result

from streamhouse.cli.main import app
from streamhouse.cli.sql.query_request import ARROW, CSV, NDJSON, Number, Output, QueryRequest, SqlRequest
from streamhouse.cli.sql.statement_runner import run_request
from streamhouse.cli.sql.worker_connection import ResultHeader, ResultStream
from streamhouse.errors import BadSql, Mistake, Rejected
from tests.cli.fakes import FakeDependencies, World

COLUMNS = (("id", "BIGINT"), ("name", "STRING"))


class FakeRows(ResultStream):
    """The response of a worker."""

    def __init__(self, accept: str, *, truncated: bool, is_live: bool) -> None:
        self.head = ResultHeader(
            columns=COLUMNS, notes=("columns of t inferred",), truncated=truncated, is_live=is_live
        )
        self._accept = accept

    async def rows(self) -> AsyncIterator[dict[str, Any]]:
        yield {"id": Number("1"), "name": "a"}
        yield {"id": Number("2"), "name": None}

    async def lines(self) -> AsyncIterator[str]:
        for line in {NDJSON: ['{"id":1}', '{"id":2}'], CSV: ["id,name", "1,a"]}[self._accept]:
            yield line

    async def parts(self) -> AsyncIterator[bytes]:
        sink = io.BytesIO()
        table = pa.table({"id": [1, 2]})
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        yield sink.getvalue()


class FakeLink:
    def __init__(self, *, truncated: bool = False, is_live: bool = False) -> None:
        self.requests: list[QueryRequest] = []
        self._truncated, self._is_live = truncated, is_live

    def __call__(self, agents: str, *, on_wait: Callable[[float], None]) -> "FakeLink":
        on_wait(1.0)
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    async def connect(self) -> None:
        pass

    @asynccontextmanager
    async def query(self, ask: QueryRequest) -> AsyncIterator[FakeRows]:
        self.requests.append(ask)
        if "amout" in ask.sql:
            raise BadSql([Mistake(2, 8, "no column amout", "amount?")])
        if "nowhere" in ask.sql:
            raise Rejected("no such place")
        yield FakeRows(ask.accept, truncated=self._truncated, is_live=self._is_live)


def request(text: str, **more: Any) -> SqlRequest:
    return SqlRequest(agents="a:1", text=text, **more)


def run_with(link: FakeLink, query: SqlRequest) -> int:
    return run_request(query, link)  # type: ignore[arg-type]


class SqlDoors(FakeDependencies):
    def __init__(self) -> None:
        super().__init__(World())
        self.requests: list[tuple[str, SqlRequest]] = []

    def run_sql(self, request: SqlRequest) -> int:
        self.requests.append(("ask", request))
        return 0

    def sql_shell(self, request: SqlRequest) -> int:
        self.requests.append(("shell", request))
        return 0


@pytest.fixture
def deps() -> SqlDoors:
    return SqlDoors()


def run(deps: SqlDoors, *typed: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["sql", *typed], input=stdin, obj=deps, prog_name="streamhouse")


def test_a_statement_needs_no_command(deps: SqlDoors) -> None:
    result = run(deps, "SELECT 1", "--agents", "b:2", "--csv", "--max-rows", "5", "--timeout", "9")
    assert result.exit_code == 0
    ((kind, query),) = deps.requests
    assert (kind, query.text, query.agents, query.output) == ("ask", "SELECT 1", "b:2", Output.CSV)
    assert query.query("x") == QueryRequest(sql="x", accept=CSV, max_rows=5, timeout_s=9.0)


def test_flags_may_come_first(deps: SqlDoors) -> None:
    assert run(deps, "--json", "SELECT 1").exit_code == 0
    assert deps.requests[0][1].output is Output.JSON


def test_a_file_and_a_pipe_are_read(deps: SqlDoors, tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("SELECT 2;")
    run(deps, "-f", "q.sql")
    run(deps, stdin="SELECT 3")
    assert [(query.text, query.source) for _, query in deps.requests] == [("SELECT 2;", "q.sql"), ("SELECT 3", "")]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("SELECT 1", "-f", "x.sql"), "not both"),
        (("SELECT 1", "--json", "--csv"), "one of --json, --csv and --parquet"),
        (("SELECT 1", "--parquet", "not/there/rows.parquet"), "there is no folder not/there"),
        (("SELECT 1", "--from", "yesterday"), "neither latest nor earliest"),
    ],
)
def test_what_can_not_be_meant_is_refused(deps: SqlDoors, typed: tuple[str, ...], said: str) -> None:
    result = run(deps, *typed)
    assert result.exit_code == 2
    assert said in result.stderr


def test_every_statement_of_a_text_is_asked_at_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    link = FakeLink()
    assert run_with(link, request("SELECT 1;\n  SELECT 2; -- end")) == 0
    assert [ask.sql for ask in link.requests] == ["SELECT 1", "         \n  SELECT 2"]
    out, err = capsys.readouterr()
    assert out.count("NULL") == 2
    assert "columns of t inferred" in err
    assert err.count("starting Spark") == 1


def test_lines_of_json_and_csv_are_handed_on(capsys: pytest.CaptureFixture[str]) -> None:
    run_with(FakeLink(), request("SELECT 1", output=Output.JSON))
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [{"id": 1}, {"id": 2}]
    run_with(FakeLink(truncated=True), request("SELECT 1", output=Output.CSV, max_rows=2))
    out, err = capsys.readouterr()
    assert out == "id,name\n1,a\n"
    assert "only the first 2 rows" in err


def test_a_parquet_file_has_the_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.parquet"
    link = FakeLink()
    assert run_with(link, request("SELECT 1", output=Output.PARQUET, file=file)) == 0
    assert link.requests[0].accept == ARROW
    assert parquet.read_table(file).column("id").to_pylist() == [1, 2]
    assert "2 rows" in capsys.readouterr().err


def test_a_mistake_ends_it_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    link = FakeLink()
    assert run_with(link, request("SELECT 1;\nSELECT amout FROM t; SELECT 3", source="q.sql")) == 1
    assert len(link.requests) == 2
    err = capsys.readouterr().err
    assert "error: no column amout (q.sql, line 2, column 8)" in err
    assert "  2 | SELECT amout FROM t; SELECT 3\n    |        ^\n  hint: amount?" in err


def test_nothing_is_asked_of_a_text_that_can_not_be_cut(capsys: pytest.CaptureFixture[str]) -> None:
    link = FakeLink()
    assert run_with(link, request("SELECT 1; SELECT 'open")) == 1
    assert link.requests == []
    assert "line 1, column 18" in capsys.readouterr().err
