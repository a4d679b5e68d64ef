"""confluent-kafka's AdminClient (librdkafka), unchanged, against a live agent."""

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.compat.clients import TIMEOUT_S, Confluent, Sent

api: Any = confluent_kafka.admin  # whose types are not all exported
SET, DELETE = api.AlterConfigOpType.SET, api.AlterConfigOpType.DELETE
APPEND, SUBTRACT = api.AlterConfigOpType.APPEND, api.AlterConfigOpType.SUBTRACT


@pytest.fixture
def admin(bootstrap: str) -> Any:
    return api.AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def made(admin: Any, topic: str) -> str:
    """A topic with two partitions and a setting of its own."""
    new = NewTopic(topic, num_partitions=2, replication_factor=1, config={"compression.type": "gzip"})
    admin.create_topics([new])[topic].result(TIMEOUT_S)
    return topic


def only(futures: "Mapping[Any, Future[Any]]") -> Any:
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


def code_of(futures: "Mapping[Any, Future[Any]]") -> int:
    with pytest.raises(KafkaException) as refused:
        only(futures)
    error = refused.value.args[0]
    assert isinstance(error, KafkaError)
    assert error.str()
    return error.code()


def configs(admin: Any, kind: Any, name: str) -> dict[str, Any]:
    result: dict[str, Any] = only(admin.describe_configs([api.ConfigResource(kind, name)]))
    return result


def own(admin: Any, topic: str) -> dict[str, str | None]:
    result = configs(admin, api.ResourceType.TOPIC, topic)
    return {name: entry.value for name, entry in result.items() if not entry.is_default}


def changed(topic: str, *changes: tuple[str, str | None, Any]) -> Any:
    entries = [api.ConfigEntry(name, value, incremental_operation=change) for name, value, change in changes]
    return api.ConfigResource(api.ResourceType.TOPIC, topic, incremental_configs=entries)


def test_settings_are_shown_and_changed_one_by_one(admin: Any, made: str) -> None:
    assert own(admin, made) == {"compression.type": "gzip"}
    only(
        admin.incremental_alter_configs(
            [
                changed(
                    made,
                    ("cleanup.policy", "compact", APPEND),
                    ("retention.ms", "10000", SET),
                    ("compression.type", None, DELETE),
                )
            ]
        )
    )
    assert own(admin, made) == {"cleanup.policy": "delete,compact", "retention.ms": "10000"}
    only(admin.incremental_alter_configs([changed(made, ("cleanup.policy", "delete", SUBTRACT))]))
    assert own(admin, made) == {"cleanup.policy": "compact", "retention.ms": "10000"}


def test_settings_are_replaced(admin: Any, made: str) -> None:
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        only(
            admin.alter_configs(
                [api.ConfigResource(api.ResourceType.TOPIC, made, set_config={"file.delete.delay.ms": "12345"})]
            )
        )
    assert own(admin, made) == {"file.delete.delay.ms": "12345"}


def test_unknown_settings_and_topics_are_refused_by_name(admin: Any, made: str, topic: str) -> None:
    bad = changed(made, ("no.such", "1", SET))
    assert code_of(admin.incremental_alter_configs([bad])) == KafkaError.INVALID_CONFIG
    missing = changed(f"{topic}-missing", ("retention.ms", "1", SET))
    assert code_of(admin.incremental_alter_configs([missing])) == KafkaError.UNKNOWN_TOPIC_OR_PART
    absent = [api.ConfigResource(api.ResourceType.TOPIC, f"{topic}-missing")]
    assert code_of(admin.describe_configs(absent)) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_the_agents_settings_are_shown_and_what_is_read_only_is_not_changed(admin: Any) -> None:
    (node,) = admin.list_topics(timeout=TIMEOUT_S).brokers
    result = configs(admin, api.ResourceType.BROKER, str(node))
    assert (result["num.partitions"].value, result["num.partitions"].is_read_only) == ("1", False)
    assert (result["node.id"].value, result["node.id"].is_read_only) == (str(node), True)
    entries = [api.ConfigEntry("node.id", "9", incremental_operation=SET)]
    request = api.ConfigResource(api.ResourceType.BROKER, str(node), incremental_configs=entries)
    assert code_of(admin.incremental_alter_configs([request])) == KafkaError.INVALID_REQUEST


def test_a_topic_grows_and_takes_records_in_its_new_partitions(admin: Any, made: str) -> None:
    only(admin.create_partitions([NewPartitions(made, 5)]))
    assert len(admin.list_topics(made, timeout=TIMEOUT_S).topics[made].partitions) == 5
    assert code_of(admin.create_partitions([NewPartitions(made, 5)])) == KafkaError.INVALID_PARTITIONS


def test_records_are_deleted(bootstrap: str, admin: Any, made: str) -> None:
    client = Confluent(bootstrap)
    client.produce(made, [Sent(key=None, value=b"%d" % n) for n in range(10)], codec="none")
    deleted = only(admin.delete_records([TopicPartition(made, 0, 4)]))
    assert deleted.low_watermark == 4
    assert client.ends(made) == (4, 10)
    assert [record.offset for record in client.read(made, 6, from_offset=4)] == list(range(4, 10))
    assert code_of(admin.delete_records([TopicPartition(made, 0, 11)])) == KafkaError.OFFSET_OUT_OF_RANGE


def test_the_cluster_and_topics_are_described_with_what_may_be_done(admin: Any, made: str) -> None:
    cluster = admin.describe_cluster(include_authorized_operations=True).result(TIMEOUT_S)
    assert len(cluster.nodes) == 1
    assert cluster.controller.id == cluster.nodes[0].id
    assert api.AclOperation.CREATE in cluster.authorized_operations
    described = only(admin.describe_topics(TopicCollection([made]), include_authorized_operations=True))
    assert len(described.partitions) == 2
    assert {api.AclOperation.READ, api.AclOperation.WRITE} <= set(described.authorized_operations)
    assert [partition.leader.id for partition in described.partitions] == [cluster.controller.id] * 2


@pytest.mark.parametrize("kind", [ElectionType.PREFERRED, ElectionType.UNCLEAN])
def test_no_election_is_needed(admin: Any, made: str, kind: ElectionType) -> None:
    (error,) = admin.elect_leaders(kind, [TopicPartition(made, 0)]).result(TIMEOUT_S).values()
    assert error.code() == 84  # ELECTION_NOT_NEEDED
    assert admin.elect_leaders(kind, None).result(TIMEOUT_S) == {}


def test_users_are_kept_although_nobody_has_to_log_in(admin: Any) -> None:
    assert code_of(admin.describe_user_scram_credentials(["ann"])) == 91  # RESOURCE_NOT_FOUND
    mechanism = api.ScramMechanism.SCRAM_SHA_256
    added = api.UserScramCredentialUpsertion("ann", api.ScramCredentialInfo(mechanism, 4096), b"password", b"salt")
    for done in admin.alter_user_scram_credentials([added]).values():
        done.result(TIMEOUT_S)
    described = admin.describe_user_scram_credentials(["ann"])["ann"].result(TIMEOUT_S)
    assert [each.iterations for each in described.scram_credential_infos] == [4096]
    for done in admin.alter_user_scram_credentials([api.UserScramCredentialDeletion("ann", mechanism)]).values():
        done.result(TIMEOUT_S)
    assert code_of(admin.describe_user_scram_credentials(["ann"])) == 91
