"""Trace headers: which records of a batch carry a `traceparent`."""

from typing import Final

from streamhouse.format.batch import BatchHeader, Buffer
from streamhouse.format.record_codec import Origin, Part, decode

NAME: Final = "traceparent"
VALUE_BYTES: Final = 55
MAX_SEARCHED: Final = 10_000
"""Records of a batch that are looked at, the first."""

_ENCODED: Final = bytes([2 * len(NAME)]) + NAME.encode() + bytes([2 * VALUE_BYTES])
"""The name and the value's length as a record has them; what a batch without traces does not contain."""
_MAX_BYTES: Final = 2**62


def find_traceparents(payload: Buffer, header: BatchHeader, *, limit: int) -> list[tuple[int, str]]:
    """Offset deltas and header values of the first `limit` records with a trace, of decompressed and valid records."""
    if header.is_control or _ENCODED not in bytes(payload):
        return []
    found: list[tuple[int, str]] = []
    part = Part(0, 0, MAX_SEARCHED, _MAX_BYTES, 0)
    _, _, records, _ = decode(payload, header.record_count, Origin(0, 0, None), from_offset=0, part=part)
    for record in records:
        for name, value in record.headers:
            if name == NAME and value is not None and len(value) == VALUE_BYTES:
                found.append((record.offset, value.decode("latin-1")))
                break
        if len(found) == limit:
            break
    return found
