"""Batch reader: the source of a batch read.

Data path   Spark -> **batch_reader** -> split_planner on the driver, split_reader on executors
Owns        Spark's interface of a reader; filters, if Spark offers them
Leaves      plans to `split_planner`, translating filters to `pushed_filters`, reading to `split_reader`
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from streamhouse.spark.datasource.pushed_filters import NO_FILTERS, translate_filters
from streamhouse.spark.datasource.read_options import ReadOptions
from streamhouse.spark.datasource.split_planner import plan_batch
from streamhouse.spark.datasource.split_reader import OutputSchema, StreamhouseInputPartition, read
from streamhouse.spark.runtime.python_worker import prepare_worker_process


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, output: OutputSchema) -> None:
        self._options, self._output = options, output
        self._pushed = NO_FILTERS

    @property
    def pushFilters(self) -> "_PushFilters":
        return _PushFilters(self._push)

    def _push(self, filters: Iterable[Filter]) -> list[Filter]:
        filters = list(filters)
        prefix = self._options.metadata_prefix if self._options.typed else ""
        self._pushed = translate_filters(filters, prefix=prefix, own=self._output.own)
        return filters

    def partitions(self) -> list[StreamhouseInputPartition]:
        prepare_worker_process()
        splits = asyncio.run(plan_batch(self._options, self._pushed))
        return [StreamhouseInputPartition(split, self._pushed) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._options, self._output, partition)


class _PushFilters:
    """Spark refuses readers with `pushFilters` where push-down is switched off, which is the default, unless it is
    switched
    on. Ours can do without: to Spark's look it is the one that does nothing, and it is called where that is possible.
    """

    def __init__(self, push: Callable[[Iterable[Filter]], list[Filter]]) -> None:
        self._push = push
        self.__func__: Any = DataSourceReader.pushFilters  # of the instance: a class would bind it

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._push(filters)
