"""Users, keys, access rules, roles and quotas over HTTP."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import pytest

from streamhouse.model.access import USER, Operation, Principal, ResourceType
from tests.broker.conftest import MakeWorld
from tests.wire.security import ADMIN, Headers, SecureWorld, basic, bearer, secure_world, serving

ALICE = {"name": "alice", "password": "first secret"}
RULE = {"principal": "User:alice", "operation": "read", "resource_type": "topic", "name": "orders"}
WHOLE_RULE = RULE | {"pattern": "literal", "permission": "allow", "host": "*"}


@pytest.fixture
async def secure(make_world: MakeWorld) -> SecureWorld:
    secure = await secure_world(make_world)
    await secure.broker.create_topic("orders", partitions=1, overrides={})
    return secure


@pytest.fixture
async def admin(secure: SecureWorld) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(secure.broker) as client:
        client.headers.update(basic(ADMIN))
        yield client


@pytest.fixture
async def http(secure: SecureWorld) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(secure.broker) as client:
        yield client


async def test_a_user_is_created_shown_and_deleted(admin: httpx.AsyncClient, http: httpx.AsyncClient) -> None:
    created = await admin.post("/v1/users", json=ALICE)
    assert created.status_code == 201
    assert created.json()["mechanisms"] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert "secret" not in created.text
    assert [user["name"] for user in (await admin.get("/v1/users")).json()["users"]] == [ADMIN, "alice"]
    assert (await admin.post("/v1/users", json=ALICE)).status_code == 409
    me = await http.get("/v1/whoami", headers=basic("alice", "first secret"))
    assert me.json() == {
        "principal": "User:alice",
        "groups": [],
        "host": "127.0.0.1",
        "listener": "PUBLIC",
        "unrestricted": False,
        "super_user": False,
    }
    assert (await admin.get("/v1/whoami")).json()["super_user"] is True
    assert (await admin.delete("/v1/users/alice")).status_code == 204
    assert (await admin.delete("/v1/users/alice")).status_code == 404
    assert (await http.get("/v1/whoami", headers=basic("alice", "first secret"))).status_code == 401


async def test_users_change_their_own_password_and_no_other(admin: httpx.AsyncClient, http: httpx.AsyncClient) -> None:
    await admin.post("/v1/users", json=ALICE)
    first, second = basic("alice", "first secret"), basic("alice", "second secret")
    change = {"password": "second secret"}
    assert (await http.put("/v1/users/alice/password", json=change, headers=first)).status_code == 204
    assert (await http.get("/v1/whoami", headers=first)).status_code == 401
    assert (await http.get("/v1/whoami", headers=second)).status_code == 200
    assert (await http.put(f"/v1/users/{ADMIN}/password", json=change, headers=second)).status_code == 403
    assert (await http.put("/v1/users/nobody/password", json=change, headers=second)).status_code == 403
    assert (await admin.put("/v1/users/nobody/password", json=change)).status_code == 404


async def test_what_expires_or_was_lent_makes_no_credentials_that_last(
    secure: SecureWorld, admin: httpx.AsyncClient, http: httpx.AsyncClient
) -> None:
    """A key that got into wrong hands, or the token of a query, is over when it expires."""
    await admin.post("/v1/users", json=ALICE)
    alice = basic("alice", "first secret")
    lasting, expiring = [
        bearer((await http.post("/v1/keys", json=body, headers=alice)).json()["api_key"])
        for body in ({}, {"ttl_s": 60})
    ]
    assert secure.broker.security.tokens is not None
    lent = bearer(secure.broker.security.tokens.make(Principal(USER, "alice")))
    assert (await http.get("/v1/whoami", headers=lent)).json()["principal"] == "User:alice"
    for headers, may_make_keys in ((lasting, True), (expiring, False), (lent, False)):
        made = await http.post("/v1/keys", json={"ttl_s": 1}, headers=headers)
        assert made.status_code == (201 if may_make_keys else 403)
        changed = await http.put("/v1/users/alice/password", json={"password": "third secret"}, headers=headers)
        assert changed.status_code == 403
    assert (await http.get("/v1/whoami", headers=alice)).status_code == 200
    admins = bearer(secure.broker.security.tokens.make(Principal(USER, ADMIN)))
    for path, body in (("/v1/users", {**ALICE, "name": "bob"}), ("/v1/acls", {"acls": [RULE]}), ("/v1/keys", {})):
        assert (await http.post(path, json=body, headers=admins)).status_code == 403, path


async def test_users_have_keys_of_their_own(admin: httpx.AsyncClient, http: httpx.AsyncClient) -> None:
    await admin.post("/v1/users", json=ALICE)
    alice = basic("alice", "first secret")
    created = await http.post("/v1/keys", json={"description": "laptop", "ttl_s": 60}, headers=alice)
    assert created.status_code == 201
    key, text = created.json()["key"], created.json()["api_key"]
    assert (key["principal"], key["description"]) == ("User:alice", "laptop")
    assert (await http.get("/v1/whoami", headers=bearer(text))).json()["principal"] == "User:alice"
    other = (await admin.post("/v1/keys", json={})).json()["key"]
    assert (await http.get("/v1/keys", headers=alice)).json()["keys"] == [key]
    listed = (await admin.get("/v1/keys")).json()["keys"]
    assert sorted(each["key_id"] for each in listed) == sorted([key["key_id"], other["key_id"]])
    assert (await http.post("/v1/keys", json={"principal": f"User:{ADMIN}"}, headers=alice)).status_code == 403
    assert (await http.delete(f"/v1/keys/{other['key_id']}", headers=alice)).status_code == 403
    assert (await http.delete(f"/v1/keys/{key['key_id']}", headers=alice)).status_code == 204
    assert (await http.get("/v1/whoami", headers=bearer(text))).status_code == 401
    assert (await admin.delete(f"/v1/keys/{key['key_id']}")).status_code == 404


async def test_rules_hold_from_when_they_are_created_until_they_are_deleted(
    admin: httpx.AsyncClient, http: httpx.AsyncClient
) -> None:
    await admin.post("/v1/users", json=ALICE)
    alice = basic("alice", "first secret")
    assert (await http.get("/v1/topics/orders", headers=alice)).status_code == 403
    assert (await admin.post("/v1/acls", json={"acls": [RULE]})).status_code == 201
    assert (await http.get("/v1/topics/orders/partitions", headers=alice)).status_code == 200
    assert (await admin.get("/v1/acls")).json() == {"acls": [WHOLE_RULE]}
    assert (await admin.get("/v1/acls?principal=User:bob")).json() == {"acls": []}
    assert (await admin.get("/v1/acls?name=orders&matching=true")).json() == {"acls": [WHOLE_RULE]}
    assert (await admin.delete("/v1/acls?principal=User:alice")).json() == {"acls": [WHOLE_RULE]}
    assert (await http.get("/v1/topics/orders/partitions", headers=alice)).status_code == 403


async def test_no_rules_are_deleted_without_saying_which(admin: httpx.AsyncClient) -> None:
    await admin.post("/v1/acls", json={"acls": [RULE]})
    assert (await admin.delete("/v1/acls")).status_code == 422
    assert len((await admin.get("/v1/acls")).json()["acls"]) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"principal": "alice"},
        {"principal": "Agent:1"},
        {"operation": "dance"},
        {"resource_type": "planet"},
        {"pattern": "regex"},
        {"permission": "perhaps"},
        {"host": "somewhere"},
        {"resource_type": "group", "operation": "write"},
    ],
)
async def test_a_rule_that_makes_no_sense_is_refused_with_what_is_allowed(
    admin: httpx.AsyncClient, change: dict[str, Any]
) -> None:
    response = await admin.post("/v1/acls", json={"acls": [RULE, RULE | change]})
    assert response.status_code == 422
    assert "allowed=" in response.json()["detail"]
    assert (await admin.get("/v1/acls")).json() == {"acls": []}


async def test_roles_have_members(admin: httpx.AsyncClient) -> None:
    changed = await admin.post("/v1/roles/reader/members", json={"add": ["User:alice", "Group:ops"]})
    assert changed.json() == {"name": "reader", "members": ["Group:ops", "User:alice"]}
    await admin.post("/v1/roles/reader/members", json={"remove": ["Group:ops"]})
    assert (await admin.get("/v1/roles")).json() == {"roles": [{"name": "reader", "members": ["User:alice"]}]}
    assert (await admin.post("/v1/roles/reader/members", json={"add": ["Role:x"]})).status_code == 422


async def test_quotas_are_set_and_removed(admin: httpx.AsyncClient, secure: SecureWorld) -> None:
    entity = {"user": "alice", "client-id": "<default>"}
    limits = {"producer_byte_rate": 1e6, "consumer_byte_rate": 2e6}
    assert (await admin.put("/v1/quotas", json={"entity": entity, "limits": limits})).json() == {
        "entity": entity,
        "limits": limits,
    }
    change = {"entity": entity, "limits": {"producer_byte_rate": None}}
    assert (await admin.put("/v1/quotas", json=change)).json()["limits"] == {"consumer_byte_rate": 2e6}
    assert len((await admin.get("/v1/quotas")).json()["quotas"]) == 1
    assert (await admin.put("/v1/quotas", json={"entity": {"planet": "x"}, "limits": {}})).status_code in (400, 422)
    operator = await secure.user("operator", (Operation.ALTER, ResourceType.CLUSTER, "kafka-cluster"))
    async with serving(secure.broker) as http:
        assert (await http.get("/v1/quotas", headers=operator)).status_code == 403


async def test_without_access_control_rules_are_refused_with_the_setting(make_world: MakeWorld) -> None:
    broker = await (await make_world()).start()
    async with serving(broker) as http:
        response = await http.get("/v1/acls", headers=basic("nobody"))
        assert response.status_code in (401, 409)


async def test_records_are_published_only_with_schemas_that_the_caller_may_read(
    admin: httpx.AsyncClient, http: httpx.AsyncClient, secure: SecureWorld
) -> None:
    made = (await admin.post("/subjects/orders-value/versions", json={"schema": '"string"'})).json()["id"]
    write = (Operation.WRITE, ResourceType.TOPIC, "orders")
    nobody = await secure.user("nobody", write)
    reader = await secure.user("reader", write, (Operation.READ, ResourceType.SUBJECT, "orders-value"))

    async def publish(headers: Headers, schema_id: int) -> httpx.Response:
        body = {"records": [{"value": "v"}], "value_schema_id": schema_id}
        return await http.post("/v1/topics/orders/records", json=body, headers=headers)

    hidden, unknown = await publish(nobody, made), await publish(nobody, made + 1)
    assert (hidden.status_code, unknown.status_code) == (422, 422)
    results = [{**each.json(), "request_id": ""} for each in (hidden, unknown)]
    assert str(results[0]).replace(f"id {made}", "id") == str(results[1]).replace(f"id {made + 1}", "id")
    assert (await publish(reader, made)).status_code == 200


async def test_the_audit_log_says_what_was_changed(
    secure: SecureWorld, admin: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    await admin.post("/v1/users", json=ALICE)
    await admin.post("/v1/users", json=ALICE)  # it exists
    key = (await admin.post("/v1/keys", json={"principal": "User:alice"})).json()["key"]["key_id"]
    await admin.post("/v1/acls", json={"acls": [RULE, {**RULE, "permission": "deny", "host": "10.0.0.0/8"}]})
    await admin.delete("/v1/acls?principal=User:alice&permission=deny")
    await admin.post("/v1/roles/readers/members", json={"add": ["User:alice"]})
    await admin.put("/v1/quotas", json={"entity": {"user": "alice"}, "limits": {"producer_byte_rate": 1 << 20}})
    await admin.delete(f"/v1/keys/{key}")
    await admin.delete("/v1/users/alice")
    await admin.patch("/v1/topics/orders", json={"settings": {"retention.ms": 1000, "retention.bytes": 5}})
    caplog.set_level("INFO", "streamhouse.audit")
    caplog.clear()
    await secure.broker.security.audit.flush(nowhere, agent="a:9092")
    facts = [vars(each) for each in caplog.records if vars(each)["kind"] == "administration"]
    assert [(each["request"], each["details"], each["outcome"]) for each in facts] == [
        ("POST /v1/users", "user alice", "succeeded"),
        ("POST /v1/users", "user alice", "failed"),
        ("POST /v1/keys", f"key {key} of User:alice", "succeeded"),
        (
            "POST /v1/acls",
            "allow User:alice read topic orders; deny User:alice read topic orders from 10.0.0.0/8",
            "succeeded",
        ),
        ("DELETE /v1/acls", "deny User:alice read topic orders from 10.0.0.0/8", "succeeded"),
        ("POST /v1/roles/readers/members", "role readers; with User:alice", "succeeded"),
        ("PUT /v1/quotas", "user alice: producer_byte_rate=1048576", "succeeded"),
        (f"DELETE /v1/keys/{key}", f"key {key}", "succeeded"),
        ("DELETE /v1/users/alice", "user alice", "succeeded"),
        (
            "PATCH /v1/topics/orders",
            "topic orders: retention.bytes, retention.ms",
            "succeeded",
        ),
    ]
    assert "first secret" not in str(facts)


async def test_a_login_is_in_the_audit_log_once_not_with_each_request(
    secure: SecureWorld, admin: httpx.AsyncClient, http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    await admin.post("/v1/users", json=ALICE)
    alice = basic("alice", "first secret")
    key = bearer((await http.post("/v1/keys", json={}, headers=alice)).json()["api_key"])
    assert secure.broker.security.tokens is not None
    lent = bearer(secure.broker.security.tokens.make(Principal(USER, "alice")))
    for headers in (alice, key, lent, alice, key):
        assert (await http.get("/v1/whoami", headers=headers)).status_code == 200
    assert (await http.get("/v1/whoami", headers=basic("alice", "wrong"))).status_code == 401
    caplog.set_level("INFO", "streamhouse.audit")
    caplog.clear()
    await secure.broker.security.audit.flush(nowhere, agent="a:9092")
    logins = [vars(each) for each in caplog.records if vars(each)["kind"] == "login"]
    assert [(each["principal"], each["operation"], each["outcome"], each["count"]) for each in logins] == [
        (f"User:{ADMIN}", "password", "allowed", 1),
        ("User:alice", "password", "allowed", 1),
        ("User:alice", "token", "allowed", 1),
        ("alice", "password", "failed", 1),
    ]


async def nowhere(_: Sequence[bytes]) -> None: ...
