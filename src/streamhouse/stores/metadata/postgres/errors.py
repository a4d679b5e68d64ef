"""Errors of PostgreSQL: their meaning for callers and for the start of an agent.

Data path   none; every failed statement passes here
Owns        the translation of error codes to the error tree, and the texts for a failed start
Leaves      rollbacks, retries and dropping connections to `database`
"""

import ssl
from typing import Final

import asyncpg

from streamhouse.errors import Internal, Misconfigured, NotUpYet, Rejected, StreamhouseError, Unavailable

# Temporary conditions of the server: https://www.postgresql.org/docs/current/errcodes-appendix.html
_TRANSIENT_CLASSES: Final = ("08", "40", "53", "57", "58")  # connection, rollback, resources, intervention, system
_TRANSIENT_CODES: Final = frozenset(
    {
        "25006",  # the server is read-only: a standby, or a primary that was demoted
        "25P03",  # the transaction was idle for too long: this process was stalled
        "25P04",  # the transaction took too long
        "28000",  # while a password is being changed, reconnecting fails like with a wrong password
        "28P01",
        "3D000",
        "55P03",  # a lock is not available now
    }
)
_TRANSIENT_CODES_AT_START: Final = _TRANSIENT_CODES - {
    "28000",
    "28P01",
    "3D000",
}  # at the start they are configuration errors
_CONFLICT_CODES: Final = frozenset(
    {"40001", "40P01"}
)  # serialization failure, deadlock: it did not happen, try again at once

_NOT_TEXT: Final = frozenset({"22021", "22P05"})  # not a character of the database's encoding; NUL is in none

_HINTS: Final = {
    "28P01": ("the user or the password is wrong", "check the user and the password in --metadata"),
    "28000": ("this user may not log in from here", "check the user in --metadata and the server's pg_hba.conf"),
    "3D000": ("there is no such database", "create it (createdb), or name another one in --metadata"),
    "42501": ("this user may not create tables", "GRANT CREATE ON SCHEMA public TO the user, or make it the owner"),
    "53300": ("the server has no connection left", "raise max_connections there, or lower metadata.max_connections"),
    "57P03": ("the server is starting up or shutting down", "start again in a moment"),
}


def is_conflict(error: BaseException) -> bool:
    """Whether the transaction failed only by a conflict with another one."""
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate in _CONFLICT_CODES


def translate(error: Exception) -> StreamhouseError:
    """`Unavailable` for temporary conditions: no connection, no response, no space. `Rejected` for values that
    PostgreSQL can't store. Anything else is damage or a bug."""
    if isinstance(error, OSError | asyncpg.InternalClientError):  # the latter also when a connection breaks
        return Unavailable(f"metadata store can't be reached; why={_text(error)}")
    if not isinstance(error, asyncpg.PostgresError):
        return Internal(f"metadata store failed; why={type(error).__name__}: {_text(error)}")
    code = error.sqlstate or "none"
    if code in _TRANSIENT_CODES or code[:2] in _TRANSIENT_CLASSES:
        return Unavailable(f"metadata store can't serve now; code={code} why={_text(error)}")
    if code in _NOT_TEXT:
        return Rejected("a name or text has a character that the metadata store can't keep, such as NUL")
    return Internal(f"metadata store failed; code={code} why={_text(error)}")


def explain_start(error: Exception, where: str) -> Misconfigured:
    """The error of a failed start: the cause and what to do; `NotUpYet` for temporary conditions."""
    what, cure = _explain(error)
    kind = NotUpYet if may_start_later(error) else Misconfigured
    return kind(f"the metadata database can't be used: {what}; where={where} why={_text(error)} do={cure}")


def may_start_later(error: Exception) -> bool:
    """Whether the server may be available soon: it restarts, has no free connections, or fails over."""
    if isinstance(error, asyncpg.PostgresError):
        code = error.sqlstate or ""
        return code in _TRANSIENT_CODES_AT_START or code[:2] in _TRANSIENT_CLASSES
    return isinstance(error, OSError | asyncpg.InternalClientError) and not isinstance(error, ssl.SSLError)


def _explain(error: Exception) -> tuple[str, str]:
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return "none of its servers takes writes", "name the primary in --metadata, or promote a standby"
    if isinstance(error, TimeoutError):
        return "the server does not answer", "check host and port in --metadata, and the network between"
    if isinstance(error, asyncpg.PostgresError):
        return _HINTS.get(error.sqlstate or "", ("the server refuses", "see its log"))
    if isinstance(error, OSError):
        return "no server answers", "check host and port in --metadata, and that PostgreSQL runs there"
    return "the URL is not understood", "check the options after the ? in --metadata"


def _text(error: Exception) -> str:
    """The driver's text. Configuration errors may repeat parts of the URL, so their text is left out."""
    if isinstance(error, asyncpg.PostgresError | asyncpg.InternalClientError | OSError):
        return str(error).partition("\n")[0] or type(error).__name__
    if isinstance(error, asyncpg.ClientConfigurationError | ValueError):
        return type(error).__name__
    return str(error).partition("\n")[0]
