"""Keys of views: one text that a key is found by, and one that sorts as its values do.

Data path   broker.views -> **view key** -> columns of the metadata store's rows
Owns        both texts; reading a key's values from the text of a query
Leaves      what keys are for to `broker.views`, keeping them to the metadata store

A key is found by the texts of its values, whatever their types: what a URL says has none. Numbers are in the order of
their size, texts in that of their UTF-8 bytes.
"""

import json
import struct
from collections.abc import Sequence
from typing import Any, Final

_MIDDLE: Final = 1 << 79
_END: Final = b"\x00\x01"
_NUL: Final = b"\x00\x02"


def found_by(values: Sequence[Any]) -> str:
    """The text by which a key is found: the same for 1 and "1", as they come from a URL. Null is not "null"."""
    return json.dumps([None if value is None else _text(value) for value in values], ensure_ascii=True)


def sorted_by(values: Sequence[Any]) -> str:
    """Hex digits in the order of keys; equal only where keys are, but for numbers beyond any column's."""
    return b"".join(map(_place, values)).hex()


def asked_for(texts: Sequence[str]) -> str:
    """`found_by` of a key whose values are given as texts; objects and arrays as JSON."""
    return json.dumps([_same_json(text) for text in texts], ensure_ascii=True)


def _same_json(text: str) -> str:
    if text[:1] in ("{", "["):
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


def _place(value: Any) -> bytes:
    if value is None:
        return b"\x01"
    if isinstance(value, bool):
        return b"\x03" if value else b"\x02"
    if isinstance(value, int | float):
        return b"\x04" + _number(value)
    kind = b"\x05" if isinstance(value, str) else b"\x06"
    return kind + _text(value).encode("utf-8", "surrogatepass").replace(b"\x00", _NUL) + _END


def _number(value: int | float) -> bytes:
    """As a double, its bits turned so that they sort; then whole, for numbers that no double can tell apart."""
    clamped = max(-_MIDDLE, min(_MIDDLE - 1, value))
    [bits] = struct.unpack(">Q", struct.pack(">d", float(clamped) + 0.0))
    turned = bits ^ (0xFFFF_FFFF_FFFF_FFFF if bits >> 63 else 1 << 63)
    return struct.pack(">Q", turned) + (int(clamped // 1) + _MIDDLE).to_bytes(10, "big")
