"""What is noted of a query's place doesn't pile up in a table's metadata, however many commits there are."""

import json
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from streamhouse.spark.lake.delta_table import DeltaLakeTable
from streamhouse.spark.lake.iceberg_table import IcebergLakeTable
from streamhouse.spark.lake.parquet_table import ParquetLakeTable
from streamhouse.spark.lake.table import Layout, Progress
from streamhouse.spark.lake.table_options import Location

COMMITS, PARTITIONS = 100, 50
SNAPSHOT_BYTES = 1024
"""Of one snapshot in Iceberg's metadata, without any text of ours that grows with partitions."""
SCHEMA = StructType([StructField("id", LongType())])
LAYOUT = Layout(name="orders", partitions=(), file_size_bytes=1 << 20)


def progress_of(batch: int, query: str = "q") -> Progress:
    ends = {"orders": {str(number): 1_000_000_000 + batch for number in range(PARTITIONS)}}
    return Progress(query_id=query, batch_id=batch, offsets="v1\n" + json.dumps({"offsets": ends}))


def newest(folder: Path) -> str:
    result = max(folder.glob("*.metadata.json"), key=lambda path: (path.stat().st_mtime_ns, path.name))
    return result.read_text()


def test_iceberg_metadata_has_the_offsets_once(tmp_path: Path) -> None:
    lake = IcebergLakeTable(LAYOUT, Location(root=str(tmp_path / "lake")))
    lake.evolve_schema(SCHEMA)
    for batch in range(COMMITS):
        assert lake.last_batch("q") == (batch - 1 if batch else None)
        lake.commit((), (), progress_of(batch))
    result = newest(tmp_path / "lake" / "metadata")
    assert result.count("1000000099") == PARTITIONS
    assert "1000000098" not in result
    assert len(result) < COMMITS * SNAPSHOT_BYTES + 64 * 1024
    lake.last_batch("another")
    lake.commit((), (), progress_of(0, "another"))
    result = newest(tmp_path / "lake" / "metadata")
    assert (result.count("1000000099"), result.count("1000000000")) == (0, PARTITIONS)
    assert (lake.last_batch("q"), lake.last_batch("another")) == (COMMITS - 1, 0)


@pytest.mark.parametrize("kind", [DeltaLakeTable, ParquetLakeTable])
def test_no_file_of_the_other_formats_grows_with_commits(
    tmp_path: Path, kind: type[DeltaLakeTable] | type[ParquetLakeTable]
) -> None:
    lake = kind(LAYOUT, Location(root=str(tmp_path / "lake")))
    lake.evolve_schema(SCHEMA)
    for batch in range(COMMITS // 4):
        lake.last_batch("q")
        lake.commit((), (), progress_of(batch))
    sizes = [path.stat().st_size for path in (tmp_path / "lake").rglob("*.json")]
    assert max(sizes, default=0) < 8 * 1024
    assert lake.last_batch("q") == COMMITS // 4 - 1
