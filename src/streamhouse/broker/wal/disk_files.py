"""Files of a disk WAL: which file gets an append, which files can be deleted, and the blocking steps with files.

`WalFileSet` decides and does no I/O. The functions below it run in worker threads; their order of steps leaves files
that recovery can read wherever they are interrupted.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from streamhouse.errors import Misconfigured
from streamhouse.format.encryption import EntryCipher, KeyEnvelope
from streamhouse.format.wal_file import FILE_HEADER_BYTES, MAX_SESSION_BYTES
from streamhouse.model.names import PartitionId, SessionId
from streamhouse.stores.local_files import AppendFile, FileSystem, Lock

LOCK_NAME: Final = "lock"
_SESSION: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_FILE_NAME: Final = re.compile(r"([0-9]{20})\.wal")
_LARGEST_SPARE: Final = 2
"""Times `wal.file_bytes`: larger files, of single large appends, are removed."""


def is_session_name(name: str) -> bool:
    return len(name) <= MAX_SESSION_BYTES and _SESSION.fullmatch(name) is not None


def session_dir(root: Path, session: SessionId) -> Path:
    """The session's directory, named by its whole id."""
    if not is_session_name(session):
        raise Misconfigured(f"session id can't name a directory; session={session!r} allowed=[A-Za-z0-9_.-]")
    return root / session


def file_name(sequence: int) -> str:
    return f"{sequence:020d}.wal"


def parse_file_name(name: str) -> int | None:
    """The sequence number; None for other files."""
    match = _FILE_NAME.fullmatch(name)
    return int(match[1]) if match else None


def spare_name(sequence: int) -> str:
    """The name of a file whose content is not needed any more. Readers of a log ignore it."""
    return f"{sequence:020d}.spare"


class FileEncryption(NamedTuple):
    """How the batches of a file are encrypted."""

    salt: bytes
    envelope: KeyEnvelope
    cipher: EntryCipher


class WalFile:
    """One file of the log, from the moment an append is planned for it."""

    __slots__ = ("encryption", "ends", "groups", "handle", "is_gone", "mark", "sequence", "size_bytes", "spare")

    def __init__(
        self,
        sequence: int,
        mark: bytes,
        encryption: "FileEncryption | None" = None,
        spare: str | None = None,
    ) -> None:
        self.sequence = sequence
        self.mark = mark
        self.encryption = encryption
        self.spare = spare
        """The file to write over; None: a new one is created."""
        self.size_bytes = FILE_HEADER_BYTES
        self.ends: dict[PartitionId, int] = {}
        """Highest unflushed end per partition; empty when the file is not needed any more."""
        self.groups = 0
        """Groups that are queued or being written."""
        self.handle: AppendFile | None = None
        self.is_gone = False

    @property
    def name(self) -> str:
        return file_name(self.sequence)

    def __repr__(self) -> str:
        return f"<WalFile {self.name} bytes={self.size_bytes} partitions={len(self.ends)} groups={self.groups}>"


class WalFileSet:
    def __init__(
        self,
        *,
        file_bytes: int,
        renew_bytes: int,
        new_mark: Callable[[], bytes],
        encrypt: Callable[[int], FileEncryption] | None = None,
        max_spares: int = 0,
        envelope: Callable[[], KeyEnvelope] | None = None,
    ) -> None:
        """`encrypt` encrypts a new file, with the data key that is in `envelope`."""
        self._encrypt = encrypt
        self._max_spares = max_spares
        self._envelope = envelope
        self._file_bytes = file_bytes
        self._renew_bytes = renew_bytes
        self._new_mark = new_mark
        self._next_sequence = 0
        self.files: list[WalFile] = []
        self.active: WalFile | None = None
        self._spares: list[str] = []
        """Names of files that the next ones are written over."""
        self._promised_spares = 0
        """Those chosen, but not renamed yet."""

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def file_for(self, size_bytes: int) -> WalFile:
        """The file for an append of this size: the active one, or the next if it is full or has an older data key. An
        append is never split, so a file may be larger than the limit by the last append, or by a single large one.
        Raises `DataKeyUnavailable` if there is no key to encrypt with."""
        active = self.active
        if (
            active is not None
            and (active.size_bytes + size_bytes <= self._file_bytes or active.size_bytes == FILE_HEADER_BYTES)
            and not self._has_older_key(active)
        ):
            return active
        encryption = self._encrypt(self._next_sequence) if self._encrypt is not None else None
        spare = self._spares.pop() if self._spares else None
        self.active = active = WalFile(self._next_sequence, self._new_mark(), encryption, spare)
        self._next_sequence += 1
        self.files.append(active)
        return active

    def _has_older_key(self, file: WalFile) -> bool:
        return (
            self._envelope is not None
            and file.encryption is not None
            and file.encryption.envelope is not self._envelope()
        )

    def mark_flushed(self, flushed: Mapping[PartitionId, int]) -> list[WalFile]:
        """Note flushed offsets; remove and return the files that are not needed any more.

        Any file may be removed, not only the oldest: an idle partition retains only the file with its records. The
        active file is removed as well, once it is large enough to be worth creating the next."""
        for file in self.files:
            _mark_flushed(file.ends, flushed)
        dropped = [file for file in self.files if self._is_unneeded(file)]
        if self.active in dropped:
            self.active = None
        self.files = [file for file in self.files if file not in dropped]
        return dropped

    def choose_spares(self, dropped: Sequence[WalFile]) -> list[WalFile]:
        """Which of these unneeded files to keep for reuse. Writing over a file costs a fraction of writing a new one,
        whose pages and disk blocks must be allocated."""
        allowed = [file for file in dropped if file.size_bytes <= _LARGEST_SPARE * self._file_bytes]
        chosen = allowed[: max(0, self._max_spares - len(self._spares) - self._promised_spares)]
        self._promised_spares += len(chosen)
        return chosen

    def settle_spares(self, chosen: Sequence[WalFile], *, renamed: bool) -> None:
        """The chosen files have their new names, or not."""
        self._promised_spares -= len(chosen)
        if renamed:
            self._spares += [spare_name(file.sequence) for file in chosen]

    def _is_unneeded(self, file: WalFile) -> bool:
        if file.ends or file.groups:
            return False
        return file is not self.active or file.size_bytes >= self._renew_bytes


def _mark_flushed(ends: dict[PartitionId, int], flushed: Mapping[PartitionId, int]) -> None:
    few, many = (ends, flushed) if len(ends) < len(flushed) else (flushed, ends)
    for partition in [partition for partition in few if partition in many]:
        if ends[partition] <= flushed[partition]:
            del ends[partition]


def lock_directory(files: FileSystem, directory: Path) -> Lock:
    files.make_dir(directory)
    try:
        return files.create_locked(directory / LOCK_NAME)
    except FileExistsError:
        raise Misconfigured(
            f"session already has a log; path={directory} why=a session id must not be reused"
        ) from None


def remove_directory(files: FileSystem, directory: Path) -> None:
    """Delete a whole log, the lock last, so that an interrupted deletion is found again."""
    names = [name for name in files.list(directory) if name != LOCK_NAME]
    files.remove(directory, names)
    files.remove(directory, [LOCK_NAME])
    files.remove_dir(directory)


def sync_and_close(finished: Sequence[WalFile], current: WalFile | None) -> None:
    """Sync files in order, the current one last, and close the finished ones."""
    try:
        for file in (*finished, *([current] if current else [])):
            if file.handle is not None and not file.is_gone:
                file.handle.sync()
    finally:
        for file in finished:
            close_file(file)


def close_file(file: WalFile) -> None:
    handle, file.handle = file.handle, None
    if handle is not None:
        handle.close()
