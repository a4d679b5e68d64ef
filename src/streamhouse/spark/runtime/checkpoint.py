"""Checkpoint: the end offsets of a micro-batch, as Spark wrote them before the batch began.

Data path   a checkpoint's `offsets/N` -> **checkpoint** -> the commit of the batch's rows
Owns        the path and text of that file, stored with a commit and restored from it; which part identifies a batch
Leaves      lost checkpoints to `runtime.checkpoint_folder`, comparing to `model.replay`

The whole text is kept, so that a restored file is identical, whatever version of Spark reads it. Only the lines of the
sources identify a batch: its start time and settings may differ.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from streamhouse.model.replay import MAX_COVERS

OFFSETS: Final = "offsets"
SOURCES: Final = "sources"
MAX_BYTES: Final = 512 * 1024
"""Agents keep no more of it; a batch with more partitions is stored without."""
LOG_OFFSET: Final = "logOffset"
"""The only field of offsets of Spark's file source: the number of its own list, in which the files are."""

ReadFile = Callable[[str], str | None]
"""A file of a checkpoint by its name; None where there is none."""


class BatchOffsets(NamedTuple):
    """The end of a micro-batch: the file's text, and what it covers, by which batches are compared."""

    text: str
    covers: str

    @property
    def progress(self) -> dict[str, str] | None:
        """The text to store with a commit; None if it is too long."""
        return {OFFSETS: self.text} if len(self.text.encode()) <= MAX_BYTES else None


def read_batch_offsets(read: ReadFile, batch_id: int) -> BatchOffsets | None:
    """None where the checkpoint doesn't have the micro-batch."""
    text = read(f"{OFFSETS}/{batch_id}")
    if text is None:
        return None
    lines = text.splitlines()[2:]
    listed = [_files_of(read, number, line) for number, line in enumerate(lines)]
    return BatchOffsets(text, _covers([*lines, *(each for each in listed if each)]))


def _covers(lines: Sequence[str]) -> str:
    covers = "\n".join(lines)
    return covers if len(covers) <= MAX_COVERS else _digest(covers)


def _files_of(read: ReadFile, source: int, line: str) -> str | None:
    """The digest of a list of files; None for a source whose offsets are complete."""
    try:
        offset: Any = json.loads(line)
    except ValueError:
        return None
    if not isinstance(offset, dict) or set(offset) != {LOG_OFFSET}:
        return None
    name = f"{SOURCES}/{source}/{offset[LOG_OFFSET]}"
    text = read(name)
    text = read(f"{name}.compact") if text is None else text
    return None if text is None else _digest(text)


def _digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def local_reader(checkpoint: str) -> ReadFile | None:
    """Reads a checkpoint that is a folder of this machine; None for others."""
    folder = local_folder(checkpoint)
    if folder is None:
        return None

    def read(name: str) -> str | None:
        try:
            return (folder / name).read_text(encoding="utf-8")
        except OSError:
            return None

    return read


def local_folder(path: str) -> Path | None:
    """The folder that a path of Hadoop's is, if it is one of this machine."""
    parts = urlsplit(path)
    if parts.scheme not in ("", "file"):
        return None
    return Path(unquote(parts.path) if parts.scheme else path)
