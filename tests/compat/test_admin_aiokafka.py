"""aiokafka's admin client, unchanged, against a live agent."""

from collections.abc import AsyncIterator

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import OffsetOutOfRangeError


@pytest.fixture
async def admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


@pytest.fixture
async def made(admin: AIOKafkaAdminClient, topic: str) -> str:
    await admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])
    return topic


async def own(admin: AIOKafkaAdminClient, topic: str) -> dict[str, str]:
    (response,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    ((code, _, _, name, entries),) = response.resources
    assert (code, name) == (0, topic)
    return {entry[0]: entry[1] for entry in entries if entry[3] == 1}


async def test_settings_are_shown_and_replaced(admin: AIOKafkaAdminClient, made: str) -> None:
    assert await own(admin, made) == {}
    expected = {"retention.ms": "5000", "min.insync.replicas": "2"}
    (response,) = await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, made, configs=expected)])
    assert [each[0] for each in response.resources] == [0]
    assert await own(admin, made) == expected
    bad = ConfigResource(ConfigResourceType.TOPIC, made, configs={"no.such": "1"})
    (refused,) = await admin.alter_configs([bad])
    ((code, text, _, _),) = refused.resources
    assert (code, "no.such" in text) == (40, True)
    assert await own(admin, made) == expected


async def test_a_topic_grows(admin: AIOKafkaAdminClient, made: str) -> None:
    response = await admin.create_partitions({made: NewPartitions(4)})
    assert [each[1] for each in response.topic_errors] == [0]
    (described,) = await admin.describe_topics([made])
    assert len(described["partitions"]) == 4


async def test_records_are_deleted(bootstrap: str, admin: AIOKafkaAdminClient, made: str) -> None:
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(10):
            await producer.send_and_wait(made, b"%d" % number, partition=0)
    partition = aiokafka.TopicPartition(made, 0)
    assert await admin.delete_records({partition: RecordsToDelete(before_offset=6)}) == {partition: 6}
    with pytest.raises(OffsetOutOfRangeError):
        await admin.delete_records({partition: RecordsToDelete(before_offset=11)})


async def test_the_cluster_is_described(bootstrap: str, admin: AIOKafkaAdminClient) -> None:
    response = await admin.describe_cluster()
    (broker,) = response["brokers"]
    assert f"{broker['host']}:{broker['port']}" == bootstrap
    assert response["controller_id"] == broker["node_id"]
