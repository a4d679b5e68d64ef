"""Base classes of errors: an error says what its caller should do.

Owns        which errors are retriable, which the caller must correct, which need an operator
Leaves      specific errors to the other modules; codes and statuses to each wire's own table

Texts are lower case, then `key=value`, and never longer than `MAX_TEXT`.

Also the installation command for a missing extra, for error texts.

The distribution has another name than command and import: on PyPI, `streamhouse` is another project's package.
"""

from collections.abc import Sequence
from typing import Final, TypeVar

MAX_TEXT: Final = 500

ErrorType = TypeVar("ErrorType", bound="StreamhouseError")


class StreamhouseError(Exception):
    """The base class; never raised itself."""

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
    """The memory budget is used up; retry after `retry_after_s`."""

    def __init__(self, what: str, *, limit_bytes: int, retry_after_s: float) -> None:
        super().__init__(f"overloaded; what={what} limit_bytes={limit_bytes} retry_after_s={retry_after_s:g}")
        self.retry_after_s = retry_after_s


class TooFast(Retriable):
    """A client exceeds its rate; retry after `retry_after_s`."""

    def __init__(self, what: str, *, per_s: float, retry_after_s: float) -> None:
        super().__init__(f"too many in a second; what={what} limit={per_s:g} retry_after_s={retry_after_s:.3g}")
        self.retry_after_s = retry_after_s


class Unavailable(Retriable):
    """A store did not respond, or can't serve now."""


class DataKeyUnavailable(Unavailable):
    """An object's encryption key is unavailable: the key service doesn't respond, doesn't have the key, or has a
    different key with this id. The object is intact: callers must not delete it or treat it as damaged."""

    def __init__(self, where: str, *, key_id: str, why: str, is_away: bool = False) -> None:
        super().__init__(
            f"encryption key is unavailable; where={where} key_id={key_id} why={why}"
            " do=give encryption.key this key back, or correct the settings of encryption"
        )
        self.where, self.key_id, self.why = where, key_id, why
        self.is_away = is_away
        """The key service doesn't respond; a retry may succeed."""


class Stopping(Retriable):
    """The agent is stopping; retry at another agent, or after its restart."""


class Rejected(StreamhouseError):
    """The same request will fail again."""


class Misconfigured(StreamhouseError):
    """The agent can't start with this configuration; the text has the cause and what to do."""


class NotUpYet(Misconfigured):
    """A store that the agent needs at its start doesn't respond; a retry may succeed."""


class ChildFailed(Misconfigured):
    """A process of a local cluster did not start, or ended; its log has the cause."""

    def __init__(self, text: str, *, log_path: str, last_lines: Sequence[str] = ()) -> None:
        super().__init__(f"{text}; log={log_path}")
        self.last_lines = tuple(last_lines)


class Internal(StreamhouseError):
    """An invariant is violated."""


class CorruptObject(Internal):
    """Bytes at rest are damaged; reads of the range fail, others are served."""

    def __init__(self, key: str, *, why: str) -> None:
        super().__init__(f"corrupt object; key={key} why={why}")
        self.key = key
        self.why = why


class DamagedRecords(CorruptObject):
    """Offsets [base, end) of a partition can't be served, because their bytes are damaged."""

    what = "records are damaged at rest"
    do = "restore the object from a copy, or read on from the end of the range"

    def __init__(self, partition: object, *, base: int, end: int, key: str, why: str, what: str | None = None) -> None:
        super().__init__(key, why=why)
        text = f"{what or self.what}; partition={partition} offsets=[{base},{end}) key={key} do={self.do} why={why}"
        self.args = (text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…",)
        self.base, self.end = base, end


class MissingRecords(DamagedRecords):
    """Offsets [base, end) of a partition can't be served, because their object is missing."""

    what = "records are missing from the object store"


DISTRIBUTION: Final = "pystreamhouse"


def install_command(extra: str) -> str:
    """The command that adds an extra's packages to this installation. pip takes the distribution that is installed, so
    it works before the distribution is published."""
    return f'pip install "{DISTRIBUTION}[{extra}]"'
