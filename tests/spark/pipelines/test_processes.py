"""Supervisors with processes for runners, and a real agent that gives leases: who runs what, and who takes over."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamhouse.client.http import Http
from streamhouse.clock import Ids, SystemClock
from streamhouse.spark.agents.resources import SupervisorClient
from streamhouse.spark.pipelines.restart_policy import Backoff
from streamhouse.spark.pipelines.runner_process import OnEvent, RunnerCommand, RunnerProcess, start_runner
from streamhouse.spark.pipelines.supervisor import Supervisor
from tests.support.agent import LiveAgent

TTL_S = 3
TIMEOUT_S = 60.0
LATE = 2
"""What a runner may do when it goes on, before it is killed: its targets know that it isn't the owner any more."""
TEXT = "CREATE PIPELINE {} AS INSERT INTO there SELECT 1 FROM STREAM(here)"


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[LiveAgent]:
    with LiveAgent(tmp_path / "data", "--set", f"pipelines.ttl_s={TTL_S}s") as running:
        yield running


class Place:
    """A supervisor, and everything that belongs to it."""

    def __init__(self, agent: LiveAgent, name: str, log: Path) -> None:
        self.name, self.log = name, log
        self.child: RunnerProcess | None = None
        plan = RunnerCommand(
            agents=agent.http, checkpoints="/nowhere", log=log, module="tests.spark.pipelines.made_up_runner"
        )
        self.http = Http(agent.http, timeout_s=2.0)
        agents = SupervisorClient(self.http, name=name, host="here", slots=16)
        self.supervisor = Supervisor(
            agents, partial(self._start, plan), clock=SystemClock(), ids=Ids(), backoff=Backoff(first_s=0.1)
        )

    async def _start(self, plan: RunnerCommand, key: str, on_event: OnEvent) -> RunnerProcess:
        self.child = await start_runner(key, plan, on_event)
        return self.child

    @property
    def times(self) -> list[float]:
        """When something ran here."""
        return times_in(self.log)

    @property
    def starts(self) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if line.startswith("start")]

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Place"]:
        task = asyncio.create_task(self.supervisor.run(), name=self.name)
        try:
            yield self
        finally:
            self.supervisor.stop()
            with suppress(asyncio.CancelledError):
                await task
            await self.http.__aexit__(None, None, None)

    def die(self) -> None:
        """As with SIGKILL: it says nothing any more, and its runner goes."""
        for task in asyncio.all_tasks():
            if task.get_name() == self.name:
                task.cancel()
        assert self.child is not None
        self.child.kill()


def times_in(log: Path) -> list[float]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [float(line.split()[2]) for line in lines if line.startswith("runs") and len(line.split()) == 3]


class Seen:
    def __init__(self, http: Http) -> None:
        self._http = http

    async def put(self, name: str) -> None:
        body = {"kind": "sql", "text": TEXT.format(name), "target": "there"}
        assert (await self._http.send("PUT", f"/v1/pipelines/{name}", body=body)).status == 200

    async def ask(self, method: str, path: str) -> Any:
        response = await self._http.send(method, path, body={} if method == "POST" else None)
        assert response.status < 300, response
        return msgspec.json.decode(response.content) if response.content else None

    async def until(self, condition: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        """All pipelines by name, once they are as they should be."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                response = await self.ask("GET", "/v1/pipelines")
                results = {each["name"]: each for each in response["pipelines"]}
                if condition(results):
                    return results
                await asyncio.sleep(0.05)
        raise AssertionError(what)


async def _until_it_says(place: Place, word: str) -> None:
    while True:
        if any(line.startswith(word) for line in place.log.read_text().splitlines()):
            return
        await asyncio.sleep(0.05)


def owner(pipeline: dict[str, Any]) -> str | None:
    return None if pipeline["owner"] is None else str(pipeline["owner"]["supervisor"])


def runs(pipeline: dict[str, Any]) -> bool:
    return bool(pipeline["status"]["phase"] == "running" and pipeline["status"]["rows_in"] == 7)


async def test_one_of_two_supervisors_runs_a_pipeline_and_the_other_takes_over(
    agent: LiveAgent, tmp_path: Path
) -> None:
    first, second = (Place(agent, name, tmp_path / f"{name}.log") for name in ("first", "second"))
    places = {"first": first, "second": second}
    async with Http(agent.http) as http, first.running(), second.running():
        seen = Seen(http)
        await seen.put("copies")
        before = (await seen.until(lambda result: runs(result["copies"]), "it runs"))["copies"]
        holder = places[str(owner(before))]
        other = second if holder is first else first
        assert (len(holder.starts), len(other.starts)) == (1, 0)

        holder.die()
        after = (
            await seen.until(lambda result: owner(result["copies"]) == other.name and bool(other.starts), "it moved")
        )["copies"]
        assert after["owner"]["epoch"] > before["owner"]["epoch"]
        assert other.starts == [f"start copies {after['owner']['epoch']}"]


async def test_pipelines_are_shared_and_handed_over_when_a_supervisor_stops(agent: LiveAgent, tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    async with Http(agent.http) as http, Place(agent, "first", tmp_path / "first.log").running() as first:
        seen = Seen(http)
        for name in names:
            await seen.put(name)
        await seen.until(lambda result: all(map(runs, result.values())), "one runs all")
        async with Place(agent, "second", tmp_path / "second.log").running() as second:
            await seen.until(
                lambda result: (
                    sorted(str(owner(each)) for each in result.values()) == ["first", "first", "second", "second"]
                ),
                "each has its share",
            )
            await seen.until(lambda result: all(map(runs, result.values())), "all run")
        result = await seen.until(
            lambda result: {owner(each) for each in result.values()} == {first.name}, "handed over"
        )
        assert len(result) == len(names)
        assert len(second.starts) == 2


async def test_a_killed_runner_a_pause_and_an_agent_that_comes_back(agent: LiveAgent, tmp_path: Path) -> None:
    async with Http(agent.http) as http, Place(agent, "first", tmp_path / "first.log").running() as place:
        seen = Seen(http)
        await seen.put("copies")
        await seen.until(lambda result: runs(result["copies"]), "it runs")
        assert place.child is not None
        os.kill(place.child.pid, signal.SIGKILL)
        await seen.until(
            lambda result: runs(result["copies"]) and result["copies"]["status"]["restarts"] == 1, "it runs again"
        )
        assert len(place.starts) == 2

        await seen.ask("POST", "/v1/pipelines/copies/pause")
        await seen.until(lambda result: owner(result["copies"]) is None, "it is let go")
        await seen.ask("POST", "/v1/pipelines/copies/resume")
        await seen.until(lambda result: runs(result["copies"]), "it goes on")

        await asyncio.to_thread(agent.kill)
        await asyncio.to_thread(agent.start)
        await seen.until(lambda result: runs(result["copies"]) and owner(result["copies"]) == "first", "it still runs")
        events = (await seen.ask("GET", "/v1/pipelines/copies/events"))["events"]
        assert any("its runner exited" in event["text"] for event in events)


async def test_what_an_agent_that_is_gone_cannot_renew_is_stopped(agent: LiveAgent, tmp_path: Path) -> None:
    async with Http(agent.http) as http, Place(agent, "first", tmp_path / "first.log").running() as place:
        seen = Seen(http)
        await seen.put("copies")
        await seen.until(lambda result: runs(result["copies"]), "it runs")
        await asyncio.to_thread(agent.kill)
        await asyncio.wait_for(_until_it_says(place, "stop"), TIMEOUT_S)
        await asyncio.to_thread(agent.start)
        await seen.until(lambda result: runs(result["copies"]) and len(place.starts) == 2, "it is taken again")


async def test_who_stops_keeps_its_lease_until_its_runner_is_gone(agent: LiveAgent, tmp_path: Path) -> None:
    first, second = (Place(agent, name, tmp_path / f"{name}.log") for name in ("first", "second"))
    async with Http(agent.http) as http, first.running():
        seen = Seen(http)
        await seen.put("slow")  # takes longer to stop than a lease lasts
        await seen.until(lambda result: runs(result["slow"]), "it runs")
        async with second.running():
            first.supervisor.stop()
            await seen.until(lambda result: owner(result["slow"]) == "second" and bool(second.times), "it moved")
            assert max(first.times) < min(second.times)


@dataclass
class Stopped:
    """A supervisor in another process, which runs a pipeline and can be stopped."""

    process: subprocess.Popen[bytes]
    log: Path

    def signal(self, number: int, *, is_all: bool) -> None:
        runner = next(iter(_children(self.process.pid)), None)
        if is_all and runner is not None:
            os.killpg(runner, number)
        os.kill(self.process.pid, number)


@contextmanager
def another_process(agent: LiveAgent, log: Path) -> Iterator[Stopped]:
    command = [sys.executable, "-m", "tests.spark.pipelines.made_up_supervisor", agent.http, "first", str(log)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen(command, env=environment) as process:
        stopped = Stopped(process, log)
        try:
            yield stopped
        finally:
            stopped.signal(signal.SIGCONT, is_all=True)
            process.kill()


@pytest.mark.parametrize("is_all", [False, True])
async def test_a_supervisor_that_is_stopped_beyond_its_lease_runs_nothing_beside_its_successor(
    agent: LiveAgent, tmp_path: Path, is_all: bool
) -> None:
    with another_process(agent, tmp_path / "first.log") as first:
        async with Http(agent.http) as http:
            seen = Seen(http)
            await seen.put("copies")
            await seen.until(lambda result: runs(result["copies"]) and owner(result["copies"]) == "first", "it runs")
            first.signal(signal.SIGSTOP, is_all=is_all)
            second = Place(agent, "second", tmp_path / "second.log")
            async with second.running():
                await seen.until(lambda result: owner(result["copies"]) == "second" and bool(second.times), "it moved")
                if not is_all:
                    assert max(times_in(first.log)) < min(second.times)
                first.signal(signal.SIGCONT, is_all=is_all)
                await _until_there_are(second, len(second.times) + 20)
                late = [each for each in times_in(first.log) if each > min(second.times)]
                assert len(late) <= LATE, "its runner went on"
                result = await seen.ask("GET", "/v1/pipelines")
                assert [owner(each) for each in result["pipelines"]] == ["second"]


async def _until_there_are(place: Place, times: int) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            if len(place.times) >= times:
                return
            await asyncio.sleep(0.05)


async def test_a_runner_that_is_stopped_is_replaced_before_its_lease_is_over(agent: LiveAgent, tmp_path: Path) -> None:
    async with Http(agent.http) as http, Place(agent, "first", tmp_path / "first.log").running() as place:
        seen = Seen(http)
        await seen.put("copies")
        before = await seen.until(lambda result: runs(result["copies"]), "it runs")
        assert place.child is not None
        os.kill(place.child.pid, signal.SIGSTOP)
        after = await seen.until(lambda result: len(place.starts) == 2 and runs(result["copies"]), "it runs again")
        assert after["copies"]["owner"]["epoch"] == before["copies"]["owner"]["epoch"]


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
