"""Folder reader: rows of a Parquet file whose folders say the rest, as Delta and Hive have them.

Data path   a task -> **a file** -> rows with all columns of the table
Owns        columns that a file lacks: its partition's, and those that were added later
Leaves      which files there are to `delta` and `parquet`
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from streamhouse.spark.lake.places import opened, within

READ_ROWS: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderReader:
    """`schema` is the table's; a token is a path, and the values that its folders have."""

    schema: pa.Schema

    def batches(self, token: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        path, values = token
        with opened(path).open_input_file(within(path)) as source:
            file = pq.ParquetFile(source)
            there = [name for name in columns if name in file.schema_arrow.names]
            for batch in file.iter_batches(READ_ROWS, columns=there):
                yield self._whole(batch, columns, values)

    def _whole(self, batch: pa.RecordBatch, columns: Sequence[str], values: Mapping[str, Any]) -> pa.RecordBatch:
        fields = [self.schema.field(name) for name in columns]
        arrays = [
            batch.column(field.name).cast(field.type)
            if field.name in batch.schema.names
            else pa.repeat(pa.scalar(values.get(field.name)).cast(field.type), batch.num_rows)
            for field in fields
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
