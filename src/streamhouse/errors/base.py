"""The families: an error says what its caller should do.

Owns        what may be tried again, what the caller must change, what the operator must do
Leaves      the errors of each noun to the modules beside it; codes and statuses to each wire's own table

Texts are lower case, then `key=value`, and never longer than `MAX_TEXT`.

Installation: how a missing part of this package is installed, for error texts that say so.

The distribution is not called like the command and the import: on PyPI, `streamhouse` is somebody else's package.
"""

from collections.abc import Sequence
from typing import Final, TypeVar

MAX_TEXT: Final = 500

ErrorType = TypeVar("ErrorType", bound="StreamhouseError")


class StreamhouseError(Exception):
    """The root; never raised itself."""

    def __init__(self, text: str) -> None:
        super().__init__(text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…")


def from_text(kind: type[ErrorType], text: str) -> ErrorType:
    """An error that another process raised, with the text that it sent."""
    error = kind.__new__(kind)
    StreamhouseError.__init__(error, text)
    return error


class Retriable(StreamhouseError):
    """The same request may succeed later."""


class Overloaded(Retriable):
    """The memory budget is full; come back after `retry_after_s`."""

    def __init__(self, what: str, *, limit_bytes: int, retry_after_s: float) -> None:
        super().__init__(f"overloaded; what={what} limit_bytes={limit_bytes} retry_after_s={retry_after_s:g}")
        self.retry_after_s = retry_after_s


class TooFast(Retriable):
    """One client asks more often than it may; come back after `retry_after_s`."""

    def __init__(self, what: str, *, per_s: float, retry_after_s: float) -> None:
        super().__init__(f"too many in a second; what={what} limit={per_s:g} retry_after_s={retry_after_s:.3g}")
        self.retry_after_s = retry_after_s


class Unavailable(Retriable):
    """A store did not answer, or answered that it cannot serve now."""


class Stopping(Retriable):
    """The agent is on its way out; another one, or the next start, will answer."""


class Rejected(StreamhouseError):
    """The same request will fail again."""


class Misconfigured(StreamhouseError):
    """The agent cannot start like this; the text says what is wrong and what to do."""


class NotUpYet(Misconfigured):
    """What the agent needs to start doesn't answer; the same start may succeed a moment later."""


class ChildFailed(Misconfigured):
    """A process that was started for a local cluster did not start, or ended; its last words are in its log."""

    def __init__(self, text: str, *, log_path: str, last_lines: Sequence[str] = ()) -> None:
        super().__init__(f"{text}; log={log_path}")
        self.last_lines = tuple(last_lines)


class Internal(StreamhouseError):
    """Something that must hold does not."""


class CorruptObject(Internal):
    """Bytes at rest are not what was written; the range is refused, its neighbours are served."""

    def __init__(self, key: str, *, why: str) -> None:
        super().__init__(f"corrupt object; key={key} why={why}")
        self.key = key
        self.why = why


class DamagedRecords(CorruptObject):
    """Offsets [base, end) of a partition can't be served, because the bytes that hold them are damaged."""

    what = "records are damaged at rest"
    do = "restore the object from a copy, or read on from the end of the range"

    def __init__(self, partition: object, *, base: int, end: int, key: str, why: str, what: str | None = None) -> None:
        super().__init__(key, why=why)
        text = f"{what or self.what}; partition={partition} offsets=[{base},{end}) key={key} do={self.do} why={why}"
        self.args = (text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…",)
        self.base, self.end = base, end


class MissingRecords(DamagedRecords):
    """Offsets [base, end) of a partition can't be served, because the object that holds them is not in the store."""

    what = "records are missing from the object store"


DISTRIBUTION: Final = "pystreamhouse"


def install_command(extra: str) -> str:
    """The command that adds an extra's packages to this installation. pip takes the distribution that is installed, so
    it works before the distribution can be had from an index."""
    return f'pip install "{DISTRIBUTION}[{extra}]"'
