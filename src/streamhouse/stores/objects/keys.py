"""Which strings may be keys here, whatever a bucket would take.

Data path   every call of the embedded stores passes here first
Owns        the rule: parts of letters, digits, dot, underscore and dash, between single slashes; nothing that climbs
Leaves      which keys there are to `format.keys`
"""

import re
from typing import Final

from streamhouse.errors import Internal

MAX_KEY: Final = 1024
MAX_PART: Final = 255
_PART: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_PART}}}")


def is_part(name: str) -> bool:
    """Whether the name may stand between two slashes of a key."""
    return _PART.fullmatch(name) is not None and name not in (".", "..")


def check_key(key: str) -> None:
    """Raise `Internal` unless the key is well formed: keys are made by us, so a bad one is a bug."""
    if len(key) > MAX_KEY or not all(map(is_part, key.split("/"))):
        raise Internal(f"not an object key; key={key!r}")


def check_prefix(prefix: str) -> None:
    """Raise `Internal` unless the prefix is empty, or a key and a slash."""
    if prefix:
        check_key(prefix.removesuffix("/"))
        if not prefix.endswith("/"):
            raise Internal(f"not a prefix, which ends with a slash; prefix={prefix!r}")


def check_range(start: int, end: int) -> None:
    if not 0 <= start <= end:
        raise Internal(f"not a byte range; start={start} end={end}")


def check_length(length: int) -> None:
    if length < 0:
        raise Internal(f"not a length; length={length}")
