"""Reflection: tools such as grpcurl ask an agent which services and messages it has.

Owns        both versions of the protocol, v1 and the v1alpha that older tools speak; finding methods and fields, too
Leaves      the answers to grpc_reflection, which knows v1alpha; v1 has the same messages under another name
"""

from collections.abc import Sequence
from typing import Any, Final

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha._async import ReflectionServicer

OLD: Final = "grpc.reflection.v1alpha"
NEW: Final = "grpc.reflection.v1"


class Symbols:
    """Protobuf's pool, which also knows in which file a method or a field is."""

    def __init__(self) -> None:
        self._pool = descriptor_pool.Default()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            parent = symbol.rpartition(".")[0]
            descriptor = self._pool.FindFileContainingSymbol(parent)
            known = {method.full_name for service in descriptor.services_by_name.values() for method in service.methods}
            if symbol not in known:
                raise
            return descriptor


def handlers(services: Sequence[str]) -> list[Any]:
    _know_v1()
    names = [f"{package}.ServerReflection" for package in (NEW, OLD)]
    servicer = ReflectionServicer([*services, *names], Symbols())
    method = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        reflection_pb2.ServerReflectionRequest.FromString,
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return [grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": method}) for name in names]


def _know_v1() -> None:
    """Have v1 describe itself: its file is that of v1alpha, with another package."""
    pool = descriptor_pool.Default()
    name = reflection_pb2.DESCRIPTOR.name.replace("v1alpha", "v1")
    try:
        pool.FindFileByName(name)
    except KeyError:
        made = descriptor_pb2.FileDescriptorProto()
        reflection_pb2.DESCRIPTOR.CopyToProto(made)
        made.name, made.package = name, NEW
        for message in made.message_type:
            for field in (each for each in message.field if each.type_name):
                field.type_name = field.type_name.replace(f".{OLD}.", f".{NEW}.")
        for method in made.service[0].method:
            method.input_type = method.input_type.replace(f".{OLD}.", f".{NEW}.")
            method.output_type = method.output_type.replace(f".{OLD}.", f".{NEW}.")
        pool.AddSerializedFile(made.SerializeToString())
