"""Spark: topics as tables and streams, read from the object store and written to it.

Data path   Spark -> **source, sink** -> object store; agents only plan, commit and serve the tail
Owns        `register`, which makes `format("streamhouse")` known to a session; `open_session`, which makes a session
            with everything set; `spark_settings`, for sessions that are made elsewhere; `pipeline`, which makes a
            function a pipeline
Leaves      records' bytes to `format`, buckets to `stores`, agents to `client`

Names are loaded on first use: settings and Java are also needed where PySpark is not installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from streamhouse.spark.runtime.launch import check_pyspark

if TYPE_CHECKING:
    from streamhouse.spark.datasource.data_source import register
    from streamhouse.spark.pipelines.python_pipeline import pipeline
    from streamhouse.spark.runtime.launch import spark_settings
    from streamhouse.spark.runtime.session import open_session

__all__ = ["open_session", "pipeline", "register", "spark_settings"]

_MODULES: Final = {
    "open_session": "streamhouse.spark.runtime.session",
    "pipeline": "streamhouse.spark.pipelines.python_pipeline",
    "register": "streamhouse.spark.datasource.data_source",
    "spark_settings": "streamhouse.spark.runtime.launch",
}
_NEED_PYSPARK: Final = ("open_session", "register")


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _NEED_PYSPARK:
        check_pyspark(import_module("pyspark").__version__)
    loaded = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return loaded


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
