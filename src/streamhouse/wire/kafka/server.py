"""Kafka server: the listeners, and everything that concerns more than one connection.

Data path   clients -> **server** accepts -> connection -> handlers -> broker
Owns        accepting, the limits over all connections, closing connections after timeouts, stopping
Leaves      one client's requests to `connection`
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry

from streamhouse.broker.broker import Broker
from streamhouse.clock import Clock, Ids
from streamhouse.config import Address, KafkaSettings
from streamhouse.wire.client_limits import ConnectionLimits, FailedLogins, RejectionBackoff
from streamhouse.wire.kafka import handlers
from streamhouse.wire.kafka.client_metrics import ClientMetrics
from streamhouse.wire.kafka.connection import Connection, ServerState
from streamhouse.wire.kafka.connection_limits import InflightBytes, PinnedFrames, check_interval_s, find_close_reason
from streamhouse.wire.kafka.context import KafkaMetrics
from streamhouse.wire.kafka.large_messages import LargeMessages
from streamhouse.wire.kafka.revoked_logins import RevokedLogins
from streamhouse.wire.kafka.sasl.login import enabled_mechanisms
from streamhouse.wire.listener import OpenListener
from streamhouse.wire.tls_acceptor import TlsAcceptor

log = logging.getLogger(__name__)

STOP_TIMEOUT_S: Final = 5.0
"""How long a stop waits for pending responses."""

CLOSE_TIMEOUT_S: Final = 1.0
"""How long a stop waits for clients to read what was sent."""

STOP_CHECK_S: Final = 0.01

OUTDATED_S: Final = 1.0
"""Time after an agent's departure until all others know of it; a client that waits for that agent is silent for this
time."""

__all__ = ["KafkaServer", "handlers"]


class KafkaServer:
    """Serves Kafka's protocol on listening sockets, which it closes when it stops."""

    def __init__(
        self,
        settings: KafkaSettings,
        broker: Broker,
        *,
        listeners: Sequence[OpenListener],
        clock: Clock,
        registry: CollectorRegistry,
        cluster_id: str,
    ) -> None:
        security = broker.settings.security
        enabled_mechanisms(security)  # a wrong name is found at the start, not by the first client
        self._settings = settings
        self._login_timeout_s = security.login_timeout_s
        self._listeners = listeners
        self._clock = clock
        inflight = InflightBytes(
            settings.max_inflight_bytes,
            small_bytes=settings.small_request_bytes,
            small_limit_bytes=settings.small_inflight_bytes,
        )
        self._state = ServerState(
            settings=settings,
            broker=broker,
            clock=clock,
            metrics=KafkaMetrics(registry, ClientMetrics(settings, clock, Ids())),
            inflight=inflight,
            pinned=PinnedFrames(inflight),
            large=LargeMessages(max_elements=settings.max_request_elements),
            limits=ConnectionLimits(settings, section="kafka"),
            rejections=RejectionBackoff(
                settings.failures_per_s, max_delay_s=settings.max_failure_delay_s, clients=settings.rate_clients
            ),
            cluster_id=cluster_id,
            failed_logins=FailedLogins(
                security.failed_login_delay_s, max_wait_s=security.login_timeout_s, clients=settings.rate_clients
            ),
        )
        self._servers: list[asyncio.Server] = []
        self._acceptors: list[TlsAcceptor] = []
        self._watch: asyncio.Task[None] | None = None
        self._revoked_logins = RevokedLogins(self._state.connections, broker.security, clock)

    def __repr__(self) -> str:
        return f"<KafkaServer connections={len(self._state.connections)} {self._state.inflight!r}>"

    @property
    def connections(self) -> Sequence[Connection]:
        return list(self._state.connections)

    @property
    def large_messages(self) -> LargeMessages:
        return self._state.large

    async def start(self) -> Address:
        """Start accepting connections; returns the address of the first listener."""
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            if listener.tls is not None:
                self._acceptors.append(self._tls_acceptor(listener))
                self._acceptors[-1].start()
            else:
                server = await loop.create_server(partial(Connection, self._state, listener), sock=listener.listening)
                self._servers.append(server)
        self._watch = loop.create_task(self._watch_all(), name="kafka-watch")
        return self._listeners[0].bound

    def _tls_acceptor(self, listener: OpenListener) -> TlsAcceptor:
        def leave(host: str) -> None:
            self._state.metrics.closed("handshake").inc()
            self._state.limits.leave(host)

        return TlsAcceptor(
            listener,
            admit=self._state.admit,
            leave=leave,
            make=partial(Connection, self._state, listener, is_admitted=True),
            timeout_s=self._login_timeout_s,
            clock=self._clock,
        )

    async def stop(self) -> None:
        """Stop accepting, wait for pending responses for a limited time, and close. May be called twice."""
        if self._watch is None:
            return
        watch, self._watch = self._watch, None
        for server in self._servers:
            server.close()
        for acceptor in self._acceptors:
            await acceptor.close()
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch
        connections = self.connections
        for connection in connections:
            connection.finish()
        await self._wait_for(connections)
        await self._end(connections)

    async def _wait_for(self, connections: Sequence[Connection]) -> None:
        deadline = self._clock.monotonic() + STOP_TIMEOUT_S
        while (
            any(connection.has_pending_responses for connection in connections) and self._clock.monotonic() < deadline
        ):
            await self._clock.sleep(STOP_CHECK_S)

    async def _end(self, connections: Sequence[Connection]) -> None:
        tasks = [task for connection in connections for task in connection.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in connections:
            connection.close()
        deadline = self._clock.monotonic() + CLOSE_TIMEOUT_S
        while self._state.connections and self._clock.monotonic() < deadline:
            await self._clock.sleep(STOP_CHECK_S)
        for connection in self.connections:
            connection.abort("stop", "agent stops")
        self._state.large.close()

    async def _watch_all(self) -> None:
        async with asyncio.TaskGroup() as watches:
            watches.create_task(self._watch_connections(), name="kafka-connections")
            watches.create_task(self._revoked_logins.run(), name="kafka-revoked-logins")

    async def _watch_connections(self) -> None:
        interval_s = min(check_interval_s(self._settings), max(self._login_timeout_s / 4, 0.05))
        while True:
            await self._clock.sleep(interval_s)
            self.close_unproven()
            self.close_overdue()
            self.close_misdirected()
            self.close_outdated()
            self._state.pinned.release()

    def close_unproven(self) -> None:
        """Close connections of clients that take too long to log in."""
        latest = self._clock.monotonic() - self._login_timeout_s
        for connection in self.connections:
            if connection.login.caller is None and connection.opened_at <= latest:
                connection.abort("login_timeout", f"no login in time; timeout_s={self._login_timeout_s:g}")

    def close_overdue(self) -> None:
        """Close connections that are idle, send no request, send too slowly, or don't read their responses."""
        now = self._clock.monotonic()
        for connection in self.connections:
            if (reason := find_close_reason(connection.stats(), self._settings, now=now)) is not None:
                connection.abort(reason.why, reason.text)

    def close_misdirected(self) -> None:
        """Close connections that clients may have opened here for the id of an agent that is back at its own address. A
        client that keeps them would send requests for the other agent's partitions here. Connections with pending
        responses are checked again the next time.
        """
        times = self._state.broker.misdirected()
        for connection in self.connections if times else ():
            if not connection.software.keeps_connections or connection.has_pending_responses:
                continue
            if any(first <= connection.opened_at <= last for first, last in times):
                self._state.metrics.closed("misdirected").inc()
                connection.finish()
                connection.close()

    def close_outdated(self) -> None:
        """Close connections of clients that may wait for a departed agent and refresh their metadata only when they
        connect: such a client has called the other agents, and is silent on their connections while it waits."""
        now = self._clock.monotonic()
        times = [at for at in self._state.broker.departures() if at <= now - OUTDATED_S]
        for connection in self.connections if times else ():
            stats = connection.stats()
            if stats.is_busy or now - stats.active_at < OUTDATED_S or not connection.sends_to_every_agent:
                continue
            if connection.software.asks_when_it_connects and connection.opened_at <= max(times):
                self._state.metrics.closed("outdated").inc()
                connection.finish()
                connection.close()
