"""Which answers say no and nothing else."""

import pytest

from streamhouse.wire.kafka.framing import is_rejection
from streamhouse.wire.kafka.messages.api_versions import ApiVersionsResponse
from streamhouse.wire.kafka.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from streamhouse.wire.kafka.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from streamhouse.wire.kafka.messages.heartbeat import HeartbeatResponse
from streamhouse.wire.kafka.messages.join_group import JoinGroupResponse
from streamhouse.wire.kafka.messages.metadata import MetadataResponse, MetadataResponseTopic
from streamhouse.wire.kafka.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from streamhouse.wire.kafka.schema import Response


def fetched(*codes: int, code: int = 0) -> FetchResponse:
    topics = [FetchableTopicResponse(topic="t", partitions=[PartitionData(error_code=each)]) for each in codes]
    return FetchResponse(error_code=code, responses=topics)


def produced(*codes: int) -> ProduceResponse:
    parts = [PartitionProduceResponse(error_code=each) for each in codes]
    return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=parts)])


@pytest.mark.parametrize(
    "response",
    [
        fetched(1),
        fetched(1, 3),
        fetched(code=70),
        produced(3, 6),
        HeartbeatResponse(error_code=25),
        JoinGroupResponse(error_code=24),
        FindCoordinatorResponse(coordinators=[Coordinator(key="g", error_code=42)]),
        MetadataResponse(topics=[MetadataResponseTopic(error_code=3, name="t")]),
        ApiVersionsResponse(error_code=35),
    ],
    ids=lambda response: type(response).__name__,
)
def test_a_response_of_nothing_but_errors_is_a_refusal(response: Response) -> None:
    assert is_rejection(response)


@pytest.mark.parametrize(
    "response",
    [
        fetched(),
        fetched(0),
        fetched(1, 0),
        fetched(0, 1),
        produced(3, 0, 3),
        produced(),
        HeartbeatResponse(),
        JoinGroupResponse(),
        FindCoordinatorResponse(coordinators=[Coordinator(key="a"), Coordinator(key="g", error_code=42)]),
        MetadataResponse(),
        MetadataResponse(topics=[MetadataResponseTopic(error_code=3, name="t"), MetadataResponseTopic(name="u")]),
        ApiVersionsResponse(),
    ],
    ids=lambda response: type(response).__name__,
)
def test_a_response_in_which_anything_succeeded_is_none(response: Response) -> None:
    assert not is_rejection(response)
