"""Lake tables: the interface that Iceberg, Delta and Parquet tables implement.

Data path   connector -> **LakeTable** -> iceberg_table, delta_table, parquet_table
Owns        the interface and its types: new files, files of the table, progress; checks that all formats share
Leaves      each format to a module beside this one

A commit is all or nothing, and includes the progress: query and micro-batch. Data files that are in no commit are
orphans, and are deleted later.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pyarrow as pa
from pyspark.sql.types import StructType

from streamhouse.errors import Misconfigured, PipelineMoved, Rejected, Unavailable
from streamhouse.model.table import Partition

Values = Callable[[Partition, pa.Array], list[Any]]

PREFIX: Final = "sh-"
"""Prefix of our data files: only those are ever deleted."""
FILE_SIZE_BYTES: Final = 128 * 1024 * 1024


class TableNotFound(Rejected):
    """There is no table at this location."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A table's name, its partitions and its file size."""

    name: str
    partitions: tuple[Partition, ...] = ()
    file_size_bytes: int = FILE_SIZE_BYTES

    def check_columns(self, names: Sequence[str]) -> None:
        """Raise `Misconfigured` for a partition of a column that doesn't exist."""
        for each in self.partitions:
            if each.column not in names:
                raise Misconfigured(
                    f"partition_by names no column; table={self.name} column={each.column} columns={','.join(names)}"
                )

    def partition_mismatch(self, stored: str) -> Rejected:
        """The error for a stored table that is partitioned differently."""
        return Rejected(
            f"the table is partitioned differently; table={self.name} is={stored or 'not at all'}"
            " do=give partition_by as it was, or create another table"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One micro-batch of one query. `offsets` is the checkpoint's text of its streams' offsets after it.

    `epoch` is that of the pipeline's owner who commits. `covers` is what the micro-batch is made of, by which a
    repeated one is recognised (`model.replay`). `lineage` is the same for all pipelines of this name in a cluster.
    """

    query_id: str
    batch_id: int
    offsets: str = ""
    epoch: int = 0
    pipeline: str = ""
    covers: str = ""
    lineage: str = ""

    @property
    def fenced(self) -> tuple[str, ...]:
        """The ids under which an owner's epoch is stored: the query's, and the lineage, which outlives queries."""
        return (self.query_id, self.lineage) if self.lineage else (self.query_id,)


def last_epoch(epochs: Iterable[int | None]) -> int | None:
    """The largest of the epochs that a table knows of a query and its pipeline."""
    return max((each for each in epochs if each is not None), default=None)


def check_owner(progress: Progress, *, epoch: int | None) -> None:
    """Raise `PipelineMoved` if the table has a later owner of the pipeline; `epoch` is the stored one."""
    if epoch is not None and epoch > progress.epoch:
        raise PipelineMoved(progress.pipeline, epoch=progress.epoch, why=f"its table is written under epoch {epoch}")


def check_commit(progress: Progress, *, epoch: int | None, batch: int | None, is_rewrite: bool) -> None:
    """Check a commit against the version of the table that it is based on, which may be newer than the last check.
    Raises `PipelineMoved`, and `Unavailable` if the micro-batch is committed already."""
    check_owner(progress, epoch=epoch)
    if not is_rewrite and batch is not None and batch >= progress.batch_id:
        raise Unavailable(f"another commit was first; query={progress.query_id} batch={progress.batch_id}")


def begins_of(progress: Progress) -> str:
    """The prefix of the names of a micro-batch's data files."""
    return f"{PREFIX}{progress.query_id[:8]}-{progress.batch_id:08d}-"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePlan:
    """What a task needs to write data files; serialised to tasks. `schema` is that of a file, with field ids.

    `begins` is the prefix of their names. `values` returns the partition values of rows; `is_hive`: they are
    directories, and the columns that `drops` names are not in files.
    """

    data: str
    begins: str
    schema: pa.Schema
    partitions: tuple[Partition, ...] = ()
    values: Values | None = None
    drops: tuple[str, ...] = ()
    is_hive: bool = False
    file_size_bytes: int = FILE_SIZE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDataFile:
    """A data file that was written and is not committed yet; `footer` is Parquet's own."""

    path: str
    size_bytes: int
    rows: int
    partition: tuple[Any, ...]
    footer: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A data file of the table as it is; `token` is what its table's reader needs to read it."""

    path: str
    size_bytes: int
    rows: int
    token: Any


class FileReader(Protocol):
    """Reads data files in tasks; serialised to them."""

    def batches(self, token: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Rows of one file with these columns, as the table has them now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRange:
    """The least and the greatest value of a column in a micro-batch: files outside can't have its keys."""

    column: str
    least: Any
    greatest: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """How many snapshots and files were removed."""

    snapshots: int = 0
    files: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSummary:
    """Statistics of a table, for people."""

    columns: Mapping[str, str] = field(default_factory=dict)
    files: int = 0
    rows: int = 0
    size_bytes: int = 0
    version: str = ""
    progress: Mapping[str, int] = field(default_factory=dict)


def summarize(columns: StructType, files: Sequence[DataFile], *, rows: int | None = None) -> TableSummary:
    """The statistics of columns and files, without those of the format."""
    return TableSummary(
        columns={each.name: each.dataType.simpleString() for each in columns.fields},
        files=len(files),
        rows=sum(each.rows for each in files) if rows is None else rows,
        size_bytes=sum(each.size_bytes for each in files),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A version of a table. The rows, files and bytes that it has are None where the format doesn't say."""

    version: str
    at_ms: int
    operation: str
    rows: int | None = None
    files: int | None = None
    size_bytes: int | None = None


class LakeTable(Protocol):
    """One table. Used by one thread, on the driver."""

    can_remove: bool
    """Whether a commit can remove files; if not, none are merged."""

    def evolve_schema(self, schema: StructType) -> StructType:
        """Create the table, or evolve its schema, so that rows of this schema fit; return the schema of the table.

        Raises `Rejected` if it can't be done.
        """
        ...

    def columns(self) -> StructType:
        """The current columns; raises `TableNotFound` if there is no table."""
        ...

    def last_batch(self, query_id: str) -> int | None:
        """Load the table; return the last micro-batch of a query in it."""
        ...

    def last_covers(self, progress: Progress) -> str | None:
        """The offsets that the micro-batch `last_batch` covers; None if the table doesn't have it."""
        ...

    def fence(self, progress: Progress) -> None:
        """Write the owner's epoch into the existing table, in a commit of its own.

        Afterwards no commit with a smaller epoch succeeds, nor one that was begun before. Raises `PipelineMoved` if
        there is a larger epoch, `Unavailable` if another commit was first.
        """
        ...

    def plan_files(self, progress: Progress) -> FilePlan:
        """How data files of a micro-batch are written."""
        ...

    def data_files(self, bounds: KeyRange | None = None) -> list[DataFile]:
        """Files of the table as of the last call of `last_batch`."""
        ...

    def reader(self) -> FileReader: ...

    def commit(
        self,
        written: Sequence[NewDataFile],
        removed: Sequence[DataFile],
        progress: Progress,
        *,
        is_rewrite: bool = False,
    ) -> None:
        """Add and remove files in one step, with the progress. Raises `Unavailable` if another commit was first or the
        micro-batch is committed, and `PipelineMoved` if the query has a later owner, by the version of the table that
        the commit is based on.

        `is_rewrite`: the rows stay the same.
        """
        ...

    def expire_snapshots(self, older_than_ms: int, orphans_before_ms: int) -> Expiry:
        """Expire snapshots that ended before a time, and delete files that no snapshot refers to."""
        ...

    def snapshots(self, limit: int) -> list[Snapshot]:
        """The newest versions of the table, the newest first, this writer's last commit among them; none where the
        format has no versions."""
        ...

    def describe(self) -> TableSummary:
        """Raises `TableNotFound` if there is no table."""
        ...
