"""Schedules maintenance in a supervisor: which topic is due, and which supervisor has the topic's lease.

Data path   none: plans of topics -> **MaintenanceScheduler** -> `streamhouse maintain …` in child processes
Owns        when a topic is due; one job at a time, stopped with the lease or the supervisor; topic leases
Leaves      the jobs to `merge_job` and `compaction_job`

A lease is a numbered commit without segments of one query per topic, through /v1/commits. Agents accept each number
once, so the supervisor that commits the next number has the lease. Clocks that differ, or a supervisor that continues
after its lease, cost double work and nothing else: agents replace exactly the runs that a job has read.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from streamhouse.client.http import HttpResponse
from streamhouse.clock import Clock, Ids, wait_first
from streamhouse.config import MaintenanceSettings
from streamhouse.errors import Rejected, StreamhouseError
from streamhouse.model.log_cleanup import compact_up_to
from streamhouse.model.names import PartitionId
from streamhouse.spark.agents.client import AgentClient, error_detail
from streamhouse.spark.agents.run_replacements import MaintenanceClient, MaintenancePlan
from streamhouse.spark.maintenance.merge_job import BY_POLICY, merge_tasks

T = TypeVar("T")

NAMESPACE: Final = uuid.UUID("6d61696e-7461-494e-8065-766572796461")
NOT_FOUND, CONFLICT = 404, 409


class LeaseState(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of a topic's lease, its expiry, and the earliest time of the next check."""

    by: str
    until_ms: int
    next_at_ms: int


class TopicLease(msgspec.Struct, frozen=True, kw_only=True):
    query: str
    number: int


class _Commit(msgspec.Struct, frozen=True):
    epoch: int
    progress: Any


class _Placed(msgspec.Struct, frozen=True):
    replayed: bool


class TopicLeases:
    """Those of one supervisor, on one event loop."""

    def __init__(self, agents: AgentClient, *, name: str, clock: Clock) -> None:
        self._agents, self._name, self._clock = agents, name, clock

    def __repr__(self) -> str:
        return f"<Turns {self._name}>"

    async def take(self, topic_id: str, *, for_s: float) -> TopicLease | None:
        """Acquire the topic's lease, unless another owner has it, or the topic was maintained a short while ago."""
        query = str(uuid.uuid5(NAMESPACE, topic_id))
        last = await self._last(query)
        number, state = (0, None) if last is None else (last.epoch, _state(last.progress))
        if state is not None and not is_free(state, now_ms=self._clock.now_ms()):
            return None
        return await self._next(TopicLease(query=query, number=number), for_s=for_s, pause_s=0)

    async def keep(self, turn: TopicLease, *, for_s: float) -> TopicLease | None:
        """Renew the lease; None if it has another owner by now."""
        return await self._next(turn, for_s=for_s, pause_s=0)

    async def end(self, turn: TopicLease, *, pause_s: float) -> None:
        """Release the lease; the topic is not checked again for a while."""
        await self._next(turn, for_s=0, pause_s=pause_s)

    async def _next(self, turn: TopicLease, *, for_s: float, pause_s: float) -> TopicLease | None:
        now_ms, number = self._clock.now_ms(), turn.number + 1
        state = LeaseState(
            by=self._name, until_ms=now_ms + round(for_s * 1000), next_at_ms=now_ms + round(pause_s * 1000)
        )
        body = {"query": turn.query, "epoch": number, "progress": state, "segments": []}
        response = await self._agents.send("POST", "/v1/commits", body=body)
        if response.status == CONFLICT:
            return None
        if _decoded(response, _Placed).replayed:
            # Another supervisor was first, or this one, whose first response was lost.
            last = await self._last(turn.query)
            if last is None or (last.epoch, _state(last.progress)) != (number, state):
                return None
        return TopicLease(query=turn.query, number=number)

    async def _last(self, query: str) -> _Commit | None:
        response = await self._agents.send("GET", f"/v1/commits/{query}")
        return None if response.status == NOT_FOUND else _decoded(response, _Commit)


def is_free(state: LeaseState, *, now_ms: int) -> bool:
    return now_ms >= max(state.until_ms, state.next_at_ms)


def _state(progress: object) -> LeaseState | None:
    try:
        return msgspec.convert(progress, LeaseState)
    except msgspec.ValidationError:
        return None


def _decoded(response: HttpResponse, kind: type[T]) -> T:
    if response.status >= 400:
        raise Rejected(error_detail(response))
    try:
        return msgspec.json.decode(response.content, type=kind)
    except msgspec.DecodeError as error:
        raise Rejected(f"unexpected response of an agent; why={error} do=use the agents' version here") from None


log = logging.getLogger(__name__)

NEWS: Final = "maintenance"
Kind: TypeAlias = Literal["merge", "compact"]


class Job(Protocol):
    """A job under way."""

    async def wait(self) -> int:
        """Its exit code."""
        ...

    def kill(self) -> None: ...


StartJob = Callable[[Kind, str], Awaitable[Job]]
StatusCallback = Callable[[str, str], None]


class Backlog(NamedTuple):
    """The maintenance work of a topic that agents have left to Spark."""

    small_runs: int
    small_bytes: int
    dirty_bytes: int


def backlog_of(plan: MaintenancePlan, *, now_ms: int) -> Backlog:
    """The work of a job; a pure function."""
    works = list(merge_tasks(plan, BY_POLICY, job=""))
    runs, size = sum(len(work.runs) for work in works), sum(work.stored_bytes for work in works)
    return Backlog(runs, size, _dirty_bytes(plan, now_ms) if plan.config.compacts else 0)


def _dirty_bytes(plan: MaintenancePlan, now_ms: int) -> int:
    config, dirty = plan.config, 0
    for each in plan.partitions:
        runs = [row.run(PartitionId(plan.id, each.partition)) for row in each.runs]
        up_to = compact_up_to(runs, config, cleaned_to=each.cleaned_to, now_ms=now_ms, stable_end=each.stable_end)
        if up_to is not None:
            dirty += sum(run.length for run in runs if each.cleaned_to < run.end <= up_to)
    return dirty


def jobs_for(backlog: Backlog, settings: MaintenanceSettings) -> Iterator[Kind]:
    """Compaction first: what it drops needn't be merged."""
    if backlog.dirty_bytes >= settings.compact_at_bytes:
        yield "compact"
    if backlog.small_runs >= settings.merge_at_runs or backlog.small_bytes >= settings.merge_at_bytes:
        yield "merge"


class MaintenanceScheduler:
    """`run` continues until it is cancelled; a job that is in progress then is killed, which leaves old or new."""

    def __init__(
        self,
        agents: MaintenanceClient,
        start: StartJob,
        settings: MaintenanceSettings,
        *,
        name: str,
        clock: Clock,
        ids: Ids,
        news: StatusCallback = lambda what, text: None,
    ) -> None:
        self._agents, self._start, self._settings = agents, start, settings
        self._turns = TopicLeases(agents.agents, name=name, clock=clock)
        self._clock, self._ids, self._news = clock, ids, news
        self.jobs = 0

    def __repr__(self) -> str:
        return f"<Rounds jobs={self.jobs} {self._turns!r}>"

    async def run(self) -> None:
        while True:
            await self._clock.sleep(self._ids.jitter(self._settings.every_s))
            try:
                await self.look()
            except StreamhouseError as error:
                log.warning("maintenance check failed; error=%s", error)

    async def look(self) -> None:
        """Every topic once; one topic's trouble is not the next one's."""
        for topic in await self._agents.topics():
            try:
                await self._look_at(topic)
            except StreamhouseError as error:
                self._news(NEWS, f"{topic}: {error}")

    async def _look_at(self, topic: str) -> None:
        plan = await self._agents.plan(topic)
        now = plan.ages_at(self._clock.now_ms())
        kinds = list(jobs_for(backlog_of(plan, now_ms=now.earlier_ms), self._settings))
        if not kinds:
            return
        turn = await self._turns.take(plan.topic_id, for_s=self._settings.turn_s)
        for kind in kinds:
            if turn is None:
                return
            turn = await self._work(kind, topic, turn)
        if turn is not None:
            await self._turns.end(turn, pause_s=self._settings.every_s / 2)

    async def _work(self, kind: Kind, topic: str, turn: TopicLease) -> TopicLease | None:
        """Run a job while the lease is renewed; None once it has another owner."""
        self._news(NEWS, f"{kind} {topic}")
        job = await self._start(kind, topic)
        self.jobs += 1
        ending = asyncio.ensure_future(job.wait())
        kept: TopicLease | None = turn
        try:
            while kept is not None and not await self._ended(ending):
                kept = await self._turns.keep(kept, for_s=self._settings.turn_s)
            if kept is not None and (code := ending.result()):
                self._news(NEWS, f"{kind} {topic} failed; exit={code}")
            return kept
        finally:
            job.kill()
            await ending

    async def _ended(self, ending: "asyncio.Future[int]") -> bool:
        """Whether the job ends before the turn has to be renewed."""
        await wait_first(ending, self._clock.sleep(self._settings.turn_s / 3))
        return ending.done()


# --- processes


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """The common arguments of all jobs of a supervisor."""

    agents: str
    log: Path
    master: str | None = None
    conf: tuple[str, ...] = ()

    def command(self, kind: Kind, topic: str) -> list[str]:
        flags = ["--agents", self.agents, "--log", str(self.log)]
        flags += ["--at-least", str(BY_POLICY.at_least)] if kind == "merge" else []
        flags += [] if self.master is None else ["--master", self.master]
        flags += [part for setting in self.conf for part in ("--conf", setting)]
        return [sys.executable, "-m", "streamhouse", "maintain", kind, topic, *flags]


class _Process:
    """A job in a process group of its own: killing it ends Python and the JVM at once."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def wait(self) -> int:
        return await self._process.wait()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


async def start_job(plan: JobPlan, kind: Kind, topic: str) -> Job:
    handle = os.open(plan.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        process = await asyncio.create_subprocess_exec(
            *plan.command(kind, topic),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=handle,
            stderr=handle,
            start_new_session=True,
        )
    finally:
        os.close(handle)
    return _Process(process)
