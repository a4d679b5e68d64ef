"""Python validation: diagnostics of pipelines in Python, before anything runs.

Data path   `pipelines apply` -> a SQL worker -> **validate_python** -> problems with their lines
Owns        calling a user's function with tables without rows; in which line of the file it failed
Leaves      the tables to `python_pipeline`, words for Spark's errors to `query.error_messages`

Code of a user's runs here. Only the SQL worker of the user who has the file does this, never for callers of agents.
"""

import logging
import traceback
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streamhouse.errors import StreamhouseError
from streamhouse.spark.agents.client import connect
from streamhouse.spark.connectors import ReadContext
from streamhouse.spark.pipelines.python_pipeline import check_python
from streamhouse.spark.query.catalog import Catalog
from streamhouse.spark.query.error_messages import SqlDiagnostic, diagnostics_of
from streamhouse.spark.query.resolver import own_session
from streamhouse.spark.runtime.jvm import unsupported_pipeline
from streamhouse.sql.definitions import PythonPipeline
from streamhouse.sql.options import pipeline_options

log = logging.getLogger(__name__)

OK: Final = 200


def is_allowed(agents: str) -> bool:
    """Whether agents accept pipelines in Python; if not, no file is run."""
    response = connect(agents).send("GET", "/v1/supervisors")
    return response.status == OK and msgspec.json.decode(response.content).get("allow_python") is True


def validate_python(
    spark: SparkSession, catalog: Catalog, pipelines: Iterable[PythonPipeline]
) -> dict[str, tuple[SqlDiagnostic, ...]]:
    """For each pipeline what is wrong with it."""
    return {each.name: _problems(spark, catalog, each) for each in pipelines}


def _problems(spark: SparkSession, catalog: Catalog, pipeline: PythonPipeline) -> tuple[SqlDiagnostic, ...]:
    options = pipeline_options(pipeline.options)
    reading = ReadContext(agents=catalog.agents, watermarks=options.watermarks)
    try:
        frame = check_python(own_session(spark), pipeline.text, pipeline.name, catalog, reading).frame
        if not frame.isStreaming:
            return (_problem(pipeline, "it reads no stream, so it would be over at once", 'tables.stream("orders")'),)
        error = unsupported_pipeline(frame, options.output)
    except (Exception, SystemExit) as raised:  # whatever a user's code raises
        log.debug("a pipeline in Python is wrong; name=%s", pipeline.name, exc_info=True)
        return tuple(_with_position(each, pipeline, raised) for each in _words(raised))
    return () if error is None else tuple(_with_position(each, pipeline, error) for each in _words(error))


def _words(error: BaseException) -> tuple[SqlDiagnostic, ...]:
    if isinstance(error, StreamhouseError | PySparkException):
        return diagnostics_of(error, "")
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return (SqlDiagnostic(line=1, column=1, text=text, hint=""),)


def _with_position(problem: SqlDiagnostic, pipeline: PythonPipeline, error: BaseException) -> SqlDiagnostic:
    """In the last line of the file that led to it, else where the function begins."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [each.lineno for each in frames if each.filename == f"{pipeline.name}.py" and each.lineno is not None]
    return replace(problem, line=lines[-1] if lines else pipeline.line, column=1)


def _problem(pipeline: PythonPipeline, text: str, hint: str) -> SqlDiagnostic:
    return SqlDiagnostic(line=pipeline.line, column=1, text=text, hint=hint)
