"""The sync client: the same names, plain calls, several threads."""

import inspect
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from streamhouse import NewSchema, SyncClient
from streamhouse.client import sync
from streamhouse.client.admin import ClusterView, ConsumerGroups, Topics
from streamhouse.client.client import Client
from streamhouse.client.group_consumer import GroupConsumer
from streamhouse.client.pipelines import Pipelines, Sql, Tables, Views
from streamhouse.client.producer import Producer
from streamhouse.client.schemas import Schemas
from streamhouse.client.sync_pipelines import SyncPipelines, SyncSql, SyncTables, SyncViews
from streamhouse.client.sync_producer import SyncProducer
from streamhouse.errors import InvalidPartitions, Rejected, Unavailable, UnknownTopic
from streamhouse.model.names import TopicPartition
from tests.client.live import agent as agent
from tests.client.live import topic as topic
from tests.support.agent import LiveAgent, free_port

PAIRS: list[tuple[type[Any], type[Any], set[str]]] = [
    (Client, SyncClient, set()),
    (Topics, sync.SyncTopics, set()),
    (ConsumerGroups, sync.SyncGroups, set()),
    (ClusterView, sync.SyncCluster, set()),
    (Schemas, sync.SyncSchemas, set()),
    (Tables, SyncTables, set()),
    (Pipelines, SyncPipelines, set()),
    (Views, SyncViews, {"pages"}),
    (Sql, SyncSql, {"batches"}),
    (GroupConsumer, sync.SyncGroupConsumer, {"take", "finish", "done", "positions", "commit_before_rebalance"}),
    (Producer, SyncProducer, {"record", "put", "encode", "post", "init_producer_id", "refresh_leaders", "release"}),
]


@pytest.fixture
def client(agent: LiveAgent) -> Iterator[SyncClient]:
    with SyncClient(agent.http) as opened:
        yield opened


def verbs(kind: type[Any]) -> dict[str, list[inspect.Parameter]]:
    return {
        name: list(inspect.signature(function).parameters.values())
        for name, function in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


@pytest.mark.parametrize(("awaited", "plain", "inner"), PAIRS, ids=lambda each: getattr(each, "__name__", ""))
def test_both_clients_have_the_same_verbs(awaited: type[Any], plain: type[Any], inner: set[str]) -> None:
    assert {name: p for name, p in verbs(awaited).items() if name not in inner} == verbs(plain)


def test_records_go_and_come(client: SyncClient, topic: str) -> None:
    client.topics.create(topic, partitions=2)
    with client.producer(topic) as producer:
        assert producer.send({"id": 1}, key="a").offset == 0
        deliveries = [producer.enqueue(b"%d" % number, partition=1) for number in range(3_000)]
        producer.flush()
        assert all(delivery.done() for delivery in deliveries)
    assert len({delivery.result().offset for delivery in deliveries}) == 3_000
    result = list(client.consume(topic, until="end"))
    assert len(result) == 3_001
    assert len(list(client.consume(topic, limit=5))) == 5


def test_a_failure_is_raised_where_the_producer_ends(client: SyncClient, topic: str) -> None:
    client.topics.create(topic, config={"max.message.bytes": 1_000})
    producer = client.producer(topic).__enter__()
    failed, good = producer.enqueue(b"x" * 2_000), producer.enqueue(b"small")
    with pytest.raises(Rejected, match="too large"):
        producer.__exit__(None, None, None)
    assert good.result().offset == 0
    with pytest.raises(Rejected, match="too large"):
        failed.result()


def test_a_record_that_is_not_even_taken_is_reported_by_flush_and_at_the_end(client: SyncClient, topic: str) -> None:
    client.topics.create(topic, partitions=1)
    with client.producer(topic) as producer:
        producer.enqueue(b"nowhere", partition=7)
        with pytest.raises(InvalidPartitions, match="partition=7"):
            producer.flush()
        producer.flush()  # told once
        seen = producer.enqueue(b"nowhere", partition=8)
        with pytest.raises(InvalidPartitions):
            seen.result()
    with pytest.raises(InvalidPartitions, match="partition=9"), client.producer(topic) as producer:
        producer.enqueue(b"nowhere", partition=9)


def test_a_producer_that_is_not_open_takes_nothing(client: SyncClient, topic: str) -> None:
    producer = client.producer(topic)
    with pytest.raises(Rejected, match="use it in: with client"):
        producer.enqueue(b"lost")
    with pytest.raises(Rejected, match="use it in: with client"):
        producer.send(b"lost")


def test_a_group_commits_what_the_loop_is_done_with(client: SyncClient, topic: str) -> None:
    client.topics.create(topic)
    with client.producer(topic) as producer:
        for number in range(10):
            producer.enqueue(b"%d" % number)
    with suppress(ZeroDivisionError), client.consumer(topic, group=topic) as consumer:
        for record in consumer:
            if record.offset == 4:
                raise ZeroDivisionError
    assert client.groups.committed(topic) == {TopicPartition(topic, 0): 4}
    with client.consumer(topic, group=topic, commit="explicit") as consumer:
        for record in consumer:
            if record.offset == 6:
                break
        consumer.commit()
    assert client.groups.lag(topic) == {TopicPartition(topic, 0): 3}


def test_schemas_work_here_too(client: SyncClient, topic: str) -> None:
    schema = NewSchema(text='{"type": "object"}', type="JSON")
    with client.producer(topic, schema=schema) as producer:
        producer.send({"a": 1})
    assert [record.value for record in client.consume(topic, until="end", decode=True)] == [{"a": 1}]
    assert client.schemas.versions(f"{topic}-value") == [1]


def test_several_threads_share_a_client_and_a_producer(client: SyncClient, topic: str) -> None:
    client.topics.create(topic, partitions=3)
    with client.producer(topic, buffer_bytes=100_000) as producer:

        def write(name: int) -> None:
            for number in range(500):
                producer.enqueue(b"%d" % number, key=f"{name}")

        threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    by_key: dict[bytes, list[int]] = {}
    for record in client.consume(topic, until="end"):
        by_key.setdefault(record.key, []).append(int(record.value))
    assert by_key == {b"%d" % name: list(range(500)) for name in range(4)}


def test_nothing_is_left_behind(agent: LiveAgent, topic: str) -> None:
    before = threading.active_count()
    with SyncClient(agent.http) as client:
        client.topics.create(topic)
        with client.producer(topic) as producer:
            producer.send(b"v")
        iterator = iter(client.consume(topic))  # left open: the client's end is its end
        assert next(iterator).value == b"v"
    assert threading.active_count() == before
    with pytest.raises(Rejected, match="closed"):
        next(iterator)


def test_a_client_that_can_not_be_opened_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(Unavailable):
        SyncClient(f"127.0.0.1:{free_port()}").__enter__()
    assert threading.active_count() == before


def test_errors_come_through_as_they_are(client: SyncClient) -> None:
    with pytest.raises(UnknownTopic):
        client.topics.get("not-there")


def test_waiting_in_one_thread_does_not_stop_another(client: SyncClient, topic: str) -> None:
    client.topics.create(topic)
    results: list[bytes] = []
    reader = threading.Thread(target=lambda: results.extend(r.value for r in client.consume(topic, limit=1)))
    reader.start()
    with client.producer(topic) as producer:
        producer.send(b"v")
    reader.join(timeout=20)
    assert results == [b"v"]


def test_a_client_that_is_not_open_says_how_to_open_it(agent: LiveAgent) -> None:
    closed = SyncClient(agent.http)
    for use in (lambda: closed.topics, lambda: closed.groups, lambda: closed.schemas, lambda: closed.cluster):
        with pytest.raises(Rejected, match=r"use it in: with SyncClient"):
            use()
    with closed:
        assert closed.cluster.agents()
