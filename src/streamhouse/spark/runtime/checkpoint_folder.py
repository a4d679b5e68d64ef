"""Checkpoint folder of a query: created, checked, and restored from the last commit if it is gone.

Data path   before a query starts -> **checkpoints** -> Hadoop's file systems, through Spark
Owns        where a pipeline's checkpoint is, the query's id in it, what is done when it has disappeared
Leaves      everything else in the folder to Spark; progress to `runtime.checkpoint` and the agents' commits

The query's id is the pipeline's, written before Spark would choose one: a sink's commits are remembered by it. A query
without state has all of its offsets in the progress that its last commit stored, so its folder can be made anew, and
Spark continues with the next micro-batch. State can't: then only a restart without state helps, as the error explains.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pyspark.sql import SparkSession

from streamhouse.errors import CheckpointLost, Internal, Misconfigured
from streamhouse.spark.runtime.checkpoint import OFFSETS, local_folder
from streamhouse.spark.runtime.checkpoint_sync import write_synced
from streamhouse.spark.runtime.jvm import is_local, read_text

METADATA: Final = "metadata"
COMMITS: Final = "commits"
VERSIONS: Final = "versions"
"""There where state has the versions of records."""
OBJECT_STORES: Final = ("s3a", "s3", "s3n", "gs", "oss", "cosn")
"""File systems on which a file is there when it is closed, whole, and a rename is a copy."""
_COMMITTED: Final = 'v1\n{"nextBatchWatermarkMs":0}'


class Folder(Protocol):
    def read(self, name: str) -> str | None:
        """A file's text; None where there is none."""
        ...

    def write(self, name: str, text: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCommit:
    """The history of a query: its last commit to a topic, and whether it has run at all."""

    epoch: int | None = None
    progress: Mapping[str, Any] | None = None
    has_run: bool = False


def checkpoint_path(checkpoints: str, name: str, query_id: str, generation: int) -> str:
    return f"{checkpoints.rstrip('/')}/{name}-{query_id}/{generation}"


def prepare(folder: Folder, *, query_id: str, state: Sequence[str], before: LastCommit) -> str | None:
    """Prepare the folder for its query; returns a sentence if it had to be restored.

    Raises `CheckpointLost` where it can't be.
    """
    metadata = folder.read(METADATA)
    if metadata is not None:
        if (stored_id := json.loads(metadata).get("id")) != query_id:
            raise Internal(f"a checkpoint is another query's; id={stored_id} expected={query_id}")
        return None
    notice = None
    if before.epoch is not None or before.has_run:
        notice = _put_back(folder, state, before)
    # Last: its presence means that the rest is complete.
    folder.write(METADATA, json.dumps({"id": query_id}))
    return notice


def check_versions(folder: Folder, state: Sequence[str], *, name: str, has_run: bool) -> None:
    """The state of a join has the versions of records from its beginning, or never: then nothing shows which of two
    rows of a key is newer. Raises `Misconfigured` for a checkpoint of an earlier release, which had none.

    `has_run`: a micro-batch of it was reported; Spark removes the offsets of all but the last ones.
    """
    if not state or folder.read(VERSIONS) is not None:
        return
    if folder.read(METADATA) is not None and (has_run or folder.read(f"{OFFSETS}/0") is not None):
        raise Misconfigured(
            "the state of its join is from a release that didn't keep which record is the newest of a key;"
            f" do=start over: streamhouse pipelines restart {name} --from earliest"
        )
    folder.write(VERSIONS, "1")


def _put_back(folder: Folder, state: Sequence[str], before: LastCommit) -> str:
    """Write the last micro-batch into the folder as one that is done."""
    offsets = (before.progress or {}).get(OFFSETS)
    if state:
        raise CheckpointLost(f"state={'; '.join(state)}")
    if before.epoch is None or not isinstance(offsets, str):
        raise CheckpointLost("progress=none was stored with its rows")
    # Spark wants to see the one before, too; as this one is committed, it never goes back there.
    for number in range(max(0, before.epoch - 1), before.epoch + 1):
        folder.write(f"{OFFSETS}/{number}", offsets)
    folder.write(f"{COMMITS}/{before.epoch}", _COMMITTED)
    return f"the checkpoint was gone; it continues behind micro-batch {before.epoch}, as stored with its rows"


class HadoopFolder:
    """A folder on any file system that this Spark knows."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm
        self._spark, self._jvm = spark, jvm
        self._root = path.rstrip("/")
        root = jvm.org.apache.hadoop.fs.Path(self._root)
        self._files = root.getFileSystem(spark._jsc.hadoopConfiguration())
        self._local = local_folder(self._root) if is_local(spark, self._root) else None
        self._puts_whole = str(self._files.getUri().getScheme()) in OBJECT_STORES

    def __repr__(self) -> str:
        return f"<HadoopFolder {self._root}>"

    def read(self, name: str) -> str | None:
        """The last content, also if a writer died while it replaced the file."""
        text = read_text(self._spark, f"{self._root}/{name}")
        return read_text(self._spark, f"{self._root}/{_hidden(name, 'old')}") if text is None else text

    def write(self, name: str, text: str) -> None:
        """All of it or what was there: on the disk where that is this machine's, in one PUT where a store takes whole
        files, elsewhere under another name first, and what was there is moved away before."""
        if self._local is not None:
            write_synced(self._local / name, text)
            return
        path = self._path(name)
        self._files.mkdirs(path.getParent())
        if self._puts_whole:
            self._put(path, text)
            return
        making, old = self._path(_hidden(name, "making")), self._path(_hidden(name, "old"))
        self._put(making, text)
        if self._files.exists(path):
            self._files.delete(old, False)
            self._rename(path, old)
        self._rename(making, path)
        self._files.delete(old, False)

    def _put(self, path: Any, text: str) -> None:
        stream = self._files.create(path, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def _rename(self, source: Any, target: Any) -> None:
        if not self._files.rename(source, target):
            raise Internal(f"a checkpoint's file can't be written; path={target.toString()}")

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._root}/{name}")


def _hidden(name: str, why: str) -> str:
    """A name beside the others that Spark's logs leave alone."""
    return f".{name.replace('/', '-')}.{why}"
