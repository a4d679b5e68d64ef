"""kafka-python's KafkaAdminClient, unchanged, against a live agent."""

import warnings
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas in a deprecated way
    import kafka
    import kafka.admin
    from kafka import errors

from tests.compat.clients import KafkaPython, Sent


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Any]:
    with closing(kafka.KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        yield admin


@pytest.fixture
def made(admin: Any, topic: str) -> str:
    """A topic with two partitions and a setting of its own."""
    admin.create_topics([kafka.admin.NewTopic(topic, 2, 1, topic_configs={"retention.ms": "5000"})])
    return topic


def resource(name: str, configs: Any = None) -> Any:
    return kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, name, configs=configs)


def own(admin: Any, topic: str) -> dict[str, str]:
    result = admin.describe_configs([resource(topic)])["topic"][topic]
    return {name: entry["value"] for name, entry in result.items()}


def node(admin: Any) -> int:
    (broker,) = admin.describe_cluster()["brokers"]
    return int(broker["broker_id"])


def test_settings_are_shown_changed_and_reset(admin: Any, made: str) -> None:
    assert own(admin, made) == {"retention.ms": "5000"}
    assert admin.alter_configs([resource(made, {"segment.bytes": "1000000"})]) == {"topic": {made: "OK"}}
    assert own(admin, made) == {"retention.ms": "5000", "segment.bytes": "1000000"}
    assert admin.alter_configs([resource(made, {"flush.ms": "9"})], incremental=False) == {"topic": {made: "OK"}}
    assert own(admin, made) == {"retention.ms": "5000", "segment.bytes": "1000000", "flush.ms": "9"}
    admin.reset_configs([resource(made, ["flush.ms", "retention.ms"])])
    assert own(admin, made) == {"segment.bytes": "1000000"}


def test_all_settings_have_types(admin: Any, made: str) -> None:
    broker = kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.BROKER, node(admin))
    result = admin.describe_configs([resource(made), broker], config_filter="all")
    entry = result["topic"][made]["retention.bytes"]
    assert (entry["value"], entry["config_type"], entry["config_source"]) == ("-1", "LONG", "DEFAULT_CONFIG")
    assert entry["read_only"] is False
    listeners = result["broker"][str(node(admin))]["advertised.listeners"]
    assert (listeners["config_source"], listeners["read_only"]) == ("STATIC_BROKER_CONFIG", True)
    assert admin.list_config_resources()["broker"] == [str(node(admin))]


def test_a_topic_grows(admin: Any, made: str) -> None:
    admin.create_partitions({made: 5})
    (described,) = admin.describe_topics([made])
    assert len(described["partitions"]) == 5
    with pytest.raises(errors.InvalidPartitionsError):
        admin.create_partitions({made: 5})


def test_topics_are_described_a_page_at_a_time(admin: Any, made: str) -> None:
    first = admin.describe_topic_partitions([made], response_partition_limit=1)
    assert first["next_cursor"] == {"topic_name": made, "partition_index": 1}
    second = admin.describe_topic_partitions([made], cursor=first["next_cursor"])
    assert [part["partition_index"] for part in second["topics"][0]["partitions"]] == [1]
    assert second["next_cursor"] is None


def test_records_are_deleted_and_sizes_reported(bootstrap: str, admin: Any, made: str) -> None:
    client = KafkaPython(bootstrap)
    client.produce(made, [Sent(key=None, value=b"x" * 100) for _ in range(10)], codec="none")
    assert 1000 < size(admin, made) < 2000
    partition = kafka.TopicPartition(made, 0)
    assert admin.delete_records({partition: 4})[partition]["low_watermark"] == 4
    assert client.ends(made) == (4, 10)
    assert admin.delete_records({partition: -1})[partition]["low_watermark"] == 10
    assert size(admin, made) == 0
    with pytest.raises(errors.OffsetOutOfRangeError):
        admin.delete_records({partition: 11})
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        admin.delete_records({kafka.TopicPartition(made, 9): 0})


def size(admin: Any, topic: str) -> int:
    (broker,) = admin.describe_log_dirs()
    (directory,) = broker["log_dirs"]
    (result,) = (each for each in directory["topics"] if each["name"] == topic)
    return sum(part["partition_size"] for part in result["partitions"])


def test_nothing_moves(admin: Any, made: str) -> None:
    partition = kafka.TopicPartition(made, 0)
    assert admin.list_partition_reassignments() == {}
    assert admin.alter_partition_reassignments({partition: [node(admin)]}) == {partition: None}
    elected = admin.elect_leaders(0, {made: [0]}, raise_errors=False)
    assert elected.replica_election_results[0].partition_result[0].error_code == 84  # ELECTION_NOT_NEEDED


def test_idempotent_producers_are_reported(bootstrap: str, admin: Any, made: str) -> None:
    KafkaPython(bootstrap).produce(made, [Sent(key=None, value=b"x")] * 3, codec="none", idempotent=True)
    partition = kafka.TopicPartition(made, 0)
    (producer,) = admin.describe_producers([partition])[partition].active_producers
    assert producer.last_sequence == 2


def test_without_access_control_the_errors_say_so(admin: Any) -> None:
    pattern = kafka.admin.ResourcePatternFilter(
        kafka.admin.ResourceType.TOPIC, "orders", kafka.admin.ACLResourcePatternType.LITERAL
    )
    rules = kafka.admin.ACLFilter(
        principal="User:ann",
        host="*",
        operation=kafka.admin.ACLOperation.READ,
        permission_type=kafka.admin.ACLPermissionType.ALLOW,
        resource_pattern=pattern,
    )
    with pytest.raises(errors.SecurityDisabledError):
        admin.describe_acls(rules)
    assert admin.describe_user_scram_credentials() == {}


def test_what_is_not_offered_is_refused_by_the_client_itself(admin: Any) -> None:
    with pytest.raises(errors.IncompatibleBrokerVersion):
        admin.describe_metadata_quorum()
    assert list(admin.describe_features()) == ["transaction.version"]
