"""The Spark session of a maintenance or replay job, whose log lines go to a file.

Owns        the job's Spark settings; where the output of Spark's processes goes
Leaves      the settings of all sessions to `runtime.launch`, stopping to `runtime.session_stop`
"""

import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from streamhouse.spark.runtime.session import open_session

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
    """Spark's own handler for Ctrl-C would call Java to cancel in the middle of another call."""
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
    """From here on Spark's log goes to its file only; its processes keep what they were started with."""
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
