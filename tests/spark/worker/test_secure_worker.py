"""A SQL worker of a cluster with access control: every query is its caller's, whoever else asks the same worker."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.acl_agent import AclAgent, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SECRET_TOPIC = "salaries"
PIPELINE = "CREATE PIPELINE copy AS INSERT INTO copies SELECT * FROM STREAM(orders)"


@contextlib.contextmanager
def running_worker(agent: AclAgent, folder: Path, **environment: str) -> Iterator[Path]:
    """`streamhouse sql serve`, until it is announced; yields its log."""
    log = folder / "worker.log"
    command = [sys.executable, "-m", "streamhouse", "sql", "serve", "--agents", agent.address, "--memory", "1g"]
    environ = {**os.environ, "STREAMHOUSE_SQL_FOLDER": str(folder / "homes"), "SPARK_LOCAL_IP": "127.0.0.1"}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**environ, **environment}, cwd=folder)
    try:
        yield log
    finally:
        process.terminate()
        process.wait(60)


def workers(agent: AclAgent) -> list[object]:
    results: list[object] = agent.send("admin", "GET", "/v1/sql/workers").json()["workers"]
    return results


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AclAgent]:
    folder = tmp_path_factory.mktemp("secure-sql")
    with AclAgent(folder) as agent:
        for user in ("alice", "bob", "carol"):
            agent.create_user(user)
        for topic in ("orders", SECRET_TOPIC):
            assert agent.send("admin", "POST", "/v1/topics", json={"name": topic, "partitions": 1}).is_success
            lines = "".join(json.dumps({"value": {"id": number, "amount": 2 * number}}) + "\n" for number in range(10))
            path, headers = f"/v1/topics/{topic}/records", {"content-type": "application/x-ndjson"}
            response = agent.send("admin", "POST", path, content=lines, headers=headers)
            assert response.is_success, response.text
        for user in ("alice", "bob"):
            agent.allow(user, "run-sql", "cluster")
        agent.allow("alice", "read", "topic", "orders")
        agent.allow("bob", "read", "topic", SECRET_TOPIC)
        with running_worker(agent, folder, **agent.process_environment) as log:
            wait_until(lambda: workers(agent), timeout_s=180, what=log.read_text())
            yield agent


def ask(agent: AclAgent, user: str, sql: str, **more: object) -> httpx.Response:
    return agent.send(user, "POST", "/v1/sql", json={"sql": sql, **more})


def test_a_caller_reads_what_he_may_read(agent: AclAgent) -> None:
    response = ask(agent, "alice", "SELECT sum(amount) AS total, count(*) AS n FROM orders")
    assert response.status_code == 200, response.text
    assert response.json()["rows"] == [{"total": 90, "n": 10}]


def test_what_a_caller_may_not_see_is_not_there(agent: AclAgent) -> None:
    unknown = ask(agent, "alice", "SELECT * FROM no_such_topic")
    hidden = ask(agent, "alice", f"SELECT * FROM {SECRET_TOPIC}")
    assert (unknown.status_code, hidden.status_code) == (400, 400)
    assert hidden.json()["detail"] == unknown.json()["detail"].replace("no_such_topic", SECRET_TOPIC)
    assert ask(agent, "alice", "SHOW TABLES").json()["rows"] == [
        {"name": "orders", "connector": "topic", "columns": None}
    ]
    assert ask(agent, "alice", f"DESCRIBE {SECRET_TOPIC}").status_code == 400
    complete = agent.send("alice", "GET", "/v1/sql/complete").json()
    assert [each["name"] for each in complete["tables"]] == ["orders"]
    checked = agent.send("alice", "POST", "/v1/sql/validate", json={"text": f"SELECT * FROM {SECRET_TOPIC};"})
    assert checked.json()["statements"][0]["problems"]


def test_the_same_text_is_another_query_for_another_user(agent: AclAgent) -> None:
    assert ask(agent, "bob", f"SELECT count(*) AS n FROM {SECRET_TOPIC}").json()["rows"] == [{"n": 10}]
    assert ask(agent, "bob", "SELECT count(*) AS n FROM orders").status_code == 400
    assert ask(agent, "alice", "SELECT count(*) AS n FROM orders").json()["rows"] == [{"n": 10}]
    tables = [each["name"] for each in agent.send("bob", "GET", "/v1/sql/complete").json()["tables"]]
    assert tables == [SECRET_TOPIC]


def test_only_those_with_the_right_ask(agent: AclAgent) -> None:
    denied = ask(agent, "carol", "SELECT 1")
    assert (denied.status_code, denied.json()["title"]) == (403, "AccessDenied")
    assert agent.send(None, "POST", "/v1/sql", json={"sql": "SELECT 1"}).status_code == 401
    with agent.client("alice", "wrong") as client:
        assert client.post("/v1/sql", json={"sql": "SELECT 1"}).status_code == 401


def test_changes_need_the_callers_rights(agent: AclAgent) -> None:
    refused = ask(agent, "alice", PIPELINE)
    assert refused.status_code == 422, refused.text
    assert "not authorised" in refused.json()["detail"]


def test_nobody_ends_or_finds_a_query_of_another_user(agent: AclAgent) -> None:
    seen: list[httpx.Response] = []
    # In one task, so that the query of somebody else has a core.
    sql = "SELECT count(*) FROM range(0, 1000000000000, 1, 1) WHERE id % 3 = 1"
    waiting = threading.Thread(target=lambda: seen.append(ask(agent, "alice", sql, query_id="mine", timeout_s=60)))
    waiting.start()
    wait_until(lambda: _busy(agent) >= 1)
    assert agent.send("bob", "DELETE", "/v1/sql/queries/mine").status_code == 404
    assert ask(agent, "bob", "SELECT 1 AS one", query_id="mine").json()["rows"] == [{"one": 1}]  # an id of his own
    assert agent.send("alice", "DELETE", "/v1/sql/queries/mine").status_code == 204
    waiting.join(60)
    assert seen[0].status_code == 409


def _busy(agent: AclAgent) -> int:
    return sum(each["busy"] for each in workers(agent))  # type: ignore[index]


def test_a_right_that_is_taken_away_ends_a_live_query(agent: AclAgent) -> None:
    agent.create_user("dave")
    agent.allow("dave", "run-sql", "cluster")
    agent.allow("dave", "read", "topic", "orders")
    body = {"sql": "SELECT id FROM STREAM(orders)", "starting": "earliest"}
    headers = {"accept": "application/x-ndjson"}
    with agent.client("dave") as client, client.stream("POST", "/v1/sql", json=body, headers=headers) as live:
        lines = live.iter_lines()
        assert json.loads(next(line for line in lines if line)) == {"id": 0}  # empty ones: the query goes on
        agent.forbid("dave", "read", "topic", "orders")
        with contextlib.suppress(httpx.TransportError):
            for _ in lines:
                pass
    wait_until(lambda: _busy(agent) == 0, timeout_s=30)


def test_a_stranger_announces_no_worker(agent: AclAgent) -> None:
    beat = {"address": "127.0.0.1:9", "token": "t", "busy": 0}
    before = len(workers(agent))
    for user in ("alice", "admin"):
        assert agent.send(user, "POST", "/v1/sql/workers/evil/heartbeat", json=beat).status_code == 403
    assert agent.send(None, "POST", "/v1/sql/workers/evil/heartbeat", json=beat).status_code == 401
    assert len(workers(agent)) == before


def test_a_worker_without_the_secret_is_not_taken(agent: AclAgent, tmp_path: Path) -> None:
    before = len(workers(agent))
    with running_worker(agent, tmp_path, **agent.login("alice")) as log:
        wait_until(lambda: "agents reject this SQL worker" in log.read_text(), timeout_s=180)
        assert len(workers(agent)) == before


def test_tenants_of_one_worker_see_their_own_names_only(agent: AclAgent) -> None:
    for tenant, number in (("acme", 3), ("beta", 5)):
        user = f"{tenant}~ann"
        agent.create_user(user)
        for kind in ("topic", "table", "pipeline", "view", "cluster"):
            agent.allow(user, "all", kind, f"{tenant}~kafka-cluster" if kind == "cluster" else f"{tenant}~orders")
        assert agent.send(user, "POST", "/v1/topics", json={"name": "orders", "partitions": 1}).is_success
        lines = "".join(json.dumps({"value": {"of": tenant, f"{tenant}_only": each}}) + "\n" for each in range(number))
        headers = {"content-type": "application/x-ndjson"}
        assert agent.send(user, "POST", "/v1/topics/orders/records", content=lines, headers=headers).is_success
    for tenant, other, number in (("acme", "beta", 3), ("beta", "acme", 5)):
        shown = []
        user = f"{tenant}~ann"
        rows = ask(agent, user, "SELECT of, count(*) AS n FROM orders GROUP BY of")
        assert rows.json()["rows"] == [{"of": tenant, "n": number}]
        tables = ask(agent, user, "SHOW TABLES")
        assert [each["name"] for each in tables.json()["rows"]] == ["orders"]
        plan = ask(agent, user, "SELECT * FROM orders WHERE nothing = 1")
        assert plan.status_code == 400
        for name in (SECRET_TOPIC, f"`{other}~orders`", f"`{tenant}~orders`"):
            unknown = ask(agent, user, f"SELECT * FROM {name}")
            assert unknown.status_code == 400
        complete = agent.send(user, "GET", "/v1/sql/complete")
        text = "SELECT nothing FROM orders; CREATE PIPELINE orders AS INSERT INTO orders SELECT * FROM STREAM(orders);"
        checked = agent.send(user, "POST", "/v1/sql/validate", json={"text": text})
        shown += [rows, tables, plan, complete, checked]
        for response in shown:
            assert "~" not in response.text
            assert other not in response.text
