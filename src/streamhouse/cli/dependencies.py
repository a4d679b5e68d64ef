"""Dependencies: everything that commands call outside `cli`.

The client, the agent, local clusters and Spark are imported and opened only here, and only when a command needs them.
Tests replace `Dependencies` by fakes.
"""

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, TypeVar

import typer

from streamhouse.cli.login import credentials_of
from streamhouse.client.credentials import NO_CREDENTIALS, VARIABLES, Credentials
from streamhouse.errors import Misconfigured
from streamhouse.errors.base import install_command

if TYPE_CHECKING:
    from streamhouse.agent import AdoptionReport, AgentReady
    from streamhouse.cli.sql.query_request import SqlRequest
    from streamhouse.client.cluster_client import ClusterClient
    from streamhouse.client.consumer import Consumer
    from streamhouse.client.group_consumer import GroupConsumer
    from streamhouse.client.group_lag import PartitionLag
    from streamhouse.client.http import Http
    from streamhouse.client.kafka_admin import Admin
    from streamhouse.client.kafka_groups import Groups
    from streamhouse.client.producer import Producer, ProducerSettings
    from streamhouse.client.schemas import Schemas
    from streamhouse.client.security import Security
    from streamhouse.client.serde import SchemaReader, Write
    from streamhouse.client.types import Group
    from streamhouse.config import Settings
    from streamhouse.dev.cluster import ClusterReady
    from streamhouse.process_manager.manager import AgentsReady, ManagerPlan
    from streamhouse.spark.agents.definition_applier import DefinitionApplier, DefinitionFile, FileDiagnostic
    from streamhouse.spark.maintenance.job import JobResult, Progress
    from streamhouse.spark.replay.resumable_job import ReplayResult
    from streamhouse.spark.runtime.launch import Kind
    from streamhouse.spark.worker.discovery import Worker
    from streamhouse.spark.worker.worker_client import WorkerStatus

T = TypeVar("T")
JobKind: TypeAlias = Literal["merge", "compact"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkJobOptions:
    """The agents that a job reads from, and the Spark that it runs on."""

    agents: str
    master: str | None
    settings: Mapping[str, str]
    log: Path | None


class Dependencies:
    """The real dependencies. `credentials` are used for all agents."""

    credentials: Credentials = NO_CREDENTIALS

    def admin(self, bootstrap: str, *, timeout_s: float = 10.0) -> "AbstractAsyncContextManager[Admin]":
        from streamhouse.client.kafka_admin import Admin

        return Admin(bootstrap, timeout_s=timeout_s, credentials=self.credentials)

    def producer(
        self, bootstrap: str, topic: str, *, settings: "ProducerSettings", write_value: "Write | None" = None
    ) -> "AbstractAsyncContextManager[Producer]":
        from streamhouse.client.producer import Producer

        return Producer(bootstrap, topic, settings=settings, write_value=write_value, credentials=self.credentials)

    def consumer(
        self, bootstrap: str, topic: str, *, starts: Mapping[int, int]
    ) -> "AbstractAsyncContextManager[Consumer]":
        from streamhouse.client.consumer import Consumer

        return Consumer(bootstrap, topic, starts=starts, credentials=self.credentials)

    async def partition_lags(self, admin: "Admin", group: "Group") -> "list[PartitionLag]":
        from streamhouse.client.group_lag import partition_lags

        return await partition_lags(admin, self.groups(admin), group)

    def groups(self, admin: "Admin") -> "Groups":
        from streamhouse.client.kafka_groups import Groups

        return Groups(admin)

    def group_consumer(
        self, bootstrap: str, topic: str, *, group: str, from_beginning: bool, reader: "SchemaReader | None" = None
    ) -> "AbstractAsyncContextManager[GroupConsumer]":
        from streamhouse.client.group_consumer import GroupConsumer

        return GroupConsumer(
            bootstrap,
            topic,
            group=group,
            from_beginning=from_beginning,
            commit="explicit",
            reader=reader,
            credentials=self.credentials,
        )

    def http(self, address: str) -> "AbstractAsyncContextManager[Http]":
        from streamhouse.client.http import Http

        return Http(address, credentials=self.credentials)

    def schemas(self, http: "Http") -> "Schemas":
        from streamhouse.client.schemas import Schemas

        return Schemas(http)

    def security(self, http: "Http") -> "Security":
        from streamhouse.client.security import Security

        return Security(http)

    def cluster_client(self, address: str) -> "ClusterClient":
        from streamhouse.client.cluster_client import ClusterClient

        return ClusterClient(address, connect=self.http)

    def run_agent(self, settings: "Settings", *, on_ready: "Callable[[AgentReady], None]") -> None:
        """Blocks until the agent has stopped."""
        with installed("server"):
            import uvloop

            from streamhouse.agent import run_agent

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run_agent(settings, on_ready=on_ready))

    def run_agents(
        self,
        plan: "ManagerPlan",
        *,
        on_ready: "Callable[[AgentsReady], None]",
        on_event: Callable[[str], None],
    ) -> None:
        """Blocks until all agents have stopped."""
        with installed("server"):
            from streamhouse.process_manager.manager import run_agents

        run_agents(plan, on_ready=on_ready, on_event=on_event)

    def recover(
        self, settings: "Settings", *, apply: bool, take_over: str | None, on_progress: "Callable[[str, int], None]"
    ) -> "AdoptionReport":
        """Blocks until it is done."""
        with installed("server"):
            from streamhouse.agent import recover

        return asyncio.run(recover(settings, apply=apply, take_over=take_over, on_progress=on_progress))

    def run_cluster(
        self,
        *,
        agents: int,
        folder: Path,
        settings: Mapping[str, str],
        kafka_port: int,
        http_port: int,
        restart: bool,
        secure: bool,
        on_ready: "Callable[[ClusterReady], None]",
        on_event: Callable[[str], None],
    ) -> None:
        """Blocks until everything has stopped."""
        with installed("dev-cluster"):
            from streamhouse.dev.cluster import ClusterPlan, run_cluster

        plan = ClusterPlan(
            agents=agents,
            folder=folder,
            settings=settings,
            kafka_port=kafka_port,
            http_port=http_port,
            restart=restart,
            secure=secure,
        )
        run_cluster(plan, on_ready=on_ready, on_event=on_event)

    def spark_settings(self, agents: str | None) -> tuple[dict[str, str], str]:
        """Return the settings by name, and as lines of a file."""
        from streamhouse.spark.runtime.launch import as_defaults, explained_settings, spark_settings

        return spark_settings(agents), as_defaults(explained_settings(agents))

    def start_spark(self, kind: "Kind", arguments: Sequence[str], *, agents: str) -> NoReturn:
        """Replace this process by Spark, which handles signals and sets the exit code."""
        from streamhouse.spark.runtime.launch import plan_launch

        with installed("spark"):
            launch = plan_launch(kind, arguments, os.environ, agents=agents)
        sys.stdout.flush()
        os.execve(launch.command[0], launch.command, {**launch.environment, **self.credentials.as_environment()})

    def export_login(self) -> None:
        """Set the environment so that Spark and its processes log in as this command does."""
        for name in VARIABLES:
            os.environ.pop(name, None)
        os.environ.update(self.credentials.as_environment())

    # --- pipelines

    def run_supervisor(
        self,
        *,
        agents: str,
        master: str | None,
        checkpoints: str | None,
        slots: int,
        name: str | None,
        log: Path | None,
        conf: tuple[str, ...],
        maintain: bool,
        on_start: Callable[[str, Path], None],
        on_event: Callable[[str, str], None],
    ) -> None:
        """Blocks until the supervisor has stopped."""
        from streamhouse.config import load_settings
        from streamhouse.spark.pipelines.service import SupervisorPlan, supervise

        self.export_login()
        settings = load_settings({}, os.environ)
        plan = SupervisorPlan(
            agents=agents,
            checkpoints=checkpoints or os.path.join(settings.agent.data, "checkpoints"),
            maintenance=settings.maintenance if maintain else None,
            pipelines=settings.pipelines,
            tables=settings.tables,
            master=master,
            slots=slots,
            name=name,
            log=log,
            conf=conf,
        )
        with installed("spark"):
            run(supervise(plan, on_start=lambda supervisor: on_start(supervisor.name, supervisor.log), news=on_event))

    def read_definitions(self, paths: Sequence[Path]) -> "tuple[list[DefinitionFile], list[FileDiagnostic]]":
        from streamhouse.spark.agents.definition_applier import find_files, read_files

        return read_files(find_files(paths))

    async def validate_definitions(
        self, files: "Sequence[DefinitionFile]", agents: str, *, on_wait: Callable[[float], None]
    ) -> "tuple[list[DefinitionFile], list[FileDiagnostic]]":
        """Ask a SQL worker, which is started where there is none."""
        self.export_login()
        from streamhouse.spark.agents.definition_applier import validated
        from streamhouse.spark.worker.worker_client import worker_validation

        return await validated(files, worker_validation(agents, on_wait=on_wait))

    def applier(self, http: "Http", begin: str | None) -> "DefinitionApplier":
        from streamhouse.spark.agents.definition_applier import DefinitionApplier

        return DefinitionApplier(http, begin=begin)

    def topic_columns(self, agents: str, topic: str) -> tuple[str, ...] | None:
        """Return the columns of a topic: declared, registered or inferred; None if unknown. Blocks."""
        self.export_login()
        with installed("spark"):
            from streamhouse.spark.query.catalog import topic_columns

        return topic_columns(agents, topic)

    # --- maintenance

    def maintain(
        self,
        kind: JobKind,
        topic: str,
        job_options: SparkJobOptions,
        *,
        at_least: int,
        on_progress: "Callable[[Progress], None]",
    ) -> "JobResult":
        """Blocks until the job is done. Spark is started when there is something to do."""
        self.export_login()
        with installed("spark"):
            from streamhouse.spark.maintenance import compaction_job, merge_job
            from streamhouse.spark.maintenance.job import SparkTasks
            from streamhouse.spark.maintenance.job_session import start_session

        name = f"streamhouse-maintain-{kind}-{topic}"
        tasks = SparkTasks(lambda: start_session(name, **asdict(job_options)))
        try:
            if kind == "merge":
                policy = merge_job.MergePolicy(at_least=at_least)
                return merge_job.run(
                    topic, agents=job_options.agents, tasks=tasks, on_progress=on_progress, policy=policy
                )
            return compaction_job.run(topic, agents=job_options.agents, tasks=tasks, on_progress=on_progress)
        finally:
            tasks.stop()

    # --- replaying

    def copy(
        self,
        spec: Mapping[str, Any],
        job_options: SparkJobOptions,
        *,
        job_id: str,
        on_progress: "Callable[[Progress], None]",
    ) -> "ReplayResult":
        """Blocks until the copy is done. Spark is started when there is something to do."""
        self.export_login()
        with installed("spark"):
            from streamhouse.spark.replay import copy_job
            from streamhouse.spark.replay.resumable_job import running

        with running(f"streamhouse-copy-{spec['source']}", **asdict(job_options)) as (loop, start):
            run = partial(copy_job.run, agents=job_options.agents, start=start, loop=loop, job_id=job_id)
            return run(copy_job.CopySpec(**spec), on_progress=on_progress)

    def restore(
        self,
        spec: Mapping[str, Any],
        job_options: SparkJobOptions,
        *,
        job_id: str,
        on_progress: "Callable[[Progress], None]",
    ) -> "ReplayResult":
        """Blocks until the restore is done. Spark is started when there is something to do."""
        self.export_login()
        with installed("spark"):
            from streamhouse.spark.replay import restore_job
            from streamhouse.spark.replay.resumable_job import running

        with running(f"streamhouse-restore-{spec['topic']}", **asdict(job_options)) as (loop, start):
            run = partial(restore_job.run, agents=job_options.agents, start=start, loop=loop, job_id=job_id)
            return run(restore_job.RestoreSpec(**spec), on_progress=on_progress)

    # --- SQL

    def run_sql(self, request: "SqlRequest") -> int:
        """Run statements and print their rows; returns the exit code."""
        self.export_login()
        from streamhouse.cli.sql.statement_runner import run_request
        from streamhouse.cli.sql.worker_connection import WorkerConnection

        return run_request(request, WorkerConnection)

    def sql_shell(self, request: "SqlRequest") -> int:
        """Blocks until the user leaves."""
        self.export_login()
        from streamhouse.cli.sql.shell import run_shell
        from streamhouse.cli.sql.worker_connection import WorkerConnection

        return run_shell(request, WorkerConnection)

    def run_sql_worker(self, plan: "Mapping[str, Any]", *, on_ready: "Callable[[Worker], None]") -> None:
        """Blocks until the worker has ended."""
        self.export_login()
        with installed("spark"):
            from streamhouse.spark.worker.process import serve

        serve(plan, on_ready=on_ready)

    def sql_worker(self, agents: str) -> "tuple[Worker, WorkerStatus] | None":
        """Return the running worker and its status."""
        self.export_login()
        from streamhouse.spark.worker.worker_client import find_worker, worker_status

        async def look() -> "tuple[Worker, WorkerStatus] | None":
            worker = await find_worker(agents)
            status = None if worker is None else await worker_status(worker)
            return None if worker is None or status is None else (worker, status)

        return run(look())

    def stop_sql_worker(self, agents: str) -> "Worker | None":
        self.export_login()
        from streamhouse.spark.worker.worker_client import stop_worker

        return run(stop_worker(agents))


@contextmanager
def installed(extra: str) -> Iterator[None]:
    """Within it, a missing package raises `Misconfigured` with the extra to install. Garbage collection is off:
    imported objects stay, and scanning them took a fifth of the time."""
    gc.disable()
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "streamhouse":
            raise
        raise Misconfigured(
            f"this needs parts that are not installed; missing={error.name};"
            f" install them with: {install_command(extra)}"
        ) from None
    finally:
        gc.enable()


def dependencies_of(context: typer.Context) -> Dependencies:
    """The dependencies of a command, with the credentials that its options and the environment give."""
    dependencies = context.find_object(Dependencies) or Dependencies()
    dependencies.credentials = credentials_of(context)
    return dependencies


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine. Libraries log nothing: the error message contains the same and more."""
    for name in ("aiokafka", "asyncio", "httpx"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return asyncio.run(work)
