"""What agents hand to SQL workers and supervisors: tokens of those for whom they act, and for nobody else."""

from collections.abc import AsyncIterator
from urllib.parse import quote

import httpx
import pytest

from streamhouse.config import HttpSettings, PipelineSettings
from streamhouse.model.access import GROUP, USER, Operation, Principal, ResourceType
from streamhouse.model.cluster_tokens import ClusterTokens
from tests.broker.conftest import MakeWorld
from tests.wire.http.fake_worker import FakeWorker, fake_worker
from tests.wire.security import CLUSTER_SECRET, Headers, SecureWorld, basic, bearer, secure_world, serving

RUN_SQL = (Operation.RUN_SQL, ResourceType.CLUSTER, "kafka-cluster")
TEXT = "CREATE PIPELINE totals AS INSERT INTO sums SELECT * FROM STREAM(orders)"
SQL = {"kind": "sql", "text": TEXT, "target": "sums"}


@pytest.fixture
async def secure(make_world: MakeWorld) -> SecureWorld:
    return await secure_world(make_world)


@pytest.fixture
async def http(secure: SecureWorld) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(secure.broker) as http:
        yield http


@pytest.fixture
async def worker(secure: SecureWorld, http: httpx.AsyncClient) -> AsyncIterator[FakeWorker]:
    async with fake_worker() as worker:
        beat = {"address": worker.address, "token": "t", "busy": 0}
        headers = bearer(secure.token("Worker"))
        assert (await http.post("/v1/sql/workers/w/heartbeat", json=beat, headers=headers)).is_success
        yield worker


async def test_a_worker_gets_a_token_of_the_caller_for_as_long_as_the_query_may_take(
    secure: SecureWorld, http: httpx.AsyncClient, worker: FakeWorker
) -> None:
    alice = await secure.user("alice ä", RUN_SQL)
    assert (await http.post("/v1/sql", json={"sql": "SELECT 1", "timeout_s": 7}, headers=alice)).is_success
    [headers] = worker.headers
    assert headers["streamhouse-caller"] == quote("User:alice ä", safe="")
    assert headers["authorization"] == "Bearer t"  # the caller's own credentials stay with the agent
    token = headers["streamhouse-caller-token"]
    caller = ClusterTokens(CLUSTER_SECRET, clock=secure.world.clock).verify(token)
    assert (caller.principal, caller.host) == (Principal(USER, "alice ä"), "127.0.0.1")
    assert caller.expires_at_ms is not None
    assert 7_000 <= caller.expires_at_ms - secure.world.clock.now_ms() <= 30_000


async def test_a_token_that_a_client_sends_along_goes_to_nobody(
    secure: SecureWorld, http: httpx.AsyncClient, worker: FakeWorker
) -> None:
    forged = {"streamhouse-caller": "User%3Aadmin", "streamhouse-caller-token": "sht1.x.y"}
    assert (await http.post("/v1/sql", json={"sql": "SELECT 1"}, headers={**basic("admin"), **forged})).is_success
    assert worker.headers[0]["streamhouse-caller-token"] != "sht1.x.y"


async def test_rules_for_hosts_and_groups_hold_for_what_acts_for_a_caller(
    secure: SecureWorld, http: httpx.AsyncClient
) -> None:
    tokens = ClusterTokens(CLUSTER_SECRET, clock=secure.world.clock)
    token = tokens.make(Principal(USER, "alice"), groups=(Principal(GROUP, "ops"),), host="10.1.2.3")
    me = (await http.get("/v1/whoami", headers=bearer(token))).json()
    assert (me["principal"], me["groups"], me["host"]) == ("User:alice", ["Group:ops"], "10.1.2.3")


async def test_queries_need_the_right_to_run_sql(
    secure: SecureWorld, http: httpx.AsyncClient, worker: FakeWorker
) -> None:
    mallory = await secure.user("mallory", (Operation.READ, ResourceType.TOPIC, "orders"))
    assert (await http.post("/v1/sql", json={"sql": "SELECT 1"}, headers=mallory)).status_code == 403
    assert not worker.requested


async def _assigned(secure: SecureWorld, http: httpx.AsyncClient) -> dict[str, str]:
    beat = {"host": "h", "slots": 4, "running": []}
    headers = bearer(secure.token("Supervisor"))
    response = await http.post("/v1/supervisors/s/heartbeat", json=beat, headers=headers)
    [assigned] = response.json()["assigned"]
    return {"token": assigned["token"], "refusal": assigned["refusal"]}


async def _owner(secure: SecureWorld) -> Headers:
    return await secure.user(
        "alice",
        (Operation.CREATE, ResourceType.PIPELINE, "totals"),
        (Operation.ALTER, ResourceType.PIPELINE, "totals"),
        (Operation.WRITE, ResourceType.TOPIC, "sums"),
    )


async def test_a_supervisor_gets_a_token_of_the_owner(secure: SecureWorld, http: httpx.AsyncClient) -> None:
    alice = await _owner(secure)
    assert (await http.put("/v1/pipelines/totals", json=SQL, headers=alice)).is_success
    assigned = await _assigned(secure, http)
    assert assigned["refusal"] == ""
    me = (await http.get("/v1/whoami", headers=bearer(assigned["token"]))).json()
    assert (me["principal"], me["unrestricted"]) == ("User:alice", False)
    await secure.world.clock.advance(400.0)
    assert (await http.get("/v1/whoami", headers=bearer(assigned["token"]))).status_code == 401


async def test_python_runs_only_while_its_owner_may_run_code(make_world: MakeWorld) -> None:
    secure = await secure_world(make_world, pipelines=PipelineSettings(allow_python=True))
    async with serving(secure.broker) as http:
        alice = await _owner(secure)
        python = {"kind": "python", "text": "pass", "target": "sums"}
        assert (await http.put("/v1/pipelines/totals", json=python, headers=alice)).status_code == 403
        await secure.grant("alice", (Operation.RUN_CODE, ResourceType.CLUSTER, "kafka-cluster"))
        assert (await http.put("/v1/pipelines/totals", json=python, headers=alice)).is_success
        assert (await _assigned(secure, http))["token"]
        await secure.revoke("alice")
        assigned = await _assigned(secure, http)
        assert (assigned["token"], "may not run code" in assigned["refusal"]) == ("", True)


async def test_what_was_applied_before_there_were_logins_runs_when_someone_applies_it_again(
    secure: SecureWorld, http: httpx.AsyncClient
) -> None:
    anonymous = bearer(secure.token(USER, "ANONYMOUS"))
    await secure.grant("ANONYMOUS", (Operation.CREATE, ResourceType.PIPELINE, "totals"))
    await secure.grant("ANONYMOUS", (Operation.WRITE, ResourceType.TOPIC, "sums"))
    assert (await http.put("/v1/pipelines/totals", json=SQL, headers=anonymous)).is_success
    await secure.revoke("ANONYMOUS")
    assert "apply it again" in (await _assigned(secure, http))["refusal"]
    alice = await _owner(secure)
    response = await http.put("/v1/pipelines/totals", json=SQL, headers=alice)
    assert (response.json()["outcome"], response.json()["pipeline"]["runs_as"]) == ("unchanged", "User:alice")
    assert (await _assigned(secure, http))["refusal"] == ""


async def test_tokens_of_users_go_over_no_network_that_anybody_reads(make_world: MakeWorld) -> None:
    secure = await secure_world(make_world, http=HttpSettings(protocol="SASL_SSL"))
    async with serving(secure.broker) as http:
        headers = bearer(secure.token("Worker"))

        async def beat(address: str) -> httpx.Response:
            body = {"address": address, "token": "t", "busy": 0}
            return await http.post("/v1/sql/workers/w/heartbeat", json=body, headers=headers)

        assert (await beat("127.0.0.1:9")).is_success
        refused = await beat("10.0.0.9:9")
        assert (refused.status_code, "needs TLS" in refused.text) == (422, True)
        assert "security.tls_ca" in (await beat("https://10.0.0.9:9")).text


@pytest.mark.parametrize("kind", ["sql", "view"])
async def test_an_owner_sees_the_pipeline_that_runs_as_him_and_nobody_elses(
    secure: SecureWorld, http: httpx.AsyncClient, kind: str
) -> None:
    """A running pipeline asks agents whether it is still there, with the rights of its owner alone."""
    write = (Operation.WRITE, ResourceType.TOPIC, "sums")
    alice = await secure.user("alice", (Operation.CREATE, ResourceType.PIPELINE, "totals"), write)
    bob = await secure.user("bob", (Operation.CREATE, ResourceType.PIPELINE, "mine"), write)
    definition = SQL if kind == "sql" else {"kind": "view", "text": "CREATE MATERIALIZED VIEW totals AS SELECT 1"}
    assert (await http.put("/v1/pipelines/totals", json=definition, headers=alice)).is_success
    paths = ["/v1/pipelines/totals", *(["/v1/views/totals"] if kind == "view" else [])]
    for path in paths:
        assert (await http.get(path, headers=alice)).is_success, path
        assert (await http.get(path, headers=bob)).status_code == 403, path
    assert (await http.delete("/v1/pipelines/totals", headers=basic("admin"))).is_success
    for path in paths:
        assert (await http.get(path, headers=alice)).status_code == 403, path


async def test_rows_of_a_table_that_is_no_topic_are_written_by_who_may_make_it(
    secure: SecureWorld, http: httpx.AsyncClient
) -> None:
    """To list a table, and to read it, is not to write it."""
    table = {"connector": "postgresql", "options": {"connection": "warehouse"}}
    assert (await http.put("/v1/tables/sums", json=table, headers=basic("admin"))).is_success
    describe = (Operation.DESCRIBE, ResourceType.TABLE, "sums")
    alice = await secure.user("alice", (Operation.CREATE, ResourceType.PIPELINE, "totals"), describe)
    refused = await http.put("/v1/pipelines/totals", json=SQL, headers=alice)
    assert (refused.status_code, "operation=create table=sums" in refused.text) == (403, True)
    await secure.grant("alice", (Operation.CREATE, ResourceType.TABLE, "sums"))
    assert (await http.put("/v1/pipelines/totals", json=SQL, headers=alice)).is_success
