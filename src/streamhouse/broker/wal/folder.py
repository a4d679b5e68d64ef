"""Folder: the blocking steps with the files of a disk log, for worker threads.

Data path   disk, recovery -> **folder** (in a thread) -> files
Owns        the order of steps: what may be interrupted half-way, and still be found
Leaves      when they are due to `disk` and `recovery`, names to `ledger`, calls to the operating system to `files`
"""

from collections.abc import Sequence
from pathlib import Path

from streamhouse.broker.wal.files import Files, Lock
from streamhouse.broker.wal.ledger import LOCK_NAME, LogFile
from streamhouse.errors import Misconfigured


def take_folder(files: Files, directory: Path) -> Lock:
    files.make_dir(directory)
    try:
        return files.create_locked(directory / LOCK_NAME)
    except FileExistsError:
        raise Misconfigured(
            f"session already has a log; path={directory} why=a session id must not be reused"
        ) from None


def remove_folder(files: Files, directory: Path) -> None:
    """Delete a whole log, the lock last, so that whoever is interrupted half-way leaves what can be found again."""
    names = [name for name in files.list(directory) if name != LOCK_NAME]
    files.remove(directory, names)
    files.remove(directory, [LOCK_NAME])
    files.remove_dir(directory)


def sync_and_close(finished: Sequence[LogFile], current: LogFile | None) -> None:
    """Sync files in order, the current one last, and close the finished ones."""
    try:
        for file in (*finished, *([current] if current else [])):
            if file.handle is not None and not file.is_gone:
                file.handle.sync()
    finally:
        for file in finished:
            close_file(file)


def close_file(file: LogFile) -> None:
    handle, file.handle = file.handle, None
    if handle is not None:
        handle.close()
