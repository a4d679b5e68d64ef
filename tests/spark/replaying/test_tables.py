"""What a source is, is found out before anything is started, and what it isn't is told plainly."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamhouse.errors import Misconfigured
from streamhouse.spark.replaying.tables import Kind, Reference, find_kind, open_source


def test_a_file_that_is_no_parquet_is_told_plainly(tmp_path: Path) -> None:
    program = tmp_path / "prod.py"
    program.write_text("print('hello')\n")
    with pytest.raises(Misconfigured) as told:
        open_source(Reference(find_kind(str(program)), str(program)))
    assert str(told.value) == (
        f"this is no Parquet file, or a broken one; file={program}"
        " do=give a Parquet file, a folder of them, or --kind for a table"
    )


def test_a_file_of_parquet_is_one_whatever_its_name(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "backup.bin")
    source = open_source(Reference("parquet", str(tmp_path / "backup.bin")))
    assert (source.schema.names, len(source.sizes)) == (["id"], 1)


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_table_that_is_none_is_told_in_one_line(kind: Kind, tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "v1.metadata.json").write_text("{}")
    with pytest.raises(Misconfigured) as told:
        open_source(Reference(kind, str(tmp_path)))
    assert "\n" not in str(told.value)


def test_metadata_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"the source can't be read; source=.*kind=iceberg"):
        open_source(Reference("iceberg", str(tmp_path / "v1.metadata.json")))
