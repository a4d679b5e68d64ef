"""Encoded values in columns of the metadata store: members and lag of a group, keys of a view.

Members are MessagePack: an array of the version and the members; a member is an array of its fields in the order of
`_Member`. A later version may append fields to a member: readers skip what they don't know.

The lag of a group is MessagePack too: an array of the version, the samples (milliseconds since the one before, records,
milliseconds of lag or null) and the waiting partitions (topic, number, committed offset, since when).

A view's key is stored twice: as a lookup key, made of the texts of its values without their types (a URL has no types),
and as a sort key, which sorts numbers by value and texts by their UTF-8 bytes.
"""

import json
import re
import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from streamhouse.errors import Internal
from streamhouse.model.group import OfferedProtocol, StoredMember
from streamhouse.model.group_lag import LagHistory, LagSample, WaitingPartition
from streamhouse.model.names import TopicPartition

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


class _Lag(msgspec.Struct, array_like=True, frozen=True):
    version: int
    samples: tuple[tuple[int, int, int | None], ...]
    waiting: tuple[tuple[str, int, int, int], ...]


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Members)
_LAG_DECODER: Final = msgspec.msgpack.Decoder(_Lag)


def encode_lag(history: LagHistory) -> bytes:
    before_ms = 0
    samples = list[tuple[int, int, int | None]]()
    for each in history.samples:
        samples.append((each.at_ms - before_ms, each.records, each.lag_ms))
        before_ms = each.at_ms
    waiting = tuple((*each.name, each.committed, each.since_ms) for each in history.waiting)
    return _ENCODER.encode(_Lag(VERSION, tuple(samples), waiting))


def decode_lag(group_id: str, data: bytes) -> LagHistory:
    """Decode a group's lag. Damaged bytes, or those of another version, result in an empty history, because the lag is
    measured again."""
    try:
        decoded = _LAG_DECODER.decode(data)
    except msgspec.DecodeError:
        return LagHistory(group_id)
    if decoded.version != VERSION:
        return LagHistory(group_id)
    at_ms, samples = 0, list[LagSample]()
    for since_ms, records, lag_ms in decoded.samples:
        at_ms += since_ms
        samples.append(LagSample(at_ms, records, lag_ms))
    waiting = tuple(
        WaitingPartition(TopicPartition(topic, number), committed, since_ms)
        for topic, number, committed, since_ms in decoded.waiting
    )
    return LagHistory(group_id, tuple(samples), waiting)


def encode_members(members: Iterable[StoredMember]) -> bytes:
    return _ENCODER.encode(_Members(VERSION, tuple(_packed(member) for member in members)))


def decode_members(data: bytes) -> tuple[StoredMember, ...]:
    """Decode members; raises `Internal` for other bytes."""
    try:
        decoded = _DECODER.decode(data)
    except msgspec.DecodeError as error:
        raise Internal(f"group members can't be read; bytes={len(data)} why={error}") from None
    if decoded.version != VERSION:
        raise Internal(f"group members are of another version; version={decoded.version} supported={VERSION}")
    return tuple(_member(member) for member in decoded.members)


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


_MIDDLE: Final = 1 << 79
_END: Final = b"\x00\x01"
_NUL: Final = b"\x00\x02"
_JSON_TYPE: Final = re.compile(r"struct|array|map|double|float|decimal\((?:\d|1[0-5]),", re.IGNORECASE)
"""Types whose values in a key aren't texts, and can be written in several ways; decimals of more digits are texts."""


def view_lookup_key(values: Sequence[Any]) -> str:
    """The lookup key: the same for 1 and "1", because a URL has no types; null and "null" differ."""
    return json.dumps([None if value is None else _text(value) for value in values], ensure_ascii=True)


def view_sort_key(values: Sequence[Any]) -> str:
    """The sort key as hex digits; equal only for equal keys, apart from numbers that no column type can hold."""
    return b"".join(map(_sort_key, values)).hex()


def parse_view_lookup_key(texts: Sequence[str], types: Sequence[str | None]) -> str:
    """`view_lookup_key` of a key whose values are given as texts. `types` are those of its columns in Spark's words:
    objects, arrays and fractions are JSON, and so is what looks like an object or array where the type isn't known."""
    return json.dumps([_given(*each) for each in zip(texts, types, strict=True)], ensure_ascii=True)


def _given(text: str, kind: str | None) -> str:
    if text[:1] in ("{", "[") if kind is None else _JSON_TYPE.match(kind):
        try:
            return _text(json.loads(text))
        except (ValueError, RecursionError):
            return text
    return text


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _sort_key(value: Any) -> bytes:
    if value is None:
        return b"\x01"
    if isinstance(value, bool):
        return b"\x03" if value else b"\x02"
    if isinstance(value, int | float):
        return b"\x04" + _number(value)
    kind = b"\x05" if isinstance(value, str) else b"\x06"
    return kind + _text(value).encode("utf-8", "surrogatepass").replace(b"\x00", _NUL) + _END


def _number(value: int | float) -> bytes:
    """Encode a number: as a double with sortable bits, then as an integer, for numbers that are equal as doubles."""
    clamped = max(-_MIDDLE, min(_MIDDLE - 1, value))
    [bits] = struct.unpack(">Q", struct.pack(">d", float(clamped) + 0.0))
    turned = bits ^ (0xFFFF_FFFF_FFFF_FFFF if bits >> 63 else 1 << 63)
    return struct.pack(">Q", turned) + (int(clamped // 1) + _MIDDLE).to_bytes(10, "big")
