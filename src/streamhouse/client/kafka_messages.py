"""Kafka messages that aiokafka lacks, or has only in older versions.

Metadata v7 (leader epochs), CreateTopics v4 (default number of partitions), ListOffsets v7 (maximum timestamp),
IncrementalAlterConfigs v0, DescribeLogDirs v1, DescribeGroups v2 (aiokafka misreads v3), Produce v8 (errors per
record).
"""

from typing import Any

from aiokafka.protocol import admin, metadata, produce
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Array,
    Boolean,
    CompactArray,
    CompactString,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    TaggedFields,
)

_TEXT = String("utf-8")
_NAME = CompactString("utf-8")
_NO_TAGS: dict[int, bytes] = {}


class MetadataResponse_v7(Response):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 7
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", Array(("node_id", Int32), ("host", _TEXT), ("port", Int32), ("rack", _TEXT))),
        ("cluster_id", _TEXT),
        ("controller_id", Int32),
        (
            "topics",
            Array(
                ("error_code", Int16),
                ("topic", _TEXT),
                ("is_internal", Boolean),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", Array(Int32)),
                        ("isr", Array(Int32)),
                        ("offline_replicas", Array(Int32)),
                    ),
                ),
            ),
        ),
    )


class MetadataRequest_v7(RequestStruct):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 7
    RESPONSE_TYPE = MetadataResponse_v7
    SCHEMA = metadata.MetadataRequest_v5.SCHEMA


class CreateTopicsResponse_v4(Response):  # type: ignore[misc]
    API_KEY = 19
    API_VERSION = 4
    SCHEMA = admin.CreateTopicsResponse_v3.SCHEMA


class CreateTopicsRequest_v4(RequestStruct):  # type: ignore[misc]
    API_KEY = 19
    API_VERSION = 4
    RESPONSE_TYPE = CreateTopicsResponse_v4
    SCHEMA = admin.CreateTopicsRequest_v3.SCHEMA


class TopicMetadata(Request[MetadataRequest_v7]):  # type: ignore[misc]
    """Topics with leaders and epochs, None: all. Unlike aiokafka's own, it creates a topic only with `create`."""

    API_KEY = 3

    def __init__(self, topics: list[str] | None, *, create: bool) -> None:
        self._topics, self._create = topics, create

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class(self._topics, self._create)


class CreateTopics(Request[CreateTopicsRequest_v4]):  # type: ignore[misc]
    """One topic; -1 partitions lets the agent choose."""

    API_KEY = 19

    def __init__(self, name: str, *, partitions: int, configs: dict[str, str], timeout_ms: int) -> None:
        self._topic: tuple[Any, ...] = (name, partitions, -1, [], list(configs.items()))
        self._timeout_ms = timeout_ms

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class([self._topic], self._timeout_ms, False)


class ListOffsetsResponse_v7(Response):  # type: ignore[misc]
    API_KEY = 2
    API_VERSION = 7
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("topic", _NAME),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("error_code", Int16),
                        ("timestamp", Int64),
                        ("offset", Int64),
                        ("leader_epoch", Int32),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class ListOffsetsRequest_v7(RequestStruct):  # type: ignore[misc]
    API_KEY = 2
    API_VERSION = 7
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = ListOffsetsResponse_v7
    SCHEMA = Schema(
        ("replica_id", Int32),
        ("isolation_level", Int8),
        (
            "topics",
            CompactArray(
                ("topic", _NAME),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("current_leader_epoch", Int32),
                        ("timestamp", Int64),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class OffsetsAtTime(Request[ListOffsetsRequest_v7]):  # type: ignore[misc]
    """Offset and timestamp of the first record at or after a time; -3 asks for the latest timestamp there is."""

    API_KEY = 2

    def __init__(self, topic: str, partitions: list[int], *, at: int) -> None:
        self._topic, self._partitions, self._at = topic, partitions, at

    def build(self, request_struct_class: Any) -> Any:
        partitions = [(number, -1, self._at, _NO_TAGS) for number in self._partitions]
        return request_struct_class(-1, 0, [(self._topic, partitions, _NO_TAGS)], _NO_TAGS)


class IncrementalAlterConfigsResponse_v0(Response):  # type: ignore[misc]
    API_KEY = 44
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "responses",
            Array(
                ("error_code", Int16),
                ("error_message", _TEXT),
                ("resource_type", Int8),
                ("resource_name", _TEXT),
            ),
        ),
    )


class IncrementalAlterConfigsRequest_v0(RequestStruct):  # type: ignore[misc]
    API_KEY = 44
    API_VERSION = 0
    RESPONSE_TYPE = IncrementalAlterConfigsResponse_v0
    SCHEMA = Schema(
        (
            "resources",
            Array(
                ("resource_type", Int8),
                ("resource_name", _TEXT),
                ("configs", Array(("name", _TEXT), ("config_operation", Int8), ("value", _TEXT))),
            ),
        ),
        ("validate_only", Boolean),
    )


class AlterTopicConfigs(Request[IncrementalAlterConfigsRequest_v0]):  # type: ignore[misc]
    """Settings of one topic; None resets one to its default."""

    API_KEY = 44
    _TOPIC, _SET, _DELETE = 2, 0, 1

    def __init__(self, topic: str, configs: dict[str, str | None], *, dry_run: bool) -> None:
        changes = [(name, self._DELETE if value is None else self._SET, value) for name, value in configs.items()]
        self._resource = (self._TOPIC, topic, changes)
        self._dry_run = dry_run

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class([self._resource], self._dry_run)


class DescribeLogDirsResponse_v1(Response):  # type: ignore[misc]
    API_KEY = 35
    API_VERSION = 1
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "results",
            Array(
                ("error_code", Int16),
                ("log_dir", _TEXT),
                (
                    "topics",
                    Array(
                        ("topic", _TEXT),
                        (
                            "partitions",
                            Array(
                                ("partition", Int32),
                                ("size", Int64),
                                ("offset_lag", Int64),
                                ("is_future_key", Boolean),
                            ),
                        ),
                    ),
                ),
            ),
        ),
    )


class DescribeLogDirsRequest_v1(RequestStruct):  # type: ignore[misc]
    API_KEY = 35
    API_VERSION = 1
    RESPONSE_TYPE = DescribeLogDirsResponse_v1
    SCHEMA = Schema(("topics", Array(("topic", _TEXT), ("partitions", Array(Int32)))))


class PartitionSizes(Request[DescribeLogDirsRequest_v1]):  # type: ignore[misc]
    """Bytes of a topic's partitions, as one agent knows them."""

    API_KEY = 35

    def __init__(self, topic: str, partitions: list[int]) -> None:
        self._topic, self._partitions = topic, partitions

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class([(self._topic, self._partitions)])


class GroupDescriptions(Request[admin.DescribeGroupsRequest_v2]):  # type: ignore[misc]
    """Groups of one coordinator. aiokafka sends version 3 and parses the response as version 2, which fails for the
    second of several groups."""

    API_KEY = 15

    def __init__(self, groups: list[str]) -> None:
        self._groups = groups

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class(self._groups)


class Produce(produce.ProduceRequest):  # type: ignore[misc]
    """Batches for partitions. A subclass of aiokafka's request, for which its client expects no response if acks=0."""

    API_KEY = 0


Produce._CLASSES = (
    produce.ProduceRequest_v3,
    produce.ProduceRequest_v5,
    produce.ProduceRequest_v7,
    produce.ProduceRequest_v8,
)
