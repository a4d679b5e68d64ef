"""A topic is copied: byte for byte, in part, with other keys and partitions, and once whatever happens."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from streamhouse.client.loop_thread import LoopThread
from streamhouse.client.sync import SyncClient
from streamhouse.errors import Misconfigured, Rejected, Unavailable, UnknownTopic
from streamhouse.spark.maintenance.job import Progress
from streamhouse.spark.replay import copy_job
from streamhouse.spark.replay.copy_job import CopyPlan, CopySpec, step_offsets
from streamhouse.spark.replay.resumable_job import ReplayResult
from tests.spark.replay.kafka import TIME_MS, fill, named, records_of
from tests.support.agent import LiveAgent

pytestmark = pytest.mark.spark

Copy = Callable[..., ReplayResult]


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()


@pytest.fixture
def copy(spark: SparkSession, agent: LiveAgent, loop: LoopThread) -> Copy:
    def run(
        source: str, target: str, *, job_id: str | None = None, step_bytes: int = 1 << 30, **request: object
    ) -> ReplayResult:
        expected = CopySpec(source=source, target=target, **request)  # type: ignore[arg-type]
        return copy_job.run(
            expected, agents=agent.http, start=lambda: spark, loop=loop, job_id=job_id, step_bytes=step_bytes
        )

    return run


def test_a_copy_has_the_same_records_in_the_same_partitions_in_the_same_order(
    agent: LiveAgent, client: SyncClient, copy: Copy
) -> None:
    source, target = named("from"), named("to")
    fill(agent, client, source)
    done = copy(source, target)
    assert (done.records, done.topic) == (200, target)
    assert records_of(agent, target, 3) == records_of(agent, source, 3)
    assert client.topics.config(target)["retention.ms"] == "-1"


def test_a_copy_in_many_steps_is_the_same(agent: LiveAgent, client: SyncClient, copy: Copy) -> None:
    source, between, target = named("from"), named("between"), named("to")
    fill(agent, client, source)
    copy(source, between)  # what was placed is in segments, whose bytes count
    done = copy(between, target, step_bytes=500)
    assert done.steps > 3
    assert done.records == 200
    assert records_of(agent, target, 3) == records_of(agent, source, 3)


def test_the_same_job_again_writes_nothing(agent: LiveAgent, client: SyncClient, copy: Copy) -> None:
    source, target, job = named("from"), named("to"), named("job")
    fill(agent, client, source, count=30)
    copy(source, target, job_id=job)
    fill_more(agent, source)
    again = copy(source, target, job_id=job)
    assert (again.records, again.resumed_at, again.steps) == (0, 1, 1)
    assert sum(map(len, records_of(agent, target, 3).values())) == 30


def fill_more(agent: LiveAgent, topic: str) -> None:
    producer = Producer({"bootstrap.servers": agent.bootstrap})
    producer.produce(topic, value=b"later")
    assert producer.flush(30) == 0


def test_a_job_id_belongs_to_one_question(agent: LiveAgent, client: SyncClient, copy: Copy) -> None:
    source, target, job = named("from"), named("to"), named("job")
    fill(agent, client, source, count=5)
    copy(source, target, job_id=job)
    with pytest.raises(Misconfigured, match="another job had this id"):
        copy(source, target, job_id=job, where="true")


def test_only_what_is_requested_is_copied(agent: LiveAgent, client: SyncClient, copy: Copy) -> None:
    source, target = named("from"), named("to")
    fill(agent, client, source)
    copy(source, target, where="partition = 1 AND value IS NOT NULL")
    kept = [record for record in records_of(agent, source, 3)[1] if record[1] is not None]
    assert records_of(agent, target, 3) == {0: [], 1: kept, 2: []}


def test_times_bound_a_copy(agent: LiveAgent, client: SyncClient, copy: Copy) -> None:
    source, target = named("from"), named("to")
    client.topics.create(source, partitions=1)
    producer = Producer({"bootstrap.servers": agent.bootstrap})
    for number in range(10):
        producer.produce(source, value=str(number).encode(), timestamp=TIME_MS + number)
    assert producer.flush(30) == 0
    copy(source, target, from_ms=TIME_MS + 3, until_ms=TIME_MS + 7)
    assert [record[1] for record in records_of(agent, target, 1)[0]] == [b"3", b"4", b"5", b"6"]


def test_other_keys_and_partitions_put_records_where_kafkas_clients_would(
    agent: LiveAgent, client: SyncClient, copy: Copy
) -> None:
    source, target, oracle = named("from"), named("to"), named("oracle")
    fill(agent, client, source, count=60)
    copy(source, target, key="concat('new-', partition)", value="upper(hex(value))", partitions=5)
    client.topics.create(oracle, partitions=5)
    producer = Producer({"bootstrap.servers": agent.bootstrap, "partitioner": "murmur2_random"})
    for number, records in records_of(agent, source, 3).items():
        for _, value, *_ in records:
            shown = None if value is None else value.hex().upper()  # type: ignore[attr-defined]
            producer.produce(oracle, key=f"new-{number}", value=shown)
    assert producer.flush(30) == 0
    assert pairs(agent, target) == pairs(agent, oracle)


def pairs(agent: LiveAgent, topic: str) -> dict[int, list[tuple[object, ...]]]:
    """By partition and key, in order."""
    result = records_of(agent, topic, 5)
    return {
        number: sorted([record[:2] for record in each], key=lambda pair: str(pair[0]))
        for number, each in result.items()
    }


def test_mistakes_are_reported_before_anything_is_written(agent: LiveAgent, client: SyncClient, copy: Copy) -> None:
    source, target = named("from"), named("to")
    with pytest.raises(UnknownTopic) as raised:
        copy(source, target)
    assert str(raised.value) == f"unknown topic or partition; name={source}"
    fill(agent, client, source, count=3)
    with pytest.raises(Misconfigured, match="into itself"):
        copy(source, source)
    for mistake in ({"where": "nonsense > 3"}, {"where": "value >"}, {"key": "nonsense"}, {"value": "upper("}):
        with pytest.raises(Misconfigured, match="Spark doesn't understand it"):
            copy(source, target, **mistake)
    client.topics.create(named_target := named("narrow"), partitions=1)
    with pytest.raises(Rejected, match="another number of partitions"):
        copy(source, named_target, partitions=4)
    assert target not in [each.name for each in client.topics.list()], "a copy that can't be made leaves nothing"


def test_a_wrong_address_is_reported_before_anything_is_started(agent: LiveAgent, loop: LoopThread) -> None:
    def start() -> SparkSession:
        raise AssertionError("there is nobody to copy from")

    request = CopySpec(source=named("from"), target=named("to"))
    with pytest.raises(Unavailable, match="doesn't speak HTTP"):
        copy_job.run(request, agents=agent.bootstrap, start=start, loop=loop)


def test_progress_only_grows_and_ends_with_everything(
    spark: SparkSession, agent: LiveAgent, client: SyncClient, loop: LoopThread, copy: Copy
) -> None:
    first, source, target = named("first"), named("from"), named("to")
    fill(agent, client, first)
    copy(first, source)
    seen: list[Progress] = []
    request = CopySpec(source=source, target=target)
    copy_job.run(request, agents=agent.http, start=lambda: spark, loop=loop, step_bytes=1000, on_progress=seen.append)
    assert [at.done_bytes for at in seen] == sorted(at.done_bytes for at in seen)
    assert seen[-1].done_bytes == seen[-1].total_bytes > 0


@pytest.mark.parametrize("steps", [1, 2, 7, 100])
def test_steps_have_each_offset_once(steps: int) -> None:
    plan = CopyPlan(starts={"0": 5, "1": 0, "2": 9}, ends={"0": 50, "1": 3, "2": 9}, keeps_partitions=True)
    for number in plan.starts:
        results = [range(*(edge[number] for edge in step_offsets(plan, step, steps))) for step in range(steps)]
        assert [offset for part in results for offset in part] == list(range(plan.starts[number], plan.ends[number]))
