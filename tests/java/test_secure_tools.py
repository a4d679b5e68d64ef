"""Kafka's own tools on an agent that asks them to log in: users, rules, and what rules change."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.kafka_jars import java
from tests.java.conftest import JVM_FLAGS, Java
from tests.support.oidc_provider import PROGRAM, USER, running_provider
from tests.support.secure_agent import PASSWORD, SecureAgent

CONFIGS = "kafka.admin.ConfigCommand"
OAUTH = "org.apache.kafka.common.security.oauthbearer"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureAgent]:
    secure = SecureAgent(tmp_path_factory.mktemp("secure"), "SASL_SSL")
    with secure.live:
        yield secure
        assert "Traceback" not in secure.live.output


def as_user(folder: Path, agent: SecureAgent, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> str:
    """A file with the settings by which a tool logs in."""
    path = folder / f"{user}-{mechanism}.properties"
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    path.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={agent.ca}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{module}LoginModule required "
        f'username="{user}" password="{password}";\n'
    )
    return str(path)


def test_a_client_is_the_user_of_its_certificate(jars: str, tmp_path: Path) -> None:
    settings = {
        "security.tls_client_auth": "required",
        "security.tls_principal_rules": "RULE:^.*CN=([a-z]+).*$/$1/,DEFAULT",
    }
    agent = SecureAgent(tmp_path, "SSL", settings)
    files = {}
    for name in ("admin", "nobody"):
        agent.authority.issue(tmp_path, name)
        store = tmp_path / f"{name}-store.pem"
        store.write_text((tmp_path / f"{name}.key").read_text() + (tmp_path / f"{name}.pem").read_text())
        files[name] = tmp_path / f"{name}.properties"
        files[name].write_text(
            f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={agent.ca}\n"
            f"ssl.keystore.type=PEM\nssl.keystore.location={store}\n"
        )
    with agent.live:
        tools = Java(command=(java(), *JVM_FLAGS, "-cp", jars), bootstrap=agent.live.bootstrap)
        admin, nobody = (("--command-config", str(files[name])) for name in ("admin", "nobody"))
        tools.tool("TopicCommand", *admin, "--create", "--topic", "orders", "--partitions", "1")
        assert "orders" in tools.tool("TopicCommand", *admin, "--list")
        assert "orders" not in tools.tool("TopicCommand", *nobody, "--list")
        files["nobody"].write_text(files["nobody"].read_text().partition("ssl.keystore")[0])
        assert "SslAuthenticationException" in tools.tool("TopicCommand", *nobody, "--list", fails=True)


def test_the_java_client_gets_tokens_from_an_openid_provider(jars: str, tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    with running_provider(tmp_path) as provider:
        agent = SecureAgent(tmp_path / "agent", "SASL_SSL", provider.settings)
        endpoint, (name, secret) = f"{provider.origin}/token", PROGRAM
        settings = tmp_path / "token.properties"
        settings.write_text(
            f"security.protocol=SASL_SSL\nssl.truststore.type=PEM\nssl.truststore.location={agent.ca}\n"
            f"sasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url={endpoint}\n"
            f"sasl.login.callback.handler.class={OAUTH}.OAuthBearerLoginCallbackHandler\n"
            f"sasl.jaas.config={OAUTH}.OAuthBearerLoginModule required "
            f'clientId="{name}" clientSecret="{secret}" '
            f'ssl.truststore.type="PEM" ssl.truststore.location="{provider.ca}";\n'
        )
        admin = as_user(tmp_path, agent, "admin", PASSWORD)
        with agent.live:
            allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={endpoint}"
            tools = Java(command=(java(), *JVM_FLAGS, allowed, "-cp", jars), bootstrap=agent.live.bootstrap)
            tools.tool("TopicCommand", "--command-config", admin, "--create", "--topic", "orders", "--partitions", "1")
            listing = ("TopicCommand", "--command-config", str(settings), "--list")
            assert "orders" not in tools.tool(*listing)
            rule = ("--allow-principal", f"User:{USER}", "--operation", "Describe", "--topic", "orders")
            tools.tool("AclCommand", "--command-config", admin, "--add", *rule)
            assert "orders" in tools.tool(*listing)


def test_users_and_rules(secure: SecureAgent, jars: str, tmp_path: Path) -> None:
    tools = Java(command=(java(), *JVM_FLAGS, "-cp", jars), bootstrap=secure.live.bootstrap)
    admin = as_user(tmp_path, secure, "admin", PASSWORD)
    tools.tool("TopicCommand", "--command-config", admin, "--create", "--topic", "orders", "--partitions", "1")
    bob = ("--entity-type", "users", "--entity-name", "bob")
    tools.tool(CONFIGS, "--command-config", admin, "--alter", *bob, "--add-config", "SCRAM-SHA-256=[password=secret]")
    assert "SCRAM-SHA-256" in tools.tool(CONFIGS, "--command-config", admin, "--describe", *bob)
    limited = as_user(tmp_path, secure, "bob", "secret", "SCRAM-SHA-256")
    assert "orders" not in tools.tool("TopicCommand", "--command-config", limited, "--list")
    rule = ("--allow-principal", "User:bob", "--operation", "Read", "--topic", "ord", "--resource-pattern-type")
    tools.tool("AclCommand", "--command-config", admin, "--add", *rule, "prefixed")
    listed = tools.tool("AclCommand", "--command-config", admin, "--list")
    assert "patternType=PREFIXED" in listed
    assert "principal=User:bob" in listed
    plain = as_user(tmp_path, secure, "bob", "secret", "PLAIN")
    assert "orders" in tools.tool("TopicCommand", "--command-config", plain, "--list")
    refused = tools.tool("AclCommand", "--command-config", limited, "--list", fails=True)
    assert "ClusterAuthorizationException" in refused
    tools.tool("AclCommand", "--command-config", admin, "--remove", "--force", *rule, "prefixed")
    assert "orders" not in tools.tool("TopicCommand", "--command-config", limited, "--list")
