"""A supervisor with agents and runners that are made up: what it takes, starts, stops and tells."""

import asyncio
import random
from typing import Any, cast

import pytest

from streamhouse.clock import Ids
from streamhouse.errors import Unavailable
from streamhouse.spark.pipelines.runner_process import RunnerProcess
from streamhouse.spark.pipelines.runner_protocol import (
    Command,
    Ended,
    Event,
    Exit,
    Metrics,
    Ready,
    Renewed,
    Start,
    Started,
    Stop,
    pipeline_job,
)
from streamhouse.spark.pipelines.supervisor import Supervisor

TTL_S = 15.0


class ManualClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return int(self.now * 1000)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


class MadeUpChild:
    def __init__(self, key: str, on_event: Any) -> None:
        self.key, self.pid, self.is_ready = key, 1, False
        self.received: list[Command] = []
        self.deadlines: list[float | None] = []
        self.tokens: dict[int, str] = {}
        self.is_killed = False
        self._on_event = on_event
        self.gone = asyncio.Event()

    def send(self, command: Command) -> None:
        if isinstance(command, Renewed):
            self.deadlines.append(command.deadline)
            self.tokens.update(command.tokens)
        else:
            self.received.append(command)

    def exit(self) -> None:
        self.send(Exit())

    def kill(self) -> None:
        self.is_killed = True

    async def wait(self) -> None:
        """Ends when the test says so: see `World.die`."""
        await self.gone.wait()

    def say(self, event: Event) -> None:
        self.is_ready = self.is_ready or isinstance(event, Ready)
        self._on_event(cast(RunnerProcess, self), event)


def assignment(name: str, **changes: Any) -> dict[str, Any]:
    pipeline = {
        "name": name,
        "kind": "sql",
        "text": "x",
        "target": name,
        "query_id": "q",
        "revision": 1,
        "generation": 1,
        "options": {},
        **changes,
    }
    return {"epoch": 5, "lineage": f"{pipeline['name']}@c1", "pipeline": pipeline}


class World:
    """Agents that assign what the test says."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.assigned: list[dict[str, Any]] = []
        self.running: list[dict[str, Any]] = []
        self.is_away = False
        self.children: dict[str, MadeUpChild] = {}
        self.supervisor = Supervisor(self, self.start, clock=self.clock, ids=Ids(random.Random(1)))

    async def heartbeat(self, running: list[dict[str, Any]], *, is_leaving: bool = False) -> dict[str, Any]:
        if self.is_away:
            raise Unavailable("nobody is there")
        self.running = running
        return {"ttl_s": TTL_S, "assigned": self.assigned}

    async def leave(self) -> None: ...

    async def start(self, key: str, on_event: Any) -> RunnerProcess:
        self.children[key] = MadeUpChild(key, on_event)
        return cast(RunnerProcess, self.children[key])

    async def step(self) -> None:
        await self.supervisor.beat()
        await self.supervisor.look()

    async def die(self, key: str = "shared") -> None:
        child = self.children[key]
        (watching,) = [task for task in self.supervisor._watching if task.get_name() == f"runner-{key}"]
        child.gone.set()
        await watching

    async def started(self, **assigned: Any) -> MadeUpChild:
        """One pipeline that runs."""
        self.assigned = [assigned or assignment("copies")]
        await self.step()
        child = self.children["shared"]
        child.say(Ready(jvm_pid=2, spark="4"))
        await self.supervisor.look()
        child.say(Started(run=1))
        return child

    @property
    def phases(self) -> dict[str, str]:
        return {each["name"]: each["status"]["phase"] for each in self.running}


@pytest.fixture
def world() -> World:
    return World()


async def test_what_is_assigned_is_started_once_spark_is_ready(world: World) -> None:
    world.assigned = [assignment("copies")]
    await world.step()
    child = world.children["shared"]
    assert child.received == []
    child.say(Ready(jvm_pid=2, spark="4"))
    await world.step()
    await world.step()
    (start,) = child.received
    assert isinstance(start, Start)
    assert (start.epoch, start.pipeline["name"]) == (5, "copies")
    assert world.phases == {"copies": "starting"}


async def test_figures_are_reported_with_the_next_heartbeat(world: World) -> None:
    child = await world.started()
    child.say(Metrics(run=1, figures={"rows_in": 10, "batch_id": 3}))
    await world.step()
    (tells,) = world.running
    assert tells["status"]["phase"] == "running"
    assert tells["status"]["rows_in"] == 10
    assert "started; revision=" in tells["events"][0]["text"]
    await world.step()
    assert world.running[0]["events"] == []  # each line once


async def test_a_runner_hears_how_far_its_pipeline_had_come(world: World) -> None:
    child = await world.started()
    child.say(Metrics(run=1, figures={"batch_id": 3, "progress": {"generation": 1}}))
    child.say(Ended(run=1, how="failed", error="no luck"))
    world.clock.now += 2
    await world.step()
    start = child.received[-1]
    assert isinstance(start, Start)
    assert (start.epoch, start.lineage) == (5, "copies@c1")
    assert pipeline_job(start.pipeline, epoch=5).has_run


async def test_a_new_owner_keeps_how_far_a_pipeline_had_come(world: World) -> None:
    world.assigned = [assignment("copies", status={"batch_id": 3, "progress": {"generation": 1}})]
    await world.step()
    await world.step()
    (tells,) = world.running
    assert (tells["status"]["batch_id"], tells["status"]["progress"]) == (3, {"generation": 1})


async def test_what_is_not_assigned_any_more_is_stopped_and_reported_until_it_has_ended(world: World) -> None:
    child = await world.started()
    world.assigned = []
    await world.step()
    assert child.received[-1] == Stop(run=1)
    await world.step()
    assert [each["name"] for each in world.running] == ["copies"]
    child.say(Ended(run=1, how="stopped"))
    await world.step()
    assert world.running == []


async def test_a_changed_definition_starts_when_the_old_one_has_ended(world: World) -> None:
    child = await world.started()
    world.assigned = [assignment("copies", revision=2)]
    await world.step()
    await world.step()
    assert child.received[-1] == Stop(run=1)
    child.say(Ended(run=1, how="stopped"))
    await world.step()
    start = child.received[-1]
    assert isinstance(start, Start)
    assert start.pipeline["revision"] == 2


async def test_who_applies_a_pipeline_of_another_user_has_a_run_of_his_own(world: World) -> None:
    """The old run never acts as the new owner, whatever the definition says."""
    child = await world.started(**assignment("copies", runs_as="User:bob"), token="bob's")
    starts = [each for each in child.received if isinstance(each, Start)]
    assert [each.token for each in starts] == ["bob's"]
    await world.step()
    world.assigned = [assignment("copies", runs_as="User:alice") | {"token": "alice's"}]
    await world.step()
    await world.step()
    assert Stop(run=1) in child.received
    assert child.tokens == {1: "bob's"}
    child.say(Ended(run=1, how="stopped"))
    await world.step()
    start = child.received[-1]
    assert isinstance(start, Start)
    assert (start.run, start.token) == (2, "alice's")
    await world.step()
    assert child.tokens == {1: "bob's", 2: "alice's"}


async def test_a_failing_pipeline_is_tried_again_and_leaves_its_neighbour_alone(world: World) -> None:
    world.assigned = [assignment("copies"), assignment("others")]
    await world.step()
    child = world.children["shared"]
    child.say(Ready(jvm_pid=2, spark="4"))
    await world.step()
    child.say(Started(run=1))
    child.say(Started(run=2))
    child.say(Ended(run=1, how="failed", error="a bad day"))
    await world.step()
    assert world.phases == {"copies": "backing off", "others": "running"}
    world.clock.now += 2
    await world.step()
    assert [command.run for command in child.received if isinstance(command, Start)] == [1, 2, 3]
    assert not child.is_killed


async def test_what_trying_again_does_not_cure_is_not_tried_again(world: World) -> None:
    child = await world.started()
    child.say(Ended(run=1, how="failed", error="no column amont", can_retry=False))
    for _ in range(50):
        world.clock.now += 5
        await world.step()
    assert world.phases == {"copies": "failed"}
    assert len([command for command in child.received if isinstance(command, Start)]) == 1


async def test_a_runner_that_died_is_started_again_with_its_pipelines(world: World) -> None:
    first = await world.started()
    await world.die()
    await world.step()
    assert world.phases == {"copies": "backing off"}
    world.clock.now += 3
    await world.step()
    second = world.children["shared"]
    assert second is not first
    second.say(Ready(jvm_pid=3, spark="4"))
    await world.step()
    assert [type(command) for command in second.received] == [Start]


async def test_everything_is_stopped_then_killed_before_a_lease_that_nobody_renews_is_over(world: World) -> None:
    child = await world.started()
    await world.step()
    world.is_away = True
    world.clock.now += 0.7 * TTL_S
    await world.step()
    assert child.received[-1] == Stop(run=1)
    assert not child.is_killed
    world.clock.now += 0.2 * TTL_S
    await world.step()
    assert child.is_killed


async def test_after_a_lost_lease_nothing_is_claimed(world: World) -> None:
    child = await world.started()
    await world.step()
    world.is_away = True
    world.clock.now += 0.7 * TTL_S
    await world.step()
    child.say(Ended(run=1, how="stopped"))
    world.is_away, world.assigned = False, []
    await world.step()
    assert world.running == []


async def test_a_query_that_does_not_stop_loses_its_runner(world: World) -> None:
    child = await world.started()
    world.assigned = []
    await world.step()
    world.clock.now += 5
    await world.step()
    assert not child.is_killed
    for _ in range(6):
        world.clock.now += 5
        await world.step()
    assert child.is_killed


async def test_a_pipeline_may_have_a_spark_of_its_own(world: World) -> None:
    world.assigned = [assignment("copies"), assignment("heavy", options={"isolation": "own"})]
    await world.step()
    assert set(world.children) == {"shared", "own-heavy"}
    own = world.children["own-heavy"]
    own.say(Ready(jvm_pid=2, spark="4"))
    await world.step()
    assert [type(command) for command in own.received] == [Start]
    world.assigned = [assignment("copies")]
    await world.step()
    own.say(Ended(run=1, how="stopped"))
    await world.step()
    assert own.received[-1] == Exit()


async def test_a_spark_that_nobody_waits_for_any_more_does_not_go_on_starting(world: World) -> None:
    world.assigned = [assignment("copies"), assignment("heavy", options={"isolation": "own"})]
    await world.step()
    world.assigned = [assignment("copies")]
    await world.step()
    assert world.children["own-heavy"].is_killed
    assert not world.children["shared"].is_killed


async def test_a_runner_hears_until_when_it_may_go_on(world: World) -> None:
    began = world.clock.now
    child = await world.started()
    assert child.deadlines == [began + 0.9 * TTL_S]
    world.clock.now += 4
    await world.step()
    assert child.deadlines[-1] == began + 4 + 0.9 * TTL_S
    world.is_away = True
    world.clock.now += 1
    await world.step()
    assert len(child.deadlines) == 2  # what no agent renewed is not renewed here
    child.say(Ended(run=1, how="stopped"))
    assert child.deadlines[-1] is None  # with nothing to run it may wait for as long as it likes


async def test_a_supervisor_that_was_stopped_for_longer_than_its_lease_kills_before_it_speaks(world: World) -> None:
    child = await world.started()
    await world.step()
    world.clock.now += 2 * TTL_S  # and no look in between
    world.assigned = []
    renewed = len(child.deadlines)
    results: list[bool] = []
    heartbeat = world.heartbeat

    async def noted(running: list[dict[str, Any]], *, is_leaving: bool = False) -> dict[str, Any]:
        results.append(child.is_killed)
        return await heartbeat(running, is_leaving=is_leaving)

    world.heartbeat = noted  # type: ignore[method-assign]
    await world.supervisor.beat()
    assert results == [True]
    assert all(each is None or each < world.clock.now for each in child.deadlines[:renewed])


async def test_pipelines_start_a_few_at_a_time(world: World) -> None:
    world.assigned = [assignment(name) for name in ("a", "b", "c", "d", "e")]
    await world.step()
    child = world.children["shared"]
    child.say(Ready(jvm_pid=2, spark="4"))

    async def started() -> list[int]:
        await world.step()
        return [command.run for command in child.received if isinstance(command, Start)]

    assert await started() == [1, 2]
    assert await started() == [1, 2]
    assert set(world.phases.values()) == {"starting"}
    child.say(Started(run=2))
    assert await started() == [1, 2, 3]
    child.say(Ended(run=1, how="failed", error="no luck", can_retry=False))
    assert await started() == [1, 2, 3, 4]
    assert await started() == [1, 2, 3, 4]
    for _ in range(7):  # a first micro-batch that takes long keeps nobody waiting for ever
        world.clock.now += 5
        await world.step()
    assert await started() == [1, 2, 3, 4, 5]


async def test_a_runner_of_its_own_does_not_wait_for_the_shared_one(world: World) -> None:
    world.assigned = [
        assignment("a"),
        assignment("b"),
        assignment("c"),
        assignment("heavy", options={"isolation": "own"}),
    ]
    await world.step()
    for child in world.children.values():
        child.say(Ready(jvm_pid=2, spark="4"))
    await world.step()
    starts = {key: [type(each) for each in child.received] for key, child in world.children.items()}
    assert starts == {"shared": [Start, Start], "own-heavy": [Start]}
