"""The codec against bytes written by hand, and against messages that cannot be said."""

import struct
from uuid import UUID

import pytest

from streamhouse.errors import Internal
from streamhouse.wire.kafka.codec import MAX_ERROR_TEXT, UnencodableMessage, decode, encode, encode_bytes
from streamhouse.wire.kafka.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from streamhouse.wire.kafka.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsResponse
from streamhouse.wire.kafka.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from streamhouse.wire.kafka.messages.fetch import LeaderIdAndEpoch as FetchLeader
from streamhouse.wire.kafka.messages.header import RequestHeader, ResponseHeader
from streamhouse.wire.kafka.messages.list_groups import ListGroupsRequest
from streamhouse.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from streamhouse.wire.kafka.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")


# --- bytes written by hand ----------------------------------------------------------------------------------------


def test_header_v2_keeps_the_old_string_for_the_client_id_and_ends_with_tags() -> None:
    header = RequestHeader(request_api_key=18, request_api_version=4, correlation_id=7, client_id="me")
    golden = bytes.fromhex("0012 0004 00000007 0002 6d65 00")
    assert encode_bytes(header, 2) == golden
    assert decode(RequestHeader, 2, golden, strict=True) == (header, len(golden))
    assert encode_bytes(header, 1) == golden[:-1]


def test_header_without_client_id_is_a_null_string() -> None:
    header = RequestHeader(request_api_key=3, request_api_version=1, correlation_id=-1, client_id=None)
    assert encode_bytes(header, 1) == bytes.fromhex("0003 0001 ffffffff ffff")


def test_response_header_gains_tags_in_version_1() -> None:
    assert encode_bytes(ResponseHeader(correlation_id=9), 0) == bytes.fromhex("00000009")
    assert encode_bytes(ResponseHeader(correlation_id=9), 1) == bytes.fromhex("00000009 00")


def test_headers_follow_the_message_and_api_versions_answers_with_the_oldest() -> None:
    assert (ProduceRequest.header_version(8), ProduceRequest.header_version(9)) == (1, 2)
    assert (ProduceResponse.header_version(8), ProduceResponse.header_version(9)) == (0, 1)
    assert (ApiVersionsRequest.header_version(2), ApiVersionsRequest.header_version(3)) == (1, 2)
    assert (ApiVersionsResponse.header_version(2), ApiVersionsResponse.header_version(3)) == (0, 0)


def test_api_versions_v0_and_v3() -> None:
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=0, min_version=3, max_version=9)])
    assert encode_bytes(response, 0) == bytes.fromhex("0000 00000001 0000 0003 0009")
    assert encode_bytes(response, 3) == bytes.fromhex("0000 02 0000 0003 0009 00 00000000 00")


def test_a_tagged_number_is_written_when_it_is_not_the_default() -> None:
    response = ApiVersionsResponse(finalized_features_epoch=5)
    golden = bytes.fromhex("0000 01 00000000 01 01 08 0000000000000005")
    assert encode_bytes(response, 3) == golden
    assert decode(ApiVersionsResponse, 3, golden, strict=True)[0] == response


def test_metadata_distinguishes_all_topics_from_none() -> None:
    assert encode_bytes(MetadataRequest(topics=None), 1) == bytes.fromhex("ffffffff")
    assert encode_bytes(MetadataRequest(topics=[]), 1) == bytes.fromhex("00000000")
    assert encode_bytes(MetadataRequest(topics=None), 12) == bytes.fromhex("00 01 00 00")
    assert decode(MetadataRequest, 12, bytes.fromhex("01 01 00 00"), strict=True)[0].topics == []


def test_a_topic_may_be_named_by_id_alone() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=TOPIC_ID, name=None)])
    golden = bytes.fromhex("02 00112233445566778899aabbccddeeff 00 00 01 00 00")
    assert encode_bytes(request, 12) == golden
    assert decode(MetadataRequest, 12, golden, strict=True)[0] == request


def test_a_struct_that_may_be_null_is_announced_by_a_byte() -> None:
    without = DescribeTopicPartitionsResponse(throttle_time_ms=1)
    head = bytes.fromhex("00000001 01")
    assert encode_bytes(without, 0) == head + bytes.fromhex("ff 00")
    cursor = Cursor(topic_name="t", partition_index=5)
    without.next_cursor = cursor
    golden = head + bytes.fromhex("01 02 74 00000005 00 00")
    assert encode_bytes(without, 0) == golden
    assert decode(DescribeTopicPartitionsResponse, 0, golden, strict=True)[0].next_cursor == cursor


# --- tagged fields ------------------------------------------------------------------------------------------------


def test_a_tagged_struct_is_none_when_it_is_not_there() -> None:
    partition = PartitionProduceResponse(index=1)
    response = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[partition])])
    decoded, _ = decode(ProduceResponse, 10, encode_bytes(response, 10), strict=True)
    assert decoded.responses[0].partition_responses[0].current_leader is None
    partition.current_leader = LeaderIdAndEpoch(leader_id=2, leader_epoch=3)
    decoded, _ = decode(ProduceResponse, 10, encode_bytes(response, 10), strict=True)
    assert decoded == response


def test_unknown_tags_are_stepped_over() -> None:
    tags = bytes.fromhex("02 07 03 aabbcc e807 00")  # tag 7 with three bytes, tag 1000 with none
    header = RequestHeader(request_api_key=1, request_api_version=12, correlation_id=1, client_id="")
    encoded = encode_bytes(header, 2)[:-1] + tags
    assert decode(RequestHeader, 2, encoded, strict=True) == (header, len(encoded))


def test_unknown_tags_among_known_ones_are_stepped_over() -> None:
    body = bytes.fromhex("0000 01 00000000 02 01 08 0000000000000005 7f 01 ff")
    decoded, _ = decode(ApiVersionsResponse, 3, body, strict=True)
    assert decoded.finalized_features_epoch == 5


# --- records are never copied -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_produced_records_are_a_writable_view_of_the_frame(version: int) -> None:
    data = [PartitionProduceData(index=0, records=b"\x00" * 20)]
    request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t" * (version < 13), partition_data=data)])
    frame = bytearray(encode_bytes(request, version))
    decoded, _ = decode(ProduceRequest, version, frame, strict=True)
    records = decoded.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert len(records) == 20
    records[:3] = b"abc"
    assert b"abc" in frame


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_fetched_records_go_out_as_the_buffers_they_are(version: int) -> None:
    first, second = bytes(100), memoryview(bytearray(200))
    partitions = [PartitionData(partition_index=0, records=[first, second]), PartitionData(records=second)]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=partitions)])
    buffers = encode(response, version)
    assert [buffer for buffer in buffers if buffer is first or buffer is second] == [first, second, second]
    decoded, _ = decode(FetchResponse, version, b"".join(buffers), strict=True)
    assert [p.records for p in decoded.responses[0].partitions] == [bytes(300), bytes(200)]


def test_no_records_are_null_and_an_empty_list_is_not() -> None:
    partitions = [PartitionData(records=None), PartitionData(records=[])]
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=partitions)])
    decoded, _ = decode(FetchResponse, 12, encode_bytes(response, 12), strict=True)
    assert [p.records for p in decoded.responses[0].partitions] == [None, b""]


# --- what a version does not have ---------------------------------------------------------------------------------


def test_a_field_that_the_version_lacks_has_its_default() -> None:
    request = FetchRequest(max_wait_ms=5, min_bytes=1)
    decoded, _ = decode(FetchRequest, 4, encode_bytes(request, 4), strict=True)
    assert (decoded.session_id, decoded.session_epoch, decoded.rack_id, decoded.replica_id) == (0, -1, "", -1)


def test_a_set_field_that_the_version_lacks_is_refused() -> None:
    with pytest.raises(
        UnencodableMessage, match=r"message=ListGroupsRequest version=3 field=states_filter problem=set,"
    ):
        encode(ListGroupsRequest(states_filter=["Empty"]), 3)
    partition = PartitionData(preferred_read_replica=1)
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])
    with pytest.raises(UnencodableMessage, match=r"field=responses\.partitions\.preferred_read_replica"):
        encode(response, 10)


def test_a_tagged_struct_that_the_version_lacks_is_refused() -> None:
    partition = PartitionData(current_leader=FetchLeader())
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])
    with pytest.raises(UnencodableMessage, match="current_leader"):
        encode(response, 11)


def test_an_ignorable_field_that_the_version_lacks_is_left_out() -> None:
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="t",
                topic_id=TOPIC_ID,
                partition_responses=[PartitionProduceResponse(log_start_offset=5, error_message="gone")],
            )
        ]
    )
    decoded, _ = decode(ProduceResponse, 3, encode_bytes(response, 3), strict=True)
    assert decoded.responses[0].topic_id == UUID(int=0)
    assert decoded.responses[0].partition_responses[0].error_message is None


def test_a_version_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UnencodableMessage, match="no such version"):
        encode(ProduceResponse(), 99)


# --- values that cannot be written ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize(
    "topic",
    [
        TopicProduceResponse(name="x" * 0x8000),
        TopicProduceResponse(name="\ud800"),
        TopicProduceResponse(name=None),  # type: ignore[arg-type]
        TopicProduceResponse(partition_responses=None),  # type: ignore[arg-type]
        TopicProduceResponse(partition_responses=[PartitionProduceResponse(index=2**31)]),
        TopicProduceResponse(partition_responses=[PartitionProduceResponse(error_code="7")]),  # type: ignore[arg-type]
    ],
    ids=["long string", "lone surrogate", "null string", "null array", "int32 overflow", "wrong type"],
)
def test_a_value_that_cannot_be_written_names_its_field(topic: TopicProduceResponse, version: int) -> None:
    with pytest.raises(UnencodableMessage, match=rf"ProduceResponse version={version} field=responses\.") as caught:
        encode(ProduceResponse(responses=[topic]), version)
    assert isinstance(caught.value, Internal)
    assert len(str(caught.value)) <= MAX_ERROR_TEXT


def test_the_longest_string_survives() -> None:
    response = ProduceResponse(responses=[TopicProduceResponse(name="x" * 0x7FFF)])
    for version in (8, 9):
        assert decode(ProduceResponse, version, encode_bytes(response, version), strict=True)[0] == response


def test_offset_says_where_the_message_starts() -> None:
    frame = struct.pack(">i", 77) + encode_bytes(MetadataRequest(), 9) + b"rest"
    assert decode(MetadataRequest, 9, frame, 4) == (MetadataRequest(), len(frame) - 4)
