"""Health: grpc.health.v1, which says what /health/ready says.

Data path   none: whoever watches agents -> **health** -> broker
Owns        which services there are to be asked about, telling those who watch
Leaves      what readiness is to the broker, ending streams to `calls`

Nothing runs while nobody watches.
"""

from collections.abc import AsyncIterator, Callable, Collection
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2

from streamhouse.clock import Clock

from .calls import Calls, LateMessageError, Send

SERVICE: Final = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
LOOK_S: Final = 0.25
"""How often readiness is looked at for those who watch it."""

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
        """Says it at once, and again whenever it changes."""
        told: int | None = None
        while True:
            if (status := self._status(request.service)) != told:
                told = status
                await send(_Response(status=status).SerializeToString())
            await self._clock.sleep(LOOK_S)

    def _status(self, service: str) -> int:
        if service not in self._services:
            return int(_Response.SERVICE_UNKNOWN)
        return int(_Response.NOT_SERVING if self._not_ready() else _Response.SERVING)

    def handlers(self, calls: Calls) -> Any:
        async def checked(messages: AsyncIterator[bytes], context: Any) -> Any:
            """Without a turn or a place of its own: an agent that is busy is not a sick one."""
            try:
                request = _Request.FromString(await calls.only(messages))
            except LateMessageError:
                await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the call's message did not come")
            return await self.check(request, context)

        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Check": grpc.stream_unary_rpc_method_handler(checked, response_serializer=_Response.SerializeToString),
                "Watch": calls.watch("Watch", _Request, self.watch),
            },
        )
