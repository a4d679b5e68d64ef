"""Fields of settings: the base class of sections, and the syntax of sizes, durations, switches and addresses.

Owns        the units implied by a setting's name (`_bytes`, `_s`, `_ms`), and parsing values with units
Leaves      the settings to `settings`, `listeners` and `pipelines`; naming the source of a bad text to `load`
"""

import ipaddress
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec import Meta, Struct

UNITS: Final[Mapping[str, Mapping[str, float]]] = {
    "_bytes": {"b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40},
    "_ms": {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000},
    "_s": {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400},
}
EXAMPLES: Final[Mapping[str, str]] = {"_bytes": "64MiB", "_ms": "100ms", "_s": "30s"}

_QUANTITY: Final = re.compile(r"([+-]?[0-9][0-9_]*(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)\s*([a-z]*)", re.IGNORECASE)
_SWITCHES: Final[Mapping[str, bool]] = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """`HOST:PORT` or `[::1]:PORT`; raises `ValueError`."""
    host, colon, port = text.strip().rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if bracketed else host
    if not colon or not bare or any(c.isspace() for c in bare) or (":" in bare and not bracketed):
        raise ValueError("must be HOST:PORT")
    if not (port.isascii() and port.isdigit() and int(port) <= 65_535):
        raise ValueError("the port must be a number from 0 to 65535")
    return Address(bare, int(port))


MAPPED: Final = "::ffff:"


def peer_host(host: str) -> str:
    """The address of a client as rules and limits name it: a socket for both kinds of addresses shows 10.0.0.1 as
    ::ffff:10.0.0.1."""
    return host.removeprefix(MAPPED) if "." in host else host


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """Whether only this machine reaches this host; of host names, only localhost counts."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def unit_of(name: str) -> str | None:
    """The unit that a setting's name ends with."""
    return next((suffix for suffix in UNITS if name.endswith(suffix)), None)


def parse_number(text: str, unit: str | None) -> int | float:
    """Parse a number; with `unit`, also a size or a duration such as 64MiB or 30s. Raises `ValueError`."""
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise ValueError("not a number")
    digits, word = match.groups()
    number = float(digits) if any(c in digits.lower() for c in ".e") else int(digits)
    if word:
        factors = UNITS.get(unit or "", {})
        if word.lower() not in factors:
            raise ValueError(f"unknown unit {word!r}{_known(factors)}")
        number *= factors[word.lower()]
    if not math.isfinite(number):
        raise ValueError("not a finite number")
    return int(number) if number == int(number) else number


def _known(units: Mapping[str, float]) -> str:
    return f", known are {', '.join(units)}" if units else ""


def parse_switch(text: str) -> bool:
    """Parse true/false, yes/no, on/off, 1/0; raises `ValueError`."""
    word = text.strip().lower()
    if word not in _SWITCHES:
        raise ValueError("neither true nor false")
    return _SWITCHES[word]


MIB: Final = 1024 * 1024


def about(text: str, *, gt: float | None = None, ge: float | None = None, le: float | None = None) -> Meta:
    if ge is not None:
        return Meta(description=text, ge=ge, le=le)
    return Meta(description=text, gt=gt, le=le)


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group of settings; each field carries its own description."""


POSTGRES_EXAMPLE: Final = "postgresql://user:password@host:5432,host2:5432/database"


def is_postgres(metadata_url: str) -> bool:
    return metadata_url.partition(":")[0].lower() in ("postgresql", "postgres")
