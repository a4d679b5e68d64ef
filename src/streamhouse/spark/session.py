"""Session: the settings that Spark gets, and the environment that it starts in.

Data path   none; decided once before a Spark starts
Owns        which settings there are and why; what a Spark needs in its environment
Leaves      finding Java to `java`; starting to `launch` (commands) and `opening` (programs)

`format("streamhouse")` needs no setting: Spark finds the module `pyspark_streamhouse` in the Python that it uses.
Credentials are never settings, which anybody can read in Spark's pages and logs: they stay in the environment.
"""

import sys
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from streamhouse.spark.java import java_home
from streamhouse.spark.options import AGENTS_VARIABLE
from streamhouse.spark.preloading import python_for_spark

MASTER: Final = "spark.master"


class Setting(NamedTuple):
    name: str
    value: str
    why: str


SETTINGS: Final = (
    Setting(
        "spark.sql.python.filterPushdown.enabled",
        "true",
        "filters on topic, partition, offset and timestamp narrow what a batch reads",
    ),
    Setting(
        "spark.python.unix.domain.socket.enabled",
        "true",
        "Spark and its Python processes talk without TCP: shorter micro-batches",
    ),
    Setting(
        "spark.buffer.size",
        str(256 * 1024),
        "and in larger pieces: quicker reads",
    ),
    Setting(
        "spark.sql.streaming.checkpointFileManagerClass",
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
        "checkpoints are written with fewer shell commands",
    ),
    Setting(
        "spark.sql.streaming.checkpoint.fileChecksum.enabled",
        "false",
        "and without a second file for each one",
    ),
    Setting(
        "spark.sql.streaming.pollingDelay",
        "5ms",
        "an idle stream waits for records at an agent, which tells it of the first one, and not between two looks",
    ),
    Setting(
        "spark.sql.shuffle.partitions",
        "8",
        "a micro-batch with a window has 8 tasks, not 200; a stream keeps the number that it began with",
    ),
    Setting(
        "spark.sql.adaptive.coalescePartitions.initialPartitionNum",
        "200",
        "batches still spread as widely as they need",
    ),
    Setting(
        "spark.sql.execution.arrow.pyspark.enabled",
        "true",
        "toPandas and createDataFrame move columns, not rows",
    ),
    Setting(
        "spark.redaction.regex",
        "(?i)secret|password|token|access[._]?key|account[._]?key|credential|signature",
        "whatever looks like a credential is not shown, should somebody make one a setting",
    ),
)

# The driver asks the agents. What its environment is called depends on who starts it.
_AGENTS_SETTINGS: Final = ("spark.executorEnv", "spark.kubernetes.driverEnv", "spark.yarn.appMasterEnv")


def explained_settings(agents: str | None = None) -> tuple[Setting, ...]:
    """Every setting with its reason; with `agents`, those that tell drivers in clusters which to ask."""
    if agents is None:
        return SETTINGS
    why = "agents to ask where a read or a write doesn't name them"
    return (*SETTINGS, *(Setting(f"{prefix}.{AGENTS_VARIABLE}", agents, why) for prefix in _AGENTS_SETTINGS))


def spark_settings(agents: str | None = None) -> dict[str, str]:
    """What to set in a Spark that reads and writes topics; `agents` are `host:port`, with commas between."""
    return {setting.name: setting.value for setting in explained_settings(agents)}


def as_defaults(settings: Iterable[Setting]) -> str:
    """The lines of a spark-defaults.conf, each below its reason."""
    reasons: set[str] = set()
    lines: list[str] = []
    for setting in settings:
        lines += [] if setting.why in reasons else [f"# {setting.why}"]
        lines.append(f"{setting.name} {setting.value}")
        reasons.add(setting.why)
    return "\n".join(lines)


def is_local(master: str | None, environ: Mapping[str, str]) -> bool:
    """Whether Spark's Python processes run on this machine, as they do where nothing is said."""
    return "SPARK_CONF_DIR" not in environ if master is None else master.startswith("local")


def spark_environment(
    environ: Mapping[str, str], *, agents: str | None = None, master: str | None = None
) -> dict[str, str]:
    """`environ` with what Spark needs besides: Java, and this Python unless another one is named.

    Other machines may have another release of this package, so Spark gets the Python itself there, and not our script.
    """
    needed = {"JAVA_HOME": str(java_home(environ))}
    python = python_for_spark() if is_local(master, environ) else sys.executable
    usual = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}  # sources found by name run in the driver's
    told = {AGENTS_VARIABLE: agents} if agents is not None else {}
    return {**usual, **environ, **needed, **told}
