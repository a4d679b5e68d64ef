"""Parquet: a folder of Parquet files that are only ever added to, for whatever reads such files.

Data path   writing -> **parquet** -> files in folders of their partition, and notes in `_streamhouse/`
Owns        the notes: columns of the table, which micro-batch is there, which one was begun
Leaves      data files to `files`

There is no log that readers would ask, so a file counts as soon as it is there. A micro-batch that comes again, because
it was begun and never finished, first deletes what it left, so each row is there once when it is done; in between some
rows of it may be there early. An owner that was replaced is refused before it writes files and before a micro-batch is
done, not in between: what it writes then is there. Types can't change, because readers take them from any of the files.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow.fs as fs
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from streamhouse.errors import Rejected
from streamhouse.spark.lake.data_files import NO_VALUE
from streamhouse.spark.lake.hive_layout import FolderReader, check_folders, folder_plan, with_partitions
from streamhouse.spark.lake.schema_evolution import evolve, stored
from streamhouse.spark.lake.table import (
    PREFIX,
    DataFile,
    Expiry,
    FilePlan,
    FileReader,
    KeyRange,
    Layout,
    NewDataFile,
    Progress,
    TableNotFound,
    TableSummary,
    begins_of,
    check_commit,
    check_owner,
    last_epoch,
    summarize,
)
from streamhouse.spark.lake.table_options import Location, within

NOTES: Final = "_streamhouse"
"""Readers leave folders alone that begin like this."""


class ParquetLakeTable:
    can_remove = False

    def __init__(self, layout: Layout, place: Location) -> None:
        check_folders(layout.partitions, layout.name)
        self._layout, self._place = layout, place
        self._name, self._partitions = layout.name, layout.partitions
        self._files = place.files()

    def __repr__(self) -> str:
        return f"<ParquetLake {self._name} {self._place.root}>"

    # --- columns

    def fit(self, schema: StructType) -> StructType:
        wanted = stored(schema, has_small_numbers=True)
        found = self._noted("schema")
        old = StructType([]) if found is None else StructType.fromJson(found["columns"])
        growth = evolve(self._name, old, wanted)
        if growth.widened:
            raise Rejected(
                f"columns of Parquet files keep their types; table={self._name} column={growth.widened[0]}"
                " do=begin another table, or one of format iceberg or delta"
            )
        self._check_partitions(growth.schema, found)
        if not growth.is_none:
            self._note("schema", {"columns": growth.schema.jsonValue(), "partition_by": self._partition_words()})
        return growth.schema

    def columns(self) -> StructType:
        found = self._noted("schema")
        if found is None:
            raise TableNotFound(f"no such Parquet table; table={self._name} at={self._place.root}")
        return StructType.fromJson(found["columns"])

    def _check_partitions(self, schema: StructType, found: Any) -> None:
        self._layout.check_columns(schema.names)
        if found is not None and found["partition_by"] != self._partition_words():
            raise self._layout.otherwise(found["partition_by"])

    def _partition_words(self) -> str:
        return ", ".join(map(str, self._partitions))

    # --- files

    def last_batch(self, query_id: str) -> int | None:
        found = self._noted(f"done-{query_id}")
        return None if found is None else int(found["batch"])

    def last_covers(self, progress: Progress) -> str | None:
        found = self._noted(f"done-{progress.query_id}")
        return None if found is None else found.get("covers") or None

    def fence(self, progress: Progress) -> None:
        check_owner(progress, epoch=self._epoch(progress))
        for name in progress.fenced:
            self._note(f"epoch-{name}", {"epoch": progress.epoch})

    def _epoch(self, progress: Progress) -> int | None:
        found = [self._noted(f"epoch-{name}") for name in progress.fenced]
        return last_epoch(None if each is None else int(each["epoch"]) for each in found)

    def begin(self, progress: Progress) -> FilePlan:
        check_owner(progress, epoch=self._epoch(progress))
        begun = self._noted(f"begun-{progress.query_id}")
        begins = begins_of(progress)
        if begun is not None and begun["batch"] == progress.batch_id:
            self._delete(each.path for each in self._listed(self._place.root) if each.base_name.startswith(begins))
        else:
            self._note(f"begun-{progress.query_id}", {"batch": progress.batch_id})
        return folder_plan(self._place.root, self._layout, self.columns(), progress)

    def data_files(self, bounds: KeyRange | None = None) -> list[DataFile]:
        """All files but those of a micro-batch that isn't finished."""
        unfinished = tuple(self._unfinished())
        return [
            self._live(each)
            for each in self._listed(self._place.root)
            if not (unfinished and each.base_name.startswith(unfinished))
        ]

    def _live(self, info: fs.FileInfo) -> DataFile:
        below = info.path.removeprefix(within(self._place.root) + "/")
        return DataFile(
            path=below, size_bytes=info.size, rows=0, token=(self._place.under(below), dict(_values(below)))
        )

    def reader(self) -> FileReader:
        schema = to_arrow_schema(self.columns(), timezone="UTC")
        return FolderReader(schema=with_partitions(schema, self._partitions))

    def _unfinished(self) -> Iterator[str]:
        notes = fs.FileSelector(within(self._place.under(NOTES)), allow_not_found=True)
        for each in self._files.get_file_info(notes):
            if each.base_name.startswith("begun-"):
                query_id = each.base_name.removeprefix("begun-").removesuffix(".json")
                begun = self._noted(f"begun-{query_id}")
                if begun is not None and begun["batch"] != self.last_batch(query_id):
                    yield begins_of(Progress(query_id=query_id, batch_id=begun["batch"]))

    def _listed(self, root: str) -> list[fs.FileInfo]:
        selector = fs.FileSelector(within(root), recursive=True, allow_not_found=True)
        notes = within(self._place.under(NOTES)) + "/"
        return [
            each
            for each in self._files.get_file_info(selector)
            if each.is_file and each.base_name.startswith(PREFIX) and not each.path.startswith(notes)
        ]

    def _delete(self, paths: Iterator[str]) -> None:
        for path in list(paths):
            self._files.delete_file(path)

    # --- commits

    def commit(
        self,
        written: Sequence[NewDataFile],
        removed: Sequence[DataFile],
        progress: Progress,
        *,
        is_rewrite: bool = False,
    ) -> None:
        """Whatever tasks left that Spark tried again goes; then the micro-batch is done."""
        if removed:
            raise Rejected(f"rows in Parquet files don't change; table={self._name} do=format iceberg or delta")
        epoch, batch = self._epoch(progress), self.last_batch(progress.query_id)
        check_commit(progress, epoch=epoch, batch=batch, is_rewrite=is_rewrite)
        begins, kept = begins_of(progress), {within(each.path) for each in written}
        folders = {each.path.rsplit("/", 1)[0] for each in written}
        for folder in folders:
            found = self._files.get_file_info(fs.FileSelector(within(folder)))
            self._delete(each.path for each in found if each.base_name.startswith(begins) and each.path not in kept)
        self._note(f"done-{progress.query_id}", {"batch": progress.batch_id, "covers": progress.covers})

    def clear(self, older_than_ms: int, orphans_before_ms: int) -> Expiry:
        """There is nothing old: what is here is the table."""
        return Expiry()

    def describe(self) -> TableSummary:
        files = self.data_files()
        rows = sum(_rows(self._files, within(each.token[0])) for each in files)
        return summarize(self.columns(), files, rows=rows)

    # --- notes

    def _noted(self, name: str) -> Any:
        try:
            with self._files.open_input_stream(within(self._place.under(NOTES, f"{name}.json"))) as stream:
                return msgspec.json.decode(stream.read())
        except FileNotFoundError:
            return None

    def _note(self, name: str, told: Mapping[str, Any]) -> None:
        path = within(self._place.under(NOTES, f"{name}.json"))
        making = path if self._place.is_bucket else f"{path}.making"
        if not self._place.is_bucket:
            self._files.create_dir(os.path.dirname(path), recursive=True)
        with self._files.open_output_stream(making) as stream:
            stream.write(msgspec.json.encode(told))
        if making != path:
            self._files.move(making, path)


def _values(path: str) -> Iterator[tuple[str, str | None]]:
    """`day=2026-11-15/country=de/…`: what the folders say."""
    for folder in path.split("/")[:-1]:
        name, _, value = folder.partition("=")
        yield name, None if value == NO_VALUE else unquote(value)


def _rows(files: fs.FileSystem, path: str) -> int:
    with files.open_input_file(path) as source:
        return int(pq.read_metadata(source).num_rows)
