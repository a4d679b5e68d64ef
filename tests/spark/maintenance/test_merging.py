"""A topic in many small pieces becomes few large ones, and nobody who reads or writes notices."""

import asyncio
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from streamhouse.client.http import Http
from streamhouse.clock import SystemClock
from streamhouse.errors import Misconfigured, Unavailable, UnknownTopic
from streamhouse.spark.agents.client import CHECK_S
from streamhouse.spark.agents.run_replacements import RETRY_TIMEOUT_S, MaintenanceClient
from streamhouse.spark.maintenance import merge_job
from streamhouse.spark.maintenance.job import JobResult, Progress
from streamhouse.spark.maintenance.merge_job import BY_POLICY, MergePolicy
from tests.spark.maintenance.support import (
    HASTY,
    QUICK,
    HereTasks,
    NoTasks,
    at_time,
    consumed,
    create,
    idempotent_producer,
    objects_of,
    plan,
    run_count,
    trickle,
)
from tests.support.agent import LiveAgent


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    with LiveAgent(tmp_path_factory.mktemp("merging") / "data", *QUICK) as running:
        yield running


@pytest.fixture
def own(tmp_path: Path) -> Iterator[LiveAgent]:
    """One that a test may stop and kill."""
    with LiveAgent(tmp_path / "data", *HASTY) as running:
        yield running


def merge(agent: LiveAgent, topic: str, **given: object) -> JobResult:
    return merge_job.run(topic, agents=agent.http, tasks=given.pop("tasks", HereTasks()), **given)  # type: ignore[arg-type]


def placed_files(agent: LiveAgent) -> list[str]:
    return sorted(str(path) for path in agent.data.rglob("placed/**/*") if path.is_file())


def eventually(condition: Callable[[], bool], *, within_s: float = 30.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


async def test_small_runs_of_many_partitions_become_one_object_each(quick: LiveAgent) -> None:
    create(quick, "shared", partitions=3)
    trickle(quick, "shared", 20, partitions=3)
    before = await consumed(quick, "shared", 60)
    seen: list[Progress] = []
    done = await asyncio.to_thread(merge, quick, "shared", on_progress=seen.append)
    assert (done.runs_before, done.runs_after, done.objects, done.replaced_runs) == (60, 3, 3, 60)
    assert done.costs.gets <= 20, "runs that stand in one object are read together"
    assert (done.costs.puts, done.conflicts) == (3, 0)
    assert seen[-1].done_bytes == seen[-1].total_bytes > 0
    assert len(objects_of(quick, "shared")) == 3
    assert await consumed(quick, "shared", 60) == before


def test_where_nothing_is_to_be_done_nothing_is_started(quick: LiveAgent) -> None:
    create(quick, "empty")
    assert merge(quick, "empty", tasks=NoTasks()) == JobResult(topic="empty")
    create(quick, "little")
    trickle(quick, "little", 5)
    assert merge(quick, "little", tasks=NoTasks(), policy=BY_POLICY).runs_after == 5
    assert merge(quick, "little").runs_after == 1
    assert merge(quick, "little", tasks=NoTasks()).runs_before == 1
    with pytest.raises(UnknownTopic) as raised:
        merge(quick, "nothing", tasks=NoTasks())
    assert str(raised.value) == "unknown topic or partition; name=nothing"


class Leaping(SystemClock):
    """Whoever waits has waited."""

    leapt_s = 0.0

    def monotonic(self) -> float:
        return self.leapt_s

    async def sleep(self, seconds: float) -> None:
        self.leapt_s += seconds


def test_a_wrong_address_is_reported_without_the_timeout_that_agents_get_later(quick: LiveAgent) -> None:
    clock = Leaping()

    async def check_address(address: str) -> None:
        async with MaintenanceClient(address, clock=clock) as maintainers:
            await maintainers.check_agent()

    asyncio.run(check_address(quick.http))
    with pytest.raises(Unavailable, match="no agent answers on"):
        asyncio.run(check_address("127.0.0.1:1"))
    assert 0 < clock.leapt_s <= CHECK_S < RETRY_TIMEOUT_S
    with pytest.raises(Unavailable, match="doesn't speak HTTP"):
        merge_job.run("shared", agents=quick.bootstrap, tasks=NoTasks())


@pytest.mark.parametrize(
    "response",
    [httpx.Response(404, text="Not Found"), httpx.Response(200, text="<html>"), httpx.Response(200, json={})],
)
async def test_another_server_is_not_taken_for_an_agent(response: httpx.Response) -> None:
    async with MaintenanceClient("elsewhere:80") as maintainers:
        maintainers.agents.http = Http("elsewhere:80", transport=httpx.MockTransport(lambda request: response))
        with pytest.raises(Misconfigured, match="the server at elsewhere:80 is not an agent"):
            await maintainers.check_agent()


def test_objects_are_as_large_as_they_should_be_and_no_larger(quick: LiveAgent) -> None:
    create(quick, "sized")
    trickle(quick, "sized", 24)
    [partition] = plan(quick, "sized").partitions
    eight = sum(run.length for run in partition.runs[:8]) + 1
    done = merge(quick, "sized", policy=MergePolicy(target_bytes=eight))
    runs = plan(quick, "sized").partitions[0].runs
    assert all(run.length <= eight for run in runs)
    assert 3 <= len(runs) <= 6
    assert done.runs_after == len(runs)


def test_what_is_more_than_it_seemed_becomes_several_objects_and_stays_so(
    quick: LiveAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(quick, "dense")
    trickle(quick, "dense", 9)
    [partition] = plan(quick, "dense").partitions
    monkeypatch.setattr(merge_job, "MAX_RAW_BYTES", 3 * max(run.length for run in partition.runs))
    first, second = merge(quick, "dense"), merge(quick, "dense")
    assert 2 <= first.runs_after <= 5
    assert (second.objects, second.runs_after, second.conflicts) == (0, first.runs_after, 0)
    assert second.costs.gets > 0, "what it is decompressed is known only to who has read it"


async def test_times_are_found_as_before(quick: LiveAgent) -> None:
    create(quick, "times")
    trickle(quick, "times", 10)
    times = [record[2] for record in await consumed(quick, "times", 10)]
    before = [await at_time(quick, "times", {0: at}) for at in (0, *times, times[-1] + 1)]
    await asyncio.to_thread(merge, quick, "times")
    assert run_count(quick, "times") == 1
    assert [await at_time(quick, "times", {0: at}) for at in (0, *times, times[-1] + 1)] == before


async def test_a_topic_that_another_job_merges_at_the_same_time_is_merged_once(quick: LiveAgent) -> None:
    create(quick, "contended", partitions=2)
    trickle(quick, "contended", 8, partitions=2)
    before = await consumed(quick, "contended", 16)
    others: list[JobResult] = []
    tasks = HereTasks(lambda number: others.append(merge(quick, "contended")) if number == 0 else None)
    done = await asyncio.to_thread(merge, quick, "contended", tasks=tasks)
    assert (others[0].objects, done.objects, done.conflicts) == (2, 0, 2)
    assert (done.runs_before, done.runs_after) == (16, 2)
    assert await consumed(quick, "contended", 16) == before


async def test_who_reads_meanwhile_gets_every_record_once_and_in_order(quick: LiveAgent) -> None:
    create(quick, "read")
    trickle(quick, "read", 30)
    reading = asyncio.ensure_future(consumed(quick, "read", 60))
    merged = asyncio.to_thread(merge, quick, "read")
    written = asyncio.to_thread(trickle, quick, "read", 30, start=30)
    await asyncio.gather(merged, written)
    assert [(offset, value) for _, offset, _, _, value in await reading] == [(n, b'"0-%d"' % n) for n in range(60)]
    await asyncio.to_thread(merge, quick, "read")
    assert run_count(quick, "read") == 1
    assert [offset for _, offset, *_ in await consumed(quick, "read", 60)] == list(range(60))


async def test_epochs_stay_known_and_share_one_object(own: LiveAgent) -> None:
    create(own, "epochs")
    for life in range(3):
        trickle(own, "epochs", 4, start=4 * life)
        own.stop()
        own.start()
    [partition] = plan(own, "epochs").partitions
    spans = {run.epoch: run.end for run in partition.runs}
    assert len(spans) == 3
    before = await consumed(own, "epochs", 12)
    done = await asyncio.to_thread(merge, own, "epochs")
    assert (done.objects, done.runs_after) == (1, 3)
    [partition] = plan(own, "epochs").partitions
    assert {run.epoch: run.end for run in partition.runs} == spans
    assert len(objects_of(own, "epochs")) == 1
    assert await consumed(own, "epochs", 12) == before
    assert (await asyncio.to_thread(merge, own, "epochs", tasks=NoTasks())).runs_after == 3


async def test_an_idempotent_producer_goes_on_after_a_merge_and_a_crash(own: LiveAgent) -> None:
    create(own, "exact")
    producer = await idempotent_producer(own)
    try:
        for number in range(10):
            await producer.send_and_wait("exact", b"%d" % number)
            await asyncio.to_thread(until_flushed, own, "exact", number + 1)
        done = await asyncio.to_thread(merge, own, "exact")
        assert done.runs_after == 1
        own.kill()
        own.start()
        for number in range(10, 15):
            await producer.send_and_wait("exact", b"%d" % number)
    finally:
        await producer.stop()
    assert [value for *_, value in await consumed(own, "exact", 15)] == [b"%d" % number for number in range(15)]


def until_flushed(agent: LiveAgent, topic: str, end: int) -> None:
    eventually(lambda: plan(agent, topic).partitions[0].flushed_end >= end)


async def test_a_job_that_dies_leaves_old_or_new_and_what_it_left_is_collected(own: LiveAgent) -> None:
    class Dead(Exception):
        """The driver is gone."""

    def dies(number: int) -> None:
        if number == 1:
            raise Dead

    create(own, "killed", partitions=3)
    trickle(own, "killed", 6, partitions=3)
    before = await consumed(own, "killed", 18)
    small = MergePolicy(target_bytes=plan(own, "killed").partitions[0].runs[0].length * 3)
    with pytest.raises(Dead):
        await asyncio.to_thread(merge, own, "killed", tasks=HereTasks(dies), policy=small)
    job = "00000000-0000-0000-0000-000000000000"
    for work in merge_job.merge_tasks(plan(own, "killed"), small, job=job):
        merge_job.merge_task(msgspec.json.encode([work]))  # stored, and never registered
    assert len(placed_files(own)) > len(objects_of(own, "killed"))
    known = objects_of(own, "killed")
    eventually(lambda: {Path(path).name for path in placed_files(own)} <= {key.rpartition("/")[2] for key in known})
    assert await consumed(own, "killed", 18) == before
    await asyncio.to_thread(merge, own, "killed")
    assert await consumed(own, "killed", 18) == before


def gets(agent: LiveAgent) -> float:
    """Ranges that the agent has read from its store."""
    with urllib.request.urlopen(f"http://{agent.http}/metrics", timeout=10) as response:
        lines = response.read().decode().splitlines()
    return sum(
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith('streamhouse_object_store_requests_total{operation="get_range"')
    )


async def test_a_long_trickle_is_read_with_requests_in_proportion_to_its_bytes(own: LiveAgent) -> None:
    create(own, "year", partitions=2)
    trickle(own, "year", 100, partitions=2)

    async def cold_gets() -> float:
        own.stop()
        own.start()
        begun = gets(own)
        await consumed(own, "year", 200)
        return gets(own) - begun

    before = await cold_gets()
    done = await asyncio.to_thread(merge, own, "year")
    after = await cold_gets()
    assert before >= 200
    assert after <= before / 10, "an index and a block for each partition"
    assert done.runs_after == 2
