"""Spark's Python processes: `streamhouse-spark-python` imports modules before a fork, and tunes gc and malloc.

Data path   Spark -> **streamhouse-spark-python** -> pyspark's daemon, which forks a process per call and task
Owns        the script that Spark runs as its Python; where pyspark is imported from; what is imported before a fork
Leaves      what the processes do to pyspark and `datasource`

Spark starts a process for each call of a Python data source, and each would import modules for a second. They are
forks of a daemon, so they have what it imported. The daemon imports and does nothing else: no thread or connection
exists when it forks. Half of that second is Spark's archive of pyspark, which Python compiles each time; where the
installed pyspark is the same, that one is imported.

Spark collects garbage after each task, plan and commit. With pandas, pyarrow and pyspark, that walks 100,000 objects
that stay, for 35 ms and more, so they are frozen. Buffers of a task are some MiB each; the C library would return
each to the system, which clears every page for the next: a fifth of the time of decoding.
"""

import gc
import os
import runpy
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.machinery import PathFinder
from itertools import count
from pathlib import Path
from typing import Any, Final

from streamhouse.allocator import keep_memory

SCRIPT: Final = "streamhouse-spark-python"
DAEMON: Final = "pyspark.daemon"
ARCHIVE: Final = "pyspark.zip"
_SOURCE: Final = (
    "pyspark.sql.datasource",
    "pyspark_streamhouse",
    "streamhouse.spark.datasource.data_source",
    "streamhouse.spark.columns.record_schema",
)
_PLANS: Final = (
    *_SOURCE,
    "pandas",
    "pyarrow",
    "streamhouse.spark.datasource.batch_reader",
    "streamhouse.spark.columns.typed_columns",
    "streamhouse.spark.columns.typed_decoder",
)
_TASKS: Final = (
    *_PLANS,
    "pyarrow.compute",
    "streamhouse.spark.datasource.split_reader",
    "streamhouse.spark.datasource.stream_reader",
)
MODULES: Final[Mapping[str, Sequence[str]]] = {
    "pyspark.worker": _TASKS,
    "pyspark.sql.worker.plan_data_source_read": _PLANS,
    "pyspark.sql.worker.data_source_pushdown_filters": _PLANS,
}
"""By what a daemon's forks run; those that are not named get by with the source."""


def python_for_spark() -> str:
    """The Python executable for Spark: this package's script if it was installed, else this Python."""
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        if (folder / SCRIPT).is_file():
            return str(folder / SCRIPT)
    return sys.executable


def main() -> None:
    """As Python itself would, but sooner: without the archive of pyspark, and its daemon with more in it."""
    run(sys.argv[1:])


def run(arguments: Sequence[str]) -> None:
    paths = without_archive(sys.path[1:])
    if len(arguments) < 2 or arguments[0] != "-m":
        given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in given if path in paths)
        os.execv(sys.executable, [sys.executable, *arguments])
    module, rest = arguments[1], arguments[2:]
    sys.path[:] = [os.getcwd(), *paths]  # the folder first, as Python has it for `-m`
    sys.argv = [module, *rest]
    if module == DAEMON:
        preload(rest[0] if rest else "pyspark.worker")
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def without_archive(paths: Sequence[str]) -> list[str]:
    """The paths but for the archives and jars of the Spark whose pyspark is installed on the rest of them."""
    archives = [Path(path) for path in paths if Path(path).name == ARCHIVE]
    if not archives:
        return list(paths)
    home = archives[0].parents[2]
    rest = [path for path in paths if not _is_packed(Path(path), home)]
    specs = [PathFinder.find_spec(name, rest) for name in ("pyspark", "py4j")]
    is_same = all(specs) and specs[0] is not None and Path(str(specs[0].origin)).parent.samefile(home)
    return rest if is_same else list(paths)


def _is_packed(path: Path, home: Path) -> bool:
    return path.suffix in (".zip", ".jar") and home in path.parents


def preload(kind: str) -> None:
    """A failed import is left to the process that needs the module, which reports it."""
    for name in (kind, *MODULES.get(kind, _SOURCE)):
        with suppress(ImportError):
            import_module(name)
    if kind in sys.modules:
        module: Any = sys.modules[kind]
        module.main = quietly(module.main)
    gc.collect()
    gc.freeze()  # forks share these pages as long as they are not written to


def quietly(main: Callable[..., None]) -> Callable[..., None]:
    """A query with a LIMIT hangs up on its readers. That is no error, and not worth a page in a log."""

    def run(*arguments: Any) -> None:
        try:
            try:
                main(*arguments)
            finally:
                arguments[-1].flush()
        except BrokenPipeError:
            os._exit(1)  # a fork without a parent; pyspark's daemon would log a traceback

    return run


FREEZES: Final = 2
"""Before the first task, and before the second: Spark imports the rest while it sends the rows of the first one."""

_calls: Final = count()


def prepare_worker_process() -> None:
    """Called where work begins. Later calls change nothing, so that cycles of tasks are still collected."""
    number = next(_calls)
    if number < FREEZES:
        gc.freeze()
    if number == 0:
        keep_memory()
