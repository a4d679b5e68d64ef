"""Confluent's registry client with a password and with tokens over TLS; librdkafka with a certificate as its login."""

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import confluent_kafka.admin
import httpx
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from tests.support.secure_agent import PASSWORD, SecureAgent

TEXT: Final = Schema('"string"', "AVRO")
TIMEOUT_S: Final = 20.0


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureAgent]:
    settings = {
        "http.protocol": "SASL_SSL",
        "security.tls_client_auth": "requested",
        "security.tls_principal_rules": "RULE:^CN=([a-z]+),.*$/$1/,DEFAULT",
    }
    folder = tmp_path_factory.mktemp("secure")
    secure = SecureAgent(folder, "SSL", settings)
    for name in ("admin", "bob"):
        secure.authority.issue(folder, name)
    with secure.live:
        yield secure
    assert PASSWORD not in secure.live.output


def registry(agent: SecureAgent, **login: str) -> SchemaRegistryClient:
    names = {name.replace("_", "."): value for name, value in login.items()}
    return SchemaRegistryClient({"url": f"https://{agent.live.http}", "ssl.ca.location": str(agent.ca), **names})


def test_a_password_and_tokens(agent: SecureAgent) -> None:
    url, admin = f"https://{agent.live.http}/v1/keys", ("admin", PASSWORD)
    with httpx.Client(verify=ssl.create_default_context(cafile=str(agent.ca)), trust_env=False) as http:
        key = http.post(url, json={}, auth=admin).json()["api_key"]
    logins = [
        {"basic_auth_user_info": f"admin:{PASSWORD}"},
        *(
            {
                "bearer_auth_credentials_source": "STATIC_TOKEN",
                "bearer_auth_token": token,
                "bearer_auth_logical_cluster": "lsrc-1",
                "bearer_auth_identity_pool_id": "pool-1",
            }
            for token in (key, agent.token())
        ),
    ]
    for number, login in enumerate(logins):
        with registry(agent, **login) as client:
            made = client.register_schema(f"subject-{number}", TEXT)
            assert client.get_schema(made).schema_str == TEXT.schema_str
            assert f"subject-{number}" in client.get_subjects()


@pytest.mark.parametrize("login", [{}, {"basic_auth_user_info": "admin:wrong"}])
def test_without_the_right_login_nothing_is_reported(agent: SecureAgent, login: dict[str, str]) -> None:
    with registry(agent, **login) as client, pytest.raises(SchemaRegistryError) as refused:
        client.get_subjects()
    assert (refused.value.http_status_code, refused.value.error_code) == (401, 40101)


def certified(agent: SecureAgent, name: str) -> dict[str, Any]:
    folder: Path = agent.folder
    return {
        "bootstrap.servers": agent.live.bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(agent.ca),
        "ssl.certificate.location": str(folder / f"{name}.pem"),
        "ssl.key.location": str(folder / f"{name}.key"),
    }


def test_the_user_of_a_certificate(agent: SecureAgent) -> None:
    api: Any = confluent_kafka.admin
    admin = api.AdminClient(certified(agent, "admin"))
    admin.create_topics([api.NewTopic("certified", 1, 1)])["certified"].result(TIMEOUT_S)
    bob = api.AdminClient(certified(agent, "bob"))
    assert "certified" in admin.list_topics(timeout=TIMEOUT_S).topics
    assert "certified" not in bob.list_topics(timeout=TIMEOUT_S).topics
    rule = api.AclBinding(
        api.ResourceType.TOPIC,
        "certified",
        api.ResourcePatternType.LITERAL,
        "User:bob",
        "*",
        api.AclOperation.READ,
        api.AclPermissionType.ALLOW,
    )
    for made in admin.create_acls([rule]).values():
        made.result(TIMEOUT_S)
    assert "certified" in bob.list_topics(timeout=TIMEOUT_S).topics
