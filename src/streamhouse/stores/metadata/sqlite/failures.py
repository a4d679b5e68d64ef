"""What SQLite's errors mean to a caller.

Data path   none; every failed statement passes here
Owns        the translation of result codes into the error tree
Leaves      rolling back, and refusing to go on after a failed fsync, to `database`
"""

import sqlite3
from typing import Final

from streamhouse.errors import Internal, StreamhouseError, Unavailable

_PRIMARY: Final = 0xFF  # the low byte of an extended result code is its primary code
_MAY_PASS: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
    }
)
_LOST_SYNC: Final = frozenset({sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC})


def translate(error: sqlite3.Error) -> StreamhouseError:
    """`Unavailable` for what may pass: busy, full, I/O. Anything else is damage or a bug."""
    code = getattr(error, "sqlite_errorcode", None)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    if code is not None and code & _PRIMARY in _MAY_PASS:
        return Unavailable(f"metadata store can't serve now; code={name} why={error}")
    return Internal(f"metadata store failed; code={name} why={error}")


def has_lost_sync(error: sqlite3.Error) -> bool:
    """Whether an fsync failed, so that the system may have dropped pages that later look written."""
    return getattr(error, "sqlite_errorcode", None) in _LOST_SYNC
