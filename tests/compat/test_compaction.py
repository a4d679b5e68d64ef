"""Compacted topics with real clients: a table's final state is read from zero, also while it is being compacted."""

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.cimpl import NewTopic

from tests.compat.clients import TIMEOUT_S, AioKafka, Confluent, KafkaClient, KafkaPython, Read, Sent, _read
from tests.support.agent import LiveAgent

api: Any = confluent_kafka.admin  # whose types are not all exported

QUICK = ("compaction.interval_s=0.2", "compaction.merge_runs=4", "flush.age_s=0.1", "flush.check_s=0.05")
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[LiveAgent]:
    flags = [flag for setting in QUICK for flag in ("--set", setting)]
    with LiveAgent(tmp_path / "data", *flags) as agent:
        yield agent
    assert "Traceback" not in agent.output


def create(agent: LiveAgent, topic: str, config: Mapping[str, str]) -> None:
    admin = api.AdminClient({"bootstrap.servers": agent.bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=1, config=dict(config))])[topic].result(TIMEOUT_S)


def alter(agent: LiveAgent, topic: str, name: str, value: str) -> None:
    entry = api.ConfigEntry(name, value, incremental_operation=api.AlterConfigOpType.SET)
    resource = api.ConfigResource(api.ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = api.AdminClient({"bootstrap.servers": agent.bootstrap})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(TIMEOUT_S)


def read_to_end(agent: LiveAgent, topic: str) -> tuple[list[Read], int]:
    """Everything from zero to the end of the partition, and the offset at which that was reached."""
    settings: dict[str, Any] = {
        "bootstrap.servers": agent.bootstrap,
        "group.id": "by-hand",
        "enable.partition.eof": True,
    }
    results: list[Read] = []
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            for message in consumer.consume(1000, timeout=0.1):
                error = message.error()
                if error is None:
                    results.append(_read(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    return results, message.offset() or 0
                else:
                    assert error.retriable(), error
    raise AssertionError(f"the end was not reached; read={len(results)}")


def wait_compacted(agent: LiveAgent, topic: str, count: int) -> list[Read]:
    """What is left once so many records are left."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        result, _ = read_to_end(agent, topic)
        if len(result) == count or time.monotonic() > deadline:
            return result
        time.sleep(0.1)


def table(records: list[Read]) -> dict[bytes | None, bytes | None]:
    final = {record.key: record.value for record in records}
    return {key: value for key, value in final.items() if value is not None}


@pytest.mark.parametrize("kind", [Confluent, KafkaPython, AioKafka])
def test_each_key_keeps_its_latest_value_for_every_client(
    agent: LiveAgent, topic: str, kind: type[KafkaClient]
) -> None:
    create(agent, topic, COMPACT)
    client = kind(agent.bootstrap)
    sent: list[Sent] = []
    for number, codec in enumerate(sorted(client.codecs)):
        batch = [
            Sent(b"key-%d" % (n % 10), b"%d/%d" % (number, n), (("n", b"%d" % n),), 1_700_000_000_000 + len(sent) + n)
            for n in range(40)
        ]
        batch[-1] = batch[-1]._replace(value=None)
        client.produce(topic, batch, codec=codec)
        sent += batch
    last = {record.key: offset for offset, record in enumerate(sent)}
    expected = [Read(offset, *sent[offset]) for offset in sorted(last.values())]
    assert wait_compacted(agent, topic, 10) == expected
    assert client.read(topic, 10) == expected
    assert client.read(topic, 10, from_offset=expected[0].offset - 5) == expected
    assert client.ends(topic) == (0, len(sent))
    assert client.offset_at(topic, expected[4].timestamp_ms) == expected[4].offset
    assert client.offset_at(topic, 0) == expected[0].offset


def test_the_end_is_reached_though_its_records_are_gone(agent: LiveAgent, topic: str) -> None:
    create(agent, topic, {"cleanup.policy": "delete"})
    client = Confluent(agent.bootstrap)
    client.produce(topic, [Sent(b"a", b"1", timestamp_ms=-1), Sent(b"b", b"2", timestamp_ms=-1)], codec="none")
    client.produce(topic, [Sent(None, b"no key", timestamp_ms=-1)] * 3, codec="lz4")
    alter(agent, topic, "cleanup.policy", "compact")
    assert [record.key for record in wait_compacted(agent, topic, 2)] == [b"a", b"b"]
    assert read_to_end(agent, topic)[1] == 5
    for other in (KafkaPython(agent.bootstrap), AioKafka(agent.bootstrap)):
        client.produce(topic, [Sent(b"c", b"3")], codec="none")
        assert [record.key for record in other.read(topic, 3)] == [b"a", b"b", b"c"]


def test_a_table_is_whole_whenever_it_is_read_and_whenever_the_agent_dies(agent: LiveAgent, topic: str) -> None:
    create(agent, topic, COMPACT | {"delete.retention.ms": "86400000"})
    client = Confluent(agent.bootstrap)
    chance = random.Random(7)
    expected: dict[bytes | None, bytes | None] = {}
    for number in range(9):
        updates = [Sent(b"%d" % chance.randrange(50), b"%d/%d" % (number, n), timestamp_ms=-1) for n in range(100)]
        updates += [Sent(b"%d" % chance.randrange(50), None, timestamp_ms=-1)]
        client.produce(topic, updates, codec=chance.choice(["none", "gzip", "snappy", "lz4", "zstd"]))
        expected |= {sent.key: sent.value for sent in updates}
        if number % 4 == 3:
            agent.kill()
            agent.start()
        result, end = read_to_end(agent, topic)
        assert table(result) == {key: value for key, value in expected.items() if value is not None}
        assert [record.offset for record in result] == sorted({record.offset for record in result})
        assert end == 101 * (number + 1)
    assert table(wait_compacted(agent, topic, len(expected))) == table(result)
