"""Supervisors look after topics by policy: what is due gets a job, one supervisor at a time, until its turn ends."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from streamhouse.clock import Ids, SystemClock
from streamhouse.config import MaintenanceSettings
from streamhouse.spark.agents.client import AgentClient
from streamhouse.spark.agents.run_replacements import MaintenanceClient
from streamhouse.spark.maintenance import merge_job
from streamhouse.spark.maintenance.scheduler import (
    Backlog,
    Job,
    JobPlan,
    Kind,
    MaintenanceScheduler,
    TopicLeases,
    backlog_of,
    jobs_for,
)
from tests.spark.maintenance.support import QUICK, HereTasks, create, plan, run_count, trickle
from tests.support.agent import LiveAgent

SETTINGS = MaintenanceSettings(every_s=0.2, merge_at_runs=20, turn_s=30)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    with LiveAgent(tmp_path_factory.mktemp("rounds") / "data", *QUICK) as running:
        yield running


class Jobs:
    """Jobs in this process, held until they are let go."""

    def __init__(self, agent: LiveAgent) -> None:
        self._agent = agent
        self.started: list[tuple[Kind, str]] = []
        self.has_started = asyncio.Event()
        self.killed = 0
        self.go = asyncio.Event()
        self.go.set()

    async def start(self, kind: Kind, topic: str) -> Job:
        self.started.append((kind, topic))
        self.has_started.set()
        jobs, ended = self, asyncio.Event()

        class Here:
            async def wait(self) -> int:
                going = asyncio.ensure_future(jobs.go.wait())
                ending = asyncio.ensure_future(ended.wait())
                await asyncio.wait([going, ending], return_when=asyncio.FIRST_COMPLETED)
                going.cancel()
                ending.cancel()
                if ended.is_set():
                    return -9
                await asyncio.to_thread(merge_job.run, topic, agents=jobs._agent.http, tasks=HereTasks())
                return 0

            def kill(self) -> None:
                jobs.killed += 1
                ended.set()

        return Here()


@pytest.fixture
async def maintainers(agent: LiveAgent) -> AsyncIterator[MaintenanceClient]:
    async with MaintenanceClient(agent.http) as opened:
        yield opened


def rounds_of(maintainers: MaintenanceClient, jobs: Jobs, name: str) -> MaintenanceScheduler:
    return MaintenanceScheduler(maintainers, jobs.start, SETTINGS, name=name, clock=SystemClock(), ids=Ids())


def test_what_agents_can_not_keep_up_with_is_due() -> None:
    settings = MaintenanceSettings(merge_at_runs=100, merge_at_bytes=1000, compact_at_bytes=500)
    assert list(jobs_for(Backlog(99, 999, 499), settings)) == []
    assert list(jobs_for(Backlog(100, 1, 0), settings)) == ["merge"]
    assert list(jobs_for(Backlog(16, 1000, 500), settings)) == ["compact", "merge"]


def test_a_backlog_is_what_a_job_would_merge(agent: LiveAgent) -> None:
    create(agent, "few")
    trickle(agent, "few", 10)
    assert backlog_of(plan(agent, "few"), now_ms=0).small_runs == 0
    trickle(agent, "few", 8, start=10)
    backlog = backlog_of(plan(agent, "few"), now_ms=0)
    assert (backlog.small_runs, backlog.dirty_bytes) == (18, 0)
    assert backlog.small_bytes > 0


async def test_a_topic_that_is_due_is_merged_once_and_then_left_for_a_while(
    agent: LiveAgent, maintainers: MaintenanceClient
) -> None:
    create(agent, "due")
    trickle(agent, "due", 25)
    jobs = Jobs(agent)
    rounds = rounds_of(maintainers, jobs, "anna")
    await rounds.look()
    assert jobs.started == [("merge", "due")]
    assert run_count(agent, "due") == 1
    await rounds.look()
    assert rounds.jobs == 1


async def test_of_two_supervisors_one_has_the_turn(agent: LiveAgent, maintainers: MaintenanceClient) -> None:
    create(agent, "wanted")
    trickle(agent, "wanted", 25)
    jobs = Jobs(agent)
    jobs.go.clear()
    looks = [asyncio.ensure_future(rounds_of(maintainers, jobs, name).look()) for name in ("anna", "bert")]
    done, _ = await asyncio.wait(looks, return_when=asyncio.FIRST_COMPLETED, timeout=30)
    assert len(done) == 1, "one finds that it is the other one's turn"
    assert jobs.started == [("merge", "wanted")]
    jobs.go.set()
    await asyncio.gather(*looks)
    assert run_count(agent, "wanted") == 1


async def test_a_supervisor_that_ends_kills_its_job_and_its_turn_runs_out(
    agent: LiveAgent, maintainers: MaintenanceClient
) -> None:
    create(agent, "left")
    trickle(agent, "left", 25)
    jobs = Jobs(agent)
    jobs.go.clear()
    look = asyncio.ensure_future(rounds_of(maintainers, jobs, "anna").look())
    async with asyncio.timeout(30):
        await jobs.has_started.wait()
    look.cancel()
    await asyncio.gather(look, return_exceptions=True)
    assert jobs.killed == 1
    assert run_count(agent, "left") == 25
    topic_id = plan(agent, "left").topic_id
    async with AgentClient(agent.http) as request:
        later = Clock(ahead_ms=31_000)
        assert await TopicLeases(request, name="bert", clock=SystemClock()).take(topic_id, for_s=30) is None
        assert await TopicLeases(request, name="bert", clock=later).take(topic_id, for_s=30) is not None


class Clock(SystemClock):
    def __init__(self, *, ahead_ms: int) -> None:
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms


async def test_a_turn_is_kept_by_its_owner_alone(agent: LiveAgent) -> None:
    async with AgentClient(agent.http) as request:
        anna, bert = (TopicLeases(request, name=name, clock=SystemClock()) for name in ("anna", "bert"))
        turn = await anna.take("some-topic", for_s=0)
        assert turn is not None
        taken = await bert.take("some-topic", for_s=30)
        assert taken is not None, "anna's time was over"
        assert await anna.keep(turn, for_s=30) is None
        kept = await bert.keep(taken, for_s=30)
        assert kept is not None
        await bert.end(kept, pause_s=30)
        assert await anna.take("some-topic", for_s=30) is None


def test_a_job_is_the_command_that_people_use() -> None:
    jobs = JobPlan(agents="a:1,b:2", log=Path("x.log"), master="local[2]", conf=("a=b",))
    command = jobs.command("merge", "orders")
    assert command[2:6] == ["streamhouse", "maintain", "merge", "orders"]
    assert command[6:] == [
        *("--agents", "a:1,b:2", "--log", "x.log", "--at-least", "16", "--master", "local[2]", "--conf", "a=b")
    ]
    assert "--at-least" not in jobs.command("compact", "orders")
