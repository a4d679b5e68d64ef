"""Tasks: what travels from the driver to a task, and what the task does with it.

Data path   splits -> **tasks** -> reading on executors
Owns        the split's wrapping for Spark
Leaves      reading to `reading`
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from streamhouse.spark.columns import Shape
from streamhouse.spark.options import ReadOptions
from streamhouse.spark.plan import Split
from streamhouse.spark.pushing import NOTHING, Pushed
from streamhouse.spark.reading import Shaping, Task, read_split

if TYPE_CHECKING:
    from streamhouse.spark.typed import ReaderSchema


class SplitPartition(InputPartition):
    """A split on its way to a task."""

    def __init__(self, split: Split, pushed: Pushed = NOTHING) -> None:
        super().__init__(split)
        self.split, self.pushed = split, pushed


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What rows look like: the columns, and the schema that they are fields of, if they are."""

    columns: StructType
    typed: "ReaderSchema | None" = None

    @property
    def own(self) -> frozenset[str]:
        """The columns that are fields of records, whatever their names."""
        return (
            frozenset()
            if self.typed is None
            else frozenset(import_module("streamhouse.spark.typed").own_types(self.typed))
        )

    def shape(self, options: ReadOptions) -> Shaping:
        if self.typed is None:
            return Shape.of(self.columns)
        # The languages of schemas are loaded by tasks that need them.
        typed = import_module("streamhouse.spark.typed")
        made = typed.TypedShape.of(
            self.columns,
            self.typed,
            options.agents,
            keep_errors=options.keep_errors,
            keep_values=options.keep_values,
            prefix=options.metadata_prefix,
        )
        return cast(Shaping, made)


def read(options: ReadOptions, output: Output, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """What a task does."""
    if not isinstance(partition, SplitPartition):  # Spark's own, when there is nothing to read
        return iter(())
    task = Task(
        agents=options.agents,
        fail_on_data_loss=options.fail_on_data_loss,
        from_ms=partition.pushed.from_ms,
        until_ms=partition.pushed.until_ms,
    )
    return read_split(partition.split, task, output.shape(options))
