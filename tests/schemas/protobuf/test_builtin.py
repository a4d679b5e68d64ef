"""What clients take for known is known, by the names and numbers that they use."""

import base64
from importlib import import_module

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from streamhouse.schemas.protobuf import ProtobufSchema, parse
from streamhouse.schemas.protobuf.imports import COMMON_TYPES

CLIENT = "confluent_kafka.schema_registry."


def skeleton(file: FileDescriptorProto) -> FileDescriptorProto:
    """A file without what other languages need of it."""
    bare = FileDescriptorProto()
    bare.CopyFrom(file)
    for gone in ("name", "options"):
        bare.ClearField(gone)
    return bare


def as_clients_send(name: str) -> ProtobufSchema:
    """The schema that a client makes of its own generated module."""
    module = f"{name.removesuffix('.proto').replace('/', '.')}_pb2"
    generated = import_module(CLIENT + module if name.startswith("confluent") else module).DESCRIPTOR
    return parse(base64.b64encode(generated.serialized_pb).decode(), {})


@pytest.mark.parametrize("name", COMMON_TYPES)
def test_the_types_are_those_that_clients_were_compiled_with(name: str) -> None:
    ours, theirs = parse(COMMON_TYPES[name], {}), as_clients_send(name)
    assert skeleton(parse(ours.normalized(), {}).files.main) == skeleton(parse(theirs.normalized(), {}).files.main)


@pytest.mark.parametrize("name", COMMON_TYPES)
def test_they_are_imported_without_a_reference(name: str) -> None:
    assert parse(f'syntax = "proto3"; import "{name}"; message A {{}}', {}).files.main.dependency == [name]


def test_tags_of_confluent_are_kept_with_a_field_also_in_a_package_of_that_name() -> None:
    text = """
        syntax = "proto3"; package io.confluent.test; import "confluent/meta.proto";
        message A { string s = 1 [(confluent.field_meta) = { tags: ["PII"] }]; }
    """
    assert '(.confluent.field_meta) = { tags: "PII" }' in parse(text, {}).canonical()


def test_well_known_types_stay_as_they_are_whatever_a_reference_says() -> None:
    text = 'import "google/protobuf/timestamp.proto"; message A { optional google.protobuf.Timestamp t = 1; }'
    schema = parse(text, {"google/protobuf/timestamp.proto": "message Other {}"})
    assert schema.decode(schema.encode({"t": "1970-01-01T00:00:01Z"})) == {"t": "1970-01-01T00:00:01Z"}


def test_the_library_files_can_be_registered_themselves() -> None:
    for module in (timestamp_pb2, descriptor_pb2):
        parse(base64.b64encode(module.DESCRIPTOR.serialized_pb).decode(), {})
