"""Parquet tables: a directory of Parquet files that are only ever added, for whatever reads such files.

Data path   connector -> **parquet_table** -> files in partition directories, and notes in `_streamhouse/`
Owns        the notes: columns of the table, the last micro-batch, the one in progress
Leaves      data files to `data_files`

There is no log that readers would use, so a file counts as soon as it exists. A micro-batch that is repeated, because
it was begun and never finished, first deletes its earlier files, so each row is there once when it is done; in between
some of its rows are visible early. A replaced owner is rejected before it writes files and before a micro-batch is
done, not in between: what it writes then is visible to others until the next owner starts or writes to that directory.
It is recognised by the epoch in the file's name, which isn't the one under which its micro-batch was committed. Types
can't change, because readers take them from any of the files.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
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
    Snapshot,
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
"""Readers skip directories with such a prefix."""


MAX_OWNERS: Final = 100
"""Number of owners whose committed micro-batches a note lists: the most recent ones."""
_OWNED: Final = re.compile(rf"{re.escape(PREFIX)}(.{{8}})-(\d{{8,}})-e(\d+)-")
"""The query, micro-batch and epoch in a file's name; files of earlier releases have no epoch."""


class ParquetLakeTable:
    can_remove = False

    def __init__(self, layout: Layout, location: Location) -> None:
        check_folders(layout.partitions, layout.name)
        self._layout, self._location = layout, location
        self._name, self._partitions = layout.name, layout.partitions
        self._files = location.files()

    def __repr__(self) -> str:
        return f"<ParquetLakeTable {self._name} {self._location.root}>"

    # --- columns

    def evolve_schema(self, schema: StructType) -> StructType:
        new_schema = stored(schema, has_small_numbers=True)
        note = self._read_note("schema")
        old = StructType([]) if note is None else StructType.fromJson(note["columns"])
        growth = evolve(self._name, old, new_schema)
        if growth.widened:
            raise Rejected(
                f"columns of Parquet files keep their types; table={self._name} column={growth.widened[0]}"
                " do=begin another table, or one of format iceberg or delta"
            )
        self._check_partitions(growth.schema, note)
        if not growth.is_none:
            self._write_note("schema", {"columns": growth.schema.jsonValue(), "partition_by": self._partition_words()})
        return growth.schema

    def columns(self) -> StructType:
        note = self._read_note("schema")
        if note is None:
            raise TableNotFound(f"no such Parquet table; table={self._name} at={self._location.root}")
        return StructType.fromJson(note["columns"])

    def _check_partitions(self, schema: StructType, note: Any) -> None:
        self._layout.check_columns(schema.names)
        if note is not None and note["partition_by"] != self._partition_words():
            raise self._layout.partition_mismatch(note["partition_by"])

    def _partition_words(self) -> str:
        return ", ".join(map(str, self._partitions))

    # --- files

    def last_batch(self, query_id: str) -> int | None:
        note = self._read_note(f"done-{query_id}")
        return None if note is None else int(note["batch"])

    def last_covers(self, progress: Progress) -> str | None:
        note = self._read_note(f"done-{progress.query_id}")
        return None if note is None else note.get("covers") or None

    def fence(self, progress: Progress) -> None:
        check_owner(progress, epoch=self._epoch(progress))
        for name in progress.fenced:
            self._write_note(f"epoch-{name}", {"epoch": progress.epoch})
        self._delete_late(self._listed(self._location.root))

    def _epoch(self, progress: Progress) -> int | None:
        notes = [self._read_note(f"epoch-{name}") for name in progress.fenced]
        return last_epoch(None if each is None else int(each["epoch"]) for each in notes)

    def plan_files(self, progress: Progress) -> FilePlan:
        check_owner(progress, epoch=self._epoch(progress))
        begun = self._read_note(f"begun-{progress.query_id}")
        begins = begins_of(progress)
        if begun is not None and begun["batch"] == progress.batch_id:
            self._delete(each.path for each in self._listed(self._location.root) if each.base_name.startswith(begins))
        else:
            self._write_note(f"begun-{progress.query_id}", {"batch": progress.batch_id})
        plan = folder_plan(self._location.root, self._layout, self.columns(), progress)
        return replace(plan, begins=f"{begins}e{progress.epoch}-")

    def data_files(self, bounds: KeyRange | None = None) -> list[DataFile]:
        """All files but those of a micro-batch that isn't finished, and those that a replaced owner wrote late."""
        unfinished, done = tuple(self._unfinished()), self._done()
        return [
            self._live(each)
            for each in self._listed(self._location.root)
            if not (unfinished and each.base_name.startswith(unfinished)) and not _is_late(each.base_name, done)
        ]

    def _live(self, info: fs.FileInfo) -> DataFile:
        below = info.path.removeprefix(within(self._location.root) + "/")
        return DataFile(
            path=below, size_bytes=info.size, rows=0, token=(self._location.under(below), dict(_values(below)))
        )

    def reader(self) -> FileReader:
        schema = to_arrow_schema(self.columns(), timezone="UTC")
        return FolderReader(schema=with_partitions(schema, self._partitions))

    def _unfinished(self) -> Iterator[str]:
        for query_id in self._queries("begun-"):
            begun = self._read_note(f"begun-{query_id}")
            if begun is not None and begun["batch"] != self.last_batch(query_id):
                yield begins_of(Progress(query_id=query_id, batch_id=begun["batch"]))

    def _done(self) -> dict[str, Any]:
        """The last commit of each query, by the part of its id that names of files have."""
        notes = ((query_id, self._read_note(f"done-{query_id}")) for query_id in self._queries("done-"))
        return {query_id[:8]: note for query_id, note in notes if note is not None}

    def _queries(self, kind: str) -> list[str]:
        notes = fs.FileSelector(within(self._location.under(NOTES)), allow_not_found=True)
        names = [each.base_name for each in self._files.get_file_info(notes)]
        return [
            name.removeprefix(kind).removesuffix(".json")
            for name in names
            if name.startswith(kind) and name.endswith(".json")
        ]

    def _delete_late(self, infos: Iterable[fs.FileInfo]) -> None:
        done = self._done()
        self._delete(each.path for each in infos if _is_late(each.base_name, done))

    def _listed(self, root: str) -> list[fs.FileInfo]:
        selector = fs.FileSelector(within(root), recursive=True, allow_not_found=True)
        notes = within(self._location.under(NOTES)) + "/"
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
        """Delete the files of failed task attempts, then mark the micro-batch as done."""
        if removed:
            raise Rejected(f"rows in Parquet files don't change; table={self._name} do=format iceberg or delta")
        epoch, batch = self._epoch(progress), self.last_batch(progress.query_id)
        check_commit(progress, epoch=epoch, batch=batch, is_rewrite=is_rewrite)
        begins, kept = begins_of(progress), {within(each.path) for each in written}
        folders = {each.path.rsplit("/", 1)[0] for each in written}
        for folder in folders:
            infos = self._files.get_file_info(fs.FileSelector(within(folder)))
            self._delete(each.path for each in infos if each.base_name.startswith(begins) and each.path not in kept)
            self._delete_late(each for each in infos if not each.base_name.startswith(begins))
        note = self._read_note(f"done-{progress.query_id}") or {}
        done = {"batch": progress.batch_id, "covers": progress.covers, "owners": _owners(note, progress)}
        self._write_note(f"done-{progress.query_id}", done)

    def expire_snapshots(self, older_than_ms: int, orphans_before_ms: int) -> Expiry:
        """There are no old versions."""
        return Expiry()

    def snapshots(self, limit: int) -> list[Snapshot]:
        return []

    def describe(self) -> TableSummary:
        files = self.data_files()
        rows = sum(_rows(self._files, within(each.token[0])) for each in files)
        return summarize(self.columns(), files, rows=rows)

    # --- notes

    def _read_note(self, name: str) -> Any:
        try:
            with self._files.open_input_stream(within(self._location.under(NOTES, f"{name}.json"))) as stream:
                return msgspec.json.decode(stream.read())
        except FileNotFoundError:
            return None

    def _write_note(self, name: str, content: Mapping[str, Any]) -> None:
        path = within(self._location.under(NOTES, f"{name}.json"))
        making = path if self._location.is_bucket else f"{path}.making"
        if not self._location.is_bucket:
            self._files.create_dir(os.path.dirname(path), recursive=True)
        with self._files.open_output_stream(making) as stream:
            stream.write(msgspec.json.encode(content))
        if making != path:
            self._files.move(making, path)


def _owners(note: Mapping[str, Any], progress: Progress) -> list[list[int]]:
    """For each owner its epoch and the first micro-batch that it has committed."""
    owners = [list(each) for each in note.get("owners", ())]
    if not owners or owners[-1][0] != progress.epoch:
        owners.append([progress.epoch, progress.batch_id])
    return owners[-MAX_OWNERS:]


def _is_late(name: str, done: Mapping[str, Any]) -> bool:
    """Whether a file is of a micro-batch that another owner has committed."""
    match = _OWNED.match(name)
    note = None if match is None else done.get(match[1])
    if match is None or note is None or int(match[2]) > note["batch"]:
        return False
    epochs = [epoch for epoch, first in note.get("owners", ()) if first <= int(match[2])]
    return bool(epochs) and epochs[-1] != int(match[3])


def _values(path: str) -> Iterator[tuple[str, str | None]]:
    """`day=2026-11-15/country=de/…`: partition values from directory names."""
    for folder in path.split("/")[:-1]:
        name, _, value = folder.partition("=")
        yield name, None if value == NO_VALUE else unquote(value)


def _rows(files: fs.FileSystem, path: str) -> int:
    with files.open_input_file(path) as source:
        return int(pq.read_metadata(source).num_rows)
