"""Registering: `register(spark)` is enough, in whichever Python a program runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamhouse.client.sync import SyncClient
from streamhouse.spark.runtime.java import java_home
from tests.support.agent import LiveAgent

pytestmark = pytest.mark.spark

PROGRAM = """
from pyspark.sql import SparkSession
from streamhouse.spark import register

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
read = spark.read.format("streamhouse").options(agents={agents!r}, subscribe="registered").load()
print("VALUES", sorted(row.value.decode() for row in read.select("value").collect()))
"""


def test_a_program_in_a_python_that_is_not_on_the_path_reads_topics(agent: LiveAgent, tmp_path: Path) -> None:
    with SyncClient(agent.http) as client:
        client.topics.create("registered")
        with client.producer("registered") as producer:
            producer.enqueue("a")
            producer.enqueue("b")
    program = tmp_path / "job.py"
    program.write_text(PROGRAM.format(agents=agent.http))
    other = tmp_path / "bin"
    other.mkdir()
    (other / "python3").write_text('#!/bin/sh\necho "the wrong Python was started" >&2\nexit 1\n')
    (other / "python3").chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "PYTHON", "SPARK_"))}
    environment = {**kept, "PATH": f"{other}:/usr/bin:/bin", "JAVA_HOME": str(java_home())}
    done = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert "VALUES ['a', 'b']" in done.stdout, done.stderr[-3000:]
