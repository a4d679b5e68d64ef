"""Server: grpc.aio on the agent's own event loop.

Data path   clients -> **server** -> calls -> records and administration -> broker
Owns        the gRPC listener: opening, limits, closing; which services there are
Leaves      signals to `agent`, what surrounds a method to `calls`, methods to their modules
"""

import logging
from typing import Any, Final

import grpc
from prometheus_client import CollectorRegistry

from streamhouse.broker.broker import Broker
from streamhouse.clock import Clock
from streamhouse.config import Address, GrpcSettings, parse_address
from streamhouse.errors import Misconfigured
from streamhouse.wire.listen import bind

from . import health, reflection
from .calls import Calls
from .metrics import GrpcMetrics
from .services import services_of

log = logging.getLogger(__name__)

STOP_TIMEOUT_S: Final = 2.0
"""How long a stop waits for answers that are owed; streams are ended at once."""

MAX_PING_STRIKES: Final = 2
MAX_METADATA_BYTES: Final = 16 * 1024


class GrpcServer:
    """Serves gRPC on an address, which it has from the moment it is made."""

    def __init__(self, settings: GrpcSettings) -> None:
        self._settings = settings
        self._server = grpc.aio.server(options=options(settings), maximum_concurrent_rpcs=settings.max_requests)
        self.address = _listen(self._server, parse_address(settings.listen))
        self._calls: Calls | None = None

    def __repr__(self) -> str:
        return f"<GrpcServer {self.address} {self._calls!r}>"

    async def start(
        self, broker: Broker, *, clock: Clock, registry: CollectorRegistry, cluster_id: str, told: Address | None = None
    ) -> None:
        """Answer calls; `told` is the address that clients are told, where it isn't the listener's own."""
        calls = self._calls = Calls(self._settings, GrpcMetrics(registry), clock)
        services = services_of(calls, broker, clock=clock, cluster_id=cluster_id, address=told or self.address)
        names = [*services, health.SERVICE]
        watched = health.Health(broker.not_ready, services=names, clock=clock)
        self._server.add_generic_rpc_handlers(
            [
                *(grpc.method_handlers_generic_handler(name, methods) for name, methods in services.items()),
                watched.handlers(calls),
                *reflection.handlers(names),
            ]
        )
        await self._server.start()

    async def stop(self) -> None:
        """Take no more calls, end streams, give the answers that are owed, within reason. May be called twice."""
        if self._calls is not None:
            self._calls.stop()
        await self._server.stop(STOP_TIMEOUT_S)


def options(settings: GrpcSettings) -> list[tuple[str, Any]]:
    """The limits, by grpc's names."""

    def ms(seconds: float) -> int:
        return max(1, round(seconds * 1000))

    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.max_concurrent_streams", settings.max_streams),
        ("grpc.max_allowed_incoming_connections", settings.max_connections),
        ("grpc.server_handshake_timeout_ms", ms(settings.handshake_timeout_s)),
        ("grpc.max_connection_idle_ms", ms(settings.idle_timeout_s)),
        ("grpc.keepalive_time_ms", ms(settings.keepalive_s)),
        ("grpc.keepalive_timeout_ms", ms(settings.keepalive_timeout_s)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", ms(settings.min_ping_interval_s)),
        ("grpc.http2.max_ping_strikes", MAX_PING_STRIKES),
    ]


def _listen(server: Any, wanted: Address) -> Address:
    """Have the server listen; raises `Misconfigured` when the address can't be had.

    grpc opens its sockets itself and says nothing of why it can't, so the address is tried before.
    """
    bind(wanted, flag="--grpc").close()
    try:
        port = server.add_insecure_port(str(wanted))
    except RuntimeError as error:
        raise Misconfigured(
            f"can't listen on {wanted}: {error}; choose another address with --grpc HOST:PORT"
        ) from None
    return Address(wanted.host, port)
