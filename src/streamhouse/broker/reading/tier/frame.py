"""Frame: a cached block as a file of its own, which says whose block it is and can be checked.

Data path   object store -> reader -> **encode_frame** -> folder -> **decode_frame** -> reader
Owns        the names and the bytes of cached files
Leaves      files to `tier.folder`; the block's own checksum, from the run's index, to `format.block`

Nobody but this module reads these bytes, and a file that it doesn't understand is a block that isn't cached: there is
nothing to migrate.
"""

import hashlib
import struct
from typing import Final, TypeAlias

from crc32c import crc32c

from streamhouse.errors import CorruptObject
from streamhouse.format.batch import Buffer

BlockKey: TypeAlias = tuple[str, int]
"""Where a block stands: its object's key, and its position in the object."""

MAGIC: Final = b"SHB1"
_HEAD: Final = struct.Struct(">4sI")  # magic, CRC-32C of everything behind it
_PLACE: Final = struct.Struct(">qH")  # position, length of the object's key, which follows
SUFFIX: Final = ".block"


def name_of(key: BlockKey) -> str:
    object_key, position = key
    return hashlib.blake2b(f"{object_key}@{position}".encode(), digest_size=16).hexdigest() + SUFFIX


def encode_frame(key: BlockKey, stored: Buffer) -> list[Buffer]:
    place = _place(key)
    return [_HEAD.pack(MAGIC, crc32c(stored, crc32c(place))), place, stored]


def frame_bytes(key: BlockKey, stored_bytes: int) -> int:
    return _HEAD.size + len(_place(key)) + stored_bytes


def decode_frame(data: Buffer, key: BlockKey) -> memoryview:
    """The stored bytes of this very block; raises `CorruptObject` for any others."""
    place = _place(key)
    if len(data) < _HEAD.size + len(place):
        raise CorruptObject(key[0], why=f"cached block ends after {len(data)} bytes")
    view = memoryview(data)
    magic, crc = _HEAD.unpack_from(view)
    if magic != MAGIC or view[_HEAD.size : _HEAD.size + len(place)] != place:
        raise CorruptObject(key[0], why="cached block is another one")
    if crc32c(view[_HEAD.size :]) != crc:
        raise CorruptObject(key[0], why="cached block doesn't match its checksum")
    return view[_HEAD.size + len(place) :]


def _place(key: BlockKey) -> bytes:
    object_key = key[0].encode()
    return _PLACE.pack(key[1], len(object_key)) + object_key
