"""DescribeConfigs: the settings of topics and of the agent, with where they come from."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec import structs

from streamhouse.broker.catalog.dynamic_settings import find_agent_setting
from streamhouse.config import AgentSettings, KafkaSettings, SecuritySettings, Settings, TopicSettings
from streamhouse.model.names import NodeId
from streamhouse.model.topic_settings import TOPIC_SETTINGS
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tests.wire.kafka.talk import Client, Served, a_broker, a_server, create_topic, quick_settings

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
OWN, THIS, ALL, STATIC, DEFAULT = 1, 2, 3, 4, 5


@pytest.fixture
def settings(kafka_settings: KafkaSettings) -> Settings:
    quick = quick_settings(kafka_settings)
    return Settings(kafka=quick.kafka, wal=quick.wal, flush=quick.flush, topics=TopicSettings(default_partitions=3))


async def describe(
    client: Client, kind: int, name: str, *, keys: list[str] | None = None, version: int = 4, full: bool = True
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)],
        include_synonyms=full,
        include_documentation=full and version >= 3,
    )
    (result,) = (await client.call(request, DescribeConfigsResponse, version)).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def by_name(result: DescribeConfigsResult) -> Mapping[str, DescribeConfigsResourceResult]:
    assert result.error_code == ErrorCode.NONE, result.error_message
    return {config.name: config for config in result.configs}


def synonyms(config: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, each.source) for each in config.synonyms]


async def test_what_another_agent_has_changed_is_reported_though_nobody_has_heard_of_it_yet(
    client: Client, served: Served
) -> None:
    await create_topic(client, "orders", configs=[("retention.ms", "5000")])
    topic = await served.broker.topic("orders")
    store = served.broker._dependencies.metadata
    await store.alter_topic(topic.topic_id, expected=topic.overrides, overrides={"retention.ms": "7000"})
    assert by_name(await describe(client, TOPIC, "orders"))["retention.ms"].value == "7000"


@pytest.mark.parametrize("version", range(1, 5))
async def test_every_version_shows_a_topics_settings(client: Client, version: int) -> None:
    await create_topic(client, "orders", configs=[("retention.ms", "5000")])
    result = by_name(await describe(client, TOPIC, "orders", version=version))
    assert set(result) == set(TOPIC_SETTINGS)
    own, default = result["retention.ms"], result["cleanup.policy"]
    assert (own.value, own.config_source, own.read_only, own.is_sensitive) == ("5000", OWN, False, False)
    assert (default.value, default.config_source) == ("delete", DEFAULT)
    assert synonyms(own) == [("retention.ms", "5000", OWN)]
    assert synonyms(default) == [("log.cleanup.policy", "delete", DEFAULT)]
    assert synonyms(result["segment.ms"]) == []
    if version >= 3:
        assert (own.config_type, default.config_type) == (5, 7)
        assert own.documentation == TOPIC_SETTINGS["retention.ms"].about


async def test_synonyms_and_documentation_only_when_requested(client: Client) -> None:
    await create_topic(client, "orders")
    result = by_name(await describe(client, TOPIC, "orders", full=False))
    assert all(config.synonyms == [] and config.documentation is None for config in result.values())


async def test_settings_by_name_and_no_names_are_all(client: Client) -> None:
    await create_topic(client, "orders")
    some = by_name(await describe(client, TOPIC, "orders", keys=["retention.ms", "no.such", "segment.bytes"]))
    assert set(some) == {"retention.ms", "segment.bytes"}
    assert set(by_name(await describe(client, TOPIC, "orders", keys=[]))) == set(TOPIC_SETTINGS)


@pytest.mark.parametrize("version", range(1, 5))
async def test_every_version_shows_the_agents_settings(client: Client, served: Served, version: int) -> None:
    actual = by_name(await describe(client, BROKER, str(served.broker.node_id), version=version))
    result = {name: (config.value, config.config_source) for name, config in actual.items()}
    assert result["num.partitions"] == ("3", STATIC)
    assert result["auto.create.topics.enable"] == ("true", DEFAULT)
    assert result["group.min.session.timeout.ms"] == ("6000", DEFAULT)
    assert result["offsets.retention.minutes"] == ("10080", DEFAULT)
    assert result["log.retention.ms"] == ("604800000", DEFAULT)
    assert result["advertised.listeners"] == (f"PLAINTEXT://{served.host}:{served.port}", STATIC)
    assert result["broker.id"] == (str(served.broker.node_id), STATIC)
    assert synonyms(actual["num.partitions"]) == [("num.partitions", "3", STATIC), ("num.partitions", "1", DEFAULT)]
    assert not actual["num.partitions"].read_only
    assert not actual["log.retention.ms"].read_only
    assert all(actual[name].read_only for name in ("broker.id", "log.dirs", "offsets.topic.num.partitions"))
    if version >= 3:
        assert "topics.default_partitions" in (actual["num.partitions"].documentation or "")
        assert all(config.documentation for config in actual.values())


async def test_the_rack_of_a_broker_is_the_agents_zone(tmp_path: Path, settings: Settings) -> None:
    zoned = structs.replace(settings, agent=AgentSettings(zone="eu-1b"))
    async with a_broker(tmp_path, zoned) as broker, a_server(broker, zoned) as served:
        configs = by_name(await describe(await served.client(), BROKER, str(broker.node_id)))
        assert (configs["broker.rack"].value, configs["broker.rack"].config_source) == ("eu-1b", STATIC)
        assert configs["broker.rack"].read_only


async def test_nothing_was_changed_for_all_brokers(client: Client) -> None:
    assert by_name(await describe(client, BROKER, "")) == {}


async def change(served: Served, node_id: NodeId | None, **configs: str) -> None:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    await served.broker.topic_admin.alter_agent(node_id, lambda _: named)


async def test_all_brokers_show_what_was_changed_for_all_and_nothing_else(client: Client, served: Served) -> None:
    await change(served, None, num_partitions="4", log_retention_ms="9")
    await change(served, served.broker.node_id, num_partitions="5")
    result = by_name(await describe(client, BROKER, ""))
    assert {name: (config.value, config.config_source, config.read_only) for name, config in result.items()} == {
        "num.partitions": ("4", ALL, False),
        "log.retention.ms": ("9", ALL, False),
    }
    assert synonyms(result["num.partitions"]) == [("num.partitions", "4", ALL)]
    assert (result["num.partitions"].config_type, bool(result["num.partitions"].documentation)) == (3, True)


async def test_a_broker_shows_every_value_that_a_setting_was_given_strongest_first(
    client: Client, served: Served
) -> None:
    node = served.broker.node_id
    await change(served, None, num_partitions="4")
    result = by_name(await describe(client, BROKER, str(node)))["num.partitions"]
    below = [("num.partitions", "4", ALL), ("num.partitions", "3", STATIC), ("num.partitions", "1", DEFAULT)]
    assert (result.value, result.config_source, synonyms(result)) == ("4", ALL, below)
    await change(served, node, num_partitions="5")
    result = by_name(await describe(client, BROKER, str(node)))["num.partitions"]
    assert (result.value, result.config_source) == ("5", THIS)
    assert synonyms(result) == [("num.partitions", "5", THIS), *below]


async def test_a_topic_follows_the_defaults_that_were_changed(client: Client, served: Served) -> None:
    await create_topic(client, "orders", configs=[("retention.bytes", "7")])
    await change(served, None, log_retention_ms="9", log_retention_bytes="8", log_cleanup_policy="compact")
    await change(served, served.broker.node_id, log_cleanup_policy="delete,compact")
    actual = by_name(await describe(client, TOPIC, "orders"))
    result = {name: (config.value, config.config_source, synonyms(config)) for name, config in actual.items()}
    assert result["retention.ms"] == ("9", ALL, [("log.retention.ms", "9", ALL)])
    assert result["retention.bytes"] == (
        "7",
        OWN,
        [("retention.bytes", "7", OWN), ("log.retention.bytes", "8", ALL), ("log.retention.bytes", "-1", DEFAULT)],
    )
    assert result["cleanup.policy"][:2] == ("delete,compact", THIS)
    assert [source for _, _, source in result["cleanup.policy"][2]] == [THIS, ALL, DEFAULT]


async def test_what_has_no_effect_says_so(client: Client, served: Served) -> None:
    node = str(served.broker.node_id)
    assert "cleanup.policy" not in by_name(await describe(client, BROKER, node))
    kept = {"background.threads": "9", "cleanup.policy": "delete", "sasl.kerberos.min.time.before.relogin": "1"}
    await served.broker.topic_admin.alter_agent(served.broker.node_id, lambda _: kept)
    result = by_name(await describe(client, BROKER, node))
    for name, value in kept.items():
        assert (result[name].value, result[name].config_source) == (value, THIS)
        assert "without effect" in (result[name].documentation or "")


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "99", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (BROKER, "9" * 5000, ErrorCode.INVALID_REQUEST),
        (LOGGER, "1", ErrorCode.INVALID_REQUEST),
        (0, "x", ErrorCode.INVALID_REQUEST),
        (-128, "x", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_has_no_settings_is_refused_with_a_short_reason(
    client: Client, kind: int, name: str, code: ErrorCode
) -> None:
    result = await describe(client, kind, name)
    assert (result.error_code, result.configs) == (code, [])
    assert 0 < len(result.error_message or "") <= 500


async def test_a_short_request_asked_a_thousand_times_has_one_long_response(client: Client) -> None:
    await create_topic(client, "orders")
    one = DescribeConfigsResource(resource_type=TOPIC, resource_name="orders", configuration_keys=None)
    response = await client.call(DescribeConfigsRequest(resources=[one] * 1000), DescribeConfigsResponse, 4)
    assert [result.resource_name for result in response.results] == ["orders"]


async def test_several_resources_in_one_request(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    requests = [(TOPIC, "orders"), (BROKER, str(served.broker.node_id)), (TOPIC, "missing")]
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in requests
    ]
    response = await client.call(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse, 4)
    assert [result.error_code for result in response.results] == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("kind", [METRICS, GROUP])
async def test_what_could_have_settings_but_has_none_gets_that_error(client: Client, kind: int) -> None:
    assert by_name(await describe(client, kind, "any")) == {}


def test_the_time_after_which_clients_must_log_in_again_has_kafkas_name() -> None:
    setting = find_agent_setting("connections.max.reauth.ms")
    assert setting.default == "0"
    assert setting.text(Settings(security=SecuritySettings(max_reauth_s=10.0))) == "10000"
