"""worker: a real one, started as a shell would, asked as a shell and as an agent would."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from pyarrow import parquet

from streamhouse.client.sync import SyncClient
from streamhouse.spark.worker.discovery import Worker, runtime_dir
from streamhouse.spark.worker.worker_client import authorization, ensure_worker, find_worker, stop_worker
from tests.support.agent import LiveAgent

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
ROWS = 200


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveAgent, Worker]]:
    """An agent with a topic, and a worker in a folder of the test's own, with a short life where a test ends badly."""
    folder = tmp_path_factory.mktemp("sql")
    with pytest.MonkeyPatch.context() as patch, LiveAgent(folder / "data") as agent:
        patch.setenv("STREAMHOUSE_SQL_FOLDER", str(folder / "homes"))
        with SyncClient(agent.http) as client:
            client.topics.create("payments", partitions=2)
            with client.producer("payments") as producer:
                for number in range(ROWS):
                    producer.enqueue(json.dumps({"id": number, "amount": number / 2}), key=f"k{number % 7}")
        worker = asyncio.run(ensure_worker(agent.http))
        yield agent, worker
        asyncio.run(stop_worker(agent.http))
        assert asyncio.run(find_worker(agent.http)) is None


def ask(worker: Worker, sql: str, *, accept: str = "application/json", **more: object) -> httpx.Response:
    headers = {**authorization(worker), "accept": accept}
    url = f"http://{worker.address}/v1/sql"
    return httpx.post(url, json={"sql": sql, **more}, headers=headers, timeout=300, trust_env=False)


def streamhouse(agent: LiveAgent, *typed: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "streamhouse", "sql", *typed, "--agents", agent.http]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_a_topic_is_a_table(scene: tuple[LiveAgent, Worker]) -> None:
    response = ask(scene[1], "SELECT count(*) AS n, sum(amount) AS total, max(id) AS last FROM payments").json()
    assert response["rows"] == [{"n": ROWS, "total": sum(range(ROWS)) / 2, "last": ROWS - 1}]
    assert response["columns"][1] == {"name": "total", "type": "DOUBLE"}
    assert "inferred" in response["notes"][0]


def test_a_response_has_no_more_rows_than_requested(scene: tuple[LiveAgent, Worker]) -> None:
    response = ask(scene[1], "SELECT id FROM payments", max_rows=5).json()
    assert (len(response["rows"]), response["truncated"]) == (5, True)


def test_a_mistake_has_its_place(scene: tuple[LiveAgent, Worker]) -> None:
    response = ask(scene[1], "SELECT id,\n  amout FROM payments")
    assert response.status_code == 400
    (problem,) = response.json()["problems"]
    assert (problem["line"], problem["column"]) == (2, 3)
    assert "amout" in problem["text"]


def test_a_query_that_fails_while_it_runs_says_why(scene: tuple[LiveAgent, Worker]) -> None:
    response = ask(scene[1], "SELECT id / (id - id) AS x FROM payments")
    assert response.status_code in (400, 422)
    assert "zero" in response.json()["detail"].lower()


def test_a_query_that_takes_too_long_is_ended_and_the_worker_goes_on(scene: tuple[LiveAgent, Worker]) -> None:
    endless = "SELECT count(*) FROM range(0, 1000000000000, 1, 1) WHERE id % 3 = 1"  # in one task: on one core
    assert ask(scene[1], endless, timeout_s=1).status_code == 504
    assert ask(scene[1], "SELECT 1 AS one").json()["rows"] == [{"one": 1}]


def test_live_rows_come_as_they_are_written(scene: tuple[LiveAgent, Worker]) -> None:
    lines = ask(
        scene[1],
        "SELECT id FROM STREAM(payments) WHERE id < 10",
        accept="application/x-ndjson",
        max_rows=10,
        starting="earliest",
    )
    rows = [json.loads(line) for line in lines.text.splitlines() if line]  # an empty one: the query goes on
    assert sorted(row["id"] for row in rows) == list(range(10))


def test_agents_pass_queries_on_but_their_callers_are_untrusted(scene: tuple[LiveAgent, Worker]) -> None:
    agent, _ = scene
    url = f"http://{agent.http}/v1/sql"
    response = httpx.post(url, json={"sql": "SELECT count(*) AS n FROM payments"}, timeout=300, trust_env=False)
    assert response.json()["rows"] == [{"n": ROWS}]
    for sql in (
        "SELECT java_method('java.lang.System', 'getenv')",
        "SET spark.sql.runSQLOnFiles = true",
        "SELECT * FROM text.`/etc/hostname`",
        "SELECT TRANSFORM (id) USING 'cat' FROM payments",
        "-- \rSELECT reflect('java.lang.System', 'getProperty', 'user.home') UNION ALL -- \nSELECT '1'",
        '-- \\\nSELECT \'\nSELECT reflect("java.lang.System", "getProperty", "user.home") --\'',
        "EXPLAIN ADD JAR '/tmp/x.jar'",
        "EXPLAIN CREATE TABLE t USING text OPTIONS (path '/etc/passwd')",
        "CREATE TABLE t USING text OPTIONS (path '/etc/passwd')",
        "CREATE TABLE t WITH (connector = 'files', path = '/etc', format = 'csv')",
        "CREATE TABLE t WITH (connector = 'parquet', location = '/etc')",
        "CREATE TABLE t WITH (connector = 'delta', location = 's3://elsewhere/x')",
        "CREATE TABLE t WITH (connector = 'postgresql', connection = 'postgresql://169.254.169.254/x')",
        "CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM text.`/etc/passwd`",
        "CREATE PIPELINE p AS INSERT INTO q SELECT reflect('java.lang.System', 'getenv') FROM STREAM(payments)",
        "CREATE TABLE t (a INT DEFAULT reflect('a', 'b')) WITH (connector = 'topic')",
        "SELECT * FROM default.t",
        "SELECT * FROM global_temp.t",
        "SELECT current_user",
        "SELECT '${env:HOME}'",
        "CREATE MATERIALIZED VIEW v AS SELECT '${env:HOME}' AS x, count(*) AS n FROM payments",
    ):
        refused = httpx.post(url, json={"sql": sql}, timeout=300, trust_env=False)
        said = refused.text
        is_refused = refused.status_code in (400, 422) or "refused" in [
            row.get("outcome") for row in refused.json()["rows"]
        ]
        assert is_refused, (sql, said)
        assert os.path.expanduser("~") not in said, sql


def test_tables_are_created_and_dropped_in_sql(scene: tuple[LiveAgent, Worker]) -> None:
    _, worker = scene
    create = "CREATE TABLE typed (id BIGINT, amount DECIMAL(9, 2)) WITH (connector = 'topic', topic = 'payments')"
    assert ask(worker, create).json()["rows"][0]["outcome"] == "created"
    assert ask(worker, "SELECT max(amount) AS most FROM typed").json()["rows"] == [{"most": (ROWS - 1) / 2}]
    assert "typed" in [row["name"] for row in ask(worker, "SHOW TABLES").json()["rows"]]
    assert ask(worker, "DROP TABLE typed").json()["rows"][0]["outcome"] == "deleted"


def test_the_command_line_finds_it_and_writes_every_format(scene: tuple[LiveAgent, Worker], tmp_path: Path) -> None:
    agent, worker = scene
    file = tmp_path / "rows.parquet"
    done = streamhouse(agent, "SELECT id, amount FROM payments", "--parquet", str(file))
    assert done.returncode == 0, done.stderr
    assert parquet.read_table(file).num_rows == ROWS
    assert streamhouse(agent, "SELECT 1 AS a, 'x,y' AS b", "--csv").stdout == 'a,b\n1,"x,y"\n'
    assert json.loads(streamhouse(agent, "SELECT 1 AS a", "--json").stdout) == {"a": 1}
    assert str(worker.pid) in streamhouse(agent, "status").stdout
    wrong = streamhouse(agent, "SELECT nothing FROM payments")
    assert wrong.returncode == 1
    assert "^" in wrong.stderr


def test_arrow_keeps_types(scene: tuple[LiveAgent, Worker]) -> None:
    response = ask(scene[1], "SELECT id, _timestamp FROM payments", accept="application/vnd.apache.arrow.stream")
    table = pa.ipc.open_stream(response.content).read_all()
    assert table.schema.field("_timestamp").type == pa.timestamp("us", "UTC")


@pytest.mark.slow  # test_starting replaces one without Spark
def test_a_worker_that_was_killed_is_replaced(scene: tuple[LiveAgent, Worker]) -> None:
    agent, worker = scene
    os.kill(worker.pid, signal.SIGKILL)
    done = streamhouse(agent, "SELECT 1 AS a", "--json")
    assert json.loads(done.stdout) == {"a": 1}
    again = runtime_dir(agent.http).read()
    assert again is not None
    assert again.pid != worker.pid
