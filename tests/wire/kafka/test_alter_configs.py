"""AlterConfigs: the settings of a topic, or those changed of a broker, are replaced."""

import pytest

from streamhouse.broker.catalog.kafka_configs import Overrides
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from tests.wire.kafka.talk import Client, Served, a_batch, create_topic, produce

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


def resource(kind: int, name: str, *configs: tuple[str, str | None]) -> AlterConfigsResource:
    settings = [AlterableConfig(name=key, value=value) for key, value in configs]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=settings)


async def alter(
    client: Client, *resources: AlterConfigsResource, version: int = 2, dry_run: bool = False
) -> list[AlterConfigsResourceResponse]:
    request = AlterConfigsRequest(resources=list(resources), validate_only=dry_run)
    return (await client.call(request, AlterConfigsResponse, version)).responses


async def overrides(served: Served, name: str = "orders") -> dict[str, str]:
    return dict((await served.broker.topic(name)).overrides)


async def changed(served: Served) -> Overrides:
    return await served.broker.topic_admin.changed()


@pytest.mark.parametrize("version", range(3))
async def test_every_version_replaces_all_settings(client: Client, served: Served, version: int) -> None:
    await create_topic(client, "orders", configs=[("retention.ms", "5000"), ("segment.bytes", "1000")])
    (done,) = await alter(client, resource(TOPIC, "orders", ("retention.ms", "7000")), version=version)
    assert (done.error_code, done.error_message) == (ErrorCode.NONE, None)
    assert (done.resource_type, done.resource_name) == (TOPIC, "orders")
    assert await overrides(served) == {"retention.ms": "7000"}


async def test_without_settings_the_defaults_hold_again(client: Client, served: Served) -> None:
    await create_topic(client, "orders", configs=[("retention.ms", "5000")])
    await alter(client, resource(TOPIC, "orders"))
    assert await overrides(served) == {}


async def test_an_open_log_obeys_at_once(client: Client) -> None:
    await create_topic(client, "orders")
    (pending,) = await produce(client, "orders", (0, a_batch(b"x" * 500)))
    assert pending.error_code == ErrorCode.NONE
    await alter(client, resource(TOPIC, "orders", ("max.message.bytes", "200")))
    (refused,) = await produce(client, "orders", (0, a_batch(b"x" * 500)))
    assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE


REFUSED: dict[str, tuple[AlterConfigsResource, ErrorCode]] = {
    "unknown setting": (resource(TOPIC, "orders", ("no.such", "1")), ErrorCode.INVALID_CONFIG),
    "bad value": (resource(TOPIC, "orders", ("retention.ms", "soon")), ErrorCode.INVALID_CONFIG),
    "good and bad": (
        resource(TOPIC, "orders", ("segment.bytes", "100"), ("retention.ms", "")),
        ErrorCode.INVALID_CONFIG,
    ),
    "no value": (resource(TOPIC, "orders", ("retention.ms", None)), ErrorCode.INVALID_REQUEST),
    "twice": (resource(TOPIC, "orders", ("retention.ms", "1"), ("retention.ms", "2")), ErrorCode.INVALID_REQUEST),
    "unknown topic": (resource(TOPIC, "missing", ("retention.ms", "1")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "illegal topic": (resource(TOPIC, "a/b", ("retention.ms", "1")), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "unknown setting of this broker": (resource(BROKER, "1", ("no.such", "1")), ErrorCode.INVALID_CONFIG),
    "unknown setting of all brokers": (resource(BROKER, "", ("num.network.threads", "1")), ErrorCode.INVALID_CONFIG),
    "fixed setting": (resource(BROKER, "", ("offsets.topic.num.partitions", "2")), ErrorCode.INVALID_REQUEST),
    "fact": (resource(BROKER, "1", ("advertised.listeners", "PLAINTEXT://a:1")), ErrorCode.INVALID_REQUEST),
    "bad value of a broker": (resource(BROKER, "1", ("num.partitions", "0")), ErrorCode.INVALID_REQUEST),
    "endless value of a broker": (
        resource(BROKER, "1", ("num.partitions", " " * 10_000 + "1")),
        ErrorCode.INVALID_REQUEST,
    ),
    "good and bad of a broker": (
        resource(BROKER, "", ("log.retention.ms", "100"), ("num.partitions", "many")),
        ErrorCode.INVALID_REQUEST,
    ),
    "too many partitions": (resource(BROKER, "", ("num.partitions", "1000000")), ErrorCode.INVALID_REQUEST),
    "contradicting timeouts": (
        resource(BROKER, "", ("group.max.session.timeout.ms", "10"), ("group.min.session.timeout.ms", "11")),
        ErrorCode.INVALID_REQUEST,
    ),
    "contradicting lags": (
        resource(BROKER, "", ("log.cleaner.min.compaction.lag.ms", "11"), ("log.cleaner.max.compaction.lag.ms", "10")),
        ErrorCode.INVALID_REQUEST,
    ),
    "no value of a broker": (resource(BROKER, "1", ("log.retention.ms", None)), ErrorCode.INVALID_REQUEST),
    "twice of a broker": (
        resource(BROKER, "1", ("log.retention.ms", "1"), ("log.retention.ms", "2")),
        ErrorCode.INVALID_REQUEST,
    ),
    "another broker": (resource(BROKER, "99", ("log.retention.ms", "1")), ErrorCode.INVALID_REQUEST),
    "no broker": (resource(BROKER, "one", ("log.retention.ms", "1")), ErrorCode.INVALID_REQUEST),
    "logger": (resource(LOGGER, "1", ("root", "DEBUG")), ErrorCode.INVALID_REQUEST),
    "client metrics": (resource(METRICS, "m", ("interval.ms", "1")), ErrorCode.INVALID_REQUEST),
    "group": (resource(GROUP, "g", ("consumer.session.timeout.ms", "1")), ErrorCode.INVALID_REQUEST),
    "unknown type": (resource(99, "x"), ErrorCode.INVALID_REQUEST),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_what_makes_no_sense_is_refused_with_a_reason_and_changes_nothing(
    client: Client, served: Served, what: str
) -> None:
    await create_topic(client, "orders", configs=[("retention.ms", "5000")])
    await create_topic(client, "good")
    request, code = REFUSED[what]
    bad, good = await alter(client, request, resource(TOPIC, "good", ("retention.ms", "9")))
    assert (bad.error_code, good.error_code) == (code, ErrorCode.NONE)
    assert bad.error_message
    assert await overrides(served) == {"retention.ms": "5000"}
    assert await overrides(served, "good") == {"retention.ms": "9"}
    assert await changed(served) == Overrides()


async def test_a_resource_that_occurs_twice_is_refused_both_times(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    both = await alter(
        client, resource(TOPIC, "orders", ("retention.ms", "1")), resource(TOPIC, "orders", ("retention.ms", "2"))
    )
    assert [each.error_code for each in both] == [ErrorCode.INVALID_REQUEST] * 2
    assert await overrides(served) == {}


async def test_validating_changes_nothing(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    fine, wrong = await alter(
        client,
        resource(TOPIC, "orders", ("retention.ms", "1")),
        resource(TOPIC, "missing", ("retention.ms", "1")),
        dry_run=True,
    )
    assert (fine.error_code, wrong.error_code) == (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert await overrides(served) == {}


@pytest.mark.parametrize("version", range(3))
async def test_every_version_replaces_what_was_changed_of_a_broker(
    client: Client, served: Served, version: int
) -> None:
    node = str(served.broker.node_id)
    await alter(client, resource(BROKER, node, ("log.retention.ms", "5"), ("num.partitions", "3")), version=version)
    done = await alter(
        client,
        resource(BROKER, node, ("log.retention.ms", "6")),
        resource(BROKER, "", ("log.retention.ms", "7"), ("message.max.bytes", "1000")),
        version=version,
    )
    assert [(each.error_code, each.error_message) for each in done] == [(ErrorCode.NONE, None)] * 2
    assert await changed(served) == Overrides(
        here={"log.retention.ms": "6"}, everywhere={"log.retention.ms": "7", "message.max.bytes": "1000"}
    )


async def test_a_broker_that_is_given_no_settings_has_none_changed(client: Client, served: Served) -> None:
    node = str(served.broker.node_id)
    await alter(client, resource(BROKER, node, ("num.partitions", "3")), resource(BROKER, "", ("num.partitions", "4")))
    done = await alter(client, resource(BROKER, node), resource(BROKER, ""))
    assert [each.error_code for each in done] == [ErrorCode.NONE] * 2
    assert await changed(served) == Overrides()


async def test_validating_a_brokers_settings_changes_nothing(client: Client, served: Served) -> None:
    node = str(served.broker.node_id)
    fine, wrong = await alter(
        client,
        resource(BROKER, node, ("num.partitions", "3")),
        resource(BROKER, "", ("num.partitions", "-3")),
        dry_run=True,
    )
    assert (fine.error_code, wrong.error_code) == (ErrorCode.NONE, ErrorCode.INVALID_REQUEST)
    assert await changed(served) == Overrides()


async def test_a_topic_and_a_broker_in_one_request_as_kafkajs_sends_them(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    done = await alter(
        client,
        resource(TOPIC, "orders", ("cleanup.policy", "compact")),
        resource(BROKER, str(served.broker.node_id), ("cleanup.policy", "delete")),
    )
    assert [each.error_code for each in done] == [ErrorCode.NONE] * 2
    assert await overrides(served) == {"cleanup.policy": "compact"}
    assert (await changed(served)).here == {"cleanup.policy": "delete"}


async def test_an_open_log_obeys_the_default_of_topics_at_once_unless_its_topic_knows_better(client: Client) -> None:
    await create_topic(client, "orders")
    await create_topic(client, "large", configs=[("max.message.bytes", "1000")])
    for name in ("orders", "large"):
        (pending,) = await produce(client, name, (0, a_batch(b"x" * 500)))
        assert pending.error_code == ErrorCode.NONE
    await alter(client, resource(BROKER, "", ("message.max.bytes", "200")))
    (refused,) = await produce(client, "orders", (0, a_batch(b"x" * 500)))
    (pending,) = await produce(client, "large", (0, a_batch(b"x" * 500)))
    assert (refused.error_code, pending.error_code) == (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NONE)
    await alter(client, resource(BROKER, ""))
    (pending,) = await produce(client, "orders", (0, a_batch(b"x" * 500)))
    assert pending.error_code == ErrorCode.NONE
