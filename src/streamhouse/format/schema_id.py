"""Schema id prefix: the five bytes before a payload that is encoded with a schema of the registry.

Owns        a zero byte, then the schema's id in four bytes, as in Confluent's serializers
Leaves      payloads to their languages; scanning whole batches for ids to `format.record_codec`
"""

from typing import Final

MAGIC: Final = 0
PREFIX_BYTES: Final = 5


def prefix_of(schema_id: int) -> bytes:
    return bytes((MAGIC,)) + schema_id.to_bytes(4, "big")


def schema_id_of(data: bytes | None) -> int | None:
    """The schema id before a payload, signed as in Java; None if there is none."""
    if data is None or len(data) < PREFIX_BYTES or data[0] != MAGIC:
        return None
    return int.from_bytes(data[1:PREFIX_BYTES], "big", signed=True)
