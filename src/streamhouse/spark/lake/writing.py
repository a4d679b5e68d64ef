"""Writing: a micro-batch becomes one commit of a lake table, however often it comes.

Data path   foreachBatch -> **writing** -> changes, files by tasks -> the table's commit
Owns        the order of things: is it there already, fit the schema, write files, commit, clear away now and then
Leaves      files to `files`, metadata to each kind of table, which rows are the latest to `changes`

Changes by key copy on write: files that have a key of the micro-batch are written again without it, beside the new
rows, and change places with the old ones in one commit. Spark joins files with changes, so memory is bounded however
many there are; the driver sees names of files and never a row.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, IntegerType, LongType, StringType, StructType
from pyspark.storagelevel import StorageLevel

from streamhouse.clock import Clock, SystemClock
from streamhouse.errors import Rejected, Unavailable
from streamhouse.model.identifiers import quote_identifier
from streamhouse.model.replay import is_replay
from streamhouse.spark.checkpoint_sync import sync_checkpoint
from streamhouse.spark.connectors.base import Writing
from streamhouse.spark.connectors.folders import batch_offsets
from streamhouse.spark.lake.base import Bounds, Lake, LiveFile, Progress
from streamhouse.spark.lake.changes import DELETED, keyed, latest, own_columns, told_once
from streamhouse.spark.lake.files import FILE, file_rows, write_files
from streamhouse.spark.lake.options import LakeOptions
from streamhouse.spark.lake.schemas import fitted
from streamhouse.spark.progress import BatchOffsets

log = logging.getLogger(__name__)

CLEAR_EVERY_S: Final = 3600.0
FENCE_TRIES: Final = 20
"""Commits of others that may come before an owner's epoch is in the table, at the start of a query."""
ORPHANS_AFTER_MS: Final = 24 * 3600 * 1000
"""Files that belong to nobody are deleted when they are older: those of a micro-batch that is under way must not be."""
SMALL_FILES: Final = 16
"""So many files below half of the wanted size are merged into larger ones, up to MERGE_BYTES at a time."""
MERGE_BYTES: Final = 1024 * 1024 * 1024

_PRUNED_BY: Final = (IntegerType, LongType, StringType, DateType)


@dataclass(slots=True, kw_only=True)
class Step:
    """What is done with each micro-batch of one query."""

    lake: Lake
    options: LakeOptions
    writing: Writing
    clock: Clock = field(default_factory=SystemClock)
    _cleared_at_s: float | None = None

    def take_over(self, frame: DataFrame) -> None:
        """Before the first micro-batch: the table is there, and belongs to this owner of the pipeline alone."""
        frame = told_once(frame)
        frame = keyed(frame, self.options.key) if self.options.key else frame
        progress, tries = self.progress_of(-1), 0
        while True:
            try:
                self.lake.fit(_own(frame).schema)
                self.lake.fence(progress)
            except Unavailable:
                tries += 1
                if tries >= FENCE_TRIES:
                    raise
            else:
                return

    def progress_of(self, batch_id: int, offsets: BatchOffsets | None = None) -> Progress:
        return Progress(
            query_id=self.writing.query_id,
            batch_id=batch_id,
            offsets="" if offsets is None else offsets.text,
            covers="" if offsets is None else offsets.covers,
            epoch=self.writing.epoch,
            pipeline=self.writing.pipeline,
            lineage=self.writing.lineage,
        )

    def write(self, frame: DataFrame, batch_id: int) -> None:
        """Raises `Rejected` for rows that can't be in the table, `Unavailable` where trying again may help."""
        before = self.writing.before_batch
        if before is not None:
            before()
        progress = self.progress_of(batch_id, batch_offsets(frame.sparkSession, self.writing.checkpoint, batch_id))
        if self._is_there(progress):
            log.info("a micro-batch is there already; table=%s batch=%d", self.options.name, batch_id)
            return
        frame = told_once(frame)
        if self.options.key:
            self._change(keyed(frame, self.options.key), progress)
        else:
            self._append(frame, progress)
        self._clear(frame, progress)

    def _is_there(self, progress: Progress) -> bool:
        """Raises `CheckpointMismatch` for a micro-batch of the number of another one."""
        last = self.lake.last_batch(progress.query_id)
        known = None if last is None or last < progress.batch_id else self.lake.last_covers(progress)
        covers = progress.covers or None
        return is_replay(self.options.name, batch=progress.batch_id, covers=covers, last=last, last_covers=known)

    def _append(self, frame: DataFrame, progress: Progress) -> None:
        own = _own(frame)
        schema = self.lake.fit(own.schema)
        written = write_files(fitted(own, schema), self.lake.begin(progress))
        if written:
            sync_checkpoint(self.writing.checkpoint)
            self.lake.commit(written, (), progress)

    # --- by key

    def _change(self, frame: DataFrame, progress: Progress) -> None:
        own = _own(frame)
        schema = self.lake.fit(own.schema)
        changes = latest(frame, self.options.key).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            keys = fitted(changes, StructType([schema[name] for name in self.options.key]))
            touched = self._touched(keys, schema)
            rows = fitted(changes.where(~F.col(DELETED)), schema)
            if touched:
                kept = file_rows(frame.sparkSession, touched, self.lake.reader(), schema)
                rows = rows.unionByName(
                    kept.join(keys, list(self.options.key), "left_anti").select(*map(quote_identifier, rows.columns))
                )
            written = write_files(rows, self.lake.begin(progress))
            if written or touched:
                sync_checkpoint(self.writing.checkpoint)
                self.lake.commit(written, touched, progress)
        finally:
            changes.unpersist()

    def _touched(self, keys: DataFrame, schema: StructType) -> list[LiveFile]:
        """Files that have a key that comes."""
        bounds = _bounds(keys, self.options.key)
        if bounds is None:
            return []
        files = self.lake.live_files(bounds if bounds.column else None)
        if not files:
            return []
        columns = StructType([schema[name] for name in self.options.key])
        there = file_rows(keys.sparkSession, files, self.lake.reader(), columns, with_file=True)
        found = there.join(keys, list(self.options.key), "left_semi").select(FILE).distinct().collect()
        return [files[row[0]] for row in sorted(found)]

    # --- now and then

    def _clear(self, frame: DataFrame, progress: Progress) -> None:
        """What fails here is tried again an hour later: the rows are where they belong."""
        now_s = self.clock.monotonic()
        if self._cleared_at_s is not None and now_s - self._cleared_at_s < CLEAR_EVERY_S:
            return
        self._cleared_at_s = now_s
        try:
            self.merge_small(frame, progress)
            now_ms = self.clock.now_ms()
            cleared = self.lake.clear(now_ms - self.options.expire_ms, now_ms - ORPHANS_AFTER_MS)
            log.info("cleared; table=%s snapshots=%d files=%d", self.options.name, cleared.snapshots, cleared.files)
        except Exception:
            log.warning("clearing away failed; table=%s", self.options.name, exc_info=True)

    def merge_small(self, frame: DataFrame, progress: Progress) -> int:
        """Many small files become few large ones, where files can go; returns how many there were."""
        if not self.lake.can_remove:
            return 0
        self.lake.last_batch(progress.query_id)  # the table as it is now
        small = chosen(self.lake.live_files(), self.options.file_size_bytes)
        if not small:
            return 0
        schema = self.lake.columns()
        rows = file_rows(frame.sparkSession, small, self.lake.reader(), schema)
        parts = max(1, sum(each.size_bytes for each in small) // self.options.file_size_bytes)
        written = write_files(rows.coalesce(parts), self.lake.begin(progress))
        self.lake.commit(written, small, progress, is_rewrite=True)
        return len(small)


def _own(frame: DataFrame) -> DataFrame:
    """With the columns that are stored."""
    return frame.select(*[F.col(quote_identifier(name)) for name in own_columns(frame)])


def chosen(files: Sequence[LiveFile], file_size_bytes: int) -> list[LiveFile]:
    """The smallest files, if there are many."""
    small = sorted((each for each in files if each.size_bytes * 2 < file_size_bytes), key=lambda each: each.size_bytes)
    found: list[LiveFile] = []
    total = 0
    for each in small:
        total += each.size_bytes
        if total > MERGE_BYTES:
            break
        found.append(each)
    return found if len(found) >= SMALL_FILES else []


def _bounds(keys: DataFrame, key: Sequence[str]) -> Bounds | None:
    """The range of the first key column where files know theirs; a range of no column where not; None without rows."""
    kind, name = keys.schema[key[0]].dataType, quote_identifier(key[0])
    found: Any = keys.agg(
        F.min(name).alias("least"), F.max(name).alias("greatest"), F.count(F.lit(1)).alias("n")
    ).first()
    if found is None or not found["n"]:
        return None
    if not isinstance(kind, _PRUNED_BY):
        return Bounds(column="", least=None, greatest=None)
    return Bounds(column=key[0], least=found["least"], greatest=found["greatest"])


def check_mode(options: LakeOptions, output: str) -> None:
    """Rows that change need a key; raises `Rejected`."""
    if output != "append" and not options.key:
        raise Rejected(
            f"rows that change need a key; table={options.name} output={output}"
            " do=mode = 'upsert' with PRIMARY KEY (…) or the option key, or a watermark, so that rows become final"
        )
    if output == "complete":
        raise Rejected(
            f"a lake table is changed by key, and not written anew; table={options.name} do=output = 'update'"
        )
