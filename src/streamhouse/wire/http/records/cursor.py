"""Cursor: how far a reader of all partitions is, in one short text.

Data path   streams and pages give **cursor**s; Last-Event-ID and `?cursor=` bring them back
Owns        the text: base64url of a version, the topic's id and the next offset of each partition
Leaves      reading from there to `tail`
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from typing import Final

from streamhouse.model.names import TopicId
from streamhouse.wire.http.errors import Unprocessable

VERSION: Final = 1
MAX_CHARS: Final = 65_536
_ID_BYTES: Final = 4
_MAX_SHIFT: Final = 63


def write_cursor(topic_id: TopicId, offsets: Sequence[int]) -> str:
    data = bytearray([VERSION])
    data += topic_id.bytes[:_ID_BYTES]
    for offset in offsets:
        while offset > 0x7F:
            data.append(offset & 0x7F | 0x80)
            offset >>= 7
        data.append(offset)
    return urlsafe_b64encode(data).decode().rstrip("=")


def read_cursor(text: str, topic_id: TopicId, *, partitions: int) -> list[int]:
    """The offsets of the first partitions; raises `Unprocessable` for anything that isn't a cursor of this topic."""
    try:
        data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        if urlsafe_b64encode(data).decode().rstrip("=") != text:
            raise ValueError
        offsets = _read_offsets(data[1 + _ID_BYTES :])
    except (ValueError, Base64Error):
        raise Unprocessable("this is no cursor") from None
    if data[:1] != bytes([VERSION]) or len(offsets) > partitions:
        raise Unprocessable("this is no cursor of this topic")
    if data[1 : 1 + _ID_BYTES] != topic_id.bytes[:_ID_BYTES]:
        raise Unprocessable("the cursor belongs to another topic, or to one of this name that was deleted")
    return offsets


def _read_offsets(data: bytes) -> list[int]:
    offsets: list[int] = []
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> _MAX_SHIFT:
                raise ValueError
            offsets.append(value)
            value = shift = 0
        else:
            shift += 7
            if shift > _MAX_SHIFT:
                raise ValueError
    if shift:
        raise ValueError
    return offsets
