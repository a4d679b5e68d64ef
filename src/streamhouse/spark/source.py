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

from streamhouse.spark.columns import check_schema, record_schema
from streamhouse.spark.options import ReadOptions, read_options
from streamhouse.spark.planning import plan_batch
from streamhouse.spark.pushing import NOTHING, push
from streamhouse.spark.sink import BatchWriter, StreamWriter, batch_writer, stream_writer
from streamhouse.spark.stream import StreamReader
from streamhouse.spark.tasks import Output, SplitPartition, read
from streamhouse.spark.typed import PREFIX, ReaderSchema, check_typed, latest_schema, typed_schema
from streamhouse.spark.write_options import write_options

NAME: Final = "streamhouse"


class StreamhouseSource(DataSource):
    """Topics as tables."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        # Whether it will be a batch or a stream isn't known yet; neither changes the columns.
        options = read_options(dict(self.options), streaming=None)
        if not options.typed:
            return record_schema(include_headers=options.include_headers)
        return typed_schema(_latest(options), include_headers=options.include_headers)

    def reader(self, schema: StructType) -> "BatchReader":
        options = read_options(dict(self.options), streaming=False)
        return BatchReader(options, _output(options, schema))

    def streamReader(self, schema: StructType) -> StreamReader:
        options = read_options(dict(self.options), streaming=True)
        return StreamReader(options, _output(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return batch_writer(write_options(dict(self.options)), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        return stream_writer(write_options(dict(self.options)), schema, overwrite=overwrite)


def _latest(options: ReadOptions) -> ReaderSchema:
    return asyncio.run(latest_schema(options.agents, options.typed_topic))


def _output(options: ReadOptions, schema: StructType) -> Output:
    """What rows are to look like; raises `Misconfigured` for columns that records don't have."""
    if not options.typed:
        check_schema(schema)
        return Output(columns=schema)
    typed = _latest(options)
    check_typed(schema, typed)
    return Output(columns=schema, typed=typed)


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, output: Output) -> None:
        self._options, self._output = options, output
        self._pushed = NOTHING

    @property
    def pushFilters(self) -> "_PushFilters":
        return _PushFilters(self._push)

    def _push(self, filters: Iterable[Filter]) -> list[Filter]:
        filters = list(filters)
        self._pushed = push(filters, prefix=PREFIX if self._options.typed else "")
        return filters

    def partitions(self) -> list[SplitPartition]:
        splits = asyncio.run(plan_batch(self._options, self._pushed))
        return [SplitPartition(split, self._pushed) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._options, self._output, partition)


class _PushFilters:
    """Spark refuses readers with `pushFilters` where push-down is switched off, which it is unless somebody switches it
    on. Ours can do without: to Spark's look it is the one that does nothing, and it is called where that is possible.
    """

    __func__: Any = DataSourceReader.pushFilters

    def __init__(self, push: Callable[[Iterable[Filter]], list[Filter]]) -> None:
        self._push = push

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._push(filters)
