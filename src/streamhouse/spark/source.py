"""Source: `format("streamhouse")`, where Spark's calls come in.

Data path   Spark -> **source** -> planning on the driver, reading on executors
Owns        what Spark asks of a data source, and its lifetime there
Leaves      everything else: options to `options`, plans to `planning`, bytes to `reading`, streams to `stream`
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from streamhouse.spark.columns import Shape, check_schema, record_schema
from streamhouse.spark.options import ReadOptions, read_options
from streamhouse.spark.plan import Split
from streamhouse.spark.planning import plan_batch
from streamhouse.spark.pushing import NOTHING, Pushed, push
from streamhouse.spark.reading import Task, read_split

NAME: Final = "streamhouse"


class SplitPartition(InputPartition):
    """A split on its way to a task."""

    def __init__(self, split: Split, pushed: Pushed = NOTHING) -> None:
        super().__init__(split)
        self.split, self.pushed = split, pushed


class StreamhouseSource(DataSource):
    """Topics as tables."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        # Whether it will be a batch or a stream isn't known yet; neither changes the columns.
        names = {"includeheaders", "schema"}
        asked = {name: value for name, value in self.options.items() if name.lower() in names}
        options = read_options({"topic": "any", **asked}, streaming=False)
        return record_schema(include_headers=options.include_headers)

    def reader(self, schema: StructType) -> "BatchReader":
        return BatchReader(read_options(dict(self.options), streaming=False), schema)


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_schema(schema)
        self._options, self._schema = options, schema
        self._pushed = NOTHING

    @property
    def pushFilters(self) -> "_PushFilters":
        return _PushFilters(self._push)

    def _push(self, filters: Iterable[Filter]) -> list[Filter]:
        filters = list(filters)
        self._pushed = push(filters)
        return filters

    def partitions(self) -> list[SplitPartition]:
        splits = asyncio.run(plan_batch(self._options, self._pushed))
        return [SplitPartition(split, self._pushed) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._options, self._schema, partition)


class _PushFilters:
    """Spark refuses readers with `pushFilters` where push-down is switched off, which it is unless somebody switches it
    on. Ours can do without: to Spark's look it is the one that does nothing, and it is called where that is possible.
    """

    __func__: Any = DataSourceReader.pushFilters

    def __init__(self, push: Callable[[Iterable[Filter]], list[Filter]]) -> None:
        self._push = push

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._push(filters)


def read(options: ReadOptions, schema: StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """What a task does."""
    if not isinstance(partition, SplitPartition):  # Spark's own, when there is nothing to read
        return iter(())
    task = Task(
        agents=options.agents,
        fail_on_data_loss=options.fail_on_data_loss,
        from_ms=partition.pushed.from_ms,
        until_ms=partition.pushed.until_ms,
    )
    return read_split(partition.split, task, Shape.of(schema))
