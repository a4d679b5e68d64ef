"""Standard services: grpc.health.v1, which reports what /health/ready reports, and server reflection, v1 and v1alpha.

Nothing runs while no client watches the health.
"""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any, Final

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha._async import ReflectionServicer

from streamhouse.clock import Clock
from streamhouse.wire.grpc.calls import CallRunner, LateMessageError, Send

SERVICE: Final = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
CHECK_S: Final = 0.25
"""How often readiness is checked while a client watches it."""

_Request: Final = health_pb2.HealthCheckRequest
_Response: Final = health_pb2.HealthCheckResponse


class Health:
    def __init__(self, not_ready: Callable[[], str | None], *, services: Collection[str], clock: Clock) -> None:
        self._not_ready = not_ready
        self._services = frozenset(services) | {""}
        self._clock = clock

    def __repr__(self) -> str:
        return f"<Health not_ready={self._not_ready()!r}>"

    async def check(self, request: Any, context: Any) -> Any:
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"unknown service; name={request.service[:100]}")
        return _Response(status=self._status(request.service))

    async def watch(self, request: Any, send: Send) -> None:
        """Send the status at once and whenever it changes."""
        sent: int | None = None
        while True:
            if (status := self._status(request.service)) != sent:
                sent = status
                await send(_Response(status=status).SerializeToString())
            await self._clock.sleep(CHECK_S)

    def _status(self, service: str) -> int:
        if service not in self._services:
            return int(_Response.SERVICE_UNKNOWN)
        return int(_Response.NOT_SERVING if self._not_ready() else _Response.SERVING)

    def handlers(self, calls: CallRunner) -> Any:
        async def checked(messages: AsyncIterator[bytes], context: Any) -> Any:
            """Not limited by rate or number of calls: a busy agent is still healthy."""
            try:
                request = _Request.FromString(await calls.first_message(messages))
            except LateMessageError:
                await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the call's message did not come")
            return await self.check(request, context)

        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Check": grpc.stream_unary_rpc_method_handler(checked, response_serializer=_Response.SerializeToString),
                "Watch": calls.watch("Watch", _Request, self.watch),  # open to everybody, as Check is
            },
        )


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
    _register_v1()
    names = [f"{package}.ServerReflection" for package in (NEW, OLD)]
    servicer = ReflectionServicer([*services, *names], Symbols())
    method = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        reflection_pb2.ServerReflectionRequest.FromString,
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return [grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": method}) for name in names]


def _register_v1() -> None:
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
