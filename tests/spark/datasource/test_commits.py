"""What tasks wrote is placed by an agent: all of it at once, once, whatever was tried before."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StringType, StructType

from streamhouse.client.http import HttpResponse
from streamhouse.client.sync import SyncClient
from streamhouse.clock import Ids
from streamhouse.errors import CommitRefused, Misconfigured, Unavailable, UnknownTopic
from streamhouse.model.external_commit import QueryId
from streamhouse.spark.agents.commits import FRESH_S, CommitClient, CommitRequest, CommitResult, RunRow, SegmentRow
from streamhouse.spark.datasource import data_writer
from streamhouse.spark.datasource.data_writer import (
    BatchWriter,
    TaskCommit,
    WriteTarget,
    batch_writer,
    commit_segments,
    stream_writer,
)
from streamhouse.spark.datasource.segment_merge import MAX_MERGED_BYTES, plan_merge
from streamhouse.spark.datasource.write_options import CommitId, WriteOptions
from streamhouse.stores.objects.base import Refused
from tests.spark.conftest import BUCKET
from tests.support.agent import LiveAgent
from tests.support.s3 import RealS3

VALUES = StructType().add("value", StringType())


@pytest.fixture(scope="module")
def sink_agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    flags = ("--set", "topics.auto_create=false", "--set", "flush.age_s=1h")
    with LiveAgent(tmp_path_factory.mktemp("sink") / "data", *flags) as running:
        yield running


@pytest.fixture
def sink_client(sink_agent: LiveAgent) -> Iterator[SyncClient]:
    with SyncClient(sink_agent.http) as connected:
        yield connected


@pytest.fixture
def topic(sink_client: SyncClient) -> str:
    name = f"topic-{uuid.uuid4()}"
    sink_client.topics.create(name, partitions=2)
    return name


@pytest.fixture
def destination(sink_agent: LiveAgent, topic: str) -> WriteTarget:
    options = WriteOptions(agents=sink_agent.http, topic=topic, commit_timeout_s=10)
    return WriteTarget.find(options, VALUES, overwrite=False)


def identity(epoch: int = 0) -> CommitId:
    return CommitId(QueryId(str(uuid.uuid4())), epoch)


def write(destination: WriteTarget, values: Sequence[str], of: CommitId) -> TaskCommit:
    return destination.write(iter([pa.record_batch({"value": list(values)})] if values else []), of)


def seen(client: SyncClient, topic: str) -> list[str]:
    return sorted(record.text() for record in client.consume(topic, until="end"))


def test_records_are_seen_when_they_are_committed_and_not_before(
    destination: WriteTarget, topic: str, sink_client: SyncClient
) -> None:
    of = identity()
    written = [write(destination, ["a", "b"], of), write(destination, ["c"], of), write(destination, [], of)]
    assert seen(sink_client, topic) == []
    assert commit_segments(destination.options, [*written, None]) is not None
    assert seen(sink_client, topic) == ["a", "b", "c"]


def test_a_commit_that_is_repeated_places_nothing_twice(
    destination: WriteTarget, topic: str, sink_client: SyncClient
) -> None:
    of = identity(3)
    first = commit_segments(destination.options, [write(destination, ["a", "b"], of)])
    again = commit_segments(destination.options, [write(destination, ["a", "b"], of)])  # as tasks do after a restart
    assert first is not None
    assert again == CommitResult(placed=first.placed, replayed=True)
    assert seen(sink_client, topic) == ["a", "b"]


def test_tries_of_a_task_that_nobody_commits_are_never_seen(
    destination: WriteTarget, topic: str, sink_client: SyncClient, sink_agent: LiveAgent
) -> None:
    of = identity()
    tries = [write(destination, ["a", "b"], of) for _ in range(3)]  # failed, speculative, and the one that counts
    commit_segments(destination.options, tries[1:2])
    assert seen(sink_client, topic) == ["a", "b"]
    keys = {segment.key for each in tries for segment in each.segments}
    assert len(keys) == 3
    assert all((sink_agent.data / "objects" / key).is_file() for key in keys)


def test_records_of_producers_and_of_the_sink_follow_each_other(
    destination: WriteTarget, topic: str, sink_client: SyncClient
) -> None:
    of = identity()
    for epoch in range(3):
        with sink_client.producer(topic) as producer:
            producer.enqueue(f"produced-{epoch}", key="k")
        commit_segments(destination.options, [write(destination, [f"placed-{epoch}"] * 2, of._replace(epoch=epoch))])
    records = list(sink_client.consume(topic, until="end"))
    assert sorted(record.text() for record in records) == sorted(
        [f"produced-{n}" for n in range(3)] + [f"placed-{n}" for n in range(3)] * 2
    )
    for partition in (0, 1):
        offsets = [record.offset for record in records if record.partition == partition]
        assert sorted(offsets) == list(range(len(offsets)))


def test_an_empty_micro_batch_sends_no_request(destination: WriteTarget) -> None:
    assert commit_segments(destination.options, []) is None
    assert commit_segments(destination.options, [write(destination, [], identity()), None]) is None


def test_a_write_job_is_one_commit_and_abort_deletes_nothing(
    sink_agent: LiveAgent, topic: str, sink_client: SyncClient
) -> None:
    options = WriteOptions(agents=sink_agent.http, topic=topic)
    job = batch_writer(options, VALUES, overwrite=False)
    messages: list[WriterCommitMessage | None] = [job.write(iter([pa.record_batch({"value": ["a"]})]))]
    job.abort(messages)
    job.commit(messages)
    job.commit(messages)
    job.abort(messages)
    assert seen(sink_client, topic) == ["a"]
    assert isinstance(job, BatchWriter)


def test_a_batch_that_says_which_commit_it_is_is_written_once(
    sink_agent: LiveAgent, topic: str, sink_client: SyncClient
) -> None:
    """As `foreachBatch` needs it."""
    of = identity(4)
    options = WriteOptions(agents=sink_agent.http, topic=topic, identity=of)
    for _ in range(2):
        job = batch_writer(options, VALUES, overwrite=False)
        job.commit([job.write(iter([pa.record_batch({"value": ["a"]})]))])
    assert seen(sink_client, topic) == ["a"]
    with pytest.raises(Misconfigured, match="leave these options to batches"):
        stream_writer(options, VALUES, overwrite=False)


def test_an_unknown_topic_is_reported_before_any_work_where_agents_make_none(sink_agent: LiveAgent) -> None:
    with pytest.raises(UnknownTopic, match="nowhere do=look at the option or column topic, or create it"):
        WriteTarget.find(WriteOptions(agents=sink_agent.http, topic="nowhere"), VALUES, overwrite=False)


def test_an_unknown_topic_in_a_row_is_reported(sink_agent: LiveAgent) -> None:
    schema = StructType().add("topic", StringType()).add("value", StringType())
    destination = WriteTarget.find(WriteOptions(agents=sink_agent.http), schema, overwrite=False)
    with pytest.raises(UnknownTopic, match="nowhere do="):
        destination.write(iter([pa.record_batch({"topic": ["nowhere"], "value": ["a"]})]), identity())


def test_a_topic_is_made_where_agents_do_that(agent: LiveAgent) -> None:
    name = f"made-{uuid.uuid4()}"
    result = WriteTarget.find(WriteOptions(agents=agent.http, topic=name), VALUES, overwrite=False)
    assert result.target is not None
    assert result.target.name == name


def test_topics_are_not_overwritten(sink_agent: LiveAgent, topic: str) -> None:
    with pytest.raises(Misconfigured, match="only ever appended"):
        WriteTarget.find(WriteOptions(agents=sink_agent.http, topic=topic), VALUES, overwrite=True)


def test_a_topic_whose_schemas_agents_judge_is_reported(sink_agent: LiveAgent, sink_client: SyncClient) -> None:
    name = f"judged-{uuid.uuid4()}"
    sink_client.topics.create(name, partitions=1, config={"streamhouse.schema.validation": "id"})
    with pytest.raises(Misconfigured, match=f"topic={name} do=write to a topic without"):
        WriteTarget.find(WriteOptions(agents=sink_agent.http, topic=name), VALUES, overwrite=False)


def test_a_segment_that_is_gone_is_reported_and_nothing_is_placed(
    destination: WriteTarget, topic: str, sink_client: SyncClient, sink_agent: LiveAgent
) -> None:
    written = write(destination, ["a"], identity())
    (sink_agent.data / "objects" / written.segments[0].key).unlink()
    with pytest.raises(CommitRefused, match="not in the object store"):
        commit_segments(destination.options, [written])
    assert seen(sink_client, topic) == []


def test_a_bucket_that_may_not_be_written_is_reported(tmp_path: Path, destination: WriteTarget) -> None:
    with pytest.raises(Misconfigured, match=r"where this executor can't see them.*do="):
        WriteTarget(options=destination.options, store=f"file://{tmp_path}/nowhere", target=destination.target).write(
            iter([]), identity()
        )


@pytest.mark.s3
def test_a_bucket_that_refuses_is_reported(
    bucket: RealS3, destination: WriteTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**bucket.environment, "AWS_SECRET_ACCESS_KEY": "wrong"}.items():
        monkeypatch.setenv(name, value)
    refusing = WriteTarget(options=destination.options, store=f"s3://{BUCKET}/refused", target=destination.target)
    with pytest.raises(Refused, match="do="):
        write(refusing, ["a"], identity())


# --- agents that are away ----------------------------------------------------------------------------------------


class ManualClock:
    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


class Scripted:
    """An agent that answers as it is told, and then as the last time."""

    def __init__(self, *responses: HttpResponse | Exception) -> None:
        self.responses = list(responses)
        self.requests = 0

    async def send(self, *_: object, **__: object) -> HttpResponse:
        self.requests += 1
        response = self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]
        if isinstance(response, Exception):
            raise response
        return response


COMMIT = CommitRequest(query=str(uuid.uuid4()), epoch=0, segments=())
DONE = HttpResponse(200, b'{"placed": [], "replayed": true}')
Agents = Callable[[Scripted, ManualClock], CommitClient]


def agents(http: Scripted, clock: ManualClock) -> CommitClient:
    return CommitClient(http, clock=clock, ids=Ids())  # type: ignore[arg-type]


async def test_a_commit_is_requested_again_until_someone_answers() -> None:
    http, clock = Scripted(Unavailable("away"), HttpResponse(503, b"{}"), HttpResponse(429, b"{}"), DONE), ManualClock()
    assert (await agents(http, clock).commit(COMMIT, timeout_s=60)).replayed
    assert http.requests == 4
    assert clock.waits == sorted(clock.waits)


async def test_a_commit_that_nobody_answers_fails_in_time_and_says_what_to_do() -> None:
    http, clock = Scripted(Unavailable("no agent answers")), ManualClock()
    with pytest.raises(Unavailable, match=r"timeout_s=60.*do=start the query again.*commitTimeout"):
        await agents(http, clock).commit(COMMIT, timeout_s=60)
    assert clock.now <= 60


async def test_a_commit_that_is_refused_is_not_requested_again() -> None:
    http = Scripted(HttpResponse(409, b'{"detail": "commit is older than the last one"}'))
    with pytest.raises(CommitRefused, match="older than the last one"):
        await agents(http, ManualClock()).commit(COMMIT, timeout_s=60)
    assert http.requests == 1


TOPIC = HttpResponse(
    200, b'{"name": "a", "id": "01234567-89ab-cdef-0123-456789abcdef", "partitions": 2, "effective_settings": {}}'
)


async def test_a_response_about_a_topic_holds_for_a_moment() -> None:
    http, clock = Scripted(TOPIC), ManualClock()
    request = agents(http, clock)
    assert (await request.target("a", timeout_s=1)).partitions == 2
    await request.target("a", timeout_s=1)
    assert http.requests == 1
    clock.now += FRESH_S + 0.1
    await request.target("a", timeout_s=1)
    assert http.requests == 2


# --- commits of many runs


@pytest.fixture(scope="module")
def strict_agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    """An agent that takes few runs in one commit."""
    with LiveAgent(tmp_path_factory.mktemp("strict") / "data", "--set", "placing.max_runs=6") as running:
        yield running


def keyed(destination: WriteTarget, task: int, of: CommitId) -> TaskCommit:
    numbers = range(task * 40, task * 40 + 40)
    columns = {"key": [f"k{number % 40}" for number in numbers], "value": [str(number) for number in numbers]}
    return destination.write(iter([pa.record_batch(columns)]), of)


@pytest.mark.parametrize("max_bytes", [MAX_MERGED_BYTES, 2500])
def test_a_commit_of_more_runs_than_agents_take_is_merged_before_it_is_requested(
    strict_agent: LiveAgent, monkeypatch: pytest.MonkeyPatch, max_bytes: int
) -> None:
    """2,500 bytes are more than the runs of a partition have, and less than two segments."""
    monkeypatch.setattr(data_writer, "plan_merge", partial(plan_merge, max_bytes=max_bytes))
    schema, topic = StructType().add("key", StringType()).add("value", StringType()), f"many-{max_bytes}"
    with SyncClient(strict_agent.http) as client:
        client.topics.create(topic, partitions=4)
        options = WriteOptions(agents=strict_agent.http, topic=topic, commit_timeout_s=10)
        destination, of = WriteTarget.find(options, schema, overwrite=False), identity()
        written = [keyed(destination, task, of) for task in range(5)]
        assert sum(len(segment.runs) for message in written for segment in message.segments) == 20
        assert min(2 * segment.size_bytes for message in written for segment in message.segments) > 2500
        pending = commit_segments(options, written)
        assert pending is not None
        assert len(pending.placed) == 4
        again = commit_segments(options, [keyed(destination, task, of) for task in range(5)])
        assert again is not None
        assert again.replayed
        by_key: dict[str, list[int]] = {}
        for record in client.consume(topic, until="end"):
            by_key.setdefault((record.key or b"").decode(), []).append(int(record.text()))
    assert sorted(number for numbers in by_key.values() for number in numbers) == list(range(200))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_a_commit_that_can_not_be_made_smaller_is_refused_before_anything_is_stored(strict_agent: LiveAgent) -> None:
    schema = StructType().add("key", StringType()).add("value", StringType())
    with SyncClient(strict_agent.http) as client:
        client.topics.create("wide", partitions=8)
        options = WriteOptions(agents=strict_agent.http, topic="wide", commit_timeout_s=10)
        destination = WriteTarget.find(options, schema, overwrite=False)
        of = identity()
        with pytest.raises(CommitRefused, match=r"partitions=7 limit=6 setting=placing\.max_runs do="):
            keyed(destination, 0, of)
    assert not [path for path in strict_agent.data.rglob("*") if of.query in str(path)]


def test_segments_are_merged_no_further_than_need_be() -> None:
    def segment(number: int, size_bytes: int) -> SegmentRow:
        runs = tuple(RunRow("t", partition, 1, 0, 1, 0, 1, 0, 1, 0) for partition in range(10))
        return SegmentRow(f"s{number}", size_bytes, 0, runs)

    small = [segment(number, 1 << 20) for number in range(64)]
    assert [len(group) for group in plan_merge(small, max_runs=40)] == [16] * 4
    assert [len(group) for group in plan_merge(small, max_runs=20)] == [32] * 2
    large = [segment(number, 1 << 28) for number in range(4)]
    assert [len(part.runs) for group in plan_merge(large, max_runs=10) for part in group] == [10] * 4
    with pytest.raises(CommitRefused, match="maxOffsetsPerTrigger"):
        plan_merge(large, max_runs=9)


def test_runs_of_a_partition_become_one_where_segments_are_too_large_to_be_merged_whole() -> None:
    """Ten partitions of 10 bytes in each of four segments of 1,000; 45 bytes become one segment at most."""

    def segment(number: int) -> SegmentRow:
        runs = tuple(RunRow("t", each, 1, 0, 1, 10 * each, 10, 100 + each, 1, 0) for each in range(10))
        return SegmentRow(f"s{number}", 1000, 0, runs)

    segments = [segment(number) for number in range(4)]
    groups = plan_merge(segments, max_runs=10, max_bytes=45)
    assert [[part.runs[0].partition for part in group] for group in groups] == [[each] * 4 for each in range(10)]
    cut = plan_merge(segments, max_runs=20, max_bytes=25)
    assert [[part.segment.key for part in group] for group in cut] == [["s0", "s1"], ["s2", "s3"]] * 10
    with pytest.raises(CommitRefused, match="runs=20 limit=19"):
        plan_merge(segments, max_runs=19, max_bytes=25)
