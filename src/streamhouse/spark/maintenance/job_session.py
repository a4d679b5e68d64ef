"""Starting: the Spark of a maintenance job, whose own words go to a file.

Data path   none; once in a job that has something to do
Owns        the job's Spark settings, where Spark's words go
Leaves      what every Spark of ours is set to, to `session`

Stopping: the Spark of a job ends with the job, however that ended.

Data path   none; once, at a job's end
Owns        how long Spark may take to stop, and what becomes of Java when it takes longer
Leaves      starting to `starting`; when to stop to whoever started
"""

import contextlib
import logging
import os
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

from streamhouse.spark.runtime.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER: Final = "local[*,4]"
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
}


def start_session(
    name: str,
    *,
    agents: str,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> SparkSession:
    """A Spark for a job; without a master it takes the cores of this machine, and tries failed tasks again."""
    words = log or Path(tempfile.gettempdir()) / f"streamhouse-maintain-{os.getpid()}.log"
    with _words_to(words), _own_interrupts():
        spark = open_session(name, agents=agents, master=master or MASTER, settings={**SETTINGS, **(settings or {})})
    logging.getLogger().addHandler(logging.FileHandler(words))  # what py4j has to say of a Ctrl-C, among others
    return spark


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Spark's own handler for Ctrl-C would ask Java to cancel in the middle of another question to it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _words_to(log: Path) -> Iterator[None]:
    """What Spark's processes say, from here on, is for whoever looks for it: they keep what they were started with."""
    sys.stderr.flush()
    kept = os.dup(2)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(handle, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(handle)


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
