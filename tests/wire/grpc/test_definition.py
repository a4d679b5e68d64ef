"""streamhouse.proto: what is committed is what it says, all of it is served, and its names are as they should be."""

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from google.protobuf.descriptor import EnumDescriptor, MethodDescriptor, ServiceDescriptor

from streamhouse.agent import Agent
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb
from streamhouse.wire.grpc.server import ADMIN, RECORDS
from tests.wire.grpc.talk import Client
from tools.generate_grpc import SOURCE, TARGET, generate

TEXT = SOURCE.read_text()
SERVICES: list[ServiceDescriptor] = list(pb.DESCRIPTOR.services_by_name.values())
METHODS: list[MethodDescriptor] = [method for service in SERVICES for method in service.methods]
ENUMS: list[EnumDescriptor] = list(pb.DESCRIPTOR.enum_types_by_name.values())


def test_the_committed_classes_are_up_to_date() -> None:
    committed = {path.name: path.read_text() for path in TARGET.iterdir() if path.is_file()}
    assert committed == generate(), "run: make messages"


def test_reflection_and_other_files_know_it_by_its_package() -> None:
    assert pb.DESCRIPTOR.name == "streamhouse/v1/streamhouse.proto"
    assert pb.DESCRIPTOR.package == "streamhouse.v1"


@pytest.mark.parametrize("service", SERVICES, ids=lambda each: each.name)
def test_services_are_called_so(service: ServiceDescriptor) -> None:
    assert service.name.endswith("Service")


@pytest.mark.parametrize("method", METHODS, ids=lambda each: each.name)
def test_every_method_has_messages_of_its_own(method: MethodDescriptor) -> None:
    assert method.input_type.name == f"{method.name}Request"
    assert method.output_type.name == f"{method.name}Response"


@pytest.mark.parametrize("enum", ENUMS, ids=lambda each: each.name)
def test_values_of_enums_carry_its_name_and_zero_is_unspecified(enum: EnumDescriptor) -> None:
    prefix = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", enum.name).upper()
    assert all(value.name.startswith(f"{prefix}_") for value in enum.values)
    assert enum.values_by_number[0].name == f"{prefix}_UNSPECIFIED"


def test_fields_are_in_snake_case() -> None:
    for message in pb.DESCRIPTOR.message_types_by_name.values():
        assert all(re.fullmatch(r"[a-z][a-z0-9_]*", field.name) for field in message.fields), message.name


def lines_that_should_be_explained() -> Iterator[tuple[str, str]]:
    """Services and the values of enums, each with the line before it."""
    lines = [line.strip() for line in TEXT.splitlines()]
    for before, line in pairwise(lines):
        if re.match(r"(service|enum) |[A-Z]+_[A-Z]+ = ", line):
            yield before, line


def test_what_is_not_obvious_is_explained_in_the_file() -> None:
    assert [line for before, line in lines_that_should_be_explained() if not before.startswith("//")] == []
    assert TEXT.count("//") > 100


async def test_every_method_is_served(agent: Agent, client: Client) -> None:
    """Nothing that the file promises is UNIMPLEMENTED: an empty request gets another answer."""
    for method in METHODS:
        path = f"/{method.containing_service.full_name}/{method.name}"
        if method.client_streaming:
            call = client.channel.stream_stream(path)(timeout=20)
            await call.done_writing()
        else:
            call = client.channel.unary_unary(path)(b"", timeout=20)
        assert (await call.code()).name in {"OK", "INVALID_ARGUMENT"}, method.full_name
    assert {method.containing_service.full_name for method in METHODS} == {RECORDS, ADMIN}
