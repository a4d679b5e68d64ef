"""Connectors: SQL tables as DataFrames, and DataFrames into SQL tables; one module per kind of table.

Data path   query.resolver, pipelines -> **connectors** -> topics, files, PostgreSQL, views, lake tables
Owns        the interface of a connector, and what it gets besides the table
Leaves      names and columns to `query.catalog`; triggers, names and starts of queries to `pipelines`

A connector is a module with the three functions of `TableConnector`. It is imported on first use, so that a query over
topics does not wait for a database driver. An unsupported operation raises `Rejected` with what to use instead.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Protocol, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamhouse.model.table import Connector, Table
from streamhouse.spark.agents.address import AgentAddress
from streamhouse.sql.options import Watermark

_MODULES: Final[Mapping[Connector, str]] = {
    Connector.TOPIC: "streamhouse.spark.connectors.topic",
    Connector.FILES: "streamhouse.spark.connectors.files",
    Connector.POSTGRESQL: "streamhouse.spark.connectors.postgresql.connector",
    Connector.CONSOLE: "streamhouse.spark.connectors.console",
    Connector.VIEW: "streamhouse.spark.connectors.materialized_view",
    Connector.ICEBERG: "streamhouse.spark.lake.connector",
    Connector.DELTA: "streamhouse.spark.lake.connector",
    Connector.PARQUET: "streamhouse.spark.lake.connector",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadContext:
    """How rows are read. `starting`: earliest, latest, a time, or the JSON text of offsets of all streams.

    `include_malformed`: rows that can't be decoded come too, with `_error` and `_value` (their bytes) set and the
    table's own columns null; otherwise they are left out. Other rows may have their bytes as well, and have them with
    `include_values`. `watermarks` go to streams that have such a column. `with_versions`: topics have a column
    `record_order.VERSION` besides.
    """

    agents: AgentAddress
    starting: str = "earliest"
    max_records_per_trigger: int | None = None
    include_malformed: bool = False
    include_values: bool = False
    watermarks: tuple[Watermark, ...] = ()
    with_versions: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteContext:
    """Who writes, and how: fenced by the pipeline's epoch, remembered by the query's id.

    `mode` is Spark's output mode; `checkpoint` the folder of this query alone; `fmt` how a row becomes a value.
    `before_batch` is called by targets whose columns grow, before each micro-batch: it raises where the streams have
    columns now that the query doesn't know. `before_commit` is called by targets that agents don't write, right before
    each commit: it raises where the pipeline isn't this owner's any more. `on_commit` gets the newest versions of a
    lake table, the newest first, after each commit of it. `lineage` is the same for all pipelines of this name in a
    cluster: targets that store the epoch themselves fence earlier queries by it, which have other ids.
    """

    agents: AgentAddress
    pipeline: str
    epoch: int
    query_id: str
    checkpoint: str
    mode: str = "append"
    fmt: str = "json"
    key: tuple[str, ...] = ()
    partitions: int | None = None
    before_batch: Callable[[], None] | None = None
    before_commit: Callable[[], None] = lambda: None
    on_commit: Callable[[Sequence[Mapping[str, Any]]], None] = lambda _: None
    lineage: str = ""


class TableConnector(Protocol):
    def read(self, spark: SparkSession, table: Table, reading: ReadContext) -> DataFrame:
        """The table's rows as they are now."""
        ...

    def read_stream(self, spark: SparkSession, table: Table, reading: ReadContext) -> DataFrame:
        """The table's rows from `reading.starting` on, without an end."""
        ...

    def write_stream(self, frame: DataFrame, table: Table, writing: WriteContext) -> DataStreamWriter:
        """A writer of these rows, without trigger and name; `start()` begins it, each row once."""
        ...


def find(connector: Connector) -> TableConnector:
    """Import and return the connector."""
    return cast(TableConnector, import_module(_MODULES[connector]))
