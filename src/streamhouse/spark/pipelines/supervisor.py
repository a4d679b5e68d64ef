"""Supervisor: runs the pipelines assigned to it by leases in runner processes, and reports their status to agents.

Data path   agents -> heartbeats -> **supervisor** -> children (runners) -> Spark
Owns        which pipelines are this supervisor's now, starting and stopping them in time, its own end
Leaves      the care for one pipeline to `restart_policy`, processes to `runner_process`, who should have what to the
            agents

Nothing here waits for Spark: heartbeats continue while a runner starts, hangs or dies, and at the end until the last
one is gone. What can't be stopped before the lease is over is killed before, by the runner's own `deadline` process
where this one is stopped itself. Decision 0021."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from streamhouse.clock import Clock, Ids
from streamhouse.errors import Retriable, StreamhouseError
from streamhouse.spark.pipelines.restart_policy import Backoff, LeaseDeadline, LeaseStage, PipelineState
from streamhouse.spark.pipelines.runner_process import RunnerProcess
from streamhouse.spark.pipelines.runner_protocol import (
    Ended,
    Event,
    LogLine,
    Metrics,
    PipelineJob,
    Ready,
    Renewed,
    Start,
    Started,
    Stop,
    pipeline_job,
)

log = logging.getLogger(__name__)

SHARED: Final = "shared"
TICK_S: Final = 0.1
HEARTBEAT_S: Final = 2.0
"""At least so often, or three times in a lease's time; sooner when something has happened."""
MIN_HEARTBEAT_S: Final = 0.3
STOP_TIMEOUT_S: Final = 30.0
"""A run that hasn't stopped by then loses its runner, and so do its neighbours."""
EXIT_TIMEOUT_S: Final = 25.0


class SupervisorApi(Protocol):
    async def heartbeat(self, running: list[dict[str, Any]], *, is_leaving: bool = False) -> dict[str, Any]:
        """The pipelines assigned to this supervisor; raises `StreamhouseError` if no agent is available."""
        ...

    async def leave(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StartLimits:
    """How many pipelines start at the same time in one runner, and for how long one keeps its turn: each start has
    Python processes of its own, which Spark gives up on where all of them start at once."""

    at_once: int = 2
    wait_s: float = 30.0


StartRunner = Callable[[str, Callable[[RunnerProcess, Event], None]], Awaitable[RunnerProcess]]
StatusCallback = Callable[[str, str], None]


@dataclass(slots=True)
class _Run:
    """A start of a pipeline that hasn't ended; `stop_at`: by when it must have.

    `starts_until`: so long it counts as one that starts; None once it has begun.
    """

    job: PipelineJob
    child: RunnerProcess
    starts_until: float | None
    stop_at: float | None = None
    last: Mapping[str, Any] | None = None


class Supervisor:
    """`run` returns when `stop` was called and everything has ended."""

    def __init__(
        self,
        agents: SupervisorApi,
        start_child: StartRunner,
        *,
        clock: Clock,
        ids: Ids,
        backoff: Backoff | None = None,
        starts: StartLimits | None = None,
        news: StatusCallback = lambda name, text: None,
    ) -> None:
        self._agents, self._start_child = agents, start_child
        self._clock, self._ids, self._backoff = clock, ids, backoff or Backoff()
        self._starts = starts or StartLimits()
        self._news = news
        self._lease = LeaseDeadline()
        self._cares: dict[str, PipelineState] = {}
        self._definitions: dict[str, Mapping[str, Any]] = {}
        self._tokens: dict[tuple[str, str], str] = {}  # by pipeline and the user whom it is a token of
        self._runs: dict[int, _Run] = {}
        self._children: dict[str, RunnerProcess | None] = {}
        self._child_failures: dict[str, tuple[int, float]] = {}
        self._watching: set[asyncio.Task[None]] = set()
        self._next_run = 1
        self._has_news = asyncio.Event()
        self._stopping = asyncio.Event()
        self._is_over = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Supervisor pipelines={len(self._cares)} runs={len(self._runs)} children={list(self._children)}>"

    def stop(self) -> None:
        self._stopping.set()
        self._has_news.set()

    async def run(self) -> None:
        """Run until `stop` is called; then stop queries, and release pipelines once their runners have ended."""
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self._run_heartbeats(), name="heartbeats")
            await self._looks()
            await self._end()
            self._is_over.set()
            self._has_news.set()
        with contextlib.suppress(StreamhouseError):
            await self._agents.leave()

    # --- heartbeats

    async def _run_heartbeats(self) -> None:
        while not self._is_over.is_set():
            self._has_news.clear()
            await self.beat()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(HEARTBEAT_S, self._lease.ttl_s / 3)):
                    await self._has_news.wait()
            await self._clock.sleep(MIN_HEARTBEAT_S)

    async def beat(self) -> None:
        """Send a heartbeat with the status of all pipelines, and receive the assigned ones."""
        sent_at, lines = self._clock.monotonic(), {name: len(care.lines) for name, care in self._cares.items()}
        if (stage := self._lease.stage(sent_at)) is LeaseStage.KILL:
            self._let_go(stage)  # first: an expired lease may have another owner, and can't be renewed
        try:
            response = await self._agents.heartbeat(self._running(), is_leaving=self._stopping.is_set())
        except Retriable as error:
            log.warning("heartbeat failed; error=%s", error)
            return
        self._lease.renewed(sent_at, response["ttl_s"])
        self._tokens = {
            (_name(each), each["pipeline"].get("runs_as") or ""): each.get("token", "") for each in response["assigned"]
        }
        for child in self._busy():
            child.send(Renewed(deadline=self._lease.deadline, tokens=self._tokens_for(child)))
        for name, count in lines.items():
            if (care := self._cares.get(name)) is not None:
                for _ in range(min(count, len(care.lines))):
                    care.lines.popleft()
        if not self._stopping.is_set():
            self._take(response["assigned"])

    def _tokens_for(self, child: RunnerProcess) -> dict[int, str]:
        known = {number: self._token_for(run.job) for number, run in self._runs.items() if run.child is child}
        return {number: token for number, token in known.items() if token}

    def _token_for(self, job: PipelineJob) -> str:
        """Of the user for whom this run was started; one that ends after another user has applied the pipeline keeps
        the token that it has."""
        return self._tokens.get((job.name, job.runs_as), "")

    def _running(self) -> list[dict[str, Any]]:
        """The pipelines that this supervisor owns or still runs; agents assign all others to other supervisors."""
        now_ms = self._clock.now_ms()
        known = [
            {"name": name, "epoch": care.job.epoch, "status": care.status(now_ms), "events": list(care.lines)}
            for name, care in self._cares.items()
        ]
        listed = set(self._cares)
        for run in self._runs.values():
            if run.job.name not in listed:
                listed.add(run.job.name)
                known.append({"name": run.job.name, "epoch": run.job.epoch, "status": run.last, "events": []})
        return known

    def _take(self, assigned: list[dict[str, Any]]) -> None:
        """Care for what is assigned, and for nothing else."""
        assignments = {_name(each): each for each in assigned}
        for name in [name for name in self._cares if name not in assignments]:
            self._news(name, "released")
            self._forget(name)
        for name, each in assignments.items():
            refusal = each.get("refusal", "")
            job = pipeline_job(each["pipeline"], epoch=each["epoch"], lineage=each["lineage"], refusal=refusal)
            job = replace(job, name=name)
            care = self._cares.get(name)
            if care is not None and (care.job.epoch, care.job.version) == (job.epoch, job.version):
                continue
            if care is not None:
                self._forget(name)
            self._news(name, refusal or ("assigned" if care is None else "changed"))
            self._definitions[name] = each["pipeline"]
            self._cares[name] = PipelineState(job, backoff=self._backoff, ids=self._ids, now=self._clock.monotonic())

    def _forget(self, name: str) -> None:
        """Stop it; until it has ended, its status is reported as before."""
        care = self._cares.pop(name)
        del self._definitions[name]
        for number, run in self._runs.items():
            if run.stop_at is None and run.job.name == name:
                run.stop_at, run.last = self._clock.monotonic() + STOP_TIMEOUT_S, care.status(self._clock.now_ms())
                run.child.send(Stop(run=number))

    # --- looking after things

    async def _looks(self) -> None:
        await self._ensure_child(SHARED)
        while not self._stopping.is_set():
            await self.look()
            await self._clock.sleep(TICK_S)

    async def look(self) -> None:
        """Start what is due, end what should have ended; everything before the lease is over."""
        now = self._clock.monotonic()
        stage = self._lease.stage(now)
        if stage is not LeaseStage.HELD:
            self._let_go(stage)
            return
        for child in {id(run.child): run.child for run in self._runs.values() if _is_late(run, now)}.values():
            log.warning("a query doesn't stop; its runner is killed; runner=%s", child.key)
            child.kill()
        for name, care in list(self._cares.items()):
            is_free = not any(run.job.name == name for run in self._runs.values())
            if care.is_due(now) and is_free and self._may_start(_key(care.job), now):
                await self._start(care)
        needed = {SHARED, *(_key(care.job) for care in self._cares.values())}
        for key, idle in list(self._children.items()):
            if idle is not None and key not in needed and not any(run.child is idle for run in self._runs.values()):
                idle.exit() if idle.is_ready else idle.kill()  # one that starts would hear it when it has started

    def _let_go(self, stage: LeaseStage) -> None:
        """The lease can't be renewed: stop everything before another supervisor may start it."""
        if self._cares:
            log.warning("no agent available; all pipelines are stopped before the lease expires")
        for name in list(self._cares):
            self._news(name, "stopped; no agent available")
            self._forget(name)
        if stage is LeaseStage.KILL:
            for child in self._busy():
                child.kill()

    def _may_start(self, key: str, now: float) -> bool:
        """Whether a runner may start another pipeline now."""
        starting = [run for run in self._runs.values() if run.starts_until is not None and now < run.starts_until]
        return sum(_key(run.job) == key for run in starting) < self._starts.at_once

    async def _start(self, care: PipelineState) -> None:
        child = await self._ensure_child(_key(care.job))
        if child is None or not child.is_ready:
            return
        number, self._next_run = self._next_run, self._next_run + 1
        self._runs[number] = _Run(care.job, child, self._clock.monotonic() + self._starts.wait_s)
        care.started(number)
        child.send(Renewed(deadline=self._lease.deadline))
        pipeline = {**self._definitions[care.job.name], "status": care.status(self._clock.now_ms())}
        token = self._token_for(care.job)
        child.send(Start(run=number, epoch=care.job.epoch, lineage=care.job.lineage, pipeline=pipeline, token=token))
        self._has_news.set()

    # --- children

    async def _ensure_child(self, key: str) -> RunnerProcess | None:
        """The runner of this key, started where there is none; None while one that died is waited for."""
        if key in self._children:
            return self._children[key]
        failures, not_before = self._child_failures.get(key, (0, 0.0))
        if failures and self._clock.monotonic() < not_before:
            return None
        self._children[key] = None
        child = await self._start_child(key, self._on_event)
        self._children[key] = child
        watching = asyncio.create_task(self._watch(child), name=f"runner-{key}")
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)
        return child

    async def _watch(self, child: RunnerProcess) -> None:
        await child.wait()
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        if self._children.get(child.key) is child:
            del self._children[child.key]
        if not self._stopping.is_set():
            failures = self._child_failures.get(child.key, (0, 0.0))[0] + 1
            wait_s = self._ids.jitter(self._backoff.wait_s(failures))
            self._child_failures[child.key] = failures, now + wait_s
            log.warning("a runner ended; runner=%s pid=%s", child.key, child.pid)
        for number in [number for number, run in self._runs.items() if run.child is child]:
            care = self._state_of(number)
            del self._runs[number]
            if care is not None:
                care.runner_lost(now, now_ms)
                self._news(care.job.name, "runner exited")
        self._has_news.set()

    def _on_event(self, child: RunnerProcess, event: Event) -> None:
        if isinstance(event, Ready):
            self._child_failures.pop(child.key, None)
            self._news(child.key, f"Spark {event.spark} is ready")
            return
        care = self._state_of(event.run)
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        if isinstance(event, Started) and event.run in self._runs:
            self._runs[event.run].starts_until = None
        if isinstance(event, Ended):
            self._runs.pop(event.run, None)
            self._has_news.set()
            if child not in self._busy():
                child.send(Renewed(deadline=None))
        if care is None:
            return
        if isinstance(event, Ended):
            care.ended(event, now, now_ms)
            outcome = "stopped" if event.how == "stopped" else care.phase.value
            self._news(care.job.name, outcome + (f": {event.error}" if event.error else ""))
        elif isinstance(event, Started):
            care.begun(now, now_ms)
            self._has_news.set()
            self._news(care.job.name, "running")
        elif isinstance(event, Metrics):
            care.update(event.figures)
        elif isinstance(event, LogLine):
            care.log_event(now_ms, event.level, event.text)

    def _state_of(self, run: int) -> PipelineState | None:
        return next((care for care in self._cares.values() if care.run == run), None)

    # --- the end

    async def _end(self) -> None:
        """Queries end between micro-batches where they can; heartbeats hold their leases until the last has ended."""
        for name in list(self._cares):
            self._forget(name)
        for child in self._alive():
            child.exit() if child.is_ready else child.kill()
        kill_at = self._clock.monotonic() + min(EXIT_TIMEOUT_S, STOP_TIMEOUT_S)
        while self._watching:
            now = self._clock.monotonic()
            if now > kill_at or self._lease.stage(now) is LeaseStage.KILL:
                for child in self._alive():
                    child.kill()
            await self._clock.sleep(TICK_S)

    def _alive(self) -> list[RunnerProcess]:
        return [child for child in self._children.values() if child is not None]

    def _busy(self) -> list[RunnerProcess]:
        """Runners in which something runs."""
        return list({id(run.child): run.child for run in self._runs.values()}.values())


def _name(assigned: Mapping[str, Any]) -> str:
    """The pipeline's name in the cluster: two tenants may have pipelines of one name."""
    return str(assigned.get("name") or assigned["pipeline"]["name"])


def _key(job: PipelineJob) -> str:
    """Which runner it belongs to."""
    return f"own-{job.name}" if job.is_alone else SHARED


def _is_late(run: _Run, now: float) -> bool:
    return run.stop_at is not None and now > run.stop_at
