"""Topic settings for lake tables with confluent-kafka's AdminClient (librdkafka), against a live agent."""

from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.cimpl import NewTopic

from tests.compat.clients import TIMEOUT_S

api: Any = confluent_kafka.admin  # whose types are not all exported
SET, DELETE = api.AlterConfigOpType.SET, api.AlterConfigOpType.DELETE


@pytest.fixture
def admin(bootstrap: str) -> Any:
    return api.AdminClient({"bootstrap.servers": bootstrap})


def create(admin: Any, topic: str, **settings: str) -> None:
    named = {f"table.{name.replace('_', '.')}": value for name, value in settings.items()}
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1, config=named)])[topic].result(
        TIMEOUT_S
    )


def alter(admin: Any, topic: str, *changes: tuple[str, str | None, Any]) -> None:
    entries = [api.ConfigEntry(name, value, incremental_operation=change) for name, value, change in changes]
    resource = api.ConfigResource(api.ResourceType.TOPIC, topic, incremental_configs=entries)
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(TIMEOUT_S)


def alter_all(admin: Any, topic: str, settings: dict[str, str]) -> None:
    resource = api.ConfigResource(api.ResourceType.TOPIC, topic, set_config=settings)
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        (future,) = admin.alter_configs([resource]).values()
    future.result(TIMEOUT_S)


def own(admin: Any, topic: str) -> dict[str, str | None]:
    (future,) = admin.describe_configs([api.ConfigResource(api.ResourceType.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in future.result(TIMEOUT_S).items() if not entry.is_default}


def refusal(refused: "pytest.ExceptionInfo[KafkaException]") -> str:
    error = refused.value.args[0]
    assert isinstance(error, KafkaError)
    assert error.code() == KafkaError.INVALID_CONFIG
    return str(error.str())


def test_a_topic_is_created_as_a_table_and_says_so(admin: Any, topic: str) -> None:
    create(admin, topic, format="iceberg", mode="upsert", key="id", commit_interval_ms="5000")
    assert own(admin, topic) == {
        "table.format": "iceberg",
        "table.mode": "upsert",
        "table.key": "id",
        "table.commit.interval.ms": "5000",
    }


def test_a_topic_becomes_a_table_and_is_none_again(admin: Any, topic: str) -> None:
    create(admin, topic)
    alter(admin, topic, ("table.format", "delta", SET), ("table.partition.by", "day(ts)", SET))
    assert own(admin, topic) == {"table.format": "delta", "table.partition.by": "day(ts)"}
    alter(admin, topic, ("table.format", None, DELETE), ("table.partition.by", None, DELETE))
    assert own(admin, topic) == {}
    alter_all(admin, topic, {"table.format": "parquet"})
    assert own(admin, topic) == {"table.format": "parquet"}


@pytest.mark.parametrize(
    ("settings", "reported"),
    [
        ({"format": "hudi"}, "must be one of none, iceberg, delta, parquet"),
        ({"format": "iceberg", "mode": "upsert"}, "needs table.key"),
        ({"format": "parquet", "mode": "upsert", "key": "id"}, "set table.format to iceberg or delta"),
        ({"format": "iceberg", "partition_by": "week(ts)"}, "must be columns or transforms: country, day(ts)"),
    ],
)
def test_a_table_that_cant_be_is_refused_with_the_topic(
    admin: Any, topic: str, settings: dict[str, str], reported: str
) -> None:
    with pytest.raises(KafkaException) as refused:
        create(admin, topic, **settings)
    assert reported in refusal(refused)


def test_a_change_that_cant_be_is_refused_and_changes_nothing(admin: Any, topic: str) -> None:
    create(admin, topic, format="iceberg")
    with pytest.raises(KafkaException) as refused:
        alter(admin, topic, ("table.mode", "upsert", SET))
    assert "needs table.key" in refusal(refused)
    with pytest.raises(KafkaException) as refused:
        alter_all(admin, topic, {"table.format": "iceberg", "table.name": topic})
    assert "choose another" in refusal(refused)
    assert own(admin, topic) == {"table.format": "iceberg"}
