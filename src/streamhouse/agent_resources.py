"""The resources that an agent opens before its broker: the data folder, stores, write-ahead logs, clients of other
agents.

Data path   agent -> **agent_resources** -> broker.dependencies
Owns        where data is stored, the data folder's lock, the order in which stores and clients are opened and closed
Leaves      the broker and the listeners to `agent`
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from streamhouse import __version__
from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.heartbeat import SessionStore, open_heartbeats
from streamhouse.broker.record_traces import RecordTraces
from streamhouse.broker.wal.disk_recovery import DiskWalFactory
from streamhouse.broker.wal.object_recovery import ObjectWalFactory
from streamhouse.clock import Clock, Ids, SystemClock, limited
from streamhouse.config import AgentSettings, Settings, is_postgres
from streamhouse.config.secrets import Secrets
from streamhouse.errors import Misconfigured
from streamhouse.model.names import SessionId
from streamhouse.retry import retry_start
from streamhouse.stores.local_files import LocalFiles, Lock, LockedError
from streamhouse.stores.metadata.base import MetadataStore
from streamhouse.stores.metadata.open import open_metadata_store
from streamhouse.stores.objects.base import ObjectStore
from streamhouse.stores.objects.bucket_urls import canonical
from streamhouse.stores.objects.open import open_object_store
from streamhouse.stores.objects.signed_reads import open_signer
from streamhouse.stores.objects.startup_check import check_store
from streamhouse.stores.objects.watched import WatchedStore
from streamhouse.stores.objects.wrapping_keys import require_keys
from streamhouse.tracing import SpanExporter, Tracer
from streamhouse.tracing.exporter import export_headers
from streamhouse.wire.agent_login import agent_login
from streamhouse.wire.http.agent_client import HttpFreezeClient
from streamhouse.wire.kafka.agent_client import KafkaAgentClient
from streamhouse.wire.listener import OpenListener

if TYPE_CHECKING:
    from streamhouse.broker.security.token_issuer import TokenIssuer
    from streamhouse.stores.encryption.data_keys import DataKeys

log = logging.getLogger(__name__)


class DataPaths(NamedTuple):
    """Where an agent stores its data."""

    data: Path
    metadata_url: str
    store_url: str


class Listeners(NamedTuple):
    """The open listeners; other agents use the first of each."""

    kafka: Sequence[OpenListener]
    http: Sequence[OpenListener]


def data_paths(settings: Settings) -> DataPaths:
    data = _data_dir(settings)
    return DataPaths(
        data=data,
        metadata_url=settings.metadata.url or f"sqlite:///{data / 'metadata.db'}",
        store_url=canonical(settings.store.url) or f"file://{data / 'objects'}",
    )


def _data_dir(settings: Settings) -> Path:
    return Path(settings.agent.data).absolute()


def lock_data_dir(files: LocalFiles, data: Path) -> Lock:
    """Lock the data folder for this agent; the holder of the lock knows that all other sessions in it are dead."""
    try:
        files.make_dir(data)
        (data / "lock").touch()  # never removed, so that the next start locks the same file
        return files.lock(data / "lock")
    except LockedError:
        raise Misconfigured(
            f"another agent uses the data folder {data}; stop it, or choose another folder with --data DIR"
        ) from None
    except OSError as error:
        raise Misconfigured(
            f"the data folder {data} can't be used: {error.strerror}; choose another one with --data DIR"
        ) from None


def needs_data_dir(settings: Settings) -> bool:
    """Whether this agent stores anything on its disk; with PostgreSQL, a bucket and the object WAL it doesn't."""
    return settings.wal.kind == "disk" or not settings.metadata.url or not settings.store.url


def with_wal_kind(settings: Settings, *, metadata_url: str, store_url: str) -> Settings:
    """Resolve `wal.kind = auto`: object with PostgreSQL and a bucket, otherwise disk."""
    if settings.wal.kind != "auto":
        return settings
    shared = is_postgres(metadata_url) and not store_url.startswith("file:")
    return replace(settings, wal=replace(settings.wal, kind="object" if shared else "disk"))


async def open_dependencies(
    settings: Settings,
    paths: DataPaths,
    listeners: Listeners,
    secrets: Secrets,
    *,
    files: LocalFiles,
    registry: CollectorRegistry,
    stack: AsyncExitStack,
) -> Dependencies:
    """Open stores, WALs and clients of other agents."""

    def close_later(close: Callable[[], Awaitable[None]], what: str) -> None:
        stack.push_async_callback(lambda: close_within(close(), what=what, limits=settings.agent))

    clock, ids = SystemClock(), Ids()
    single_agent = not settings.metadata.url  # only a database in the locked data folder is certainly its own
    retrying = partial(retry_start, clock=clock, ids=ids, limit_s=settings.metadata.start_wait_s)
    metadata = await retrying(partial(open_metadata_store, paths.metadata_url, clock=clock, settings=settings.metadata))
    close_later(metadata.aclose, "metadata store")
    keys = open_keys(settings, clock)
    objects = WatchedStore(
        open_object_store(paths.store_url, clock=clock, ids=ids, registry=registry, settings=settings.store, keys=keys),
        clock,
    )
    close_later(objects.aclose, "object store")
    await check_store(objects, ids)
    await retrying(partial(_prepare_keys, objects, keys))
    disk_wals = DiskWalFactory(paths.data / "wal", settings.wal, files=files, clock=clock, ids=ids, keys=keys)
    if not single_agent and not is_postgres(paths.metadata_url):
        await _require_no_other_agent(metadata, disk_wals)
    object_wals = ObjectWalFactory(objects, settings.wal, clock=clock, ids=ids)
    heartbeats = await retrying(
        partial(open_heartbeats, partial(_session_store, metadata, paths.metadata_url, settings))
    )
    stack.push_async_callback(heartbeats.aclose)
    traces = await _open_traces(settings, listeners, clock, ids, registry, stack)
    login = agent_login(settings, secrets, kafka=listeners.kafka[0], http=listeners.http[0], clock=clock)
    agents = KafkaAgentClient(settings.peers, clock=clock, login=login)
    freezes = HttpFreezeClient(settings.peers, login=login)
    for client in (agents, freezes):
        close_later(client.aclose, "connections to agents")
    return Dependencies(
        settings=settings,
        objects=objects,
        metadata=metadata,
        wal_factory=disk_wals if settings.wal.kind == "disk" else object_wals,
        foreign_wals={"object": object_wals, **({"disk": disk_wals} if needs_data_dir(settings) else {})},
        clock=clock,
        ids=ids,
        kafka=listeners.kafka[0].advertised,
        http=listeners.http[0].advertised,
        listeners=tuple((each.spec.name, each.advertised) for each in listeners.kafka),
        secrets=secrets,
        issuer=_open_issuer(settings, clock),
        single_agent=single_agent,
        agents=agents,
        freezes=freezes,
        heartbeats=heartbeats,
        puts=objects.puts,
        store_url=paths.store_url,
        data_keys=keys,
        traces=traces,
        signer=open_signer(paths.store_url, os.environ, clock, valid_s=settings.plans.signed_read_s),
    )


async def _require_no_other_agent(metadata: MetadataStore, wals: DiskWalFactory) -> None:
    """Reject a second agent on one SQLite file: agents aren't notified of each other's changes there.

    Best effort; leases prevent two agents that start at the same time from writing the same partition.
    """
    dead = await wals.dead_sessions(SessionId(""))
    membership = await metadata.membership()
    for session in membership.sessions:
        if session.expires_at_ms > membership.now_ms and session.session_id not in dead:
            raise Misconfigured(
                f"another agent uses this SQLite database; node={session.node_id} kafka={session.kafka}; "
                "stop that one first, or give several agents a PostgreSQL database with --metadata postgresql://…"
            )


@asynccontextmanager
async def _session_store(shared: MetadataStore, url: str, settings: Settings) -> AsyncIterator[SessionStore]:
    """The store for heartbeats: a separate connection to PostgreSQL; SQLite's queue has a priority for them."""
    if not is_postgres(url):
        yield shared
        return
    own = replace(settings.metadata, min_connections=1, max_connections=1, timeout_s=settings.lease.heartbeat_timeout_s)
    store = await open_metadata_store(url, clock=SystemClock(), settings=own)
    try:
        yield store
    finally:
        await store.aclose()


def open_keys(settings: Settings, clock: Clock) -> "DataKeys | None":
    if settings.encryption.kms == "none":
        return None
    from streamhouse.stores.encryption.open import open_data_keys

    return open_data_keys(settings.encryption, os.environ, clock)


async def _prepare_keys(objects: ObjectStore, keys: "DataKeys | None") -> None:
    """Raise `Misconfigured` if records are encrypted with a key that isn't here; make the key for new ones."""
    await require_keys(objects, keys)
    if keys is not None and keys.settings.new_objects:
        await keys.renew()


def _open_issuer(settings: Settings, clock: Clock) -> "TokenIssuer | None":
    """Import what checks tokens of an OpenID provider only if there is one: the import takes a tenth of a second."""
    if not settings.security.oauth_issuer:
        return None
    from streamhouse.broker.security.token_issuer import TokenIssuer
    from streamhouse.wire.http.issuer_keys import key_fetcher

    return TokenIssuer(settings.security, key_fetcher(settings.security), clock=clock)


async def _open_traces(
    settings: Settings,
    listeners: Listeners,
    clock: Clock,
    ids: Ids,
    registry: CollectorRegistry,
    stack: AsyncExitStack,
) -> RecordTraces | None:
    """None without a collector."""
    if not settings.tracing.endpoint:
        return None
    tracer = Tracer(settings.tracing, clock=clock, ids=ids)
    resource = {
        "service.name": "streamhouse",
        "service.version": __version__,
        "service.instance.id": str(listeners.kafka[0].advertised),
    }
    exporter = SpanExporter(tracer, resource=resource, headers=export_headers(os.environ), clock=clock)
    exporter.start()
    stack.push_async_callback(asyncio.to_thread, exporter.stop)
    return RecordTraces(tracer, registry)


async def close_within(closing: Awaitable[None], *, what: str, limits: AgentSettings) -> None:
    """Close a component, within `agent.close_timeout_s`; what is still open then ends with the process."""
    try:
        await limited(closing, seconds=limits.close_timeout_s, clock=SystemClock())
    except TimeoutError:
        log.warning("not closed in time", extra={"what": what, "seconds": limits.close_timeout_s})
