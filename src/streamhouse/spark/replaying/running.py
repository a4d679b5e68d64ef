"""Running: what a replay of a command needs: a thread that asks agents, and a Spark that starts when it has work.

Data path   `streamhouse copy`, `streamhouse restore` -> **running** -> copying, restoring
Owns        both for as long as a job runs
Leaves      how a Spark is started to `maintenance.starting`
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from streamhouse.client.loop_thread import LoopThread
from streamhouse.spark.maintenance.starting import start_session
from streamhouse.spark.maintenance.stopping import stop_session


@contextmanager
def running(
    name: str, *, agents: str, master: str | None, settings: Mapping[str, str], log: Path | None
) -> Iterator[tuple[LoopThread, Callable[[], SparkSession]]]:
    loop, started = LoopThread(name="streamhouse-replay"), list[SparkSession]()

    def start() -> SparkSession:
        started.append(start_session(name, agents=agents, master=master, settings=settings, log=log))
        return started[-1]

    try:
        yield loop, start
    finally:
        for spark in started:
            stop_session(spark)
        loop.close()
