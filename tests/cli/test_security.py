"""Commands for users, API keys, access rules, roles and quotas: what they send, and what they show."""

import json
from typing import Any

import httpx
import pytest

from tests.cli.conftest import Run
from tests.cli.fakes import World

ALICE = {"name": "alice", "created_at_ms": 1731672000000, "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"]}
KEY = {"key_id": "0f", "principal": "User:alice", "description": "load", "created_at_ms": 1731672000000}
RULE = {
    "principal": "User:alice",
    "operation": "read",
    "resource_type": "topic",
    "name": "orders",
    "pattern": "literal",
    "permission": "allow",
    "host": "*",
}
SHOWN = ["allow", "User:alice", "read", "topic", "orders", "literal", "*"]


class Requests(list[tuple[str, str, Any]]):
    """Requests: method, path with query, and body; each path gets its response."""

    def __init__(self, world: World, **responses: Any) -> None:
        for name, response in responses.items():
            world.http[f"/v1/{name.replace('__', '/')}"] = self._answering(response)

    def _answering(self, response: Any) -> Any:
        def respond(request: httpx.Request) -> httpx.Response:
            body = json.loads(request.content) if request.content else None
            self.append((request.method, request.url.raw_path.decode(), body))
            return response if isinstance(response, httpx.Response) else httpx.Response(200, json=response)

        return respond


def test_a_user_is_created_with_a_password_from_stdin(run: Run, world: World) -> None:
    sent = Requests(world, users=ALICE)
    result = run("users", "create", "alice", "--password-stdin", stdin="hunter22\n")
    assert result.exit_code == 0
    assert sent == [("POST", "/v1/users", {"name": "alice", "password": "hunter22"})]
    assert result.stdout == "created the user alice\n"
    assert "hunter22" not in result.output


def test_without_a_terminal_a_password_is_not_requested(run: Run) -> None:
    result = run("users", "create", "alice")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--password-stdin" in result.stderr
    assert "the password is empty" in run("users", "create", "alice", "--password-stdin", stdin="\n").stderr


def test_a_user_that_exists_is_an_error(run: Run, world: World) -> None:
    body = {"title": "UserExists", "detail": "the user exists; user='alice'"}
    Requests(world, users=httpx.Response(409, json=body))
    result = run("users", "create", "alice", "--password-stdin", stdin="hunter22")
    assert (result.exit_code, result.stderr) == (1, "error: the user exists; user='alice'\n")


def test_users_are_listed_and_deleted(run: Run, world: World) -> None:
    sent = Requests(world, users={"users": [ALICE]}, users__alice=httpx.Response(204))
    assert "alice  SCRAM-SHA-256, SCRAM-SHA-512  2024-11-15" in run("users", "list").stdout
    assert json.loads(run("users", "list", "--json").stdout) == {"users": [ALICE]}
    assert run("users", "delete", "alice", stdin="n\n").exit_code == 1
    assert run("users", "delete", "alice", "--yes").stdout == "deleted the user alice\n"
    assert sent[-1] == ("DELETE", "/v1/users/alice", None)


def test_a_key_is_the_only_line_of_its_creation(run: Run, world: World) -> None:
    sent = Requests(world, keys={"key": KEY, "api_key": "shk_0f_1"}, keys__0f=httpx.Response(204))
    result = run("keys", "create", "--for", "User:alice", "--expires", "90d", "--description", "load")
    assert (result.exit_code, result.stdout) == (0, "shk_0f_1\n")
    assert sent[0][2] == {"principal": "User:alice", "description": "load", "ttl_s": 90 * 86400}
    assert run("keys", "revoke", "0f").stdout == "revoked the key 0f\n"
    assert sent[-1] == ("DELETE", "/v1/keys/0f", None)
    assert "--expires" in run("keys", "create", "--expires", "soon").stderr


def test_keys_are_listed_without_secrets(run: Run, world: World) -> None:
    Requests(world, keys={"keys": [KEY]})
    assert run("keys", "list").stdout.splitlines()[1].split()[:3] == ["0f", "User:alice", "load"]


def test_rules_are_the_product_of_what_options_name(run: Run, world: World) -> None:
    sent = Requests(world, acls={"acls": []})
    options = ["--allow", "User:alice", "--operation", "READ", "--operation", "write"]
    result = run("acls", "create", *options, "--topic", "orders", "--group", "billing")
    assert result.exit_code == 0, result.stderr
    (method, path, body) = sent[0]
    assert (method, path) == ("POST", "/v1/acls")
    named = [(rule["operation"], rule["resource_type"], rule["name"]) for rule in body["acls"]]
    assert named == [("read", "topic", "orders"), ("write", "topic", "orders"), ("read", "group", "billing")]
    assert body["acls"][0] == RULE
    assert "created 3 rules" in result.stderr


def test_prefixes_denials_hosts_and_the_cluster(run: Run, world: World) -> None:
    sent = Requests(world, acls={"acls": []})
    options = ["--deny", "User:bob", "--operation", "describe", "--cluster", "--topic", "etl-", "--prefixed"]
    assert run("acls", "create", *options, "--host", "10.0.0.0/8").exit_code == 0
    topic, cluster = sent[0][2]["acls"]
    assert (topic["pattern"], topic["permission"], topic["host"]) == ("prefixed", "deny", "10.0.0.0/8")
    assert (cluster["name"], cluster["pattern"]) == ("kafka-cluster", "literal")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--operation", "read", "--topic", "a"], "name a principal with"),
        (["--allow", "User:a", "--operation", "read"], "name a resource with"),
        (["--allow", "User:a", "--topic", "a"], "name operations, one or more of"),
        (
            ["--allow", "User:a", "--topic", "a", "--operation", "run-code"],
            "is not an operation of these resources; allowed: topic",
        ),
    ],
)
def test_what_is_missing_in_a_rule_is_said(run: Run, options: list[str], said: str) -> None:
    result = run("acls", "create", *options)
    assert result.exit_code == 2
    assert said in result.stderr


def test_rules_are_selected_and_deleted(run: Run, world: World) -> None:
    sent = Requests(world, acls={"acls": [RULE]})
    assert run("acls", "list").stdout.splitlines()[1].split() == [
        "allow",
        "User:alice",
        "read",
        "topic",
        "orders",
        "literal",
        "*",
    ]
    run("acls", "list", "--topic", "orders", "--matching")
    assert sent[-1][:2] == ("GET", "/v1/acls?resource_type=topic&name=orders&matching=true")
    assert run("acls", "delete", "--principal", "User:alice", "--topic", "o", "--yes").stdout == "deleted 1 rule\n"
    assert sent[-1][:2] == ("DELETE", "/v1/acls?principal=User%3Aalice&resource_type=topic&name=o&pattern=literal")
    assert run("acls", "delete", "--yes").exit_code == 2


def test_roles_have_members(run: Run, world: World) -> None:
    role = {"name": "etl", "members": ["User:alice"]}
    sent = Requests(world, roles={"roles": [role]}, roles__etl__members=role)
    assert run("roles", "list").stdout.splitlines()[1].split() == ["etl", "User:alice"]
    assert run("roles", "add", "etl", "User:alice").stdout == "etl: User:alice\n"
    assert sent[-1] == ("POST", "/v1/roles/etl/members", {"add": ["User:alice"], "remove": []})
    assert run("roles", "remove", "etl", "User:bob").exit_code == 0
    assert sent[-1][2] == {"add": [], "remove": ["User:bob"]}


def test_quotas_are_set_in_the_units_that_people_write(run: Run, world: World) -> None:
    quota = {"entity": {"user": "alice"}, "limits": {"producer_byte_rate": 1048576.0}}
    sent = Requests(world, quotas=quota)
    result = run("quotas", "set", "--for-user", "alice", "producer_byte_rate=1MiB", "consumer_byte_rate=")
    assert result.exit_code == 0, result.stderr
    limits = {"producer_byte_rate": 1048576.0, "consumer_byte_rate": None}
    assert sent == [("PUT", "/v1/quotas", {"entity": {"user": "alice"}, "limits": limits})]
    assert "producer_byte_rate=1048576" in result.stdout
    run("quotas", "set", "--default-ip", "connection_creation_rate=10")
    assert sent[-1][2]["entity"] == {"ip": "<default>"}
    assert run("quotas", "set", "producer_byte_rate=1").exit_code == 2


def test_quotas_are_listed(run: Run, world: World) -> None:
    Requests(world, quotas={"quotas": [{"entity": {"user": "a", "client-id": "b"}, "limits": {}}]})
    assert "user a, client-id b  none" in run("quotas", "list").stdout


def test_a_password_is_changed(run: Run, world: World) -> None:
    sent = Requests(world, users__alice__password=httpx.Response(204))
    result = run("users", "passwd", "alice", "--password-stdin", stdin="hunter23\n")
    assert (result.exit_code, result.stdout) == (0, "changed the password of alice\n")
    assert sent == [("PUT", "/v1/users/alice/password", {"password": "hunter23"})]
    assert "hunter23" not in result.output


def test_who_the_agent_takes_the_caller_for(run: Run, world: World) -> None:
    me = {"principal": "User:alice", "groups": ["Group:ops"], "host": "10.0.0.7", "listener": "PUBLIC"}
    Requests(world, whoami=me | {"unrestricted": False})
    result = run("whoami")
    assert result.stdout == "User:alice\n"
    assert result.stderr == "from 10.0.0.7 through the listener PUBLIC; groups Group:ops\n"
    assert json.loads(run("whoami", "--json").stdout)["principal"] == "User:alice"


def test_a_tenant_is_its_first_user_with_rules_about_its_names(run: Run, world: World) -> None:
    sent = Requests(world, users={"name": "acme~admin", "created_at_ms": 0, "mechanisms": []}, acls={"acls": []})
    result = run("tenants", "create", "acme", "--password-stdin", stdin="a password\n")
    assert result.exit_code == 0, result.stderr
    assert sent[0] == ("POST", "/v1/users", {"name": "acme~admin", "password": "a password"})
    rules = sent[1][2]["acls"]
    assert {rule["principal"] for rule in rules} == {"User:acme~admin"}
    assert {(rule["resource_type"], rule["name"], rule["pattern"]) for rule in rules} >= {
        ("cluster", "acme~kafka-cluster", "literal"),
        ("topic", "acme~", "prefixed"),
        ("user", "User:acme~", "prefixed"),
    }
    assert all("acme~" in rule["name"] for rule in rules)
    assert "is not a valid tenant name" in run("tenants", "create", "Acme", "--password-stdin", stdin="x").stderr


def test_tenants_are_listed_by_their_users(run: Run, world: World) -> None:
    names = ["acme~admin", "acme~alice", "beta~admin", "carol"]
    Requests(world, users={"users": [{"name": each, "created_at_ms": 0, "mechanisms": []} for each in names]})
    assert [line.split() for line in run("tenants", "list").stdout.splitlines()[1:]] == [["acme", "2"], ["beta", "1"]]
