"""Folders: data files of Delta and Hive, whose folders say which partition a file's rows are in.

Data path   delta, parquet -> **folders** -> tasks that write files, and read them
Owns        the plan of such files; columns that partitions by a transform have of their own
Leaves      values to `transforms`, rows to `files` and `folder_reader`
"""

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from streamhouse.format.lake_options import IDENTITY, Partition
from streamhouse.spark.lake.base import FilePlan, Layout, Progress, begins_of
from streamhouse.spark.lake.transforms import folder_type, folder_values


def folder_plan(root: str, layout: Layout, columns: StructType, progress: Progress) -> FilePlan:
    """How data files of a micro-batch are written."""
    return FilePlan(
        data=root,
        begins=begins_of(progress),
        schema=to_arrow_schema(columns, timezone="UTC"),
        partitions=layout.partitions,
        values=folder_values,
        drops=tuple(each.column for each in layout.partitions if each.transform == IDENTITY),
        is_hive=True,
        file_size_bytes=layout.file_size_bytes,
    )


def with_partitions(schema: pa.Schema, partitions: Iterable[Partition]) -> pa.Schema:
    """The columns of a table, and behind them those of its partitions by a transform."""
    for each in partitions:
        if each.transform != IDENTITY:
            schema = schema.append(pa.field(each.name, folder_type(each, schema.field(each.column).type)))
    return schema
