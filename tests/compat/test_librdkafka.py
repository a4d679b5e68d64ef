"""What librdkafka's own tests expect of a broker, with the packaged client against a live agent."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.cimpl import NewTopic

from tests.compat.clients import PATIENCE_S, Confluent, Sent

api: Any = confluent_kafka.admin  # whose types are not all exported


@pytest.fixture
def admin(bootstrap: str) -> Any:
    return api.AdminClient({"bootstrap.servers": bootstrap})


def create(admin: Any, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
    admin.create_topics([new])[topic].result(PATIENCE_S)


def test_of_a_refused_batch_the_producer_learns_which_records_were_to_blame(
    bootstrap: str, admin: Any, topic: str
) -> None:
    create(admin, topic, config={"cleanup.policy": "compact"})
    codes: Counter[int | None] = Counter()

    def delivered(error: KafkaError | None, _: object) -> None:
        codes[error.code() if error else None] += 1

    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 200})
    for n in range(100):
        producer.produce(
            topic,
            key=None if n % 10 == 0 else b"%d" % n,
            value=b"%d" % n,
            on_delivery=delivered,
        )
    assert producer.flush(PATIENCE_S) == 0
    assert codes == {KafkaError.INVALID_RECORD: 10, KafkaError._INVALID_DIFFERENT_RECORD: 90}


def test_records_are_deleted_for_a_client_that_does_not_want_to_wait(bootstrap: str, admin: Any, topic: str) -> None:
    create(admin, topic)
    client = Confluent(bootstrap)
    client.produce(topic, [Sent(key=None, value=b"%d" % n) for n in range(10)], codec="none")
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 4)], operation_timeout=0).values()
    assert deleted.result(PATIENCE_S).low_watermark == 4
    assert client.ends(topic) == (4, 10)
