"""Object keys: the names of all objects in the store, both directions.

Owns        the names of all objects
Leaves      their content to `format.segment` and `format.wal_object`; listing and deleting to the stores
Invariant   no key contains a string that a client chose: session ids are ours, queries are UUIDs, sequences are numbers

Sequences are zero-padded, so that listing order is writing order.
"""

import hashlib
import re
import uuid
from enum import StrEnum
from typing import Final, NamedTuple

from streamhouse.errors import Internal
from streamhouse.model.external_commit import QueryId
from streamhouse.model.names import SessionId, TopicId

SEGMENTS_PREFIX: Final = "segments/"
WAL_PREFIX: Final = "wal/"
PLACED_PREFIX: Final = "placed/"
GENERATIONS_PREFIX: Final = "generations/"
TOPICS_PREFIX: Final = "topics/"
ASIDE_PREFIX: Final = "aside/"
CLUSTER_KEY: Final = "cluster/id"
"""The object with the cluster id."""
DAMAGED_PREFIX: Final = "damaged/"
ENCRYPTION_KEYS_PREFIX: Final = "encryption/"
ENCRYPTED_PREFIXES: Final = (SEGMENTS_PREFIX, WAL_PREFIX, PLACED_PREFIX, ASIDE_PREFIX)
"""Prefixes of objects with records. All other objects have none and are never encrypted."""

MAX_SEQUENCE: Final = 2**64 - 1
RECOVERED_SEQUENCES: Final = 10**18
"""Segments that a recovery makes of a session's WAL count from here."""
REWRITTEN_SEQUENCES: Final = 2**63
"""Segments that merging and compaction make count from here."""
MAX_EPOCH: Final = 2**63 - 1
_SESSION: Final = re.compile(r"s-[0-9a-f]{32}")
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UNIQUE: Final = re.compile(r"[0-9a-f]{32}")
_PLACED: Final = re.compile(rf"({_UUID.pattern})/([0-9]{{20}})/({_UNIQUE.pattern})")
_KEY: Final = re.compile(r"(s-[0-9a-f]{32})/([0-9]{20})")
_NUMBER: Final = re.compile(r"[0-9]{20}")


class SegmentOrigin(StrEnum):
    """How the records of an object came into it."""

    FLUSHED = "flushed"
    RECOVERED = "recovered"  # from the WAL of a dead session
    REWRITTEN = "rewritten"  # merged or compacted by an agent
    WAL = "wal"  # a WAL object, registered as it was
    EXTERNAL = "external"  # a commit or a maintenance job of Spark


class ObjectName(NamedTuple):
    """The session that wrote an object, and its sequence number."""

    session_id: SessionId
    sequence: int


class ExternalSegmentName(NamedTuple):
    """The commit of a query for which a segment was written, and the segment's unique part."""

    query: QueryId
    epoch: int
    unique: str


def segment_key(session_id: SessionId, sequence: int) -> str:
    return SEGMENTS_PREFIX + _tail(session_id, sequence)


def parse_segment_key(key: str) -> ObjectName | None:
    """Parse a segment's key; None for other keys."""
    return _parse(SEGMENTS_PREFIX, key)


def is_query_id(text: str) -> bool:
    """Whether the text is a query id: a UUID in lower case."""
    return _UUID.fullmatch(text) is not None


def external_segment_prefix(query: QueryId, epoch: int) -> str:
    """The prefix of all segments of a query's commit."""
    if not is_query_id(query) or not 0 <= epoch <= MAX_EPOCH:
        raise Internal(f"not a query's commit; query={query!r} epoch={epoch}")
    return f"{PLACED_PREFIX}{query}/{epoch:020d}/"


def external_segment_key(query: QueryId, epoch: int, unique: str) -> str:
    """The key of a segment of an external commit; `unique` is 32 random hex digits."""
    if not _UNIQUE.fullmatch(unique):
        raise Internal(f"not 32 hex digits; unique={unique!r}")
    return external_segment_prefix(query, epoch) + unique


def parse_external_segment_key(key: str) -> ExternalSegmentName | None:
    """Parse the key of an external commit's segment; None for other keys."""
    match = _PLACED.fullmatch(key, len(PLACED_PREFIX)) if key.startswith(PLACED_PREFIX) else None
    if match is None or int(match[3]) > MAX_EPOCH:
        return None
    return ExternalSegmentName(QueryId(match[1]), int(match[3]), match[4])


def segment_origin(key: str) -> SegmentOrigin:
    """The origin of the records in an object that a run refers to."""
    if key.startswith(WAL_PREFIX):
        return SegmentOrigin.WAL
    name = parse_segment_key(key)
    if name is None:
        return SegmentOrigin.EXTERNAL
    if name.sequence >= REWRITTEN_SEQUENCES:
        return SegmentOrigin.REWRITTEN
    return SegmentOrigin.RECOVERED if name.sequence >= RECOVERED_SEQUENCES else SegmentOrigin.FLUSHED


def wal_key(session_id: SessionId, sequence: int) -> str:
    return WAL_PREFIX + _tail(session_id, sequence)


def wal_prefix(session_id: SessionId) -> str:
    """The prefix of the session's WAL objects: the whole id and a slash."""
    _require_session(session_id)
    return f"{WAL_PREFIX}{session_id}/"


def parse_wal_key(key: str) -> ObjectName | None:
    """Parse the key of a WAL object; None for other keys."""
    return _parse(WAL_PREFIX, key)


def generation_key(generation: int) -> str:
    if not 0 < generation <= MAX_EPOCH:
        raise Internal(f"generation out of range; generation={generation}")
    return f"{GENERATIONS_PREFIX}{generation:020d}"


def parse_generation_key(key: str) -> int | None:
    """Parse the key of a generation; None for other keys."""
    tail = key.removeprefix(GENERATIONS_PREFIX)
    return int(tail) if tail != key and _NUMBER.fullmatch(tail) and 0 < int(tail) <= MAX_EPOCH else None


def damage_report_key(session_id: SessionId, number: int) -> str:
    """The key of a report on a session's damaged WAL; while it exists, nothing of that WAL is deleted."""
    return DAMAGED_PREFIX + _tail(session_id, number)


def damage_report_prefix(session_id: SessionId) -> str:
    """The prefix of all reports on the session's WAL."""
    _require_session(session_id)
    return f"{DAMAGED_PREFIX}{session_id}/"


def parse_damage_report_key(key: str) -> ObjectName | None:
    """Parse the key of a report; None for other keys."""
    return _parse(DAMAGED_PREFIX, key)


def topic_key(topic_id: TopicId) -> str:
    return f"{TOPICS_PREFIX}{topic_id}"


def parse_topic_key(key: str) -> TopicId | None:
    """Parse the key of a topic name; None for other keys."""
    tail = key.removeprefix(TOPICS_PREFIX)
    return TopicId(uuid.UUID(tail)) if tail != key and _UUID.fullmatch(tail) else None


def aside_key(key: str) -> str:
    """The key for a copy of an object that is set aside."""
    return ASIDE_PREFIX + key


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


def encryption_key(key_id: str) -> str:
    """The key of the object that registers an encryption key. The id is hashed, because it may have any characters."""
    return ENCRYPTION_KEYS_PREFIX + hashlib.sha256(key_id.encode()).hexdigest()[:32]
