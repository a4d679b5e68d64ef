"""librdkafka gets its tokens from an OpenID provider by itself; the agent believes only those that are for it."""

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from confluent_kafka.cimpl import NewTopic

from tests.compat.test_secure_clients import TIMEOUT_S, Clients, wait_until
from tests.support.oidc_provider import AUDIENCE, PROGRAM, USER, OidcProvider, running_provider

TOPIC = "orders"


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OidcProvider]:
    with running_provider(tmp_path_factory.mktemp("provider")) as provider:
        yield provider


@pytest.fixture(scope="module")
def agent(provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    agent = Clients(tmp_path_factory.mktemp("agent"), "SASL_SSL", provider.settings)
    with agent.live:
        admin = confluent_kafka.admin.AdminClient(agent.confluent("SCRAM-SHA-512"))
        api: Any = confluent_kafka.admin  # whose stubs leave out half of it
        rule = api.AclBinding(
            api.ResourceType.TOPIC,
            TOPIC,
            api.ResourcePatternType.LITERAL,
            f"User:{USER}",
            "*",
            api.AclOperation.WRITE,
            api.AclPermissionType.ALLOW,
        )
        for made in (*admin.create_topics([NewTopic(TOPIC, 1)]).values(), *admin.create_acls([rule]).values()):
            made.result(TIMEOUT_S)
        yield agent
    assert PROGRAM[1] not in agent.live.output


def program(agent: Clients, provider: OidcProvider, errors: list[Any]) -> confluent_kafka.Producer:
    name, secret = PROGRAM
    return confluent_kafka.Producer(
        {
            "bootstrap.servers": agent.live.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(agent.ca),
            "sasl.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": name,
            "sasl.oauthbearer.client.secret": secret,
            "sasl.oauthbearer.token.endpoint.url": f"{provider.origin}/token",
            "https.ca.location": str(provider.ca),
            "error_cb": errors.append,
        }
    )


def test_a_program_is_the_user_of_its_token(agent: Clients, provider: OidcProvider) -> None:
    outcomes: list[Any] = []
    errors: list[Any] = []
    producer = program(agent, provider, errors)
    producer.produce(TOPIC, b"value", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(TIMEOUT_S)
    assert (outcomes, errors) == ([None], [])


def test_a_token_for_somebody_else_is_refused(agent: Clients, provider: OidcProvider) -> None:
    provider.audience = "another service"
    errors: list[Any] = []
    try:
        producer = program(agent, provider, errors)
        wait_until(lambda: producer.poll(0.1) or errors)
    finally:
        provider.audience = AUDIENCE
    assert any(error.code() == confluent_kafka.KafkaError._AUTHENTICATION for error in errors), errors
