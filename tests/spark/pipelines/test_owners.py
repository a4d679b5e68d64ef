"""Pipelines of a cluster with access control: each reads and writes as its owner, whatever its definition says."""

import json
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.spark.pipelines.live import LiveSupervisor
from tests.support.acl_agent import AclAgent, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SECRET_TOPIC = "salaries"


def put(agent: AclAgent, user: str, name: str, source: str, target: str = "copies") -> Any:
    """A pipeline whose definition doesn't say what it reads."""
    text = f"CREATE PIPELINE {name} AS INSERT INTO {target} SELECT * FROM STREAM({source})"
    body = {"kind": "sql", "text": text, "target": target, "starting": "earliest"}
    return agent.send(user, "PUT", f"/v1/pipelines/{name}", json=body)


def status(agent: AclAgent, name: str, user: str = "admin") -> dict[str, Any]:
    result: dict[str, Any] = agent.send(user, "GET", f"/v1/pipelines/{name}").json()["status"]
    return result


def failure(agent: AclAgent, name: str) -> str:
    """Why it failed; empty while it hasn't."""
    now = status(agent, name)
    return now["error"] if now["phase"] == "failed" else ""


def produce(agent: AclAgent, topic: str, *ids: int, user: str = "admin") -> None:
    lines = "".join(json.dumps({"value": {"id": each, "of": topic}}) + "\n" for each in ids)
    headers = {"content-type": "application/x-ndjson"}
    assert agent.send(user, "POST", f"/v1/topics/{topic}/records", content=lines, headers=headers).is_success


def copied(agent: AclAgent, user: str = "admin") -> list[dict[str, Any]]:
    response = agent.send(user, "GET", "/v1/topics/copies/partitions/0/records", params={"offset": 0})
    assert response.is_success, response.text
    values = [each["value"] for each in response.json()["records"]]
    return [each if isinstance(each, dict) else json.loads(each) for each in values]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AclAgent]:
    folder: Path = tmp_path_factory.mktemp("owners")
    with AclAgent(folder) as agent:
        for user in ("alice", "bob"):
            agent.create_user(user)
            agent.allow(user, "create", "pipeline", "*")
            agent.allow(user, "alter", "pipeline", f"{user}s")
            agent.allow(user, "write", "topic", "copies")
        agent.allow("alice", "read", "topic", "orders")
        for topic in ("orders", SECRET_TOPIC, "copies"):
            assert agent.send("admin", "POST", "/v1/topics", json={"name": topic, "partitions": 1}).is_success
        produce(agent, "orders", 1, 2)
        produce(agent, SECRET_TOPIC, 7)
        with LiveSupervisor(agent, folder, "s", agent.process_environment):
            yield agent


def test_a_pipeline_runs_with_the_rights_of_who_applied_it(agent: AclAgent) -> None:
    response = put(agent, "alice", "alices", "orders")
    assert response.json()["pipeline"]["runs_as"] == "User:alice"
    why = wait_until(lambda: failure(agent, "alices"), timeout_s=240)
    assert "dead_letters = 'none'" in why
    for operation in ("create", "write"):
        agent.allow("alice", operation, "topic", "alices.dead-letters")
    assert agent.send("alice", "POST", "/v1/pipelines/alices/restart", json={}).is_success
    wait_until(lambda: len(copied(agent)) == 2, timeout_s=240, what=str(status(agent, "alices")))
    assert {each["of"] for each in copied(agent)} == {"orders"}


def test_a_definition_that_hides_what_it_reads_gets_nothing(agent: AclAgent) -> None:
    assert put(agent, "bob", "bobs", SECRET_TOPIC).is_success
    why = wait_until(lambda: failure(agent, "bobs"), timeout_s=120)
    assert SECRET_TOPIC in why
    assert not any(each["of"] == SECRET_TOPIC for each in copied(agent))


def test_a_right_that_is_taken_away_stops_a_pipeline_until_it_is_back(agent: AclAgent) -> None:
    agent.forbid("alice", "read", "topic", "orders")
    why = wait_until(lambda: failure(agent, "alices"), timeout_s=120)
    assert "not authorised" in why or "orders" in why
    produce(agent, "orders", 3)
    agent.allow("alice", "read", "topic", "orders")
    assert agent.send("alice", "POST", "/v1/pipelines/alices/restart", json={}).is_success
    wait_until(lambda: sorted(each["id"] for each in copied(agent)) == [1, 2, 3], timeout_s=120)


def test_nobody_changes_or_takes_over_a_pipeline_of_another_user(agent: AclAgent) -> None:
    assert put(agent, "bob", "alices", SECRET_TOPIC).status_code == 403
    part = {"epoch": 1, "query": str(uuid.uuid4()), "batch": 0, "fresh_at_ms": 0}
    assert agent.send("bob", "POST", "/v1/views/alices/rows", json=part).status_code == 403
    for method, path in (("DELETE", ""), ("POST", "/pause"), ("POST", "/restart")):
        body: dict[str, Any] = {"json": {}} if path else {}
        assert agent.send("bob", method, f"/v1/pipelines/alices{path}", **body).status_code == 403
    assert agent.send("admin", "GET", "/v1/pipelines/alices").json()["runs_as"] == "User:alice"


def test_a_stranger_is_no_supervisor(agent: AclAgent) -> None:
    beat = {"host": "evil", "slots": 9, "running": []}
    for user in ("alice", "admin"):
        assert agent.send(user, "POST", "/v1/supervisors/evil/heartbeat", json=beat).status_code == 403


def _is_done(agent: AclAgent, user: str, count: int) -> bool:
    counted = agent.send(user, "GET", "/v1/views/counts/rows").json()["rows"]
    return len(copied(agent, user)) >= count and any(each["n"] >= count for each in counted)


def test_tenants_have_pipelines_and_views_of_one_name_in_one_spark(agent: AclAgent) -> None:
    tenants = {"acme~ann": (1, 2), "beta~ann": (11, 12, 13)}
    for user, ids in tenants.items():
        tenant = user.partition("~")[0]
        agent.create_user(user)
        for kind in ("topic", "table", "pipeline", "view"):
            acl = {"principal": f"User:{user}", "operation": "all", "resource_type": kind, "pattern": "prefixed"}
            rules = {"acls": [{**acl, "name": f"{tenant}~"}]}
            assert agent.send("admin", "POST", "/v1/acls", json=rules).is_success
        for topic in ("orders", "copies"):
            assert agent.send(user, "POST", "/v1/topics", json={"name": topic, "partitions": 1}).is_success
        produce(agent, "orders", *ids, user=user)
        assert put(agent, user, "alices", "orders").is_success
        text = "CREATE MATERIALIZED VIEW counts KEY (of) AS SELECT of, count(*) AS n FROM STREAM(orders) GROUP BY of"
        body = {"kind": "view", "text": text, "key": ["of"], "starting": "earliest"}
        response = agent.send(user, "PUT", "/v1/pipelines/counts", json=body)
        assert response.is_success, response.text
    for user, ids in tenants.items():
        wait_until(partial(_is_done, agent, user, len(ids)), timeout_s=240, what=str(status(agent, "alices", user)))
        assert sorted(each["id"] for each in copied(agent, user)) == list(ids)
        rows = agent.send(user, "GET", "/v1/views/counts/rows").json()["rows"]
        assert rows == [{"of": "orders", "n": len(ids)}]
        for path in ("/v1/pipelines", "/v1/pipelines/alices/events", "/v1/views", "/v1/tables"):
            assert "~" not in agent.send(user, "GET", path).text
    assert agent.send("acme~ann", "DELETE", "/v1/pipelines/alices").is_success
    assert agent.send("beta~ann", "GET", "/v1/pipelines/alices").is_success
