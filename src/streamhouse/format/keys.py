"""Object keys: where objects stand in the store, both directions.

Owns        the names of all objects
Leaves      what is in them to `format.segment` and the WAL's format; listing and deleting to the stores
Invariant   no key holds a string that a client chose: session ids are ours, and sequences are numbers

Sequences are zero-padded, so that listing order is writing order.
"""

import re
from typing import Final, NamedTuple

from streamhouse.errors import Internal
from streamhouse.model.names import SessionId

SEGMENTS_PREFIX: Final = "segments/"
WAL_PREFIX: Final = "wal/"

MAX_SEQUENCE: Final = 2**64 - 1
_SESSION: Final = re.compile(r"s-[0-9a-f]{32}")
_KEY: Final = re.compile(r"(s-[0-9a-f]{32})/([0-9]{20})")


class ObjectName(NamedTuple):
    """Which session wrote an object, and as its how many-th."""

    session_id: SessionId
    sequence: int


def segment_key(session_id: SessionId, sequence: int) -> str:
    return SEGMENTS_PREFIX + _tail(session_id, sequence)


def parse_segment_key(key: str) -> ObjectName | None:
    """Whose segment the key names; None for any other key."""
    return _parse(SEGMENTS_PREFIX, key)


def wal_key(session_id: SessionId, sequence: int) -> str:
    return WAL_PREFIX + _tail(session_id, sequence)


def wal_prefix(session_id: SessionId) -> str:
    """What all WAL objects of the session begin with, and no other's: the id whole, and a slash."""
    _require_session(session_id)
    return f"{WAL_PREFIX}{session_id}/"


def parse_wal_key(key: str) -> ObjectName | None:
    """Whose WAL object the key names; None for any other key."""
    return _parse(WAL_PREFIX, key)


def _require_session(session_id: SessionId) -> None:
    if not _SESSION.fullmatch(session_id):
        raise Internal(f"not a session id; session={session_id!r}")


def _tail(session_id: SessionId, sequence: int) -> str:
    _require_session(session_id)
    if not 0 <= sequence <= MAX_SEQUENCE:
        raise Internal(f"sequence out of range; sequence={sequence}")
    return f"{session_id}/{sequence:020d}"


def _parse(prefix: str, key: str) -> ObjectName | None:
    match = _KEY.fullmatch(key, len(prefix)) if key.startswith(prefix) else None
    if match is None or int(match[2]) > MAX_SEQUENCE:
        return None
    return ObjectName(SessionId(match[1]), int(match[2]))
