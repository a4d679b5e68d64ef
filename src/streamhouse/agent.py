"""Agent: the composition root. Builds the components from settings, connects them, runs them, stops them.

Data path   none
Owns        the order of starting and stopping, the data folder's lock, signals
Leaves      everything else to the components
"""

import asyncio
import dataclasses
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from streamhouse import console
from streamhouse.allocator import keep_memory
from streamhouse.broker.admin.orphan_adoption import AdoptionReport as AdoptionReport
from streamhouse.broker.admin.orphan_adoption import recover_stores
from streamhouse.broker.admin.orphan_survey import OnProgress
from streamhouse.broker.broker import Broker
from streamhouse.broker.metrics import BrokerMetrics
from streamhouse.broker.security.access_control import super_user_warning
from streamhouse.broker.wal.disk_recovery import DiskWalRecovery
from streamhouse.clock import Ids, SystemClock
from streamhouse.config import Settings, check_exposure, exposure_warning
from streamhouse.config.exposure import grpc_listeners, http_listeners, kafka_listeners
from streamhouse.config.fields import Address
from streamhouse.config.listener_spec import ListenerSpec
from streamhouse.config.secrets import own_cluster_secret, read_secrets
from streamhouse.errors import Stopping
from streamhouse.format.extensions import extension_warning, missing_extensions
from streamhouse.model.cluster import Session
from streamhouse.model.names import NodeId, SessionId
from streamhouse.stores.local_files import LocalFiles
from streamhouse.stores.metadata.open import open_metadata_store
from streamhouse.stores.objects.open import open_object_store
from streamhouse.stores.objects.wrapping_keys import require_keys
from streamhouse.telemetry import configure_logging
from streamhouse.wire.http.agent_client import HttpFreezeClient
from streamhouse.wire.http.port import HttpPort
from streamhouse.wire.kafka.server import KafkaServer
from streamhouse.wire.listener import EVERYWHERE, OpenListener, advertised, bind, no_user
from streamhouse.wire.tls import ALPN_HTTP, ServerTls, server_tls

if TYPE_CHECKING:
    from streamhouse.wire.grpc.server import GrpcServer
    from streamhouse.wire.http.server import HttpServer

from streamhouse.agent_resources import (
    DataPaths,
    Listeners,
    close_within,
    data_paths,
    lock_data_dir,
    needs_data_dir,
    open_dependencies,
    open_keys,
    with_wal_kind,
)

log = logging.getLogger(__name__)

EXIT_STUCK: Final = 70
"""Exit code of a process whose stop was cut short (EX_SOFTWARE of sysexits.h)."""

RECOVERED_BY: Final = {
    "object": "nothing where other agents run, they recover it; else start the agent again",
    "disk": "start the agent again with the same --data",
}

SWITCH_INTERVAL_S: Final = 0.0005
"""How long a busy thread keeps the GIL while another thread waits for it. Python's default of 5 ms would add to the
latency of every ack that waits for the WAL's thread."""

RECOVERY_TIMEOUT_S: Final = 600.0
"""Timeout of one metadata call of `recover`, which registers everything in one transaction."""

GARBAGE_OBJECTS: Final = 20_000
"""New objects after which Python's garbage collector runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReady:
    """Addresses, ids and stores of a started agent, for the command that started it."""

    kafka: Address
    http: Address
    node_id: NodeId
    session_id: SessionId
    data: Path
    metadata_url: str
    store_url: str
    wal: str
    recovered_records: int
    grpc: Address | None = None


async def run_agent(settings: Settings, *, on_ready: Callable[[AgentReady], None]) -> None:
    """Run an agent until SIGTERM or Ctrl-C; raises `Misconfigured` when it can't start like this, and `Stopping` when
    it has stopped before all was stored."""
    configure_logging(log_format=settings.agent.log_format, level=settings.agent.log_level)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    keep_memory(one_arena=True)
    if warning := exposure_warning(settings):
        log.warning(warning)
    if warning := super_user_warning(settings.security):
        log.warning(warning)
    if warning := extension_warning(missing_extensions()):
        log.warning(warning)
    async with build_agent(settings) as agent:
        agent.stop_on_signals()
        _collect_garbage_rarely()
        on_ready(agent.ready)
        await agent.serve()
        left = agent.broker.left_behind
    if left is not None:
        raise Stopping(
            f"stopped before all was stored; session={left.session} wal={left.wal} partitions={left.partitions} "
            f"unflushed_bytes={left.unflushed_bytes} pending_bytes={left.pending_bytes} "
            f"do={RECOVERED_BY[left.wal]}"
        )


def _collect_garbage_rarely() -> None:
    """Freeze the objects of the start-up and collect cycles less often: hardly any record is part of a cycle. With
    Python's default, after every 700 objects, the collector took two fifths of a request's CPU."""
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS, 10, 10)


class Agent:
    """A started agent: its broker has a session and its listeners are open."""

    def __init__(
        self, broker: Broker, kafka: KafkaServer, http: HttpPort, grpc: "GrpcServer | None", ready: AgentReady
    ) -> None:
        self.broker = broker
        self.ready = ready
        self._kafka = kafka
        self._http = http
        self._grpc = grpc
        self._limits = broker.settings.agent
        self._stop = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Agent {self.ready.kafka} {self.broker!r}>"

    def stop(self) -> None:
        self._stop.set()

    def stop_on_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_by_signal)

    def _stop_by_signal(self) -> None:
        if not self._stop.is_set():
            end_process_after(self._limits.longest_stop_s)
        self.stop()

    async def serve(self) -> None:
        """Serve until `stop`; then hand partitions over, reject new appends, flush, end the session and close
        sockets."""
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self.broker.run(), name="broker")
            stopping = tasks.create_task(self._stop.wait(), name="stop")
            tasks.create_task(self._http.opened(), name="http-port")  # an error ends the agent
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            self.broker.stop()
            await asyncio.wait({running})
            async with asyncio.TaskGroup() as servers:
                for server in (self._kafka, self._http, self._grpc):
                    if server is not None:
                        servers.create_task(close_within(server.stop(), what=repr(server), limits=self._limits))


def end_process_after(seconds: float) -> None:
    """Exit the process after `seconds`, even if threads are blocked in a disk or driver call, which can't be
    interrupted. Acknowledged records are in the write-ahead log."""

    def end() -> None:
        names = ",".join(thread.name for thread in threading.enumerate() if not thread.daemon)
        log.critical("the stop took too long, the process ends", extra={"seconds": seconds, "threads": names})
        os._exit(EXIT_STUCK)

    watchdog = threading.Timer(seconds, end)
    watchdog.name, watchdog.daemon = "stop-limit", True
    watchdog.start()


@asynccontextmanager
async def build_agent(settings: Settings) -> AsyncIterator[Agent]:
    """Open everything, in the order in which it is needed; close it in reverse."""
    check_exposure(settings)
    paths, registry = data_paths(settings), CollectorRegistry()
    settings = with_wal_kind(settings, metadata_url=paths.metadata_url, store_url=paths.store_url)
    async with AsyncExitStack() as stack:
        files, secrets, clock = LocalFiles(), read_secrets(settings, os.environ), SystemClock()
        tls = server_tls(settings, secrets, clock)
        if needs_data_dir(settings):
            stack.callback(lock_data_dir(files, paths.data).release)
        if settings.security.authorization == "acls" and not secrets.cluster_secret:
            secrets = dataclasses.replace(secrets, cluster_secret=own_cluster_secret(paths.data))
        listeners = _listen(settings, tls, stack)
        grpc = _open_grpc(settings, tls)
        if grpc is not None:
            stack.push_async_callback(grpc.stop)
        dependencies = await open_dependencies(
            settings, paths, listeners, secrets, files=files, registry=registry, stack=stack
        )
        broker = Broker(dependencies)
        await broker.start()
        cluster_id = broker.cluster_id
        agent_session = broker.agent_session
        assert agent_session is not None
        _register_metrics(registry, broker)
        kafka = KafkaServer(
            settings.kafka,
            broker,
            listeners=listeners.kafka,
            clock=dependencies.clock,
            registry=registry,
            cluster_id=cluster_id,
        )
        await kafka.start()
        stack.push_async_callback(kafka.stop)
        grpc_address = _grpc_address(grpc, agent_session.session.http)
        make_http = partial(
            _make_http_server,
            listeners.http,
            broker,
            registry,
            cluster_id=cluster_id,
            grpc=str(grpc_address) if grpc_address is not None else None,
            peers=dependencies.freezes if isinstance(dependencies.freezes, HttpFreezeClient) else None,
        )
        http = HttpPort(listeners.http, make_http)
        http.start()
        stack.push_async_callback(http.stop)
        if grpc is not None and grpc_address is not None:
            await grpc.start(
                broker, clock=dependencies.clock, registry=registry, cluster_id=cluster_id, advertised=grpc_address
            )
        if tls is not None:
            await stack.enter_async_context(tls.reloading())
        yield Agent(broker, kafka, http, grpc, _ready(broker, agent_session.session, paths, listeners, grpc, settings))


async def recover(settings: Settings, *, apply: bool, take_over: str | None, on_progress: OnProgress) -> AdoptionReport:
    """Find objects that the metadata store lacks and, with `apply`, register them. No agent may be running."""
    configure_logging(log_format=settings.agent.log_format, level="warning")
    paths = data_paths(settings)
    clock, ids, files = SystemClock(), Ids(), LocalFiles()
    patient = replace(settings.metadata, timeout_s=max(settings.metadata.timeout_s, RECOVERY_TIMEOUT_S))
    async with AsyncExitStack() as stack:
        has_folder = not settings.metadata.url or paths.data.is_dir()
        if has_folder:
            stack.callback(lock_data_dir(files, paths.data).release)
        metadata = await open_metadata_store(paths.metadata_url, clock=clock, settings=patient)
        stack.push_async_callback(metadata.aclose)
        registry, keys = CollectorRegistry(), open_keys(settings, clock)
        objects = open_object_store(
            paths.store_url, clock=clock, ids=ids, registry=registry, settings=settings.store, keys=keys
        )
        stack.push_async_callback(objects.aclose)
        await require_keys(objects, keys)
        return await recover_stores(
            metadata,
            objects,
            disk=DiskWalRecovery(paths.data / "wal", files, keys) if has_folder else None,
            settings=settings,
            clock=clock,
            ids=ids,
            apply=apply,
            is_alone=not settings.metadata.url,
            take_over=take_over,
            on_progress=on_progress,
        )


def _listen(settings: Settings, tls: ServerTls | None, stack: AsyncExitStack) -> Listeners:
    single_agent = not settings.metadata.url

    def opened(section: str, specs: Iterable[ListenerSpec], *alpn: str) -> Sequence[OpenListener]:
        listeners = []
        for spec in specs:
            listener = bind(spec.bind, flag=f"--{section}")
            stack.callback(listener.close)
            listeners.append(
                OpenListener(
                    spec=spec,
                    listening=listener,
                    advertised=_advertised(section, spec, listener, single_agent=single_agent),
                    tls=tls.context(*alpn) if tls is not None and spec.protocol.has_tls else None,
                    user_of=tls.user_of if tls is not None else no_user,
                )
            )
        return listeners

    return Listeners(
        kafka=opened("kafka", kafka_listeners(settings)), http=opened("http", http_listeners(settings), *ALPN_HTTP)
    )


def _make_http_server(
    listeners: Sequence[OpenListener],
    broker: Broker,
    registry: CollectorRegistry,
    *,
    cluster_id: str,
    grpc: str | None,
    peers: HttpFreezeClient | None,
) -> "HttpServer":
    from streamhouse.wire.http.app import make_app
    from streamhouse.wire.http.server import HttpServer

    app = make_app(broker, registry, cluster_id=cluster_id, grpc=grpc, console=console.PAGES, peers=peers)
    return HttpServer(broker.settings.http, app, listeners, quotas=broker.security.quotas)


def _ready(
    broker: Broker,
    session: Session,
    paths: DataPaths,
    listeners: Listeners,
    grpc: "GrpcServer | None",
    settings: Settings,
) -> AgentReady:
    return AgentReady(
        kafka=listeners.kafka[0].bound,
        http=listeners.http[0].bound,
        grpc=grpc.address if grpc is not None else None,
        node_id=session.node_id,
        session_id=session.session_id,
        data=paths.data,
        metadata_url=paths.metadata_url,
        store_url=paths.store_url,
        wal=settings.wal.kind,
        recovered_records=broker.recovered.records,
    )


def _open_grpc(settings: Settings, tls: ServerTls | None) -> "GrpcServer | None":
    """Import gRPC only if it is enabled: the import takes a tenth of a second."""
    if not settings.grpc.listen:
        return None
    from streamhouse.wire.grpc.server import GrpcServer

    return GrpcServer(settings.grpc, grpc_listeners(settings), tls)


def _grpc_address(grpc: "GrpcServer | None", http: Address) -> Address | None:
    """The advertised gRPC address: the listener's own, or with the HTTP address's host if it listens on all
    interfaces."""
    if grpc is None:
        return None
    return Address(http.host, grpc.address.port) if grpc.address.host in EVERYWHERE else grpc.address


def _advertised(section: str, spec: ListenerSpec, listener: socket.socket, *, single_agent: bool) -> Address:
    configured = spec.advertised
    if single_agent and configured is None:  # a client that reached the only agent knows a working address
        return Address(*listener.getsockname()[:2])
    return advertised(configured, listener, setting=f"{section}.advertise")


def _register_metrics(registry: CollectorRegistry, broker: Broker) -> None:
    registry.register(BrokerMetrics(broker))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
