"""Checkpoint sync: a local checkpoint's files are on the disk before a commit relies on them.

Data path   a micro-batch's tasks are done -> **checkpoint sync** -> its commit
Owns        which files of a checkpoint were written since the last commit; fsync of them and of their folders
Leaves      checkpoints on other file systems to those

Spark renames its files into place and leaves it to the operating system when they reach the disk. After a power cut
`offsets/N` could be empty or missing while the target has micro-batch N: it would be unknown what is in it. So
everything that a checkpoint has gets an fsync before the commit to the target. Spark notes a micro-batch in `commits`
behind that: whatever is noted there, its offsets and its state are on the disk.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from typing import Final

from streamhouse.spark.runtime.checkpoint import OFFSETS, SOURCES, local_folder

WRITTEN: Final = (OFFSETS, "commits", SOURCES, "state")
"""Folders in which Spark writes; files in them are never changed, only replaced."""
MAX_CHECKPOINTS: Final = 1000
"""Checkpoints of which is remembered what was synced; beyond, all is synced again."""
PARENTS: Final = 3
"""Folders above a new checkpoint that may be as new: of the generation, of the query, of all checkpoints."""

Fsync = Callable[[int], None]
Known = frozenset[tuple[str, int]]


class CheckpointSync:
    """Remembers which files it has synced, by name and inode; may be used from several threads."""

    def __init__(self, fsync: Fsync = os.fsync) -> None:
        self._fsync = fsync
        self._known: dict[Path, Known] = {}
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"<CheckpointSync checkpoints={len(self._known)}>"

    def sync(self, checkpoint: str) -> None:
        """Have all files of a checkpoint on the disk that came since the last call; raises `OSError` where one can't.

        Does nothing for a checkpoint that isn't a folder of this machine.
        """
        folder = local_folder(checkpoint)
        if folder is None or not folder.is_dir():
            return
        with self._lock:
            known = self._known.get(folder)
        files = frozenset(_files(folder))
        new = files if known is None else files - known
        for path, _ in sorted(new):
            self._sync(path)
        for parent in sorted({os.path.dirname(path) for path, _ in new} | ({str(folder)} if new else set())):
            self._sync(parent)
        if known is None:
            for above in list(folder.parents)[:PARENTS]:
                self._sync(str(above))
        with self._lock:
            if len(self._known) >= MAX_CHECKPOINTS:
                self._known.clear()
            self._known[folder] = files

    def _sync(self, path: str) -> None:
        """A file that Spark has removed meanwhile is no longer needed."""
        try:
            opened = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            self._fsync(opened)
        finally:
            os.close(opened)


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    """Files of Spark's folders, and folders that they are in; those that are only being made are left out."""
    waiting = [folder / name for name in WRITTEN]
    metadata = folder / "metadata"
    if metadata.exists():
        yield str(metadata), metadata.stat().st_ino
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except FileNotFoundError:
            continue
        for each in entries:
            if each.name.endswith(".tmp"):
                continue
            if each.is_dir(follow_symlinks=False):
                waiting.append(Path(each.path))
            yield each.path, each.inode()


_SYNC: Final = CheckpointSync()


def sync_checkpoint(checkpoint: str) -> None:
    """As `CheckpointSync.sync`, of this process."""
    _SYNC.sync(checkpoint)


def write_synced(path: Path, text: str) -> None:
    """A small file, all of it or as it was, and on the disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    making = path.with_name(f".{path.name}.making")
    with making.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # Hadoop's, of what was there before
    making.replace(path)
    for above in list(path.parents)[: PARENTS + 1]:
        opened = os.open(above, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
