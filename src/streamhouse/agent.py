"""Agent: the only module that knows everyone. Builds the components from settings, connects them, runs them, stops
them.

Data path   none; it lays the pipes
Owns        the order of starting and stopping, the data folder's lock, signals
Leaves      everything else to the components
"""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from streamhouse.broker.admin.orphan_adoption import AdoptionReport as AdoptionReport
from streamhouse.broker.admin.orphan_adoption import recover_stores
from streamhouse.broker.admin.orphan_survey import OnProgress
from streamhouse.broker.broker import Broker
from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.metrics import BrokerMetrics
from streamhouse.broker.session.heartbeat import SessionStore, open_heartbeats
from streamhouse.broker.wal.disk_recovery import DiskWalFactory, DiskWalRecovery
from streamhouse.broker.wal.object_recovery import ObjectWalFactory
from streamhouse.clock import Ids, SystemClock, limited
from streamhouse.config import AgentSettings, Settings, exposed_listeners, exposure_warning, parse_address
from streamhouse.config.fields import Address
from streamhouse.errors import Misconfigured, Stopping
from streamhouse.format.extensions import extension_warning, missing_extensions
from streamhouse.model.cluster import Session
from streamhouse.model.names import NodeId, SessionId
from streamhouse.retry import retry_start
from streamhouse.stores.local_files import LocalFiles, Lock, LockedError
from streamhouse.stores.metadata.base import MetadataStore
from streamhouse.stores.metadata.open import open_metadata_store
from streamhouse.stores.objects.open import open_object_store
from streamhouse.stores.objects.remote_open import canonical
from streamhouse.stores.objects.startup_check import check_store
from streamhouse.stores.objects.watched import WatchedStore
from streamhouse.telemetry import configure_logging
from streamhouse.wire.http.agent_client import HttpFreezeClient
from streamhouse.wire.http.app import make_app
from streamhouse.wire.http.server import HttpServer
from streamhouse.wire.kafka.agent_client import KafkaAgentClient
from streamhouse.wire.kafka.server import KafkaServer
from streamhouse.wire.listener import EVERYWHERE, advertised, bind

if TYPE_CHECKING:
    from streamhouse.wire.grpc.server import GrpcServer

log = logging.getLogger(__name__)

EXIT_STUCK: Final = 70
"""Exit code of a process whose stop was cut short (EX_SOFTWARE of sysexits.h)."""

RECOVERED_BY: Final = {
    "object": "nothing where other agents run, they recover it; else start the agent again",
    "disk": "start the agent again with the same --data",
}

SWITCH_INTERVAL_S: Final = 0.0005
"""How long a busy thread keeps the interpreter while another one wants it. Python's 5 ms would be the latency of
every ack that waits for the WAL's thread."""

RECOVERY_TIMEOUT_S: Final = 600.0
"""Of one metadata call of `recover`: everything that is registered is one transaction."""

GARBAGE_OBJECTS: Final = 20_000
"""New objects after which Python looks for cycles among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReady:
    """What a running agent tells whoever started it."""

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
    if warning := exposure_warning(exposed_listeners(settings)):
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
    """What there is by now stays for ever and needs no looking at; records come and go by the thousand, and hardly any
    of them is part of a cycle. Looking for those after every 700 objects took two fifths of a request's CPU."""
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS, 10, 10)


class Agent:
    """A started agent: its broker has a session and its listeners are open."""

    def __init__(
        self, broker: Broker, kafka: KafkaServer, http: HttpServer, grpc: "GrpcServer | None", ready: AgentReady
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
        """Serve until `stop`, then hand over: no new appends, everything flushed, the session ended, sockets closed."""
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self.broker.run(), name="broker")
            stopping = tasks.create_task(self._stop.wait(), name="stop")
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            self.broker.stop()
            await asyncio.wait({running})
            async with asyncio.TaskGroup() as servers:
                for server in (self._kafka, self._http, self._grpc):
                    if server is not None:
                        servers.create_task(_close(server.stop(), what=repr(server), limits=self._limits))


def end_process_after(seconds: float) -> None:
    """Have the process end after so long, whatever it waits for: a thread that a disk or a driver doesn't let go can't
    be ended otherwise. What was acknowledged is in the write-ahead log."""

    def end() -> None:
        names = ",".join(thread.name for thread in threading.enumerate() if not thread.daemon)
        log.critical("the stop took too long, the process ends", extra={"seconds": seconds, "threads": names})
        os._exit(EXIT_STUCK)

    watchdog = threading.Timer(seconds, end)
    watchdog.name, watchdog.daemon = "stop-limit", True
    watchdog.start()


async def _close(closing: Awaitable[None], *, what: str, limits: AgentSettings) -> None:
    """Close a part of the agent, for `agent.close_timeout_s` at most; what then is still open goes with the process."""
    try:
        await limited(closing, seconds=limits.close_timeout_s, clock=SystemClock())
    except TimeoutError:
        log.warning("not closed in time", extra={"what": what, "seconds": limits.close_timeout_s})


class _DataPaths(NamedTuple):
    """Where an agent keeps things."""

    data: Path
    metadata_url: str
    store_url: str


class _Listeners(NamedTuple):
    kafka: socket.socket
    http: socket.socket


@asynccontextmanager
async def build_agent(settings: Settings) -> AsyncIterator[Agent]:
    """Open everything, in the order in which it is needed; close it in reverse."""
    places, registry = _data_paths(settings), CollectorRegistry()
    settings = _with_wal_kind(settings, metadata_url=places.metadata_url, store_url=places.store_url)
    async with AsyncExitStack() as stack:
        files = LocalFiles()
        if _needs_data_dir(settings):
            stack.callback(_lock_data_dir(files, places.data).release)
        listeners = _listen(settings, stack)
        grpc = _open_grpc(settings)
        if grpc is not None:
            stack.push_async_callback(grpc.stop)
        dependencies = await _open_dependencies(
            settings, places, listeners, files=files, registry=registry, stack=stack
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
            listener=listeners.kafka,
            clock=dependencies.clock,
            registry=registry,
            cluster_id=cluster_id,
        )
        await kafka.start()
        stack.push_async_callback(kafka.stop)
        told = _grpc_address(grpc, agent_session.session.http)
        app = make_app(broker, registry, cluster_id=cluster_id, grpc=str(told) if told is not None else None)
        http = HttpServer(settings.http, app, listeners.http)
        http.start()
        stack.push_async_callback(http.stop)
        if grpc is not None and told is not None:
            await grpc.start(
                broker, clock=dependencies.clock, registry=registry, cluster_id=cluster_id, advertised=told
            )
        yield Agent(broker, kafka, http, grpc, _ready(broker, agent_session.session, places, listeners, grpc, settings))


async def recover(settings: Settings, *, apply: bool, take_over: str | None, on_progress: OnProgress) -> AdoptionReport:
    """Find, and with `apply` register, what the metadata store lacks of the object store; while no agent runs."""
    configure_logging(log_format=settings.agent.log_format, level="warning")
    places = _data_paths(settings)
    clock, ids, files = SystemClock(), Ids(), LocalFiles()
    patient = replace(settings.metadata, timeout_s=max(settings.metadata.timeout_s, RECOVERY_TIMEOUT_S))
    async with AsyncExitStack() as stack:
        has_folder = not settings.metadata.url or places.data.is_dir()
        if has_folder:
            stack.callback(_lock_data_dir(files, places.data).release)
        metadata = await open_metadata_store(places.metadata_url, clock=clock, settings=patient)
        stack.push_async_callback(metadata.aclose)
        registry = CollectorRegistry()
        objects = open_object_store(places.store_url, clock=clock, ids=ids, registry=registry, settings=settings.store)
        stack.push_async_callback(objects.aclose)
        return await recover_stores(
            metadata,
            objects,
            disk=DiskWalRecovery(places.data / "wal", files) if has_folder else None,
            settings=settings,
            clock=clock,
            ids=ids,
            apply=apply,
            is_alone=not settings.metadata.url,
            take_over=take_over,
            on_progress=on_progress,
        )


def _data_paths(settings: Settings) -> _DataPaths:
    data = _data_dir(settings)
    return _DataPaths(
        data=data,
        metadata_url=settings.metadata.url or f"sqlite:///{data / 'metadata.db'}",
        store_url=canonical(settings.store.url) or f"file://{data / 'objects'}",
    )


def _listen(settings: Settings, stack: AsyncExitStack) -> _Listeners:
    kafka = bind(parse_address(settings.kafka.listen), flag="--kafka")
    stack.callback(kafka.close)
    http = bind(parse_address(settings.http.listen), flag="--http")
    stack.callback(http.close)
    return _Listeners(kafka, http)


async def _open_dependencies(
    settings: Settings,
    places: _DataPaths,
    listeners: _Listeners,
    *,
    files: LocalFiles,
    registry: CollectorRegistry,
    stack: AsyncExitStack,
) -> Dependencies:
    """Everything that the broker reaches the world with."""
    clock, ids = SystemClock(), Ids()
    waits = partial(retry_start, clock=clock, ids=ids, limit_s=settings.metadata.start_wait_s)
    metadata = await waits(partial(open_metadata_store, places.metadata_url, clock=clock, settings=settings.metadata))
    stack.push_async_callback(lambda: _close(metadata.aclose(), what="metadata store", limits=settings.agent))
    objects = WatchedStore(
        open_object_store(places.store_url, clock=clock, ids=ids, registry=registry, settings=settings.store), clock
    )
    stack.push_async_callback(lambda: _close(objects.aclose(), what="object store", limits=settings.agent))
    await check_store(objects, ids)
    # Only the database in the folder that we have locked is ours for certain.
    alone = not settings.metadata.url
    local = DiskWalFactory(places.data / "wal", settings.wal, files=files, clock=clock, ids=ids)
    if not alone and not _is_postgres(places.metadata_url):
        await _require_no_other_agent(metadata, local)
    remote = ObjectWalFactory(objects, settings.wal, clock=clock, ids=ids)
    heartbeats = await waits(partial(open_heartbeats, partial(_session_store, metadata, places.metadata_url, settings)))
    stack.push_async_callback(heartbeats.aclose)
    peers, holders = KafkaAgentClient(settings.peers, clock=clock), HttpFreezeClient(settings.peers)
    stack.push_async_callback(lambda: _close(peers.aclose(), what="connections to agents", limits=settings.agent))
    stack.push_async_callback(lambda: _close(holders.aclose(), what="connections to agents", limits=settings.agent))
    return Dependencies(
        settings=settings,
        objects=objects,
        metadata=metadata,
        wals=local if settings.wal.kind == "disk" else remote,
        foreign_wals={"object": remote, **({"disk": local} if _needs_data_dir(settings) else {})},
        clock=clock,
        ids=ids,
        kafka=_advertised("kafka", settings.kafka.advertise, listeners.kafka, alone=alone),
        http=_advertised("http", settings.http.advertise, listeners.http, alone=alone),
        alone=alone,
        peers=peers,
        holders=holders,
        heartbeats=heartbeats,
        puts=objects.puts,
        store_url=places.store_url,
    )


@asynccontextmanager
async def _session_store(shared: MetadataStore, url: str, settings: Settings) -> AsyncIterator[SessionStore]:
    """What heartbeats use: a connection of their own to PostgreSQL; in SQLite's queue they go ahead of the others."""
    if not _is_postgres(url):
        yield shared
        return
    own = replace(settings.metadata, min_connections=1, max_connections=1, timeout_s=settings.lease.heartbeat_timeout_s)
    store = await open_metadata_store(url, clock=SystemClock(), settings=own)
    try:
        yield store
    finally:
        await store.aclose()


def _ready(
    broker: Broker,
    session: Session,
    places: _DataPaths,
    listeners: _Listeners,
    grpc: "GrpcServer | None",
    settings: Settings,
) -> AgentReady:
    return AgentReady(
        kafka=Address(*listeners.kafka.getsockname()[:2]),
        http=Address(*listeners.http.getsockname()[:2]),
        grpc=grpc.address if grpc is not None else None,
        node_id=session.node_id,
        session_id=session.session_id,
        data=places.data,
        metadata_url=places.metadata_url,
        store_url=places.store_url,
        wal=settings.wal.kind,
        recovered_records=broker.recovered.records,
    )


def _open_grpc(settings: Settings) -> "GrpcServer | None":
    """Imported only where it is listened for: grpc takes a tenth of a second."""
    if not settings.grpc.listen:
        return None
    from streamhouse.wire.grpc.server import GrpcServer

    return GrpcServer(settings.grpc)


def _grpc_address(grpc: "GrpcServer | None", http: Address) -> Address | None:
    """Where others reach gRPC here: the listener's own address, or where it listens everywhere, the HTTP port's."""
    if grpc is None:
        return None
    return Address(http.host, grpc.address.port) if grpc.address.host in EVERYWHERE else grpc.address


async def _require_no_other_agent(metadata: MetadataStore, wals: DiskWalFactory) -> None:
    """Agents that share an SQLite file don't hear of each other's changes, so a second one would confuse clients.

    A courtesy, not a guard: leases keep two agents that start at once from writing the same partition.
    """
    dead = await wals.dead_sessions(SessionId(""))
    roll = await metadata.membership()
    for session in roll.sessions:
        if session.expires_at_ms > roll.now_ms and session.session_id not in dead:
            raise Misconfigured(
                f"another agent uses this SQLite database; node={session.node_id} kafka={session.kafka}; "
                "stop that one first, or give several agents a PostgreSQL database with --metadata postgresql://…"
            )


def _is_postgres(metadata_url: str) -> bool:
    return metadata_url.startswith(("postgresql:", "postgres:"))


def _with_wal_kind(settings: Settings, *, metadata_url: str, store_url: str) -> Settings:
    """Appends go to a bucket where there is one and others can find them there, to the disk otherwise."""
    if settings.wal.kind != "auto":
        return settings
    shared = _is_postgres(metadata_url) and not store_url.startswith("file:")
    return replace(settings, wal=replace(settings.wal, kind="object" if shared else "disk"))


def _needs_data_dir(settings: Settings) -> bool:
    """Whether anything of this agent is on its own disk; with PostgreSQL, a bucket and the object WAL nothing is."""
    return settings.wal.kind == "disk" or not settings.metadata.url or not settings.store.url


def _data_dir(settings: Settings) -> Path:
    return Path(settings.agent.data).absolute()


def _lock_data_dir(files: LocalFiles, data: Path) -> Lock:
    """One agent per data folder: whoever holds its lock knows that every other session in it is dead."""
    try:
        files.make_dir(data)
        (data / "lock").touch()  # nobody ever removes it, so that a second start finds it and takes it
        return files.lock(data / "lock")
    except LockedError:
        raise Misconfigured(
            f"another agent uses the data folder {data}; stop it, or choose another folder with --data DIR"
        ) from None
    except OSError as error:
        raise Misconfigured(
            f"the data folder {data} can't be used: {error.strerror}; choose another one with --data DIR"
        ) from None


def _advertised(section: str, setting: str, listener: socket.socket, *, alone: bool) -> Address:
    told = parse_address(setting) if setting else None
    if alone and told is None:  # whoever came here has found the only agent there is
        return Address(*listener.getsockname()[:2])
    return advertised(told, listener, setting=f"{section}.advertise")


def _register_metrics(registry: CollectorRegistry, broker: Broker) -> None:
    registry.register(BrokerMetrics(broker))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
