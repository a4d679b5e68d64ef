"""Stopping: the Spark of a job ends with the job, however that ended.

Data path   none; once, at a job's end
Owns        how long Spark may take to stop, and what becomes of Java when it takes longer
Leaves      starting to `starting`; when to stop to whoever started
"""

import contextlib
import threading
import warnings
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP_S: Final = 10.0


def stop_session(spark: "SparkSession", *, within_s: float = STOP_S) -> None:
    """Stop it; Java is killed where it doesn't stop in time.

    A thread of its own asks for it: after Ctrl-C this one may still be owed an answer by Java, and would take it for
    that of its next question.
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
