"""Replay: a repeated batch counts as committed only if its input is that of the committed one.

Data path   a checkpoint's offsets -> covers, stored with a commit -> **replay** -> committed, or rejected
Owns        what counts as the same batch
Leaves      reading checkpoints to `runtime.checkpoint`, storing commits to each target

`covers` is the input of a batch: the source offsets at its end, as text or digest; if those are unknown, the number of
its records. Commits of older versions have none; they are compared by their number only.
"""

from typing import Final

from streamhouse.errors import CheckpointMismatch

MAX_COVERS: Final = 1000
"""Maximum length in characters; longer ones are replaced by a digest."""
RECORDS: Final = "records="
"""The prefix of `covers` if only the number of records is known."""


def is_replay(target: str, *, batch: int, covers: str | None, last: int | None, last_covers: str | None) -> bool:
    """Whether a batch was committed before; `last` is the newest commit. Raises `CheckpointMismatch` if it has the
    number of a commit with another input."""
    if last is None or batch > last:
        return False
    if not can_compare(covers, last_covers):
        return True
    if batch < last or covers != last_covers:
        raise CheckpointMismatch(target, batch=batch, last=last, committed=last_covers, now=covers)
    return True


def can_compare(one: str | None, other: str | None) -> bool:
    """Whether both are known and of the same kind."""
    return one is not None and other is not None and one.startswith(RECORDS) == other.startswith(RECORDS)
