"""Errors of SQL: what is wrong in a text, and where."""

from .base import Rejected


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
