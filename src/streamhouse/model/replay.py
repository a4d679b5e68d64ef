"""Replay: a batch that comes again is done only if it is made of the same as the one that was committed.

Data path   a checkpoint's offsets -> covers, stored with a commit -> **replay** -> done, or refused
Owns        what counts as the same batch
Leaves      reading checkpoints to `runtime.checkpoint`, keeping what was committed to each target

`covers` says what a batch is made of: the source offsets at its end, as text or as a digest of it; where those aren't
known, how many records it has. Commits of older versions have none, and count as done by their number.
"""

from typing import Final

from streamhouse.errors import CheckpointMismatch

MAX_COVERS: Final = 1000
"""Characters; longer ones are told by a digest."""
RECORDS: Final = "records="
"""How `covers` begins where only the number of records is known."""


def is_replay(target: str, *, batch: int, covers: str | None, last: int | None, last_covers: str | None) -> bool:
    """Whether a batch was committed before; `last` is the newest that was.

    Raises `CheckpointMismatch` for one that has the number of a commit, and isn't it.
    """
    if last is None or batch > last:
        return False
    if not can_compare(covers, last_covers):
        return True
    if batch < last or covers != last_covers:
        raise CheckpointMismatch(target, batch=batch, last=last, committed=last_covers, now=covers)
    return True


def can_compare(one: str | None, other: str | None) -> bool:
    """Whether both are known, and of one kind."""
    return one is not None and other is not None and one.startswith(RECORDS) == other.startswith(RECORDS)
