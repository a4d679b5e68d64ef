"""Query stop: ends queries, and returns only when they have ended.

Data path   query_run, query_builder -> **stop_all** -> Spark
Owns        retries; ending the runner if a query does not stop
Leaves      when to stop to `query_run`

A pipeline that is reported as ended may be given to another supervisor at once. So it is not reported while a
query of it may still commit: where one doesn't stop, the whole runner ends, and its supervisor starts another.
"""

import logging
import os
from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

TRIES: Final = 3
"""Each takes `spark.sql.streaming.stopTimeout` at most."""


def _end_runner() -> None:
    os._exit(1)


def stop_all(queries: Sequence[StreamingQuery], *, end: Callable[[], None] = _end_runner) -> None:
    """Returns when none of them runs; where one can't be stopped, `end` is called instead."""
    for _ in range(TRIES):
        queries = [query for query in queries if not _is_stopped(query)]
        if not queries:
            return
    log.error("queries don't stop, so their runner ends; ids=%s", [str(query.id) for query in queries])
    end()


def _is_stopped(query: StreamingQuery) -> bool:
    try:
        query.stop()
    except Exception:  # a timeout, or a JVM that doesn't answer
        log.warning("a query didn't stop; stop is called again", exc_info=True)
        return False
    return True
