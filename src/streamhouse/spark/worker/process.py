"""The SQL worker process: keeps a Spark warm for one user and one set of agents.

Data path   shell, agents -> **process**: http_app -> query_executor -> Spark
Owns        its lock, listener and tokens, its registration, its end (stopped or idle); settings for short queries
Leaves      discovery and start to `worker_client`, requests to `http_app`, settings of all sessions to
            `runtime.launch`
"""

import argparse
import asyncio
import logging
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Final

import uvicorn
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from streamhouse.clock import Clock, Ids, SystemClock
from streamhouse.config import is_loopback, load_settings
from streamhouse.config.secrets import read_secret
from streamhouse.errors import Misconfigured, StreamhouseError
from streamhouse.model.access import WORKER
from streamhouse.spark.agents.address import AgentLogin
from streamhouse.spark.agents.process_login import process_credentials, take_cluster_secret
from streamhouse.spark.query.untrusted_sql import PLAIN_TEXT, UNTRUSTED_DATABASE
from streamhouse.spark.runtime.session import open_session
from streamhouse.spark.worker.discovery import (
    RuntimeDir,
    Worker,
    WorkerRegistration,
    reachable,
    register_worker,
    runtime_dir,
)
from streamhouse.spark.worker.http_app import WorkerApp
from streamhouse.spark.worker.query_executor import QueryExecutor, SqlLimits

MASTER: Final = "local[*]"
LOOPBACK: Final = "127.0.0.1"
_CONTEXTS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def settings_of(limits: SqlLimits, folder: Path) -> dict[str, str]:
    """Many small queries at once, each of which should begin now."""
    return {
        "spark.driver.memory": limits.memory,
        "spark.driver.maxResultSize": str(limits.max_result_bytes),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.runSQLOnFiles": "false",  # files are tables by CREATE TABLE, not by a name that is a path
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **PLAIN_TEXT,
    }


def open_engine(agents: str, *, limits: SqlLimits, folder: Path, master: str = MASTER) -> SparkSession:
    """A session that has run a query: classes are loaded, and Python workers are running."""
    shutil.rmtree(folder / "warehouse", ignore_errors=True)
    quiet()
    spark = open_session("streamhouse-sql", agents=agents, master=master, settings=settings_of(limits, folder))
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {UNTRUSTED_DATABASE}")
    spark.range(10).selectExpr("id", "CAST(id AS STRING) AS text").groupBy("text").count().limit(5).toArrow()
    return spark


def quiet() -> None:
    """PySpark logs every error of a query, as JSON; the client gets it instead."""
    for name in _CONTEXTS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


log = logging.getLogger(__name__)

POLL_S: Final = 1.0
GRACE_S: Final = 2
STOP_SPARK_S: Final = 5.0
FAILED: Final = 1
TAKEN: Final = 3
LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """The arguments of a worker."""

    agents: str
    host: str = "127.0.0.1"
    port: int = 0
    master: str = MASTER
    limits: SqlLimits = field(default_factory=SqlLimits)

    @property
    def tls(self) -> dict[str, str]:
        """Uvicorn's options of TLS, for agents on other machines: the certificate is that of `security`; else empty."""
        security = load_settings({}, os.environ).security
        if is_loopback(self.host) or not security.tls_certificate:
            return {}
        files = {"ssl_certfile": security.tls_certificate, "ssl_keyfile": security.tls_key}
        if not security.tls_key_password:
            return files
        password = read_secret(security.tls_key_password, os.environ, setting="security.tls_key_password")
        return {**files, "ssl_keyfile_password": password}


def run_worker(plan: WorkerPlan, *, on_ready: Callable[[Worker], None] | None = None) -> None:
    """Blocks until the worker ends; raises `Misconfigured` where another one runs for these agents."""
    home = runtime_dir(plan.agents)
    secret = take_cluster_secret(os.environ)  # before there is a JVM, which has a copy of the environment
    with home.alive() as ours:
        if not ours:
            raise Misconfigured(f"a SQL worker runs for these agents; agents={plan.agents} do=streamhouse sql stop")
        home.forget()
        spark = open_engine(plan.agents, limits=plan.limits, folder=home.folder, master=plan.master)
        try:
            asyncio.run(_WorkerProcess(plan, home, spark, secret, on_ready).run())
        finally:
            home.forget()
            _stop(spark)


def serve(given: Mapping[str, Any], *, on_ready: Callable[[Worker], None] | None = None) -> None:
    """Run `streamhouse sql serve` with a plan from its flags."""
    limits = SqlLimits(**{key: given[key] for key in SqlLimits.__slots__ if key in given})
    plan = {key: given[key] for key in ("agents", "host", "port", "master")}
    logging.basicConfig(level=logging.WARNING, format=LOG_FORMAT)
    run_worker(WorkerPlan(**plan, limits=limits), on_ready=on_ready)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads of queries that don't end must not keep the process


def listen(host: str, port: int) -> socket.socket:
    """Connections have TCP_NODELAY of it: else a response's body waits 40 ms for the acknowledgement of its headers."""
    listener = socket.create_server((host, port))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


class _Server(uvicorn.Server):
    """Uvicorn without its signal handlers, which end the process before what we have to do at the end."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _WorkerProcess:
    def __init__(
        self,
        plan: WorkerPlan,
        home: RuntimeDir,
        spark: SparkSession,
        secret: str,
        on_ready: Callable[[Worker], None] | None,
    ) -> None:
        self._plan, self._home, self._secret, self._on_ready = plan, home, secret, on_ready
        self._clock: Clock = SystemClock()
        self._ids = ids = Ids()
        self._token, self._agents_token = ids.token(), ids.token()
        self._answering = QueryExecutor(spark, agents=plan.agents, limits=plan.limits)
        self._serving = WorkerApp(
            self._answering,
            token=self._token,
            agents_token=self._agents_token,
            limits=plan.limits,
            clock=self._clock,
            ids=ids,
            needs_caller=bool(secret),
        )

    async def run(self) -> None:
        """Run until a signal ends the server, or it was idle for long."""
        listener, tls = listen(self._plan.host, self._plan.port), self._plan.tls
        own = listen(LOOPBACK, 0) if tls else listener  # this machine's shells need no certificate
        servers = [(self._server({}), own), *([(self._server(tls), listener)] if tls else [])]
        worker = self._describe(own)
        self._home.publish(worker)
        if self._on_ready is not None:
            self._on_ready(worker)
        stop = partial(_stop_serving, [server for server, _ in servers])
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop)
        Thread(target=self._answering.warm, name="warm", daemon=True).start()
        beside = [asyncio.create_task(self._end_idle(stop), name="idle")]
        if reachable(self._plan.host, self._plan.agents):
            address = f"https://{self._plan.host}:{listener.getsockname()[1]}" if tls else worker.address
            beside.append(asyncio.create_task(self._announce(worker, address), name="announcing"))
        try:
            await asyncio.gather(*(server.serve(sockets=[socket_]) for server, socket_ in servers))
        finally:
            self._home.forget()
            self._serving.close()
            await _ended(beside)

    def _server(self, tls: dict[str, Any]) -> _Server:
        return _Server(
            uvicorn.Config(
                self._serving.app,
                ws="none",
                proxy_headers=False,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE_S,
                **tls,
            )
        )

    def _describe(self, listener: socket.socket) -> Worker:
        host, port = listener.getsockname()[:2]
        return Worker(
            address=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            token=self._token,
            pid=os.getpid(),
            agents=self._plan.agents,
            log=str(self._home.log),
            started_at_ms=self._clock.now_ms(),
        )

    async def _announce(self, worker: Worker, address: str) -> None:
        registration = WorkerRegistration(
            worker=f"{socket.gethostname()}-{worker.pid}-{self._agents_token[:8]}",
            address=address,
            token=self._agents_token,
        )
        login = AgentLogin(self._plan.agents, process_credentials(WORKER, registration.worker, self._secret))
        await register_worker(login, registration, busy=lambda: self._serving.busy, clock=self._clock, ids=self._ids)

    async def _end_idle(self, stop: Callable[[], None]) -> None:
        while self._serving.idle_s < self._plan.limits.idle_s:
            await self._clock.sleep(POLL_S)
        log.warning("idle timeout; worker exits", extra={"idle_s": self._plan.limits.idle_s})
        stop()


async def _ended(tasks: Sequence["asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=GRACE_S)


def _stop_serving(servers: Sequence[uvicorn.Server]) -> None:
    for server in servers:
        server.should_exit = True


def _stop(spark: SparkSession) -> None:
    """Spark has a while to stop; a query that doesn't end must not keep the process."""
    stopping = Thread(target=spark.stop, name="stop-spark", daemon=True)
    stopping.start()
    stopping.join(STOP_SPARK_S)


def main(arguments: Sequence[str] | None = None) -> int:
    """The entry point of the process that `starting` launches."""
    parser = argparse.ArgumentParser(prog="python -m streamhouse.spark.worker.process")
    parser.add_argument("--agents", required=True)
    parser.add_argument("--idle", type=float, default=SqlLimits().idle_s, help="seconds")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format=LOG_FORMAT)
    try:
        run_worker(WorkerPlan(agents=given.agents, limits=SqlLimits(idle_s=given.idle)))
    except StreamhouseError as error:
        log.error("%s", error)
        return TAKEN if isinstance(error, Misconfigured) else FAILED
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads of queries that don't end must not keep the process
