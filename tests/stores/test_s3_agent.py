"""An agent whose records live in S3, with SQLite and the disk WAL beside it."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client import CollectorRegistry

from streamhouse.clock import Ids, SystemClock
from streamhouse.stores.objects.open import open_object_store
from tests.contracts.object_store import keys_below
from tests.live import LiveAgent
from tests.seaweed import RealS3
from tests.stores.conftest import BUCKET

pytestmark = pytest.mark.s3

RECORDS = 2000


def produce(bootstrap: str) -> None:
    failed: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for n in range(RECORDS):
        producer.produce("orders", str(n).encode() * 20, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert failed == []


def consume(bootstrap: str) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition("orders", 0, 0)])
    values: list[bytes] = []
    try:
        while len(values) < RECORDS:
            messages = consumer.consume(RECORDS, timeout=30)
            assert messages, f"only {len(values)} records came back"
            values += [message.value() or b"" for message in messages]
    finally:
        consumer.close()
    return values


async def test_records_go_to_the_bucket_and_come_back_from_it_after_a_restart(
    real_s3: RealS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in real_s3.environment.items():
        monkeypatch.setenv(name, value)
    url = f"s3://{BUCKET}/agent-{tmp_path.name}"
    agent = LiveAgent(tmp_path / "data", "--store", url)
    with agent:
        produce(agent.bootstrap)
    store = open_object_store(url, clock=SystemClock(), ids=Ids(), registry=CollectorRegistry())
    assert len(await keys_below(store, "segments/")) >= 1
    assert await keys_below(store, "proof/") == []
    assert not (tmp_path / "data" / "objects").exists()
    with agent:
        assert consume(agent.bootstrap) == [str(n).encode() * 20 for n in range(RECORDS)]
    assert real_s3.secret_key not in agent.output


def test_an_agent_says_in_one_line_what_is_wrong_with_its_bucket(
    real_s3: RealS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in real_s3.environment.items():
        monkeypatch.setenv(name, value)
    agent = LiveAgent(tmp_path / "data", "--store", "s3://nobodys-bucket/x")
    with pytest.raises(AssertionError, match="did not start"), agent:
        pass
    said = [line for line in agent.output.splitlines() if "bucket" in line]
    assert len(said) == 1
    assert "the bucket does not exist (status=404 code=NoSuchBucket) do=create it" in said[0]
    assert "Traceback" not in agent.output
