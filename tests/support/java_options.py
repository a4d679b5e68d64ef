"""Options for the Javas that tests start: each lives for a few queries, so that starting is most of what it does.

Owns        the options, and where the archive of Spark's classes lies
Leaves      the archive to `tests.spark.archive`; whether it fits to Java, which compares its version and every jar,
            and goes on without one that doesn't
"""

from pathlib import Path
from typing import Final

ARCHIVE: Final = Path(__file__).parents[2] / ".cache" / "spark-classes.jsa"
BRIEF: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Hardly a query of a test runs twice: compiling it well takes longer than running it, about half of Spark's time."""


def spark_options() -> str:
    """For `SPARK_SUBMIT_OPTS`. Nothing is said of an archive that doesn't fit: what commands print is compared."""
    is_there = ARCHIVE.is_file() and ARCHIVE.stat().st_size > 0
    return f"{BRIEF} -XX:SharedArchiveFile={ARCHIVE} -Xlog:cds*=off" if is_there else BRIEF
