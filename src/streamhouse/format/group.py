"""Group members as bytes: the column in which the metadata store keeps a group's members.

Data path   broker.groups -> metadata store -> **group** -> row, and back when a shard is loaded
Owns        both directions of the encoding, and its version
Leaves      the rest of the group's row to the metadata store

MessagePack: an array of the version and the members; a member is an array of its fields in the order of `_Member`. A
later version may add fields at a member's end: readers pass over what they don't know.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from streamhouse.errors import Internal
from streamhouse.model.group import OfferedProtocol, StoredMember

VERSION: Final = 1


class _Member(msgspec.Struct, array_like=True, frozen=True):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


class _Members(msgspec.Struct, array_like=True, frozen=True):
    version: int
    members: tuple[_Member, ...]


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Members)


def encode_members(members: Iterable[StoredMember]) -> bytes:
    return _ENCODER.encode(_Members(VERSION, tuple(_packed(member) for member in members)))


def decode_members(data: bytes) -> tuple[StoredMember, ...]:
    """The members; raise `Internal` for bytes that nobody of ours wrote."""
    try:
        found = _DECODER.decode(data)
    except msgspec.DecodeError as error:
        raise Internal(f"group members can't be read; bytes={len(data)} why={error}") from None
    if found.version != VERSION:
        raise Internal(f"group members are of another version; version={found.version} supported={VERSION}")
    return tuple(_member(member) for member in found.members)


def _packed(member: StoredMember) -> _Member:
    return _Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.session_timeout_ms,
        member.rebalance_timeout_ms,
        member.protocols,
        member.assignment,
    )


def _member(packed: _Member) -> StoredMember:
    return StoredMember(
        member_id=packed.member_id,
        instance_id=packed.instance_id,
        client_id=packed.client_id,
        client_host=packed.client_host,
        session_timeout_ms=packed.session_timeout_ms,
        rebalance_timeout_ms=packed.rebalance_timeout_ms,
        protocols=tuple(OfferedProtocol(name, metadata) for name, metadata in packed.protocols),
        assignment=packed.assignment,
    )
