"""Two tenants with the same names over HTTP and the schema registry: nobody can tell whether the other one is there.

As in `tests/wire/kafka/test_tenants.py`, the oracle doesn't ask how names are translated: all operations are asked in
two clusters, of which one has a neighbour with everything of the same names, by users who may do everything there is.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import httpx
import pytest
from prometheus_client import CollectorRegistry

from streamhouse.config import HttpSettings, KafkaSettings, PipelineSettings, SecuritySettings
from streamhouse.config.listener_spec import ListenerProtocol, ListenerSpec
from streamhouse.model.names import TopicPartition
from streamhouse.model.record import Acks, NewRecord
from streamhouse.wire.http import tenants
from streamhouse.wire.http.app import make_app
from streamhouse.wire.http.endpoint import Endpoint
from streamhouse.wire.http.operations import Operation
from tests.broker.conftest import MakeWorld
from tests.broker.transactions.support import Producer
from tests.wire.http.fake_worker import fake_worker
from tests.wire.http.test_access_matrix import BODIES, SAMPLES, Route, routes_of
from tests.wire.security import ADMIN, LOGIN_LISTENER, PASSWORD, SecureWorld, basic, bearer, secure_world, serving

SCHEMA: Final = '{"type":"record","name":"Order","fields":[{"name":"acme_only","type":"string"}]}'
ACME, BETA = "acme~admin", "beta~admin"
SECURITY: Final = SecuritySettings(
    authorization="acls",
    bootstrap_user=ADMIN,
    super_users=f"User:{ACME},User:{BETA}",
    failed_login_delay_s=0,
    listener_tenants="BETA:beta",
)
KAFKA: Final = KafkaSettings(listen="INSIDE://127.0.0.1:9092,BETA://127.0.0.1:9094")
BETA_LISTENER: Final = ListenerSpec(name="BETA", bind=LOGIN_LISTENER.bind, protocol=LOGIN_LISTENER.protocol)
READ_BACK: Final = (
    "/v1/topics",
    "/v1/topics/orders",
    "/v1/topics/orders/records?from=earliest",
    "/v1/groups",
    "/v1/users",
    "/v1/keys",
    "/v1/acls",
    "/v1/quotas",
    "/v1/transactions",
    "/v1/roles",
    "/v1/tables",
    "/v1/tables/mine",
    "/v1/pipelines",
    "/v1/pipelines/totals",
    "/v1/pipelines/totals/events",
    "/v1/pipelines/totals/versions",
    "/v1/views",
    "/v1/views/totals/rows",
    "/subjects",
    "/subjects/orders-value/versions/1",
    "/config/orders-value",
)
"""What shows whether anything of a tenant was changed."""

CHANGEABLE: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{16,64}|sk-[\w-]+|"
    r'"(?:[a-z_]*_ms|ts|producer_id|fresh_at|epoch|cursor|api_key|request_id|bytes|scanned_bytes|flushed_end)":"?[^,}\]"]*"?'
)


async def tenants_world(make_world: MakeWorld, *users: str) -> SecureWorld:
    secure = await secure_world(make_world, security=SECURITY, kafka=KAFKA, http=HttpSettings(failures_per_s=100_000))
    secure.world.run(secure.broker)
    await secure.world.clock.advance(0)
    for user in users:
        await secure.broker.security.users.create(user, PASSWORD)
    return secure


async def populate(secure: SecureWorld, http: httpx.AsyncClient, tenant: str) -> None:
    """Everything of which a cluster can have some, under the names that all samples have."""
    headers = basic(f"{tenant}~admin")

    async def do(method: str, path: str, body: Any) -> None:
        async with asyncio.timeout(5):
            response = await http.request(method, path, json=body, headers=headers)
        assert response.is_success, response.text

    await do("POST", "/v1/topics", {"name": "orders", "partitions": 3})
    await do(
        "POST", "/v1/topics/orders/records", {"records": [{"key": "k", "value": {"of": "somebody"}, "partition": 0}]}
    )
    await do("POST", "/v1/groups/billing/reset", {"to": "earliest", "topics": [{"topic": "orders"}]})
    await do("POST", "/v1/users", {"name": "carol", "password": PASSWORD})
    await do("POST", "/v1/keys", {"principal": "User:carol"})
    rule = {"principal": "User:carol", "operation": "read", "resource_type": "topic", "name": "orders"}
    await do("POST", "/v1/acls", {"acls": [rule, {**rule, "name": "*"}, {**rule, "resource_type": "subject"}]})
    await do("PUT", "/v1/quotas", {"entity": {"user": "carol"}, "limits": {"producer_byte_rate": 1e9}})
    await do("POST", "/v1/roles/reader/members", {"add": ["User:carol"]})
    await do("PUT", "/v1/tables/mine", {"connector": "topic", "options": {"topic": "orders", "pipeline": "totals"}})
    view = {"kind": "view", "text": "SELECT 1", "shape": {"streams": ["orders"], "target": "totals"}}
    await do("PUT", "/v1/pipelines/totals", {**view, "options": {"dead_letters": "orders"}})
    await do("PUT", "/v1/pipelines/copies", {"kind": "sql", "text": "SELECT 1", "target": "orders"})
    await do("POST", "/subjects/orders-value/versions", {"schema": SCHEMA})
    await do("PUT", "/config/orders-value", {"compatibility": "FULL"})
    producer = await Producer(secure.broker, f"{tenant}~payments-1").init()
    await producer.send(b"open", name=TopicPartition(f"{tenant}~orders", 2))


async def send(http: httpx.AsyncClient, route: Route, user: str) -> str:
    """What somebody sees of an answer, without what differs from one cluster to the next."""
    body = BODIES.get(route.name, {} if route.method in ("POST", "PUT", "PATCH") else None)
    response = await http.request(route.method, route.url, json=body, headers=basic(user))
    headers = {name: value for name, value in response.headers.items() if name in ("location", "content-type")}
    shown = f"{route.name} {response.status_code} {headers} {response.text}"
    assert "acme" not in shown.replace("acme_only", ""), shown
    assert "beta~" not in shown, shown
    return CHANGEABLE.sub("_", shown)


@pytest.mark.parametrize("is_populated", [False, True], ids=["nothing", "the-same"])
async def test_a_tenant_can_not_see_whether_there_is_another(make_world: MakeWorld, *, is_populated: bool) -> None:
    async with AsyncExitStack() as stack:
        alone, beside = [await tenants_world(make_world, BETA, ACME) for _ in range(2)]
        clients = [await stack.enter_async_context(serving(each.broker)) for each in (alone, beside)]
        await populate(beside, clients[1], "acme")
        before = await read_back(clients[1])
        if is_populated:
            for world, client in zip((alone, beside), clients, strict=True):
                await populate(world, client, "beta")
        for route in routes_of(beside.broker):
            shown = [await send(client, route, BETA) for client in clients]
            assert shown[0] == shown[1], route
            assert await read_back(clients[1]) == before, route


async def read_back(http: httpx.AsyncClient) -> Sequence[tuple[int, str]]:
    responses = [await http.get(path, headers=basic(ACME)) for path in READ_BACK]
    assert {each.status_code for each in responses} == {200}, [each.text for each in responses]
    return [(each.status_code, re.sub(r'"(?:last_used|request_id)[^,}]*', "_", each.text)) for each in responses]


def operations_of(secure: SecureWorld) -> list[Operation[Any, Any]]:
    app: Any = make_app(secure.broker, CollectorRegistry()).app
    endpoints = [getattr(route, "endpoint", None) for route in app.app.routes]
    return [each for endpoint in endpoints if isinstance(endpoint, Endpoint) for each in endpoint.operations]


async def test_each_operation_is_served_to_tenants_or_refused(secure: SecureWorld) -> None:
    """Who adds an operation says here whether tenants have it, and in `SERVED`, what of it names something."""
    assert {each.name for each in operations_of(secure)} == tenants.SERVED | REFUSED | OPEN


OPEN: Final = {"exchange_code", "get_login", "get_openapi", "live", "ready", "show_docs", "show_docs_part"}
REFUSED: Final = {
    "beat_sql_worker",
    "beat_supervisor",
    "discard",
    "drain_agent",
    "drop_sql_worker",
    "end_hold",
    "get_findings",
    "flush_topic",
    "get_metrics",
    "get_settings",
    "hold_partitions",
    "leave_supervisor",
    "list_agents",
    "list_logs",
    "list_segments",
    "list_sql_workers",
    "list_supervisors",
    "metrics",
    "move_partition",
    "plan_maintenance",
    "replace_runs",
    "trace_reads",
    "undrain_agent",
}


async def test_every_text_of_what_is_served_is_classified(secure: SecureWorld) -> None:
    for each in operations_of(secure):
        if each.name in tenants.SERVED:
            for kind in (each.query, each.body, each.response, each.also_response, *each.other_statuses.values()):
                if kind is not None:
                    tenants.plan_of(kind)


@pytest.fixture
async def secure(make_world: MakeWorld) -> SecureWorld:
    return await tenants_world(make_world, ACME, BETA)


@pytest.fixture
async def http(secure: SecureWorld) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(secure.broker) as client:
        yield client


async def test_a_super_user_of_a_tenant_gets_nothing_that_is_no_tenants(
    secure: SecureWorld, http: httpx.AsyncClient
) -> None:
    for route in routes_of(secure.broker):
        if route.name in REFUSED - OPEN:
            response = await http.request(route.method, route.url, json={}, headers=basic(ACME))
            assert response.status_code == 403, route


async def test_a_listener_shows_the_tenant_too(secure: SecureWorld) -> None:
    async with serving(secure.broker, listener=BETA_LISTENER) as http:
        me = await http.get("/v1/whoami", headers=basic("admin"))
        assert me.json() == {
            "principal": "User:admin",
            "groups": [],
            "host": "127.0.0.1",
            "listener": "BETA",
            "unrestricted": False,
            "super_user": True,
        }
        for user in (ACME, BETA, "carol"):
            assert (await http.get("/v1/whoami", headers=basic(user))).status_code == 401
        token = secure.token("Agent")
        assert (await http.get("/v1/whoami", headers={"authorization": f"Bearer {token}"})).status_code == 401


async def test_an_upload_of_lines_is_answered(secure: SecureWorld, http: httpx.AsyncClient) -> None:
    headers = {**basic(ACME), "content-type": "application/x-ndjson"}
    response = await http.post("/v1/topics/orders/records", content=b'{"value": 1}\n{"value": 2}\n', headers=headers)
    assert (response.status_code, response.json()["records"]) == (200, 2)


async def test_operators_see_full_names(secure: SecureWorld, http: httpx.AsyncClient) -> None:
    await populate(secure, http, "acme")
    topics = (await http.get("/v1/topics", headers=basic(ADMIN))).json()["topics"]
    assert [each["name"] for each in topics] == ["acme~orders"]
    assert (await http.get("/v1/topics/acme~orders", headers=basic(ADMIN))).status_code == 200


async def test_a_schema_of_another_tenant_decodes_no_records(secure: SecureWorld, http: httpx.AsyncClient) -> None:
    await populate(secure, http, "acme")
    await http.post("/v1/topics", json={"name": "mine"}, headers=basic(BETA))
    stored = (await http.get("/subjects/orders-value/versions/1", headers=basic(ACME))).json()
    value = b"\x00" + stored["id"].to_bytes(4, "big") + b"\x06abc"
    await secure.broker.records.publish("beta~mine", [NewRecord(value)], acks=Acks.WAL, timeout_s=5)
    path = "/v1/topics/mine/records?from=earliest&value_format=schema"
    page = await http.get(path, headers=basic(BETA))
    assert "acme_only" not in page.text
    await secure.broker.records.publish("acme~orders", [NewRecord(value, partition=1)], acks=Acks.WAL, timeout_s=5)
    page = await http.get(path.replace("mine", "orders"), headers=basic(ACME))
    assert "acme_only" in page.text


async def test_the_id_of_a_schema_that_another_tenant_deleted_is_unknown(
    secure: SecureWorld, http: httpx.AsyncClient
) -> None:
    await populate(secure, http, "acme")
    stored = (await http.get("/subjects/orders-value/versions/1", headers=basic(ACME))).json()
    await http.delete("/subjects/orders-value", headers=basic(ACME))
    for part in ("", "/schema", "/subjects", "/versions"):
        path = f"/schemas/ids/{stored['id']}{part}"
        assert (await http.get(path, headers=basic(BETA))).status_code == 404, path
        assert (await http.get(path, headers=basic(ACME))).status_code == 200, path


async def test_an_error_in_a_stream_has_the_tenants_names(secure: SecureWorld, http: httpx.AsyncClient) -> None:
    await populate(secure, http, "acme")
    response = await http.get("/v1/topics/nothing/records", headers=basic(ACME))
    assert response.status_code == 404
    assert "nothing" in response.text
    assert "acme" not in response.text


async def test_the_registrys_own_level_is_the_operators(secure: SecureWorld, http: httpx.AsyncClient) -> None:
    for method, path, body in (
        ("PUT", "/config", {"compatibility": "NONE"}),
        ("DELETE", "/config", None),
        ("PUT", "/mode", {"mode": "READONLY"}),
        ("DELETE", "/mode", None),
        ("PUT", "/mode/orders-value?force=true", {"mode": "IMPORT"}),
        ("GET", "/contexts", None),
        ("GET", "/contexts/.other/subjects", None),
    ):
        response = await http.request(method, path, json=body, headers=basic(ACME))
        assert response.status_code == 403, (method, path)


async def test_references_are_to_subjects_of_the_tenant(secure: SecureWorld, http: httpx.AsyncClient) -> None:
    base = '{"type":"record","name":"Base","fields":[]}'
    user = '{"type":"record","name":"User","fields":[{"name":"base","type":"Base"}]}'
    reference = {"name": "Base", "subject": "base", "version": 1}
    for tenant, status in ((ACME, 200), (BETA, 422)):
        if tenant == ACME:
            await http.post("/subjects/base/versions", json={"schema": base}, headers=basic(tenant))
        body = {"schema": user, "references": [reference]}
        answer = await http.post("/subjects/user/versions", json=body, headers=basic(tenant))
        assert answer.status_code == status, answer.text
    response = (await http.get("/subjects/user/versions/1", headers=basic(ACME))).json()
    assert response["references"] == [reference]
    assert response["subject"] == "user"


@pytest.mark.parametrize("guess", ["acme~orders", "~orders", "acme%7Eorders", "acme~"])
async def test_a_name_with_a_tenant_in_it_is_nothing(secure: SecureWorld, http: httpx.AsyncClient, guess: str) -> None:
    await populate(secure, http, "acme")
    for path in (f"/v1/topics/{guess}", f"/v1/groups/{guess.replace('orders', 'billing')}"):
        response = await http.get(path, headers=basic(BETA))
        assert response.status_code in (404, 422), response.text


async def test_keys_of_others_are_not_revoked(secure: SecureWorld, http: httpx.AsyncClient) -> None:
    await populate(secure, http, "acme")
    [key] = [each.key_id for each in await secure.broker.security.users.keys()]
    assert (await http.delete(f"/v1/keys/{key}", headers=basic(BETA))).status_code == 404
    assert (await http.delete(f"/v1/keys/{key}", headers=basic(ACME))).status_code == 204


async def apply(http: httpx.AsyncClient, user: str, name: str = "copies") -> httpx.Response:
    text = f"CREATE PIPELINE {name} AS INSERT INTO sums SELECT * FROM STREAM(orders)"
    body = {"kind": "sql", "text": text, "target": "sums", "options": {"dead_letters": "bad"}}
    body["shape"] = {"streams": ["orders"], "target": "sums"}
    return await http.put(f"/v1/pipelines/{name}", json=body, headers=basic(user))


async def test_pipelines_of_one_name_are_assigned_with_the_names_and_rights_of_their_owners(
    secure: SecureWorld, http: httpx.AsyncClient
) -> None:
    for user in (ACME, BETA):
        assert (await apply(http, user)).is_success
    headers = bearer(secure.token("Supervisor"))
    beat = {"host": "h", "slots": 4, "running": []}
    response = await http.post("/v1/supervisors/s/heartbeat", json=beat, headers=headers)
    assigned = {each["name"]: each for each in response.json()["assigned"]}
    assert set(assigned) == {"acme~copies", "beta~copies"}
    for tenant in ("acme", "beta"):
        each = assigned[f"{tenant}~copies"]
        assert "~" not in str(each["pipeline"])
        assert each["pipeline"]["options"] == {"dead_letters": "bad"}
        assert each["lineage"].startswith(f"{tenant}~copies@")
        me = await http.get("/v1/whoami", headers=bearer(each["token"]))
        assert me.json()["principal"] == "User:admin"
        fence = {"pipeline": "copies", "epoch": each["epoch"]}
        body = {"query": SAMPLES["query"], "epoch": 0, "segments": [], "progress": tenant, "fence": fence}
        assert (await http.post("/v1/commits", json=body, headers=bearer(each["token"]))).is_success
        body = {"query": SAMPLES["query"], "epoch": 1, "segments": [], "fence": {**fence, "epoch": fence["epoch"] + 9}}
        assert (await http.post("/v1/commits", json=body, headers=bearer(each["token"]))).status_code == 409
    running = [{"name": name, "epoch": each["epoch"]} for name, each in assigned.items()]
    response = await http.post("/v1/supervisors/s/heartbeat", json={**beat, "running": running}, headers=headers)
    assert {each["name"] for each in response.json()["assigned"]} == set(assigned)


async def test_queries_of_one_id_commit_apart(secure: SecureWorld, http: httpx.AsyncClient) -> None:
    path, body = f"/v1/commits/{SAMPLES['query']}", {"query": SAMPLES["query"], "segments": []}
    for user, epoch in ((ACME, 5), (BETA, 1), (ADMIN, 3)):
        response = await http.post("/v1/commits", json={**body, "epoch": epoch, "progress": user}, headers=basic(user))
        assert response.json()["replayed"] is False
    for user, epoch in ((ACME, 5), (BETA, 1), (ADMIN, 3)):
        last = (await http.get(path, headers=basic(user))).json()
        assert (last["epoch"], last["progress"]) == (epoch, user)


async def test_operators_look_after_pipelines_of_tenants_and_make_none(
    secure: SecureWorld, http: httpx.AsyncClient
) -> None:
    assert (await apply(http, ACME)).is_success
    shown = (await http.post("/v1/pipelines/acme~copies/pause", headers=basic(ADMIN))).json()
    assert (shown["name"], shown["target"], shown["wish"]) == ("acme~copies", "acme~sums", "pause")
    assert shown["options"] == {"dead_letters": "acme~bad"}
    assert shown["runs_as"] == f"User:{ACME}"
    assert (await apply(http, ADMIN, "acme~others")).status_code == 422
    assert (await apply(http, ACME, "beta~others")).status_code == 422
    table = {"connector": "topic", "options": {"topic": "orders"}}
    for user, name in ((ADMIN, "acme~mine"), (ACME, "beta~mine")):
        assert (await http.put(f"/v1/tables/{name}", json=table, headers=basic(user))).status_code == 422


async def test_a_sql_worker_acts_as_the_tenants_user(secure: SecureWorld, http: httpx.AsyncClient) -> None:
    async with fake_worker() as worker:
        beat = {"address": worker.address, "token": "t", "busy": 0}
        headers = bearer(secure.token("Worker"))
        assert (await http.post("/v1/sql/workers/w/heartbeat", json=beat, headers=headers)).is_success
        response = await http.post("/v1/sql", json={"sql": "SELECT * FROM `beta~orders`"}, headers=basic(ACME))
        assert response.json()["rows"] == [{"id": 1}]
        assert worker.requested[0]["sql"] == "SELECT * FROM `beta~orders`"
        token = worker.headers[0]["streamhouse-caller-token"]
        await populate(secure, http, "acme")
        tables = (await http.get("/v1/tables", headers=bearer(token))).json()["tables"]
        assert [each["name"] for each in tables] == ["mine", "orders", "totals"]
        assert (await http.get("/v1/tables/beta~orders", headers=bearer(token))).status_code in (403, 404)


async def test_without_access_control_no_process_acts_for_a_tenant(make_world: MakeWorld) -> None:
    open_to_all = SecuritySettings(listener_tenants="BETA:beta")
    secure = await secure_world(make_world, security=open_to_all, kafka=KAFKA)
    listener = ListenerSpec(name="BETA", bind=LOGIN_LISTENER.bind, protocol=ListenerProtocol.PLAINTEXT)
    async with serving(secure.broker, listener=listener) as http:
        assert (await http.get("/v1/topics")).is_success
        assert (await http.post("/v1/sql", json={"sql": "SELECT 1"})).status_code == 403
        body = {"kind": "sql", "text": "SELECT 1", "target": "orders"}
        assert (await http.put("/v1/pipelines/copies", json=body)).status_code == 403


async def test_nothing_of_a_tenant_is_outside_of_the_cluster_or_runs_programs(make_world: MakeWorld) -> None:
    secure = await secure_world(
        make_world, security=SECURITY, kafka=KAFKA, pipelines=PipelineSettings(allow_python=True)
    )
    await secure.broker.security.users.create(ACME, PASSWORD)
    async with serving(secure.broker) as http:
        for connector, options in (
            ("files", {"path": "/tmp/x"}),
            ("postgresql", {"connection": "warehouse", "table": "t"}),
            ("parquet", {"location": "/tmp/x"}),
        ):
            body = {"connector": connector, "options": options}
            assert (await http.put("/v1/tables/mine", json=body, headers=basic(ACME))).status_code == 403
        topic = {"name": "orders", "settings": {"table.format": "parquet", "table.name": "stolen"}}
        assert (await http.post("/v1/topics", json=topic, headers=basic(ACME))).status_code == 422
        python = {"kind": "python", "text": "pass", "target": "orders"}
        assert (await http.put("/v1/pipelines/copies", json=python, headers=basic(ACME))).status_code == 403
