"""What a source is, is found out before anything is started, and what it isn't is told plainly."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql.types import LongType, StructField, StructType

from streamhouse.errors import Misconfigured
from streamhouse.spark.columns.record_schema import TYPES
from streamhouse.spark.replay.restore_job import RestoreSpec, needed_columns
from streamhouse.spark.replay.restore_sources import Kind, Reference, find_kind, open_source


def test_a_file_that_is_no_parquet_is_reported_plainly(tmp_path: Path) -> None:
    program = tmp_path / "prod.py"
    program.write_text("print('hello')\n")
    with pytest.raises(Misconfigured) as raised:
        open_source(Reference(find_kind(str(program)), str(program)))
    assert str(raised.value) == (
        f"this is no Parquet file, or a broken one; file={program}"
        " do=give a Parquet file, a folder of them, or --kind for a table"
    )


def test_a_file_of_parquet_is_one_whatever_its_name(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "backup.bin")
    source = open_source(Reference("parquet", str(tmp_path / "backup.bin")))
    assert (source.schema.names, len(source.sizes)) == (["id"], 1)


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_table_that_is_none_is_reported_in_one_line(kind: Kind, tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "v1.metadata.json").write_text("{}")
    with pytest.raises(Misconfigured) as raised:
        open_source(Reference(kind, str(tmp_path)))
    assert "\n" not in str(raised.value)


def test_metadata_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"the source can't be read; source=.*kind=iceberg"):
        open_source(Reference("iceberg", str(tmp_path / "v1.metadata.json")))


@pytest.mark.parametrize("kind", ["parquet", "iceberg", "delta"])
def test_only_the_columns_that_are_named_are_read(kind: Kind, tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "name": ["a", "b"], "partition": [7, 8]})
    place = tmp_path / kind
    if kind == "parquet":
        (place / "partition=7").mkdir(parents=True)
        pq.write_table(rows.drop_columns(["partition"]), place / "partition=7" / "rows.parquet")
    elif kind == "delta":
        write_deltalake(place, rows, partition_by=["partition"])
    else:
        catalog = SqlCatalog("local", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
        catalog.create_namespace("shop")
        table = catalog.create_table("shop.rows", schema=rows.schema, location=f"file://{place}")
        table.append(rows)
    source = open_source(Reference(kind, str(place)))
    for names in (["partition"], ["name", "partition"]):
        results = pa.Table.from_batches(
            [batch for piece in range(len(source.sizes)) for batch in source.read(piece, names)]
        )
        assert (results.column_names, results.num_rows) == (names, 2)


def test_records_are_read_without_where_they_were_unless_an_expression_may_ask_for_it() -> None:
    records = StructType([StructField(name, kind) for name, kind in TYPES.items()])
    request = RestoreSpec(source="backup", topic="orders")
    assert needed_columns(records, request) == ["key", "value", "partition", "timestamp", "headers"]
    assert needed_columns(records, replace(request, where="offset > 7")) is None
    assert needed_columns(records, replace(request, subject="orders-value")) is None
    assert needed_columns(StructType([StructField("id", LongType())]), request) is None
