"""Words: numbers, sizes, times and bytes as people read them, and times as people write them.

Owns        how values look in tables and lines
Leaves      what is shown to the commands
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from streamhouse.config import parse_number

_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_ESCAPES: Final[Mapping[int, str]] = {
    number: {9: "\\t", 10: "\\n", 13: "\\r"}.get(number, f"\\x{number:02x}")
    for number in (*range(32), *range(127, 160))
}


def size(number: float) -> str:
    """Bytes: `312 B`, `1.5 MiB`."""
    for unit in _SIZES:
        if abs(number) < 1024 or unit == _SIZES[-1]:
            break
        number /= 1024
    return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"


def count(number: float) -> str:
    return f"{number:,.0f}"


def counted(number: int, noun: str) -> str:
    """`1 record`, `2,000 records`."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def seconds(number: float) -> str:
    return f"{number * 1000:.0f} ms" if number < 1 else f"{number:.1f} s"


def when(timestamp_ms: int) -> str:
    """UTC, or the bare number where no calendar reaches; nothing for no timestamp."""
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def shown(data: bytes | None) -> str:
    """Bytes as text that can't steer the terminal: control characters and broken UTF-8 are escaped."""
    if data is None:
        return "null"
    return data.decode("utf-8", "backslashreplace").translate(_ESCAPES)


def parse_when(text: str, *, now_ms: int) -> int:
    """Milliseconds since 1970 for `-1h`, `1731672000000` or `2026-11-15T12:00`; raises `ValueError`.

    A time without a zone is the local one.
    """
    if text.startswith("-"):
        return now_ms - int(parse_number(text[1:], "_ms" if text[-1].isalpha() else None))
    if text.isascii() and text.isdigit():
        return int(text)
    return int(datetime.fromisoformat(text).timestamp() * 1000)
