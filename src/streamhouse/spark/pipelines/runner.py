"""Runner: a process with one Spark that runs many pipelines, controlled by its supervisor.

Data path   supervisor -> commands on stdin -> **runner** -> runs; events on stdout
Owns        the Spark, the threads of its pipelines, its own end: with its supervisor, with its Spark, on command, or
            when the lease of what it runs isn't renewed
Leaves      leases, restarts and backoff to the supervisor

Nothing here decides anything: a runner can be killed at any moment. What Spark prints goes where errors go, so that
stdout has events and nothing else.
"""

import argparse
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import BinaryIO, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from streamhouse.clock import Clock, SystemClock
from streamhouse.spark.agents.address import AgentLogin, as_caller
from streamhouse.spark.pipelines.lease_guard import DeadlineProcess
from streamhouse.spark.pipelines.query_builder import PipelineBuilder
from streamhouse.spark.pipelines.query_run import QueryRun
from streamhouse.spark.pipelines.runner_protocol import (
    Command,
    Event,
    Exit,
    LogLine,
    Ready,
    Renewed,
    Start,
    Stop,
    encode_message,
    pipeline_job,
    read_command,
)
from streamhouse.spark.query.untrusted_sql import PLAIN_TEXT
from streamhouse.spark.runtime.session import open_session

log = logging.getLogger(__name__)

POLL_S: Final = 1.0
RENEW_S: Final = 60.0
"""How old an owner's token becomes before a newer one takes its place; tokens are valid for five minutes."""
STOP_TIMEOUT_S: Final = 20.0
MAX_LINE: Final = 8000
"""Characters of one line in a pipeline's log."""
SETTINGS: Final = {
    "spark.scheduler.mode": "FAIR",  # a pipeline with much to do doesn't keep the others waiting
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stopTimeout": "10s",
    "spark.sql.streaming.numRecentProgressUpdates": "50",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


class Events:
    """Lines to the supervisor, whole ones, from any thread."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._turn = threading.Lock()

    def send(self, event: Event) -> None:
        with self._turn:
            self._out.write(encode_message(event))
            self._out.flush()


class Runner:
    """Commands come one after the other; runs live in threads."""

    def __init__(self, builder: PipelineBuilder, events: Events, logins: "OwnerLogins") -> None:
        self._builder, self._events, self._logins = builder, events, logins
        self._runs: dict[int, QueryRun] = {}

    def __repr__(self) -> str:
        return f"<Runner runs={len(self._runs)}>"

    def do(self, command: Command) -> None:
        self._runs = {number: run for number, run in self._runs.items() if run.is_alive()}
        self._logins.keep(self._runs)
        if isinstance(command, Start):
            job = pipeline_job(command.pipeline, epoch=command.epoch, lineage=command.lineage)
            login = self._logins.login(command.run, command.token)
            builder = self._builder if login is None else self._builder.acting_as(login)
            run = QueryRun(command.run, job, build=builder.build, send=self._events.send)
            self._runs[command.run] = run
            run.start()
        elif isinstance(command, Stop) and (running := self._runs.get(command.run)) is not None:
            running.stop()

    def note(self, query_id: str, text: str) -> None:
        """A line for a pipeline's log, from somewhere that knows no run: the console's rows."""
        for run in list(self._runs.values()):
            if run.job.query_id == query_id and not run.stopping:
                self._events.send(LogLine(run=run.number, text=text[:MAX_LINE]))

    def stop(self) -> None:
        runs = list(self._runs.values())
        for run in runs:
            run.stop()
        for run in runs:
            run.join(STOP_TIMEOUT_S)
        self._logins.close()


class OwnerLogins:
    """Tokens of the owners of what runs, in files that only this user reads; they are renewed while it runs."""

    def __init__(self, agents: str, clock: Clock) -> None:
        self._agents, self._clock = agents, clock
        self._folder = Path(tempfile.mkdtemp(prefix="streamhouse-runner-"))
        self._written: dict[int, float] = {}

    def __repr__(self) -> str:
        return f"<OwnerLogins runs={sorted(self._written)}>"

    def login(self, run: int, token: str) -> AgentLogin | None:
        """How a run logs in; None: agents don't require a login."""
        if not token:
            return None
        self._write(run, token)
        return as_caller(self._agents, token_file=str(self._path(run)))

    def renew(self, tokens: Mapping[int, str]) -> None:
        """Not each one that comes: connections are made anew with a new token."""
        now = self._clock.monotonic()
        for run, token in tokens.items():
            if now - self._written.get(run, now) >= RENEW_S:
                self._write(run, token)

    def keep(self, runs: Collection[int]) -> None:
        """Drop those of other runs."""
        for run in [run for run in self._written if run not in runs]:
            del self._written[run]
            self._path(run).unlink(missing_ok=True)

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, run: int) -> Path:
        return self._folder / f"token-{run}"

    def _write(self, run: int, token: str) -> None:
        staged = self._folder / f"new-{run}"
        staged.touch(mode=0o600)
        staged.write_text(token)
        staged.replace(self._path(run))
        self._written[run] = self._clock.monotonic()


class LogForwarder(logging.Handler):
    """Copies log records of a pipeline to the pipeline's own log."""

    def __init__(self, runner: Runner) -> None:
        super().__init__()
        self._runner = runner

    def emit(self, record: logging.LogRecord) -> None:
        query_id = getattr(record, "query_id", None)
        if isinstance(query_id, str):
            self._runner.note(query_id, record.getMessage())


def main() -> None:
    options = _options()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the supervisor's, which ends this process
    events = Events(_own_stdout())
    deadline = DeadlineProcess.start()
    spark = _spark(options)
    jvm_pid = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    threading.Thread(target=_watch, args=(spark,), name="watch", daemon=True).start()
    logins = OwnerLogins(options.agents, SystemClock())
    runner = Runner(PipelineBuilder(spark, agents=options.agents, checkpoints=options.checkpoints), events, logins)
    logging.getLogger().addHandler(LogForwarder(runner))
    events.send(Ready(jvm_pid=jvm_pid, spark=spark.version))
    for line in sys.stdin.buffer:
        command = read_command(line)
        if isinstance(command, Renewed):
            deadline.renew(command.deadline)
            logins.renew(command.tokens)
        elif isinstance(command, Exit):  # in a thread: the lease is renewed while queries stop
            threading.Thread(target=_leave, args=(runner, jvm_pid), name="leave", daemon=True).start()
        else:
            runner.do(command)
    # Also where the supervisor is gone: another supervisor may own these pipelines any moment, so nothing is awaited.
    logins.close()
    _end(jvm_pid)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="streamhouse.spark.pipelines.runner")
    parser.add_argument("--agents", required=True)
    parser.add_argument("--checkpoints", required=True)
    parser.add_argument("--master", default=None)
    parser.add_argument("--name", default="streamhouse-pipelines")
    parser.add_argument("--conf", action="append", default=[])
    return parser.parse_args()


def _own_stdout() -> BinaryIO:
    """Stdout as it was given to us; from here on, anything printed goes to stderr."""
    own = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return own


def _spark(options: argparse.Namespace) -> SparkSession:
    given = dict(setting.partition("=")[::2] for setting in options.conf)
    spark = open_session(
        options.name, agents=options.agents, master=options.master, settings={**SETTINGS, **given, **PLAIN_TEXT}
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _watch(spark: SparkSession) -> None:
    """End with the JVM: without it no query runs, and the supervisor should know at once."""
    while True:
        threading.Event().wait(POLL_S)
        try:
            spark._jsc.sc().isStopped()
        except (Py4JError, OSError):
            log.error("Spark is gone")
            os._exit(1)


def _leave(runner: Runner, jvm_pid: int) -> None:
    runner.stop()
    _end(jvm_pid)


def _end(jvm_pid: int) -> None:
    try:
        os.kill(jvm_pid, signal.SIGKILL)
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
