"""Settings, environment and command line of a Spark; the PySpark version check. Imports no PySpark.

Data path   `streamhouse spark …` -> **launch** -> Spark's scripts in the package pyspark
Owns        the settings and the reason for each; the environment; the command; the oldest PySpark that works
Leaves      Java to `java`, sessions of programs to `session`, the user's own arguments to Spark

`format("streamhouse")` needs no setting: Spark finds the module `pyspark_streamhouse` in its Python. Settings can be
read in Spark's pages and logs, and command lines by every user of the machine: credentials stay in the environment.
"""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal, NamedTuple

from streamhouse.errors import Misconfigured
from streamhouse.errors.base import install_command
from streamhouse.spark.runtime import AGENTS_VARIABLE
from streamhouse.spark.runtime.java import java_home
from streamhouse.spark.runtime.python_worker import python_for_spark

MASTER: Final = "spark.master"
LISTEN_VARIABLE: Final = "SPARK_LOCAL_IP"
"""Where a driver listens, its pages included."""
LOOPBACK: Final = "127.0.0.1"


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
        "larger buffers between Spark and its Python processes: faster reads",
    ),
    Setting(
        "spark.sql.streaming.checkpointFileManagerClass",
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
        "checkpoints are written with fewer shell commands",
    ),
    Setting(
        "spark.sql.streaming.checkpoint.fileChecksum.enabled",
        "false",
        "checkpoint files have no checksum files beside them",
    ),
    Setting(
        "spark.sql.streaming.pollingDelay",
        "5ms",
        "an idle stream waits for records at an agent, which answers at the first one, instead of polling",
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
        "(?i)secret|password|token|access[._]?key|account[._]?key|credential|signature|jaas[._]config",
        "settings that look like credentials are not shown",
    ),
)

PUSH_DOWN: Final = "spark.sql.python.filterPushdown.enabled"
"""Setting with which Spark hands filters to Python data sources."""
# The driver sends requests to agents. The name of its environment setting depends on the cluster manager.
_AGENTS_SETTINGS: Final = ("spark.executorEnv", "spark.kubernetes.driverEnv", "spark.yarn.appMasterEnv")


def explained_settings(agents: str | None = None) -> tuple[Setting, ...]:
    """Every setting with its reason; with `agents`, those that give their addresses to drivers in clusters."""
    if agents is None:
        return SETTINGS
    why = "addresses of agents for reads and writes that don't name them"
    return (*SETTINGS, *(Setting(f"{prefix}.{AGENTS_VARIABLE}", agents, why) for prefix in _AGENTS_SETTINGS))


def spark_settings(agents: str | None = None) -> dict[str, str]:
    """The Spark settings for reading and writing topics; `agents` are `host:port`, with commas between."""
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
    """Whether Spark's Python processes run on this machine, as they do by default."""
    return "SPARK_CONF_DIR" not in environ if master is None else master.startswith("local")


def spark_environment(
    environ: Mapping[str, str], *, agents: str | None = None, master: str | None = None
) -> dict[str, str]:
    """`environ` with what Spark needs besides: Java, and this Python unless another one is named.

    Other machines may have another release of this package, so Spark gets the Python itself there, and not our script.
    A local Spark listens on loopback only, because its ports need no login.
    """
    needed = {"JAVA_HOME": str(java_home(environ))}
    is_alone = is_local(master, environ)
    python = python_for_spark() if is_alone else sys.executable
    usual = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}  # sources loaded by name run in the driver's
    if is_alone:
        usual[LISTEN_VARIABLE] = LOOPBACK
    configured = {AGENTS_VARIABLE: agents} if agents is not None else {}
    return {**usual, **environ, **needed, **configured}


Kind = Literal["shell", "submit", "pipelines"]

SCRIPTS: Final[Mapping[Kind, str]] = {"shell": "pyspark", "submit": "spark-submit", "pipelines": "spark-pipelines"}
NEEDED: Final = ("yaml", "grpc", "grpc_status", "google.rpc")
"""Packages without which Spark's declarative pipelines don't start."""
QUIET: Final = {"spark.log.level": "WARN"}
"""Spark logs warnings only, as in its shell, so that a program's own output can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A process to start. The environment has credentials in it, so it is not shown."""

    command: tuple[str, ...]
    environment: Mapping[str, str]

    def __repr__(self) -> str:
        return f"<Launch {' '.join(self.command)}>"


def plan_launch(kind: Kind, arguments: Sequence[str], environ: Mapping[str, str], *, agents: str | None) -> Launch:
    """Our settings come first, so that the user's win."""
    home = spark_home()
    if kind == "pipelines":
        check_declarative()
    settings = [part for pair in {**QUIET, **spark_settings(agents)}.items() for part in ("--conf", "=".join(pair))]
    environment = spark_environment(environ, agents=agents, master=_master(arguments))
    return Launch(
        command=(str(home / "bin" / SCRIPTS[kind]), *settings, *arguments),
        environment={**environment, "SPARK_HOME": str(home)},
    )


def _master(arguments: Sequence[str]) -> str | None:
    """The master in the user's own arguments; a properties file may have any."""
    for flag, value in pairwise((*arguments, "")):
        if flag == "--properties-file":
            return flag
        if flag == "--master":
            return value
        if flag in ("--conf", "-c") and value.startswith(f"{MASTER}="):
            return value.partition("=")[2]
        if flag.startswith(("--master=", f"--conf={MASTER}=")):
            return flag.rpartition("=")[2]
    return None


def check_declarative() -> None:
    """Raise `Misconfigured` where Spark's declarative pipelines would end with an import that fails."""
    missing = [name for name in NEEDED if not _is_installed(name)]
    if missing:
        raise Misconfigured(
            f"Spark's declarative pipelines need packages that are not installed; missing={','.join(missing)}"
            ' do=pip install "pyspark[connect,pipelines]"'
        )


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # not even the package that it would be in
        return False


def spark_home() -> Path:
    """The Spark inside the package pyspark: others may be around, with other versions."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
    home = Path(spec.origin).parent
    if not (home / "bin" / SCRIPTS["submit"]).exists():
        raise Misconfigured(
            f"this pyspark has no Spark in it; folder={home}"
            f" do={install_command('spark')}, or set what `streamhouse spark config` prints in a Spark of your own"
        )
    return home


MIN_PYSPARK: Final = (4, 3)
"""The first version that passes read limits to Python sources."""


def check_pyspark(version: str) -> None:
    """Raise `Misconfigured` for a PySpark that lacks parts, before an import of one of these fails."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if numbers < MIN_PYSPARK:
        raise Misconfigured(
            f"this PySpark is too old; version={version} needs={MIN_PYSPARK[0]}.{MIN_PYSPARK[1]}"
            f" do={install_command('spark')} in the Python of driver and executors, with a Spark of that version"
        )
