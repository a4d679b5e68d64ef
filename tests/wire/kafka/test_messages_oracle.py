"""Our bytes are kafka-python's bytes, in both directions, for every message and version that both know."""

import importlib
import pkgutil
import warnings
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from streamhouse.wire.kafka.codec import decode, encode_bytes
from streamhouse.wire.kafka.messages.api_versions import ApiVersionsResponse
from streamhouse.wire.kafka.schema import Field, Message, fields_of
from tests.wire.kafka.message_values import MESSAGES, messages, versions_of


def _their_classes() -> dict[str, Any]:
    with warnings.catch_warnings():
        # kafka-python reads its definitions through a function that Python 3.11 calls deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        protocol = importlib.import_module("kafka.protocol")
        for package in ("admin", "consumer", "metadata", "producer"):
            for module in pkgutil.iter_modules([f"{protocol.__path__[0]}/{package}"]):
                importlib.import_module(f"kafka.protocol.{package}.{module.name}")
        importlib.import_module("kafka.protocol.sasl")
        api_message = importlib.import_module("kafka.protocol.api_message")
    return {cls.__name__: cls for cls in api_message.ApiMessage.__subclasses__()}


THEIRS: Final = _their_classes()
SHARED: Final = [cls for cls in MESSAGES if cls.__name__ in THEIRS]
MAIN: Final = {
    "Produce",
    "Fetch",
    "ListOffsets",
    "Metadata",
    "OffsetCommit",
    "OffsetFetch",
    "FindCoordinator",
    "JoinGroup",
    "Heartbeat",
    "LeaveGroup",
    "SyncGroup",
    "DescribeGroups",
    "ListGroups",
    "SaslHandshake",
    "ApiVersions",
    "CreateTopics",
    "DeleteTopics",
    "DeleteRecords",
    "InitProducerId",
    "OffsetForLeaderEpoch",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "TxnOffsetCommit",
    "DescribeAcls",
    "CreateAcls",
    "DeleteAcls",
    "DescribeConfigs",
    "IncrementalAlterConfigs",
    "SaslAuthenticate",
    "CreatePartitions",
    "DeleteGroups",
    "DescribeCluster",
    "DescribeClientQuotas",
    "DescribeTopicPartitions",
}


THEIR_NAMES: Final = {
    "cluster_authorized_operations": "authorized_operations",
    "topic_authorized_operations": "authorized_operations",
    "generation_id_or_member_epoch": "generation_id",
}


def shared_versions(cls: type[Message]) -> list[int]:
    return [version for version in versions_of(cls) if version <= THEIRS[cls.__name__].max_version]


def as_theirs(cls: Any, message: Any, version: int) -> Any:
    """The same message as an object of kafka-python; fields that are not there, and tags not set, are left out."""
    return cls(version=version, **dict(_their_values(cls, message, version)))


def _their_values(cls: Any, message: Any, version: int) -> Iterator[tuple[str, Any]]:
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if field.exists_in(version) and not (field.tag is not None and value == field.default):
            known = cls._struct.fields
            name = field.name if field.name in known else THEIR_NAMES[field.name]
            yield name, _their_value(known[name], field, value, version)


def _their_value(theirs: Any, field: Field, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(field.type, type):
        return as_theirs(theirs.data_class, value, version)
    if isinstance(field.type, list) and isinstance(field.type[0], type):
        return [as_theirs(theirs.data_class, item, version) for item in value]
    if theirs.type_str == "bitfield":
        return {bit for bit in range(32) if value >> bit & 1}
    return value


def test_the_oracle_knows_the_main_apis() -> None:
    known = {cls.__name__ for cls in SHARED}
    assert {f"{name}{kind}" for name in MAIN for kind in ("Request", "Response")} <= known


@pytest.mark.parametrize("cls", SHARED, ids=lambda cls: cls.__name__)
@given(data=st.data())
@settings(max_examples=4, phases=[Phase.generate], deadline=None, suppress_health_check=list(HealthCheck))
def test_both_write_the_same_bytes_and_read_the_others(cls: type[Message], data: st.DataObject) -> None:
    theirs = THEIRS[cls.__name__]
    for version in shared_versions(cls):
        message = data.draw(messages(cls, version))
        if isinstance(message, ApiVersionsResponse):
            message.error_code = 0  # with an error they read it as version 0, as a client should
        encoded = encode_bytes(message, version)
        assert encoded == bytes(as_theirs(theirs, message, version).encode(version=version))
        read_by_them = theirs.decode(encoded, version=version)
        read_by_them._header = None  # else it cannot be written again
        assert bytes(read_by_them.encode(version=version)) == encoded
        assert decode(cls, version, encoded, strict=True)[0] == message
