"""Launch: the command that starts a shell or a program on PySpark's own Spark, with everything set.

Data path   `streamhouse spark ...` -> **launch** -> Spark's scripts in the package pyspark
Owns        the command and its environment
Leaves      which settings to `session`; what the user's own arguments mean to Spark

What is on a command line can be read by everybody on the machine, so nothing secret is put there: credentials stay in
the environment, which Spark's processes inherit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

from streamhouse.errors import Misconfigured
from streamhouse.errors.installation import install_command
from streamhouse.spark.session import MASTER, spark_environment, spark_settings

Kind = Literal["shell", "submit", "pipelines"]

SCRIPTS: Final[Mapping[Kind, str]] = {"shell": "pyspark", "submit": "spark-submit", "pipelines": "spark-pipelines"}
NEEDED: Final = ("yaml", "grpc", "grpc_status", "google.rpc")
"""Packages without which Spark's declarative pipelines don't start."""
QUIET: Final = {"spark.log.level": "WARN"}
"""A program's own words are not lost among Spark's, as in its shell."""


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
    """What the user's own arguments say of it; a file of settings may say anything."""
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
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
    home = Path(found.origin).parent
    if not (home / "bin" / SCRIPTS["submit"]).exists():
        raise Misconfigured(
            f"this pyspark has no Spark in it; folder={home}"
            f" do={install_command('spark')}, or set what `streamhouse spark config` prints in a Spark of your own"
        )
    return home
