"""Errors of SQL: what is wrong in a text, and where."""

from typing import Final

from streamhouse.errors.base import Rejected

MAX_OFFSETS: Final = 80
"""Characters of offsets in a message."""


class StatementError(Rejected):
    """A statement can't be understood; `line` and `column` count from 1, `hint` says what to write instead."""

    def __init__(self, line: int, column: int, text: str, hint: str = "") -> None:
        told = f" do={hint}" if hint else ""
        super().__init__(f"{text}; line={line} column={column}{told}")
        self.line, self.column, self.text, self.hint = line, column, text, hint


class CheckpointLost(Rejected):
    """A pipeline's checkpoint is gone, and nothing else tells where to go on; `restart --from` begins anew."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the checkpoint is gone and its place can't be found elsewhere; {why} do=restart it with --from"
        )


class CheckpointMismatch(Rejected):
    """A micro-batch that was committed comes again with other source offsets: its checkpoint was rolled back."""

    def __init__(self, target: str, *, batch: int, last: int, committed: str | None, now: str | None) -> None:
        super().__init__(
            f"the checkpoint is older than what was committed; target={target} batch={batch} committed_batch={last}"
            f" committed={_short(committed)} now={_short(now)} do=restore the newest checkpoint, or begin anew"
            " (pipelines restart NAME --from …; in other jobs a new checkpointLocation)"
        )


def _short(text: str | None) -> str:
    """What a batch covers, as much as a message may have of it."""
    words = "unknown" if text is None else " ".join(text.split())
    return words if len(words) <= MAX_OFFSETS else words[: MAX_OFFSETS - 1] + "…"
