"""Progress: where a micro-batch ends in its sources, as Spark wrote it down before the batch began.

Data path   a checkpoint's `offsets/N` -> **progress** -> the commit that places the batch's rows
Owns        that file's path and text, as it is stored with a commit and put back
Leaves      checkpoints that are gone to `pipelines.checkpoints`

The text is kept whole: whoever puts it back has the file as it was, whatever version of Spark reads it.
"""

from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

OFFSETS: Final = "offsets"
MAX_BYTES: Final = 512 * 1024
"""Agents keep no more of it; a batch of so many partitions goes without."""


def read_progress(checkpoint: str, batch_id: int) -> dict[str, str] | None:
    """What to store with a commit; None where the checkpoint is not a folder of this machine."""
    folder = local_folder(checkpoint)
    if folder is None:
        return None
    try:
        text = (folder / OFFSETS / str(batch_id)).read_text(encoding="utf-8")
    except OSError:
        return None
    return {OFFSETS: text} if len(text.encode()) <= MAX_BYTES else None


def local_folder(path: str) -> Path | None:
    """The folder that a path of Hadoop's is, if it is one of this machine."""
    told = urlsplit(path)
    if told.scheme not in ("", "file"):
        return None
    return Path(unquote(told.path) if told.scheme else path)
