"""Service: builds a supervisor from its parts, and runs it until a signal.

Data path   `pipelines run` -> **service** -> supervisor, runners, agents
Owns        names of supervisors, signals, the log file of runners
Leaves      decisions to `supervisor`, tables of topics to `pipelines.topic_tables`, merging to
            `maintenance`
"""

import asyncio
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol

from streamhouse.client.credentials import VARIABLES
from streamhouse.clock import Ids, SystemClock
from streamhouse.config import MaintenanceSettings, PipelineSettings, TableSettings
from streamhouse.errors import Misconfigured
from streamhouse.model.access import SUPERVISOR
from streamhouse.spark.agents.address import AgentLogin, open_http
from streamhouse.spark.agents.process_login import process_credentials, take_cluster_secret
from streamhouse.spark.agents.resources import SupervisorClient
from streamhouse.spark.agents.run_replacements import MaintenanceClient
from streamhouse.spark.maintenance.scheduler import JobPlan, MaintenanceScheduler, start_job
from streamhouse.spark.pipelines.runner_process import OnEvent, RunnerCommand, RunnerProcess, start_runner
from streamhouse.spark.pipelines.supervisor import StartLimits, StatusCallback, Supervisor
from streamhouse.spark.pipelines.topic_tables import TopicTableReconciler
from streamhouse.spark.runtime.java import java_home

REQUEST_TIMEOUT_S: Final = 4.0
"""Timeout of a heartbeat: several fit into a lease."""
TABLES_TIMEOUT_S: Final = 10.0
DEFAULT_SLOTS: Final = 64
OF_USERS: Final = tuple(name for name in VARIABLES if name.removeprefix("STREAMHOUSE_") not in ("CA", "CERT", "KEY"))
"""Variables with logins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorPlan:
    """The options of `streamhouse pipelines run`."""

    agents: str
    checkpoints: str
    master: str | None = None
    slots: int = DEFAULT_SLOTS
    name: str | None = None
    log: Path | None = None
    conf: tuple[str, ...] = ()
    maintenance: MaintenanceSettings | None = None
    """When topics get jobs that merge and compact them; None: never by this supervisor."""
    pipelines: PipelineSettings = field(default_factory=PipelineSettings)
    """How many pipelines start at the same time."""
    tables: TableSettings = field(default_factory=TableSettings)
    """How often it is looked which topics are to be lake tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorStarts:
    """Facts to show before the first heartbeat."""

    name: str
    log: Path


async def supervise(
    plan: SupervisorPlan, *, on_start: Callable[[SupervisorStarts], None], news: StatusCallback
) -> None:
    """Run pipelines until SIGTERM or SIGINT."""
    if find_spec("pyspark") is None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
    java_home()  # raises with what to do, here and not in a log
    ids, host = Ids(), socket.gethostname()
    name = f"{plan.name or host}-{ids.token()[:8]}"
    log = plan.log or Path(tempfile.gettempdir()) / f"streamhouse-pipelines-{name}.log"
    on_start(SupervisorStarts(name=name, log=log))
    secret = take_cluster_secret(os.environ)
    children = RunnerCommand(
        agents=plan.agents,
        checkpoints=check_folder(plan.checkpoints),
        log=log,
        master=plan.master,
        conf=plan.conf,
        without=OF_USERS if secret else (),
    )
    login = AgentLogin(plan.agents, process_credentials(SUPERVISOR, name, secret))
    async with (
        open_http(login, timeout_s=REQUEST_TIMEOUT_S) as http,
        open_http(plan.agents, timeout_s=TABLES_TIMEOUT_S) as asking,
        MaintenanceClient(plan.agents) as maintainers,
    ):
        agents = SupervisorClient(http, name=name, host=host, slots=plan.slots)
        starts = StartLimits(at_once=plan.pipelines.max_starting, wait_s=plan.pipelines.start_wait_s)
        start = partial(_start, plan=children)
        supervisor = Supervisor(agents, start, clock=SystemClock(), ids=ids, starts=starts, news=news)
        columns, every_s = partial(_columns, plan.agents), plan.tables.follow_s
        beside: list[_Beside] = [
            TopicTableReconciler(asking, columns, every_s=every_s, clock=SystemClock(), ids=ids, news=news)
        ]
        if (settings := plan.maintenance) is not None:
            job = partial(start_job, JobPlan(agents=plan.agents, log=log, master=plan.master, conf=plan.conf))
            beside.append(
                MaintenanceScheduler(maintainers, job, settings, name=name, clock=SystemClock(), ids=ids, news=news)
            )
        await _run(supervisor, beside)


class _Beside(Protocol):
    """The supervisor's tasks besides pipelines, until it is cancelled."""

    async def run(self) -> None: ...


async def _run(supervisor: Supervisor, beside: Sequence[_Beside]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.stop)
    async with asyncio.TaskGroup() as all_:
        tasks = [all_.create_task(each.run(), name=type(each).__name__) for each in beside]
        await supervisor.run()
        for task in tasks:
            task.cancel()


def _columns(agents: str, topic: str) -> tuple[str, ...] | None:
    """PySpark is loaded when a table has a key or partitions: a supervisor itself needs little memory."""
    module: Any = import_module("streamhouse.spark.query.catalog")
    columns: tuple[str, ...] | None = module.topic_columns(agents, topic)
    return columns


async def _start(key: str, on_event: OnEvent, *, plan: RunnerCommand) -> RunnerProcess:
    return await start_runner(key, plan, on_event)


def check_folder(checkpoints: str) -> str:
    """The path as Spark is to see it: a folder of this machine is made, and named from the root."""
    if "://" in checkpoints:
        return checkpoints
    folder = Path(checkpoints).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Misconfigured(f"no folder for checkpoints; path={folder} why={error.strerror}") from None
    return str(folder)
