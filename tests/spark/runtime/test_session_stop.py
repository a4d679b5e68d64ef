"""The Spark of a job ends with the job, in bounded time."""

import threading
from types import SimpleNamespace
from typing import Any

from streamhouse.spark.maintenance.job import SparkTasks
from streamhouse.spark.runtime.session_stop import stop_session


class MadeUpSpark:
    """Stops at once, or never; says whether Java was killed."""

    def __init__(self, *, is_stuck: bool = False, fails: bool = False) -> None:
        self.is_killed = False
        self.stopped_by: threading.Thread | None = None
        self._is_stuck, self._fails = is_stuck, fails
        self._released = threading.Event()
        self.sparkContext: Any = SimpleNamespace(_gateway=SimpleNamespace(proc=SimpleNamespace(kill=self.kill)))

    def stop(self) -> None:
        self.stopped_by = threading.current_thread()
        if self._fails:
            raise RuntimeError("answer from Java side is empty")
        if self._is_stuck:
            self._released.wait()

    def kill(self) -> None:
        self.is_killed = True
        self._released.set()


def test_a_spark_that_stops_is_left_to_stop() -> None:
    spark: Any = MadeUpSpark()
    stop_session(spark)
    assert not spark.is_killed
    assert spark.stopped_by is not threading.current_thread(), "whose talk with Java may be broken off"


def test_a_spark_that_does_not_stop_is_killed() -> None:
    spark: Any = MadeUpSpark(is_stuck=True)
    stop_session(spark, within_s=0.05)
    assert spark.is_killed


def test_an_error_at_the_end_hides_nothing_that_was_done() -> None:
    spark: Any = MadeUpSpark(fails=True)
    tasks = SparkTasks(lambda: spark)
    assert tasks.session is spark
    tasks.stop()
    assert repr(tasks) == "<SparkTasks not started>"
