"""Requests: the two Kafka messages that aiokafka knows only in versions too old for us.

Owns        Metadata v7 (leader epochs) and CreateTopics v4 (the agent chooses the number of partitions)
Leaves      framing, version negotiation and older versions to aiokafka
"""

from typing import Any

from aiokafka.protocol import admin, metadata
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Int16, Int32, Schema, String

_TEXT = String("utf-8")


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
    """Topics with leaders and epochs; None asks for all. Unlike aiokafka's own, it creates a topic only when told."""

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
