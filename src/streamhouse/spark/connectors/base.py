"""A connector: the door between a table of SQL and the place where its rows are.

Data path   binding, running -> **connector** -> DataFrame, or a stream writer that is ready to start
Owns        the door; what is told to it besides the table
Leaves      each place to a module beside this one

What a place can't do (a console can't be read) is `Rejected`, with words that say what to use.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamhouse.model.table import Table
from streamhouse.sql.options import Watermark


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How rows are read. `starting`: earliest, latest, a time, or the JSON text of offsets of all streams.

    `keeps_undecodable`: rows that can't be decoded come too, with `_error` and `_value` (their bytes) set and the
    table's own columns null; otherwise they are left out. Other rows may have their bytes as well, and have them with
    `keeps_values`. `watermarks` go to streams that have such a column. `with_versions`: topics have a column
    `record_order.VERSION` besides.
    """

    agents: str
    starting: str = "earliest"
    max_records_per_trigger: int | None = None
    keeps_undecodable: bool = False
    keeps_values: bool = False
    watermarks: tuple[Watermark, ...] = ()
    with_versions: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """Who writes, and how: fenced by the pipeline's epoch, remembered by the query's id.

    `mode` is Spark's output mode; `checkpoint` the folder of this query alone; `fmt` how a row becomes a value.
    `before_batch` is asked by places whose columns grow, before each micro-batch: it raises where the streams have
    columns now that the query doesn't know. `lineage` names the pipeline through its restarts, which give it another
    query id: places that keep the epoch themselves fence queries of earlier generations by it.
    """

    agents: str
    pipeline: str
    epoch: int
    query_id: str
    checkpoint: str
    mode: str = "append"
    fmt: str = "json"
    key: tuple[str, ...] = ()
    partitions: int | None = None
    before_batch: Callable[[], None] | None = None
    lineage: str = ""


class TableConnector(Protocol):
    def read(self, spark: SparkSession, table: Table, reading: Reading) -> DataFrame:
        """The table's rows as they are now."""
        ...

    def read_stream(self, spark: SparkSession, table: Table, reading: Reading) -> DataFrame:
        """The table's rows from `reading.starting` on, for ever."""
        ...

    def write_stream(self, frame: DataFrame, table: Table, writing: Writing) -> DataStreamWriter:
        """A writer of these rows, without trigger and name; `start()` begins it, each row once."""
        ...
