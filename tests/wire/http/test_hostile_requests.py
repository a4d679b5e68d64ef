"""Requests that try to get around the login or the rights: odd paths and methods, smuggled headers, tokens in URLs."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from streamhouse.config.fields import Address
from streamhouse.config.listener_spec import ListenerProtocol, ListenerSpec
from streamhouse.model.access import USER, Acl, Operation, Principal, ResourceType
from tests.broker.conftest import MakeWorld
from tests.wire.security import ADMIN, SecureWorld, basic, bearer, secure_world, serving

PLAIN = ListenerSpec(name="LOCAL", bind=Address("127.0.0.1", 8080), protocol=ListenerProtocol.PLAINTEXT)


@pytest.fixture
async def secure(make_world: MakeWorld) -> SecureWorld:
    secure = await secure_world(make_world)
    for name in ("orders", "secrets"):
        await secure.broker.create_topic(name, partitions=1, overrides={})
    return secure


@pytest.fixture
async def http(secure: SecureWorld) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(secure.broker) as client:
        yield client


@pytest.mark.parametrize(
    "path",
    [
        "/v1/topics",
        "//v1/topics",
        "/v1//topics",
        "/V1/Topics",
        "/v1/topics/",
        "/health/live/../../v1/topics",
        "/health/live/%2e%2e/%2e%2e/v1/topics",
        "/health/live%2f..%2f..%2fv1%2ftopics",
        "/health/live;/v1/topics",
        "/health/live/",
        "/%76%31/topics",
        "/subjects",
        "//subjects",
        "/contexts/./subjects",
        "/docs/../v1/topics",
        "/nowhere",
        "/metrics",
        "/openapi.json",
    ],
)
async def test_no_path_gets_around_the_login(http: httpx.AsyncClient, path: str) -> None:
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"):
        request = http.build_request(method, "http://localhost/")
        request.url = request.url.copy_with(raw_path=path.encode())
        assert (await http.send(request)).status_code == 401, (method, path)


async def test_probes_are_open_for_reading_only(http: httpx.AsyncClient) -> None:
    for path in ("/", "/health/live", "/health/ready"):
        assert (await http.get(path)).status_code == 200
        assert (await http.head(path)).status_code == 200
        assert (await http.post(path)).status_code == 401


@pytest.mark.parametrize("name", ["access_token", "token", "api_key", "key", "authorization", "X-API-Key"])
async def test_a_token_in_the_url_is_not_looked_at(secure: SecureWorld, http: httpx.AsyncClient, name: str) -> None:
    key = await secure.key(ADMIN)
    assert (await http.get("/v1/topics", params={name: key})).status_code == 401
    assert (await http.get("/v1/topics", headers=bearer(key))).status_code == 200


async def test_another_method_in_a_header_changes_nothing(secure: SecureWorld, http: httpx.AsyncClient) -> None:
    reader = await secure.user("reader", (Operation.READ, ResourceType.TOPIC, "orders"))
    for name in ("x-http-method-override", "x-http-method", "x-method-override"):
        response = await http.get("/v1/topics/orders", headers={**reader, name: "DELETE"})
        assert response.status_code == 200
    assert (await http.delete("/v1/topics/orders", headers=reader)).status_code == 403
    assert await secure.broker.catalog.find_if_any("orders") is not None


async def test_headers_of_proxies_make_no_caller_another_one(secure: SecureWorld, http: httpx.AsyncClient) -> None:
    for name in ("x-forwarded-user", "x-remote-user", "x-forwarded-for", "streamhouse-caller", "proxy-authorization"):
        assert (await http.get("/v1/topics", headers={name: basic(ADMIN)["authorization"]})).status_code == 401


async def test_two_logins_in_one_request_are_refused(secure: SecureWorld, http: httpx.AsyncClient) -> None:
    headers: Any = [("authorization", basic(ADMIN)["authorization"]), ("authorization", "Basic bm9ib2R5Og==")]
    assert (await http.get("/v1/topics", headers=headers)).status_code == 401


async def test_an_encoded_name_is_checked_as_it_is_used(secure: SecureWorld, http: httpx.AsyncClient) -> None:
    reader = await secure.user("reader", (Operation.READ, ResourceType.TOPIC, "orders"))
    for name in ("secrets", "%73ecrets", "orders%2f..%2fsecrets", "orders/../secrets", "secrets%00", "orders,secrets"):
        request = http.build_request("GET", "http://localhost/", headers=dict(reader))
        request.url = request.url.copy_with(raw_path=f"/v1/topics/{name}/records".encode())
        assert (await http.send(request)).status_code in (403, 404), name


async def test_what_is_hidden_looks_as_if_it_were_not_there(secure: SecureWorld, http: httpx.AsyncClient) -> None:
    reader = await secure.user("reader", (Operation.READ, ResourceType.TOPIC, "orders"))
    assert [each["name"] for each in (await http.get("/v1/topics", headers=reader)).json()["topics"]] == ["orders"]
    tables = (await http.get("/v1/tables", headers=reader)).json()["tables"]
    assert [each["name"] for each in tables] == ["orders"]
    there, missing = [await http.get(f"/v1/topics/{name}", headers=reader) for name in ("secrets", "missing")]
    assert there.status_code == missing.status_code == 403
    assert there.json()["detail"].replace("secrets", "missing") == missing.json()["detail"]


async def test_schemas_are_found_by_id_only_with_a_readable_subject(
    secure: SecureWorld, http: httpx.AsyncClient
) -> None:
    made = await http.post("/subjects/secrets-value/versions", json={"schema": '"string"'}, headers=dict(basic(ADMIN)))
    number = made.json()["id"]
    reader = await secure.user("reader", (Operation.READ, ResourceType.SUBJECT, "orders-value"))
    for path in (f"/schemas/ids/{number}", f"/schemas/ids/{number}/schema", f"/schemas/ids/{number}/versions"):
        assert (await http.get(path, headers=reader)).status_code == 404
        assert (await http.get(path, headers=basic(ADMIN))).status_code == 200
    guid = made.json()["guid"]
    assert (await http.get(f"/schemas/guids/{guid}", headers=reader)).status_code == 404
    assert (await http.get("/subjects", headers=reader)).json() == []
    assert (await http.get("/schemas", headers=reader)).json() == []
    assert (await http.get("/contexts", headers=reader)).json() == []


async def test_an_alias_shows_no_subject_that_may_not_be_read(secure: SecureWorld, http: httpx.AsyncClient) -> None:
    await http.post("/subjects/secrets-value/versions", json={"schema": '"string"'}, headers=dict(basic(ADMIN)))
    rights = [(op, ResourceType.SUBJECT, "mine") for op in (Operation.READ, Operation.ALTER_CONFIGS)]
    thief = await secure.user("thief", *rights)
    refused = await http.put("/config/mine", json={"alias": "secrets-value"}, headers=thief)
    assert (refused.status_code, refused.json()["error_code"]) == (403, 40301)
    await http.put("/config/mine", json={"alias": "secrets-value"}, headers=dict(basic(ADMIN)))
    assert (await http.get("/subjects/mine/versions/latest", headers=thief)).status_code == 403


async def test_a_reference_needs_the_right_to_read_it(secure: SecureWorld, http: httpx.AsyncClient) -> None:
    text = '{"type": "record", "name": "Secret", "fields": []}'
    await http.post("/subjects/secrets-value/versions", json={"schema": text}, headers=dict(basic(ADMIN)))
    writer = await secure.user("writer", (Operation.WRITE, ResourceType.SUBJECT, "mine"))
    body = {"schema": '"Secret"', "references": [{"name": "Secret", "subject": "secrets-value", "version": 1}]}
    assert (await http.post("/subjects/mine/versions", json=body, headers=writer)).status_code == 403


async def test_credentials_on_a_plain_listener_are_never_ignored(secure: SecureWorld) -> None:
    async with serving(secure.broker, listener=PLAIN) as http:
        assert (await http.get("/v1/agents")).status_code == 403  # ANONYMOUS, whom no rule allows anything
        assert (await http.get("/v1/agents", headers=basic(ADMIN))).status_code == 200
        assert (await http.get("/v1/agents", headers=basic(ADMIN, "wrong"))).status_code == 401


async def test_a_rule_for_an_address_holds_for_no_other_one(secure: SecureWorld) -> None:
    reader = await secure.user("reader")
    rule = Acl(
        resource_type=ResourceType.TOPIC,
        name="orders",
        principal=Principal(USER, "reader"),
        operation=Operation.READ,
        host="10.0.0.7",
    )
    await secure.broker.security.access.add_acls([rule])
    for host, status in (("10.0.0.7", 200), ("127.0.0.1", 403)):
        async with serving(secure.broker, host=host) as http:
            headers = {**reader, "x-forwarded-for": "10.0.0.7"}
            assert (await http.get("/v1/topics/orders", headers=headers)).status_code == status
