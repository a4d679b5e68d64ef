"""Group members survive the way to the metadata store and back."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.errors import Internal
from streamhouse.format.metadata_values import VERSION, decode_members, encode_members
from streamhouse.model.group import OfferedProtocol, StoredMember

TIMEOUTS = st.integers(min_value=0, max_value=2**31 - 1)
MEMBERS = st.builds(
    StoredMember,
    member_id=st.text(),
    instance_id=st.none() | st.text(),
    client_id=st.text(),
    client_host=st.text(),
    session_timeout_ms=TIMEOUTS,
    rebalance_timeout_ms=TIMEOUTS,
    protocols=st.lists(st.builds(OfferedProtocol, st.text(), st.binary())).map(tuple),
    assignment=st.binary(),
)


@given(st.lists(MEMBERS).map(tuple))
def test_members_come_back_as_they_were(members: tuple[StoredMember, ...]) -> None:
    assert decode_members(encode_members(members)) == members


@given(st.binary())
def test_other_bytes_are_refused_and_nothing_else_happens(data: bytes) -> None:
    with pytest.raises(Internal):
        decode_members(b"\xc1" + data)


def test_another_version_is_refused() -> None:
    with pytest.raises(Internal, match="version=2"):
        decode_members(msgspec.msgpack.encode([VERSION + 1, []]))


def test_fields_that_a_later_release_adds_are_passed_over() -> None:
    member = ["m", None, "c", "h", 1, 2, [["range", b"x"]], b"y", "something new"]
    [result] = decode_members(msgspec.msgpack.encode([VERSION, [member]]))
    assert (result.member_id, result.protocols, result.assignment) == ("m", (OfferedProtocol("range", b"x"),), b"y")
