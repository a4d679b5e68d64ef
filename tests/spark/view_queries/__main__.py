"""`make view-queries SEEDS=200`: random views over random records in a real Spark; one again: ARGS='--seed 17'."""

import argparse
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession

import streamhouse.spark
from streamhouse.spark.runtime.java import java_home
from tests.spark.view_queries.oracle import judge
from tests.support.java_options import spark_options


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    given = parser.parse_args()
    seeds = [given.seed] if given.seed is not None else range(given.first, given.first + given.seeds)
    spark = _spark()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            outcome = judge(spark, Path(folder) / str(seed), seed)
            verdict = "refused" if outcome.refused else "wrong" if outcome.wrong else "right"
            counts[verdict] += 1
            result = f"{outcome.refused} | {outcome.hint}" if outcome.refused else outcome.wrong or str(outcome.rows)
            _say(f"--- seed {seed}: {verdict}\n{outcome.statement}\n{result}")
    _say(", ".join(f"{number} {verdict}" for verdict, number in counts.items()))
    return 1 if counts["wrong"] else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _spark() -> SparkSession:
    os.environ |= {
        "JAVA_HOME": str(java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_SUBMIT_OPTS": spark_options(),
    }
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.pollingDelay": "10ms",
        "spark.sql.session.timeZone": "UTC",
    }
    builder = SparkSession.builder.master("local[2]").appName("view-queries")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    streamhouse.spark.register(session)
    return session


if __name__ == "__main__":
    sys.exit(main())
