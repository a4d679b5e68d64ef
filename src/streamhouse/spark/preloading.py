"""Preloading: Spark's Python processes begin with everything imported.

Data path   Spark -> **preloading** -> pyspark's own daemon, which forks a process for each question and task
Owns        what is imported before the first fork, and the script that Spark takes for its Python
Leaves      what the processes do to pyspark, the source and the sink

Spark asks a source of Python's in a process for each question, and reads it in further ones. Each would import for
a second what a query uses for milliseconds. They are forks of a daemon; what that has imported, they have. It imports
and does nothing else: no thread of ours, no connection, is there when it forks.
"""

import gc
import os
import runpy
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

DAEMON: Final = ("-m", "pyspark.daemon")
_SOURCE: Final = (
    "pyspark.sql.datasource",
    "pyspark_streamhouse",
    "streamhouse.spark.source",
    "streamhouse.spark.fields",
)
_PLANS: Final = (*_SOURCE, "pandas", "pyarrow", "streamhouse.spark.batch", "streamhouse.spark.typed")
_TASKS: Final = (*_PLANS, "pyarrow.compute", "streamhouse.spark.reading", "streamhouse.spark.stream")
MODULES: Final[Mapping[str, Sequence[str]]] = {
    "pyspark.worker": _TASKS,
    "pyspark.sql.worker.plan_data_source_read": _PLANS,
    "pyspark.sql.worker.data_source_pushdown_filters": _PLANS,
}
"""By what a daemon's forks run; those that are not named get by with the source."""

_SCRIPT: Final = """\
#!/bin/sh
# Python for Spark, with the modules of a topic's reader imported before it forks.
exec {python} -m streamhouse.spark.preloading "$@"
"""


def python_for_spark(folder: Path) -> Path:
    """A script in the folder that Spark may take for its Python."""
    script = folder / "python"
    making = script.with_suffix(f".{os.getpid()}")
    making.write_text(_SCRIPT.format(python=shlex.quote(sys.executable)))
    making.chmod(0o700)
    making.replace(script)
    return script


def main(arguments: Sequence[str]) -> None:
    """As Python itself would; a daemon of pyspark's starts with more in it."""
    if tuple(arguments[:2]) != DAEMON:
        os.execv(sys.executable, [sys.executable, *arguments])
    sys.argv = [DAEMON[1], *arguments[2:]]
    preload(arguments[2] if len(arguments) > 2 else "pyspark.worker")
    runpy.run_module(DAEMON[1], run_name="__main__", alter_sys=True)


def preload(kind: str) -> None:
    """What can't be imported is left to the process that needs it, which says so to somebody."""
    for name in (kind, *MODULES.get(kind, _SOURCE)):
        with suppress(ImportError):
            import_module(name)
    if kind in sys.modules:
        module: Any = sys.modules[kind]
        module.main = quietly(module.main)
    gc.collect()
    gc.freeze()  # forks share these pages as long as nobody writes to them


def quietly(main: Callable[..., None]) -> Callable[..., None]:
    """A query with a LIMIT hangs up on its readers. That is no error, and not worth a page in a log."""

    def run(*arguments: Any) -> None:
        try:
            main(*arguments)
        except BrokenPipeError:
            os._exit(1)  # a fork that nobody listens to; pyspark's daemon would tell its story

    return run


if __name__ == "__main__":
    main(sys.argv[1:])
