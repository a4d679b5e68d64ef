"""IncrementalAlterConfigs: some settings change, the others stay."""

import asyncio

import pytest

from streamhouse.broker.catalog.kafka_configs import Overrides
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.wire.kafka.talk import Client, Served, a_batch, create_topic, produce

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def resource(kind: int, name: str, *changes: tuple[int, str, str | None]) -> AlterConfigsResource:
    configs = [AlterableConfig(name=key, config_operation=change, value=value) for change, key, value in changes]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


async def alter(
    client: Client, *resources: AlterConfigsResource, version: int = 1, dry_run: bool = False
) -> list[AlterConfigsResourceResponse]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=dry_run)
    return (await client.call(request, IncrementalAlterConfigsResponse, version)).responses


async def changed(served: Served) -> Overrides:
    return await served.broker.topic_admin.changed()


async def overrides(served: Served, name: str = "orders") -> dict[str, str]:
    return dict((await served.broker.topic(name)).overrides)


@pytest.mark.parametrize("version", range(2))
async def test_every_version_changes_what_is_named_and_nothing_else(
    client: Client, served: Served, version: int
) -> None:
    await create_topic(client, "orders", configs=[("retention.ms", "5000"), ("segment.bytes", "1000")])
    request = resource(TOPIC, "orders", (SET, "retention.bytes", "7"), (DELETE, "segment.bytes", None))
    (done,) = await alter(client, request, version=version)
    assert (done.error_code, done.error_message) == (ErrorCode.NONE, None)
    assert await overrides(served) == {"retention.ms": "5000", "retention.bytes": "7"}


async def test_items_are_appended_to_a_list_and_subtracted_from_it(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    steps = [
        ((APPEND, "compact"), "delete,compact"),
        ((APPEND, "compact,delete"), "delete,compact"),
        ((SUBTRACT, "delete"), "compact"),
        ((SUBTRACT, "delete"), "compact"),
        ((SUBTRACT, "compact"), ""),
    ]
    for (change, items), expected in steps:
        (done,) = await alter(client, resource(TOPIC, "orders", (change, "cleanup.policy", items)))
        assert done.error_code == ErrorCode.NONE, done.error_message
        assert await overrides(served) == {"cleanup.policy": expected}


async def test_an_open_log_obeys_at_once(client: Client) -> None:
    await create_topic(client, "orders")
    await produce(client, "orders", (0, a_batch(b"x")))
    await alter(client, resource(TOPIC, "orders", (SET, "message.timestamp.type", "LogAppendTime")))
    (pending,) = await produce(client, "orders", (0, a_batch(b"x")))
    assert pending.log_append_time_ms > 0


async def test_of_many_changes_at_once_none_is_lost(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    names = ["retention.ms", "retention.bytes", "segment.bytes", "segment.ms", "flush.ms", "delete.retention.ms"]
    clients = [await served.client() for _ in names]
    await asyncio.gather(
        *(
            alter(each, resource(TOPIC, "orders", (SET, name, "1000")))
            for each, name in zip(clients, names, strict=True)
        )
    )
    assert await overrides(served) == dict.fromkeys(names, "1000")


async def test_deleting_what_is_not_there_is_no_error(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    (done,) = await alter(
        client,
        resource(
            TOPIC, "orders", (DELETE, "retention.ms", None), (DELETE, "leader.replication.throttled.replicas", "")
        ),
    )
    assert done.error_code == ErrorCode.NONE
    assert await overrides(served) == {}


REFUSED: dict[str, tuple[AlterConfigsResource, ErrorCode]] = {
    "unknown setting": (resource(TOPIC, "orders", (SET, "no.such", "1")), ErrorCode.INVALID_CONFIG),
    "unknown list": (resource(TOPIC, "orders", (APPEND, "no.such", "1")), ErrorCode.INVALID_CONFIG),
    "bad value": (resource(TOPIC, "orders", (SET, "retention.ms", "soon")), ErrorCode.INVALID_CONFIG),
    "bad item": (resource(TOPIC, "orders", (APPEND, "cleanup.policy", "burn")), ErrorCode.INVALID_CONFIG),
    "no list": (resource(TOPIC, "orders", (APPEND, "retention.ms", "1")), ErrorCode.INVALID_CONFIG),
    "good and bad": (
        resource(TOPIC, "orders", (SET, "segment.bytes", "100"), (SET, "retention.bytes", "")),
        ErrorCode.INVALID_CONFIG,
    ),
    "no value": (resource(TOPIC, "orders", (SET, "retention.ms", None)), ErrorCode.INVALID_REQUEST),
    "unknown operation": (resource(TOPIC, "orders", (4, "retention.ms", "1")), ErrorCode.INVALID_REQUEST),
    "twice": (
        resource(TOPIC, "orders", (SET, "retention.ms", "1"), (DELETE, "retention.ms", None)),
        ErrorCode.INVALID_REQUEST,
    ),
    "unknown topic": (resource(TOPIC, "missing", (SET, "retention.ms", "1")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "illegal topic": (resource(TOPIC, "a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "unknown setting of a broker": (resource(BROKER, "1", (SET, "no.such", "2")), ErrorCode.INVALID_CONFIG),
    "unknown list of a broker": (resource(BROKER, "", (APPEND, "no.such", "2")), ErrorCode.INVALID_CONFIG),
    "no list of a broker": (resource(BROKER, "", (SUBTRACT, "num.partitions", "1")), ErrorCode.INVALID_CONFIG),
    "fixed list of a broker": (resource(BROKER, "1", (APPEND, "listeners", "X://a:1")), ErrorCode.INVALID_REQUEST),
    "fixed setting of a broker": (resource(BROKER, "1", (SET, "node.id", "7")), ErrorCode.INVALID_REQUEST),
    "bad value of a broker": (resource(BROKER, "1", (SET, "num.partitions", "x")), ErrorCode.INVALID_REQUEST),
    "bad item of a broker": (resource(BROKER, "", (APPEND, "log.cleanup.policy", "x")), ErrorCode.INVALID_REQUEST),
    "another broker": (resource(BROKER, "99"), ErrorCode.INVALID_REQUEST),
    "logger": (resource(LOGGER, "1", (SET, "root", "DEBUG")), ErrorCode.INVALID_REQUEST),
    "client metrics": (resource(METRICS, "m", (SET, "interval.ms", "1")), ErrorCode.INVALID_REQUEST),
    "group": (resource(GROUP, "g", (SET, "consumer.session.timeout.ms", "1")), ErrorCode.INVALID_REQUEST),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_what_makes_no_sense_is_refused_with_a_reason_and_changes_nothing(
    client: Client, served: Served, what: str
) -> None:
    await create_topic(client, "orders", configs=[("retention.ms", "5000")])
    await create_topic(client, "good")
    request, code = REFUSED[what]
    bad, good = await alter(client, request, resource(TOPIC, "good", (SET, "retention.ms", "9")))
    assert (bad.error_code, good.error_code) == (code, ErrorCode.NONE)
    assert bad.error_message
    assert await overrides(served) == {"retention.ms": "5000"}
    assert await changed(served) == Overrides()


async def test_a_resource_that_occurs_twice_is_refused_both_times(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    once = resource(TOPIC, "orders", (SET, "retention.ms", "1"))
    assert [each.error_code for each in await alter(client, once, once)] == [ErrorCode.INVALID_REQUEST] * 2
    assert await overrides(served) == {}


async def test_validating_changes_nothing(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    fine, wrong = await alter(
        client,
        resource(TOPIC, "orders", (SET, "retention.ms", "1")),
        resource(TOPIC, "missing", (SET, "retention.ms", "1")),
        dry_run=True,
    )
    assert (fine.error_code, wrong.error_code) == (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert await overrides(served) == {}


async def test_a_brokers_settings_are_set_and_deleted_one_by_one(client: Client, served: Served) -> None:
    node = str(served.broker.node_id)
    for name in ("num.partitions", "group.max.size"):
        (done,) = await alter(client, resource(BROKER, node, (SET, name, "3")))
        assert (done.error_code, done.error_message) == (ErrorCode.NONE, None)
    assert (await changed(served)).here == {"num.partitions": "3", "group.max.size": "3"}
    await alter(client, resource(BROKER, node, (DELETE, "num.partitions", None)), resource(BROKER, ""))
    assert await changed(served) == Overrides(here={"group.max.size": "3"})


async def test_a_brokers_list_begins_with_the_default_and_is_appended_to(client: Client, served: Served) -> None:
    policy = "log.cleanup.policy"
    for operation, item, expected in (
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
    ):
        (done,) = await alter(client, resource(BROKER, "", (operation, policy, item)))
        assert done.error_code == ErrorCode.NONE
        assert await changed(served) == Overrides(everywhere={policy: expected})


async def test_what_librdkafka_sets_on_a_broker_is_set(client: Client, served: Served) -> None:
    node = str(served.broker.node_id)
    await alter(
        client, resource(BROKER, node, (SET, "background.threads", "9"), (APPEND, "log.cleanup.policy", "compact"))
    )
    await alter(client, resource(BROKER, node, (SET, "sasl.kerberos.min.time.before.relogin", "58000")))
    assert (await changed(served)).here == {
        "background.threads": "9",
        "log.cleanup.policy": "delete,compact",
        "sasl.kerberos.min.time.before.relogin": "58000",
    }
    await alter(
        client,
        resource(BROKER, node, (DELETE, "background.threads", ""), (SUBTRACT, "log.cleanup.policy", "compact")),
    )
    assert (await changed(served)).here == {
        "log.cleanup.policy": "delete",
        "sasl.kerberos.min.time.before.relogin": "58000",
    }


async def test_validating_a_brokers_settings_changes_nothing(client: Client, served: Served) -> None:
    (fine,) = await alter(client, resource(BROKER, "", (SET, "num.partitions", "3")), dry_run=True)
    assert fine.error_code == ErrorCode.NONE
    assert await changed(served) == Overrides()


async def test_deleting_a_brokers_settings_that_nobody_changed_is_no_error(client: Client, served: Served) -> None:
    gone = (DELETE, "leader.replication.throttled.rate", None)
    done = await alter(client, resource(BROKER, str(served.broker.node_id), gone), resource(BROKER, "", gone))
    assert [each.error_code for each in done] == [ErrorCode.NONE] * 2
