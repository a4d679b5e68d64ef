"""Discovery of SQL workers: its runtime directory on this machine, and its registration with agents.

Data path   worker_client -> **RuntimeDir** <- process; process -> **WorkerRegistration** -> an agent's
            /v1/sql/workers
Owns        the directory's name and rights, its two locks, the file with the worker's address; when agents get it
Leaves      starting to `worker_client`, requests to `http_app`, forwarding to the agents

There is one directory per user, login, machine, installation and set of agents. It is never removed, so no process
locks a deleted file. A worker holds `alive` locked while it lives; a process that starts one holds `starting`, so two
shells start one.

Agents share registrations through the metadata store, so one agent that answers is enough. A worker that listens on
loopback registers with agents on this machine only.
"""

import asyncio
import fcntl
import hashlib
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from streamhouse import __version__
from streamhouse.client.addresses import agent_urls
from streamhouse.client.credentials import Credentials
from streamhouse.client.http import REFUSED, Http
from streamhouse.clock import Clock, Ids
from streamhouse.config import is_loopback
from streamhouse.errors import Misconfigured, StreamhouseError
from streamhouse.spark.agents.address import AgentLogin, open_http

FOLDER_VARIABLE: Final = "STREAMHOUSE_SQL_FOLDER"
LAST_LINES: Final = 8
MAX_TAIL_BYTES: Final = 16 * 1024


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that runs: send requests to `address` with `token`; `log` is the file that it writes to."""

    address: str
    token: str
    pid: int = 0
    agents: str = ""
    log: str = ""
    started_at_ms: int = 0

    def __repr__(self) -> str:
        return f"<Worker {self.address} pid={self.pid} agents={self.agents}>"


def same_agents(agents: str) -> str:
    """The same text for the same agents, in whatever order they are named."""
    return ",".join(sorted({part.strip() for part in agents.split(",") if part.strip()}))


def runtime_dir(agents: str, environ: Mapping[str, str] | None = None) -> "RuntimeDir":
    """The folder for these agents, made where it isn't there."""
    environ = os.environ if environ is None else environ
    parts = (socket.gethostname(), same_agents(agents), __version__, sys.executable, *_login(environ))
    name = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return RuntimeDir(_private(base_folder(environ) / name))


def _login(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The identity at the agents: a worker reads as the user who started it, and serves only that user."""
    credentials = Credentials.from_environment(environ)
    return tuple(credentials.headers.values())


def base_folder(environ: Mapping[str, str]) -> Path:
    """`STREAMHOUSE_SQL_FOLDER`, else the user's cache."""
    if given := environ.get(FOLDER_VARIABLE):
        return Path(given)
    cache = environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "streamhouse" / "sql"


def _private(folder: Path) -> Path:
    """The directory has a token: it must belong to this user, and be readable by no other."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = folder.lstat()
    except OSError as error:
        raise Misconfigured(
            f"the SQL worker's token can't be stored; folder={folder} error={error.strerror}"
            f" do=set {FOLDER_VARIABLE} to a folder of yours"
        ) from error
    if info.st_uid != os.getuid() or info.st_mode & 0o077:
        raise Misconfigured(
            f"others can look into the SQL worker's folder; folder={folder} do=chmod 700 it, or set {FOLDER_VARIABLE}"
        )
    return folder


class RuntimeDir:
    """The files of a runtime folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "worker.log"
        self._file = folder / "worker.json"

    def __repr__(self) -> str:
        return f"<Home {self.folder}>"

    def publish(self, worker: Worker) -> None:
        """Say where the worker is: all of it, or nothing, and to its user alone."""
        making = self._file.with_suffix(f".{os.getpid()}")
        with os.fdopen(os.open(making, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(worker))
        making.replace(self._file)

    def read(self) -> Worker | None:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Worker)
        except (OSError, msgspec.DecodeError):
            return None

    def forget(self) -> None:
        self._file.unlink(missing_ok=True)

    def last_words(self) -> tuple[str, ...]:
        """The end of the log."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - MAX_TAIL_BYTES))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return ()
        return tuple(line for line in text.splitlines() if line.strip())[-LAST_LINES:]

    # --- locks

    @contextmanager
    def alive(self) -> Iterator[bool]:
        """Held by a worker for its whole life; False where another one holds it."""
        with self._locked("alive") as ours:
            yield ours

    @contextmanager
    def starting(self) -> Iterator[bool]:
        """Held by the process that starts a worker; False if another one holds it."""
        with self._locked("starting") as ours:
            yield ours

    def has_worker(self) -> bool:
        """Whether a worker lives, also one that is still starting."""
        with self._locked("alive") as ours:
            return not ours

    @contextmanager
    def _locked(self, name: str) -> Iterator[bool]:
        handle = os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(handle)


log = logging.getLogger(__name__)

HEARTBEAT_S: Final = 5.0
AWAY_S: Final = 15.0
"""Between tries where no agent answers, or none knows what a worker is."""
REQUEST_TIMEOUT_S: Final = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRegistration:
    """`token` is what agents show: it makes their callers untrusted."""

    worker: str
    address: str
    token: str

    def __repr__(self) -> str:
        return f"<Announcement {self.worker} address={self.address}>"


def reachable(host: str, agents: str) -> bool:
    """Whether these agents can reach a listener on `host`."""
    return not is_loopback(host) or all(is_loopback(urlsplit(url).hostname or "") for url in agent_urls(agents))


async def register_worker(
    agents: AgentLogin, announcement: WorkerRegistration, *, busy: Callable[[], int], clock: Clock, ids: Ids
) -> None:
    """Send heartbeats to agents until cancelled, then remove the registration."""
    path = f"/v1/sql/workers/{announcement.worker}"
    async with open_http(agents, timeout_s=REQUEST_TIMEOUT_S) as http:
        try:
            while True:
                body = {"address": announcement.address, "token": announcement.token, "busy": busy()}
                is_registered = await _send(http, f"{path}/heartbeat", body)
                await clock.sleep(ids.jitter(HEARTBEAT_S) if is_registered else AWAY_S)
        except asyncio.CancelledError:
            with suppress(StreamhouseError):
                await http.send("DELETE", path)
            raise


async def _send(http: Http, path: str, body: dict[str, object]) -> bool:
    try:
        response = await http.send("POST", path, body=body)
    except StreamhouseError as error:
        log.debug("registration failed", extra={"why": str(error)})
        return False
    if response.status in REFUSED:
        log.warning("agents reject this SQL worker; give it security.cluster_secret", extra={"path": path})
    return response.status < 400
