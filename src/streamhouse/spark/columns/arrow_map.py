"""Arrow map: a frame's rows through a function of ours, in Arrow batches, whatever the columns are called.

Owns        that columns keep their names: PySpark's own `mapInArrow` takes a dot or a backtick in one for syntax
Leaves      what is done with batches to the caller
"""

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_in_arrow(frame: DataFrame, task: Task, schema: str) -> DataFrame:
    """The batches that the task yields for each partition, as columns of the schema."""
    names = list(frame.columns)

    def named(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from task(batch.rename_columns(names) for batch in batches)

    return frame.toDF(*(f"c{index}" for index in range(len(names)))).mapInArrow(named, schema)
