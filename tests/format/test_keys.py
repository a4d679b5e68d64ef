"""Object keys go both ways, and nothing else is taken for one."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.errors import Internal
from streamhouse.format.object_keys import (
    MAX_SEQUENCE,
    SEGMENTS_PREFIX,
    WAL_PREFIX,
    ExternalSegmentName,
    ObjectName,
    SegmentOrigin,
    external_segment_key,
    parse_external_segment_key,
    parse_segment_key,
    parse_wal_key,
    segment_key,
    segment_origin,
    wal_key,
)
from streamhouse.model.external_commit import QueryId
from streamhouse.model.names import SessionId

SESSIONS = st.text("0123456789abcdef", min_size=32, max_size=32).map(lambda tail: SessionId(f"s-{tail}"))
SEQUENCES = st.integers(0, MAX_SEQUENCE)
UUID = "01234567-89ab-cdef-0123-456789abcdef"
SESSION = SessionId("s-" + "0123456789abcdef" * 2)


@given(SESSIONS, SEQUENCES)
def test_parsing_undoes_making(session: SessionId, sequence: int) -> None:
    assert parse_segment_key(segment_key(session, sequence)) == ObjectName(session, sequence)
    assert parse_wal_key(wal_key(session, sequence)) == ObjectName(session, sequence)


@given(SESSIONS, SEQUENCES)
def test_one_kind_of_key_is_not_the_other(session: SessionId, sequence: int) -> None:
    assert parse_segment_key(wal_key(session, sequence)) is None
    assert parse_wal_key(segment_key(session, sequence)) is None


@given(st.uuids().map(str), st.integers(0, 2**63 - 1), st.uuids())
def test_the_key_of_a_segment_to_be_placed_goes_both_ways(query: str, epoch: int, unique: uuid.UUID) -> None:
    key = external_segment_key(QueryId(query), epoch, unique.hex)
    assert parse_external_segment_key(key) == ExternalSegmentName(QueryId(query), epoch, unique.hex)
    assert (parse_segment_key(key), parse_wal_key(key)) == (None, None)
    assert parse_external_segment_key(key + "0") is None


@pytest.mark.parametrize(
    ("query", "epoch", "unique"),
    [("../../etc", 0, "0" * 32), ("{}", 0, "0" * 32), ("", 0, "0" * 32), (UUID, -1, "0" * 32), (UUID, 0, "../x")],
)
def test_what_a_client_chose_is_no_part_of_a_key(query: str, epoch: int, unique: str) -> None:
    with pytest.raises(Internal):
        external_segment_key(QueryId(query), epoch, unique)


@given(SESSIONS, SEQUENCES, SEQUENCES)
def test_listing_order_is_writing_order(session: SessionId, one: int, other: int) -> None:
    assert (segment_key(session, one) < segment_key(session, other)) == (one < other)


def test_keys_are_written_as_documented() -> None:
    assert segment_key(SESSION, 42) == f"segments/{SESSION}/00000000000000000042"
    assert wal_key(SESSION, 0) == f"wal/{SESSION}/00000000000000000000"


@given(st.text(max_size=80))
def test_a_key_that_parses_is_the_key_that_is_made(text: str) -> None:
    for key in (text, SEGMENTS_PREFIX + text, segment_key(SESSION, 7) + text, WAL_PREFIX + text):
        name = parse_segment_key(key)
        assert name is None or segment_key(*name) == key


@pytest.mark.parametrize(
    "key",
    [
        f"segments/{SESSION}/42",
        f"segments/{SESSION}/00000000000000000042\n",
        f"segments/{SESSION}/99999999999999999999",
        f"segments/{SESSION}/../00000000000000000042",
        f"segments/{SESSION.upper()}/00000000000000000042",
        f"/segments/{SESSION}/00000000000000000042",
        f"segments/{SESSION}/" + "\N{ARABIC-INDIC DIGIT ZERO}" * 18 + "42",
        "segments/",
        "",
    ],
)
def test_strange_keys_are_nobodys(key: str) -> None:
    assert parse_segment_key(key) is None


@pytest.mark.parametrize("session", ["", "s-", "../../etc", "s-" + "g" * 32, "s-" + "a" * 33, "s-" + "a" * 32 + "\n"])
def test_only_session_ids_make_keys(session: str) -> None:
    with pytest.raises(Internal):
        segment_key(SessionId(session), 0)


@pytest.mark.parametrize("sequence", [-1, MAX_SEQUENCE + 1])
def test_only_sequences_in_range_make_keys(sequence: int) -> None:
    with pytest.raises(Internal):
        wal_key(SESSION, sequence)


@pytest.mark.parametrize(
    ("key", "origin"),
    [
        (f"segments/{SESSION}/00000000000000000042", SegmentOrigin.FLUSHED),
        (f"segments/{SESSION}/01000000001000000000", SegmentOrigin.RECOVERED),
        (f"segments/{SESSION}/09223372036854775807", SegmentOrigin.RECOVERED),
        (f"segments/{SESSION}/09223372036854775808", SegmentOrigin.REWRITTEN),
        (f"wal/{SESSION}/00000000000000000042", SegmentOrigin.WAL),
        (f"placed/{UUID}/00000000000000000007/{'ab' * 16}", SegmentOrigin.EXTERNAL),
    ],
)
def test_a_key_shows_how_its_records_came_there(key: str, origin: SegmentOrigin) -> None:
    assert segment_origin(key) is origin
