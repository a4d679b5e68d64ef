"""Team: a cluster of agents on loopback, as `streamhouse dev cluster` starts it, and what it can be asked.

Data path   `streamhouse dev cluster --json` -> **team** -> the questions
Owns        the life of one cluster in a temporary folder, agents that join it later, its meters: CPU, memory,
            the agents' own counters, PostgreSQL's
Leaves      the servers to the command; which agent leads what to `routes`
Invariant   only processes that were started here are ever signalled, by their pid
"""

import asyncio
import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import asyncpg

from benchmarks import process
from benchmarks.kafka_jars import PeerUnavailable
from benchmarks.peer import HOST, PeerFailed
from benchmarks.streamhouse_peer import COMMAND
from streamhouse.dev.processes import Reservation

START_TIMEOUT_S: Final = 90.0
STOP_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.01
SERVERS: Final = {"postgres": "postgres", "weed": "s3"}  # by the names of their processes
REQUESTS: Final = "streamhouse_object_store_requests_total"
TRANSACTIONS: Final = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
_DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """An agent's addresses; it may have several lives, and a process in each."""

    kafka: str
    http: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """CPU seconds so far: of each agent by its address, and of both servers."""

    agents: Mapping[str, float]
    servers: Mapping[str, float]


class Team:
    """`with Team(3) as team:` starts servers and agents, and ends them all."""

    def __init__(
        self,
        agents: int = 3,
        *,
        lease_ttl_s: float = 30.0,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        restart: bool = False,
    ) -> None:
        """`environment` is added to that of all processes: keys of a store that the settings name."""
        self._wanted, self._lease_ttl_s, self._restart = agents, lease_ttl_s, restart
        self._settings = settings or {}
        self._environment = environment or {}
        self._folder = Path()
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._joined: dict[str, subprocess.Popen[bytes]] = {}
        self.members: list[Member] = []
        self.postgres = ""

    def __repr__(self) -> str:
        return f"<Team {[member.kafka for member in self.members]}>"

    def __enter__(self) -> Self:
        if not COMMAND.exists():
            raise PeerUnavailable("no `streamhouse` beside this Python; `make install` puts it there")
        self._folder = Path(tempfile.mkdtemp(prefix="bench-cluster-"))
        self._folder.chmod(0o755)  # PostgreSQL may have to run as nobody
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    @property
    def bootstrap(self) -> str:
        return self.members[0].kafka

    # --- up and down ----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        command = [str(COMMAND), "dev", "cluster", "--json", "--agents", str(self._wanted), "--dir", str(self._folder)]
        command += ["--lease-ttl", f"{self._lease_ttl_s:g}s", *["--restart"] * self._restart]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        with self._log.open("wb") as log:
            self._supervisor = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=self._own_environment()
            )
        ready = self._first_line()
        self.members = [Member(kafka=agent["kafka"], http=agent["http"]) for agent in ready["agents"]]
        self.postgres = ready["postgres"]

    @property
    def _log(self) -> Path:
        return self._folder / "cluster.log"

    def _first_line(self) -> dict[str, Any]:
        assert self._supervisor is not None
        assert self._supervisor.stdout is not None
        if not select.select([self._supervisor.stdout], [], [], START_TIMEOUT_S)[0]:
            raise PeerFailed(f"no cluster in {START_TIMEOUT_S:.0f} s: {self._last_words()}")
        line = self._supervisor.stdout.readline()
        if not line:
            raise PeerFailed(f"no cluster: {self._last_words()}")
        ready: dict[str, Any] = json.loads(line)
        return ready

    def _last_words(self) -> str:
        return " | ".join(self._log.read_text(errors="replace").splitlines()[-8:])[-800:]

    def _stop(self) -> None:
        running = [*self._joined.values(), *filter(None, [self._supervisor])]
        for each in running:
            each.terminate()
        for each in running:
            try:
                each.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                each.kill()
                each.wait()
        self._joined, self._supervisor = {}, None
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- single agents --------------------------------------------------------------------------------------------

    def join(self) -> tuple[Member, float]:
        """One more agent, and the seconds from its start until it is ready."""
        with Reservation() as free:  # not of those that outgoing connections are given
            member = Member(kafka=f"{HOST}:{free.take()}", http=f"{HOST}:{free.take()}")
        command = [str(COMMAND), "up", "--kafka", member.kafka, "--http", member.http, "--grpc", ""]
        began = time.perf_counter()
        with self._log.open("ab") as log:
            joining = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._joiners_environment()
            )
        self._joined[member.kafka] = joining
        self.wait_until_ready(member, began + START_TIMEOUT_S)
        self.members.append(member)
        return member, time.perf_counter() - began

    def leave(self, member: Member) -> float:
        """SIGTERM to an agent that joined, and the seconds until it has ended."""
        leaving, began = self._joined.pop(member.kafka), time.perf_counter()
        self.members.remove(member)
        leaving.terminate()
        try:
            leaving.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            leaving.kill()
            leaving.wait()
            raise PeerFailed(f"agent did not end in {STOP_TIMEOUT_S:.0f} s after SIGTERM") from None
        return time.perf_counter() - began

    def kill(self, member: Member) -> float:
        """SIGKILL, and the moment of it. With `restart` it comes back by itself."""
        pid = self.pid(member)
        moment = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        return moment

    def wait_until_ready(self, member: Member, deadline: float) -> None:
        while not _is_ready(member.http):
            joined = self._joined.get(member.kafka)
            if joined is not None and joined.poll() is not None:
                raise PeerFailed(f"agent ended with code {joined.returncode}: {self._last_words()}")
            if time.perf_counter() > deadline:
                raise PeerFailed(f"agent not ready in time; kafka={member.kafka}: {self._last_words()}")
            time.sleep(POLL_S)

    def pid(self, member: Member) -> int:
        if member.kafka in self._joined:
            return self._joined[member.kafka].pid
        for pid in self._children():
            with suppress(OSError):
                if f"kafka.listen={member.kafka}" in Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
                    return pid
        raise PeerFailed(f"agent is not running; kafka={member.kafka}")

    def _children(self) -> list[int]:
        assert self._supervisor is not None
        return process.children(self._supervisor.pid)

    def _joiners_environment(self) -> dict[str, str]:
        words = shlex.split((self._folder / "env").read_text())
        pairs = [word.split("=", 1) for word in words if word != "export"]
        return {**self._own_environment(), "NO_PROXY": HOST, "no_proxy": HOST, **dict(pairs)}

    def _own_environment(self) -> dict[str, str]:
        """Without settings that somebody made for agents of their own."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("STREAMHOUSE_")}
        return {**ours, **self._environment}

    # --- meters ---------------------------------------------------------------------------------------------------

    def bill(self) -> Bill:
        servers = dict.fromkeys(SERVERS.values(), 0.0)
        for pid in self._children():
            name = SERVERS.get(Path(f"/proc/{pid}/comm").read_text().strip())
            if name:
                servers[name] += process.cpu_s(pid)
        agents = {member.kafka: process.cpu_s(self.pid(member)) for member in self.members}
        return Bill(agents=agents, servers=servers)

    def rss_bytes(self, member: Member) -> int:
        return process.status_bytes(self.pid(member), "VmRSS")

    def store_requests(self) -> Counter[str]:
        """Requests to the object store so far, every attempt of every agent, by operation."""
        found: Counter[str] = Counter()
        for member in self.members:
            for line in _get(f"http://{member.http}/metrics").splitlines():
                if line.startswith(REQUESTS):
                    labels, value = line.rsplit(" ", 1)
                    found[labels.split('operation="')[1].split('"')[0]] += int(float(value))
        return found

    def transactions(self) -> int:
        """Transactions that PostgreSQL has ended so far."""
        return asyncio.run(self._ask_postgres(TRANSACTIONS))

    async def _ask_postgres(self, statement: str) -> int:
        connection = await asyncpg.connect(self.postgres, timeout=10)
        try:
            return int(await connection.fetchval(statement, timeout=10))
        finally:
            await connection.close()


def _get(url: str) -> str:
    with _DIRECT.open(url, timeout=10) as response:
        return str(response.read().decode())


def _is_ready(http: str) -> bool:
    try:
        _get(f"http://{http}/health/ready")
    except OSError:  # not ready is an error too, with status 503
        return False
    return True
