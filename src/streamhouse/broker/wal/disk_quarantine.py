"""Quarantine of disk logs: a damaged log is retained on its disk with a report, until an operator discards it.

Data path   none: recovery of a damaged log -> **quarantine** (in a thread) -> doctor, an operator's commands
Owns        the quarantine folder, names in it, the order of steps
Leaves      the content of a report to `session.recovery`, system calls to `stores.local_files`
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from streamhouse.broker.wal.base import QuarantinedWal
from streamhouse.broker.wal.disk_files import is_session_name
from streamhouse.model.names import SessionId
from streamhouse.stores.local_files import FileSystem

_REPORT: Final = re.compile(r"report-[0-9]{20}\.json")


def quarantine_root(root: Path) -> Path:
    """The quarantine folder of this root: next to it, on the same disk."""
    return root.with_name(f"{root.name}-damaged")


def is_quarantined(files: FileSystem, root: Path, session: SessionId) -> bool:
    return bool(_names(files, quarantine_root(root) / session))


def write_report(files: FileSystem, root: Path, session: SessionId, report: bytes, *, number: int) -> None:
    """Write a report, which marks the session's log as retained."""
    directory = quarantine_root(root) / session
    files.make_dir(directory)
    with suppress(FileExistsError):
        file = files.create(directory / f"report-{number:020d}.json")
        try:
            file.write([report])
            file.sync()
        finally:
            file.close()


def move_to_quarantine(files: FileSystem, root: Path, session: SessionId, names: Sequence[str]) -> None:
    """Move these files of the session's log to the quarantine."""
    directory = quarantine_root(root) / session
    files.make_dir(directory)
    files.move(root / session, names, directory)


def quarantined_wals(files: FileSystem, root: Path) -> Sequence[QuarantinedWal]:
    sessions = [SessionId(name) for name in _names(files, quarantine_root(root)) if is_session_name(name)]
    return [_quarantined_wal(files, quarantine_root(root) / session, session) for session in sessions]


def _quarantined_wal(files: FileSystem, directory: Path, session: SessionId) -> QuarantinedWal:
    names = _names(files, directory)
    reports = [name for name in names if _REPORT.fullmatch(name)]
    data = [name for name in names if name not in reports]
    return QuarantinedWal(
        session_id=session,
        kind="disk",
        where=str(directory),
        files=len(data),
        size_bytes=sum(files.size(directory / name) for name in data),
        report=files.read(directory / reports[-1]) if reports else b"",
    )


def discard_wal(files: FileSystem, root: Path, session: SessionId) -> int:
    """Delete the log first and reports last, so that an interrupted deletion is found again."""
    directory = quarantine_root(root) / session
    names = _names(files, directory)
    reports = [name for name in names if _REPORT.fullmatch(name)]
    files_of_log = [name for name in names if name not in reports]
    if names:
        files.remove(directory, files_of_log)
        files.remove(directory, reports)
        files.remove_dir(directory)
    return len(names)


def _names(files: FileSystem, directory: Path) -> Sequence[str]:
    try:
        return files.list(directory)
    except (FileNotFoundError, NotADirectoryError):
        return ()
