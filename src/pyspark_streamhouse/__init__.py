"""What makes `format("streamhouse")` known without a line of code: Spark looks into modules whose name begins so.

Data path   Spark's list of sources -> **DefaultSource** -> `streamhouse.spark.datasource.data_source`
Owns        the name that Spark looks for
Leaves      everything else to `streamhouse.spark`, which is loaded on first use: every session with Spark that
            has this package installed looks in here
"""

from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, cast

import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """Topics as tables; see `streamhouse.spark.datasource.data_source`."""

    @classmethod
    def name(cls) -> str:
        return "streamhouse"

    @cached_property
    def _source(self) -> DataSource:
        import_module("streamhouse.spark.runtime.launch").check_pyspark(pyspark.__version__)
        module = import_module("streamhouse.spark.datasource.data_source")
        return cast(DataSource, module.StreamhouseSource(self.options))

    def schema(self) -> "StructType | str":
        return self._source.schema()

    def reader(self, schema: "StructType") -> DataSourceReader:
        return self._source.reader(schema)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:
        return self._source.streamReader(schema)

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:
        return self._source.writer(schema, overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> DataSourceStreamWriter:
        return self._source.streamWriter(schema, overwrite)
