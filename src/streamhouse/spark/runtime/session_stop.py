"""Stops a Spark session within a deadline, without importing PySpark."""

import contextlib
import threading
import warnings
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP_S: Final = 10.0


def stop_session(spark: "SparkSession", *, within_s: float = STOP_S) -> None:
    """Stop the session, and kill its JVM if it does not stop in time.

    Another thread sends the request: after Ctrl-C the calling thread may have a call to the JVM in flight, and would
    take its response for that of the next call.
    """
    java = getattr(spark.sparkContext._gateway, "proc", None)

    def stop() -> None:
        with contextlib.suppress(Exception):  # what the job did is done, and Java ends with this process at the latest
            spark.stop()

    stopping = threading.Thread(target=stop, name="spark-stopping", daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a terminal's Ctrl-C has ended Java, too
        stopping.start()
        stopping.join(within_s)
    if stopping.is_alive() and java is not None:
        java.kill()
