"""Lake tables: what every kind of them can do, whoever keeps its metadata.

Data path   writing -> **the door** -> iceberg, delta, parquet
Owns        the door and what goes through it: files that were written, files that are there, progress; what all kinds
            of tables say alike
Leaves      each kind of table to a module beside this one

A commit is all or nothing, and has the progress in it: which query's which micro-batch it is. Data files that nobody
committed are nobody's, and are cleared away later.
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
"""Data files of ours begin with it: only those are ever cleared away."""
FILE_SIZE_BYTES: Final = 128 * 1024 * 1024


class TableNotFound(Rejected):
    """There is no table at this place: nobody made one yet, or it is elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A table's name, and how its files are cut."""

    name: str
    partitions: tuple[Partition, ...] = ()
    file_size_bytes: int = FILE_SIZE_BYTES

    def check_columns(self, names: Sequence[str]) -> None:
        """Raises `Misconfigured` where a partition is of no column."""
        for each in self.partitions:
            if each.column not in names:
                raise Misconfigured(
                    f"partition_by names no column; table={self.name} column={each.column} columns={','.join(names)}"
                )

    def otherwise(self, found: str) -> Rejected:
        """The table that is there is partitioned by something else."""
        return Rejected(
            f"the table is partitioned otherwise; table={self.name} is={found or 'not at all'}"
            " do=say partition_by as it was, or begin another table"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One micro-batch of one query. `offsets` is the checkpoint's own text of where its streams stand behind it.

    `epoch`: under which the pipeline is owned by who commits this. `covers`: what the micro-batch is made of, by which
    one that comes again is known (`model.replay`). `lineage`: the pipeline through its restarts.
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
        """What an owner's epoch is written under: the query, and the pipeline, whose query a restart replaces."""
        return (self.query_id, self.lineage) if self.lineage else (self.query_id,)


def last_epoch(found: Iterable[int | None]) -> int | None:
    """The largest of the epochs that a table knows of a query and its pipeline."""
    return max((each for each in found if each is not None), default=None)


def check_owner(progress: Progress, *, epoch: int | None) -> None:
    """Raises `PipelineMoved` where the table has seen a later owner of the pipeline; `epoch` is the last one's."""
    if epoch is not None and epoch > progress.epoch:
        raise PipelineMoved(progress.pipeline, epoch=progress.epoch, why=f"its table is written under epoch {epoch}")


def check_commit(progress: Progress, *, epoch: int | None, batch: int | None, is_rewrite: bool) -> None:
    """Whether a commit may happen, by the version of the table that it is made on: it may have been loaded again since
    anybody has looked. Raises `PipelineMoved`, and `Unavailable` where the micro-batch is there already."""
    check_owner(progress, epoch=epoch)
    if not is_rewrite and batch is not None and batch >= progress.batch_id:
        raise Unavailable(f"another commit was quicker; query={progress.query_id} batch={progress.batch_id}")


def begins_of(progress: Progress) -> str:
    """How names of a micro-batch's data files begin."""
    return f"{PREFIX}{progress.query_id[:8]}-{progress.batch_id:08d}-"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePlan:
    """What a task must know to write data files; it travels. `schema` is that of a file, field ids and all.

    `begins`: how their names begin. `values` tells the partition's values of rows; `is_hive`: they are folders, and the
    columns that `drops` names are not in files.
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
    """A data file that is there and belongs to nobody yet; `footer` is Parquet's own."""

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
    """It travels to tasks."""

    def batches(self, token: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Rows of one file with these columns, as the table has them now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRange:
    """The least and the greatest value of a column among the rows that come: files beyond can't have their keys."""

    column: str
    least: Any
    greatest: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """What became of old snapshots and files."""

    snapshots: int = 0
    files: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSummary:
    """A table for somebody who looks at it."""

    columns: Mapping[str, str] = field(default_factory=dict)
    files: int = 0
    rows: int = 0
    size_bytes: int = 0
    version: str = ""
    progress: Mapping[str, int] = field(default_factory=dict)


def summarize(columns: StructType, files: Sequence[DataFile], *, rows: int | None = None) -> TableSummary:
    """A table of these columns and files; what only its kind can say is left out."""
    return TableSummary(
        columns={each.name: each.dataType.simpleString() for each in columns.fields},
        files=len(files),
        rows=sum(each.rows for each in files) if rows is None else rows,
        size_bytes=sum(each.size_bytes for each in files),
    )


class LakeTable(Protocol):
    """One table. Whoever asks does so from one thread, on the driver."""

    can_remove: bool
    """Whether files can be taken away by a commit: where not, none are merged."""

    def fit(self, schema: StructType) -> StructType:
        """Make the table, or let it grow, so that rows of this schema fit; returns the schema of the table.

        Raises `Rejected` where it can't be.
        """
        ...

    def columns(self) -> StructType:
        """Those of the table as it is; raises `TableNotFound` where there is none."""
        ...

    def last_batch(self, query_id: str) -> int | None:
        """The last micro-batch of a query that is in the table, as it is now."""
        ...

    def last_covers(self, progress: Progress) -> str | None:
        """What the micro-batch is made of that `last_batch` has found; None where the table doesn't say."""
        ...

    def fence(self, progress: Progress) -> None:
        """Write the owner's epoch into the table that is there, in a commit of its own.

        Behind it no commit under a smaller one happens, nor one that was begun before. Raises `PipelineMoved` where
        there is a larger one, `Unavailable` where somebody else was quicker.
        """
        ...

    def begin(self, progress: Progress) -> FilePlan:
        """How data files of a micro-batch are written."""
        ...

    def data_files(self, bounds: KeyRange | None = None) -> list[DataFile]:
        """Files of the table as it was when `last_batch` was asked."""
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
        """Files come and go in one step, with the progress. Raises `Unavailable` where somebody else was quicker, or
        the micro-batch is there, and `PipelineMoved` where the query has a later owner: by the version of the table
        that the commit is made on.

        `is_rewrite`: the rows stay what they were.
        """
        ...

    def clear(self, older_than_ms: int, orphans_before_ms: int) -> Expiry:
        """Forget snapshots that ended before a time, and delete files that nothing refers to any more."""
        ...

    def describe(self) -> TableSummary:
        """Raises `TableNotFound` where there is none."""
        ...
