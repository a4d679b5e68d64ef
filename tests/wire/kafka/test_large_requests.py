"""Requests that name very many things are answered without keeping other clients waiting, or are refused."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from streamhouse.config import KafkaSettings
from streamhouse.limits import ELEMENTS_PER_SLICE, iterate_fairly, yield_to_loop
from streamhouse.wire.kafka.large_messages import INLINE_ELEMENTS, LargeMessages, is_large
from streamhouse.wire.kafka.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from streamhouse.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from streamhouse.wire.kafka.messages.delete_groups import DeleteGroupsRequest
from streamhouse.wire.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from streamhouse.wire.kafka.messages.describe_groups import DescribeGroupsRequest
from streamhouse.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from streamhouse.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from streamhouse.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from streamhouse.wire.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from streamhouse.wire.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from streamhouse.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from streamhouse.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from streamhouse.wire.kafka.schema import Request
from tests.wire.kafka.talk import Client, Served, create_topic, request_bytes

NAMES = [f"name-{number}" for number in range(10_000)]

REQUESTS: dict[str, tuple[Request, int]] = {
    "metadata": (
        MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in NAMES], allow_auto_topic_creation=False),
        9,
    ),
    "offset fetch": (
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id="g",
                    topics=[OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in NAMES],
                )
            ]
        ),
        8,
    ),
    "offset fetch of groups": (
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=[]) for name in NAMES]),
        8,
    ),
    "fetch": (
        FetchRequest(
            topics=[FetchTopic(topic=name, partitions=[FetchPartition(partition_max_bytes=1)]) for name in NAMES]
        ),
        12,
    ),
    "produce": (
        ProduceRequest(
            acks=-1,
            topic_data=[
                TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=b"")])
                for name in NAMES
            ],
        ),
        9,
    ),
    "list offsets": (
        ListOffsetsRequest(
            topics=[ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(timestamp=-1)]) for name in NAMES]
        ),
        7,
    ),
    "describe configs": (
        DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=2, resource_name=name) for name in NAMES]
        ),
        4,
    ),
    "alter configs": (
        AlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=2, resource_name=name, configs=[AlterableConfig(name="retention.ms", value="1")]
                )
                for name in NAMES
            ]
        ),
        2,
    ),
    "describe groups": (DescribeGroupsRequest(groups=NAMES), 5),
    "delete groups": (DeleteGroupsRequest(groups_names=NAMES), 2),
    "find coordinator": (FindCoordinatorRequest(coordinator_keys=NAMES), 4),
}


class LoopWatch:
    """Measures how much the thread of the event loop works, in all and at most between two of its turns."""

    def __init__(self) -> None:
        self.worked_s = self.longest_s = 0.0

    async def run(self) -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            self.worked_s += now - before
            self.longest_s = max(self.longest_s, now - before)
            before = now


@asynccontextmanager
async def watched_loop() -> AsyncIterator[LoopWatch]:
    watch = LoopWatch()
    gc.disable()  # a look at all that the tests have made would be the longest of all
    running = asyncio.create_task(watch.run())
    await asyncio.sleep(0)
    try:
        yield watch
    finally:
        running.cancel()
        gc.enable()


@pytest.mark.parametrize("what", REQUESTS)
async def test_others_have_their_turn_while_a_request_names_very_many_things(
    what: str, served: Served, client: Client
) -> None:
    other = await served.client()
    data = request_bytes(*REQUESTS[what])
    async with watched_loop() as watch:
        await client.send_raw(data)
        size = int.from_bytes(await client.reader.readexactly(4))
        assert watch.longest_s < watch.worked_s / 3
    assert (served.server.large_messages.opened, served.server.large_messages.encoded) == (1, 1)
    assert len(await client.reader.readexactly(size)) == size
    await other.call(ApiVersionsRequest(), ApiVersionsResponse, 0)


async def test_protocols_of_a_member_are_decoded_in_a_thread(served: Served, client: Client) -> None:
    offered = [JoinGroupRequestProtocol(name=name, metadata=b"") for name in NAMES]
    join = JoinGroupRequest(
        group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="c", protocols=offered
    )
    await client.send_raw(request_bytes(join, 4))
    assert await client.receive_raw()
    assert served.server.large_messages.opened == 1


async def test_a_small_request_never_goes_to_a_thread(served: Served, client: Client) -> None:
    topics = [MetadataRequestTopic(name=name) for name in NAMES[: INLINE_ELEMENTS // 2]]
    await client.call(MetadataRequest(topics=topics, allow_auto_topic_creation=False), MetadataResponse, 9)
    assert (served.server.large_messages.opened, served.server.large_messages.encoded) == (0, 0)


async def test_a_large_answer_to_a_small_request_is_encoded_in_a_thread(served: Served, client: Client) -> None:
    for number in range(3):
        await create_topic(client, f"orders-{number}", partitions=INLINE_ELEMENTS // 2)
    response = await client.call(MetadataRequest(topics=None), MetadataResponse, 9)
    assert [len(topic.partitions) for topic in response.topics] == [INLINE_ELEMENTS // 2] * 3
    assert served.server.large_messages.encoded == 1


class TestLimit:
    @pytest.fixture
    def kafka_settings(self) -> KafkaSettings:
        return KafkaSettings(max_request_elements=5000)

    async def test_more_elements_than_allowed_close_the_connection_with_the_setting_in_the_log(
        self, served: Served, client: Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level("INFO"):
            await client.send_raw(request_bytes(*REQUESTS["metadata"]))
            assert await client.is_closed()
        [why] = [record.why for record in caplog.records if hasattr(record, "why")]
        assert "limit=5000 setting=kafka.max_request_elements" in why
        other = await served.client()
        await other.call(ApiVersionsRequest(), ApiVersionsResponse, 0)

    async def test_as_many_as_allowed_are_served(self, served: Served, client: Client) -> None:
        topics = [MetadataRequestTopic(name=name) for name in NAMES[:5000]]
        response = await client.call(
            MetadataRequest(topics=topics, allow_auto_topic_creation=False), MetadataResponse, 9
        )
        assert len(response.topics) == 5000
        assert served.server.large_messages.opened == 1


async def test_a_limit_below_what_goes_to_a_thread_holds_as_well() -> None:
    large = LargeMessages(max_elements=10)
    frame = bytearray(request_bytes(*REQUESTS["metadata"])[4:])
    with pytest.raises(Exception, match=r"setting=kafka\.max_request_elements"):
        large.decode_small(frame)


def test_a_response_is_measured_to_the_second_level() -> None:
    partitions = [MetadataResponsePartition() for _ in range(INLINE_ELEMENTS)]
    assert is_large(MetadataResponse(topics=[MetadataResponseTopic(partitions=partitions)]))
    assert not is_large(MetadataResponse(topics=[MetadataResponseTopic(partitions=partitions[:10])]))


async def test_elements_come_in_their_order_with_a_turn_for_others_between() -> None:
    came: list[int | str] = []

    async def others() -> None:
        while True:
            came.append("others")
            await yield_to_loop()

    running = asyncio.create_task(others())
    async for each in iterate_fairly(range(3 * ELEMENTS_PER_SLICE)):
        came.append(each)
    running.cancel()
    places = [place for place, each in enumerate(came) if each == "others"]
    assert places == [ELEMENTS_PER_SLICE, 2 * ELEMENTS_PER_SLICE + 1]
    assert [each for each in came if each != "others"] == list(range(3 * ELEMENTS_PER_SLICE))
