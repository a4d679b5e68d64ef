"""State of pipelines: what it grows by becomes snapshots, so that a pipeline of years starts as soon as one of days."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamhouse.spark.pipelines.runner import SETTINGS

pytestmark = pytest.mark.spark

PROGRAM = """
import sys
from streamhouse.spark import open_session
from streamhouse.spark.pipelines.runner import SETTINGS

changes = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
settings = {**SETTINGS, changes: "false", "spark.sql.shuffle.partitions": "1"}
spark = open_session("state", master="local[1]", settings=settings)
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "10").load()
writer = rows.groupBy("value").count().writeStream.format("noop").outputMode("update")
query = writer.option("checkpointLocation", sys.argv[1]).start()
while query.isActive and not query.recentProgress:
    query.awaitTermination(1)
query.stop()
spark.stop()
"""


CHANGES = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


def test_a_snapshot_of_a_pipelines_state_is_written(spark: SparkSession, tmp_path: Path) -> None:
    """By RocksDB, with the settings of a runner that can be given to a Spark that runs."""
    session = spark.newSession()
    for name, value in {**SETTINGS, CHANGES: "false", "spark.sql.shuffle.partitions": "1"}.items():
        if name.startswith("spark.sql."):
            session.conf.set(name, value)
    rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", "10").load()
    writer = rows.groupBy("value").count().writeStream.format("noop").outputMode("update")
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    while query.isActive and not query.recentProgress:
        query.awaitTermination(1)
    query.stop()
    assert query.exception() is None
    assert list((tmp_path / "state" / "0" / "0").glob("*.zip"))


@pytest.mark.slow
def test_a_session_of_its_own_writes_snapshots_and_no_checksum_files(tmp_path: Path) -> None:
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert list((tmp_path / "state" / "0" / "0").glob("*.zip")), done.stderr[-2000:]
    assert not list((tmp_path / "offsets").glob(".*.crc"))
