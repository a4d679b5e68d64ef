"""`format("streamhouse")`: PySpark's DataSource, and its registration with a session.

Data path   Spark -> **data_source** -> batch_reader, stream_reader and data_writer on the driver
Owns        the methods that Spark calls; settings of a session; the Python of a local Spark
Leaves      options to `read_options` and `write_options`; sessions without code to `pyspark_streamhouse`

Spark starts a Python process per call, so modules are imported when a call needs them.
"""

import asyncio
import os
from collections.abc import Mapping, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from streamhouse.spark.agents.address import CONF_PREFIX, LOGIN_OPTIONS
from streamhouse.spark.columns.record_schema import check_schema, record_schema
from streamhouse.spark.datasource.read_options import ReadOptions, read_options
from streamhouse.spark.runtime.launch import PUSH_DOWN, is_local
from streamhouse.spark.runtime.python_worker import python_for_spark

if TYPE_CHECKING:
    from streamhouse.spark.columns.typed_decoder import ReaderSchema
    from streamhouse.spark.datasource.batch_reader import BatchReader
    from streamhouse.spark.datasource.data_writer import BatchWriter, StreamWriter
    from streamhouse.spark.datasource.stream_reader import StreamReader

NAME: Final = "streamhouse"


class StreamhouseSource(DataSource):
    """Topics as tables."""

    configured: ClassVar[Mapping[str, str]] = {}
    """Options of logins that the session's settings give; those of a read or a write win."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @property
    def _given(self) -> dict[str, str]:
        named = {name.lower() for name in self.options}
        has_login = not named.isdisjoint(LOGIN_OPTIONS)
        return {**({} if has_login else self.configured), **dict(self.options)}

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        # Whether it will be a batch or a stream isn't known yet; neither changes the columns.
        options = read_options(self._given, streaming=None)
        if not options.typed:
            return record_schema(include_headers=options.include_headers)
        columns = _load("columns.typed_columns").typed_schema(
            _latest(options),
            include_headers=options.include_headers,
            keep_errors=options.keep_errors,
            prefix=options.metadata_prefix,
        )
        return cast(StructType, columns)

    def reader(self, schema: StructType) -> "BatchReader":
        options = read_options(self._given, streaming=False)
        return cast("BatchReader", _load("datasource.batch_reader").BatchReader(options, _output(options, schema)))

    def streamReader(self, schema: StructType) -> "StreamReader":
        options = read_options(self._given, streaming=True)
        return cast("StreamReader", _load("datasource.stream_reader").StreamReader(options, _output(options, schema)))

    def writer(self, schema: StructType, overwrite: bool) -> "BatchWriter":
        options = _load("datasource.write_options").write_options(self._given)
        return cast("BatchWriter", _load("datasource.data_writer").batch_writer(options, schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamWriter":
        options = _load("datasource.write_options").write_options(self._given)
        return cast("StreamWriter", _load("datasource.data_writer").stream_writer(options, schema, overwrite=overwrite))


def _load(name: str) -> Any:
    return import_module(f"streamhouse.spark.{name}")


def _latest(options: ReadOptions) -> "ReaderSchema":
    return cast(
        "ReaderSchema", asyncio.run(_load("columns.typed_decoder").latest_schema(options.agents, options.typed_topic))
    )


def _output(options: ReadOptions, schema: StructType) -> Any:
    """The schema of the rows; raises `Misconfigured` for columns that records don't have."""
    output = _load("datasource.split_reader").OutputSchema
    if not options.typed:
        check_schema(schema)
        return output(columns=schema)
    typed = _latest(options)
    _load("columns.typed_columns").check_typed(
        schema, typed, keep_errors=options.keep_errors, prefix=options.metadata_prefix
    )
    return output(columns=schema, typed=typed)


def register(spark: SparkSession) -> None:
    """Make `format("streamhouse")` known, and let filters on topic, partition, offset and timestamp narrow reads.

    A local Spark without a configured Python (PYSPARK_PYTHON, spark.pyspark.python) would start whatever
    `python3` is on the PATH, which need not have this package: it gets the Python that calls this.
    """
    _choose_python(spark)
    spark.dataSource.register(_with_login(spark))
    spark.conf.set(PUSH_DOWN, "true")


def _with_login(spark: SparkSession) -> type[StreamhouseSource]:
    """The source, with the login in `spark.streamhouse.user` and others, which only a program's session knows."""
    found = {name: spark.conf.get(f"{CONF_PREFIX}{name}", None) for name in LOGIN_OPTIONS}
    login = {name: value for name, value in found.items() if value}
    if not login:
        return StreamhouseSource

    class ConfiguredSource(StreamhouseSource):
        configured = login

    return ConfiguredSource


def _choose_python(spark: SparkSession) -> None:
    context: Any = getattr(spark, "_sc", None)  # a session of Spark Connect has none: its server has its own Python
    if context is None or "PYSPARK_PYTHON" in os.environ or not is_local(context.master, os.environ):
        return
    if context.getConf().get("spark.pyspark.python") is None:
        context.pythonExec = python_for_spark()
