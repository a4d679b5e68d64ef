"""Output of commands: tables on a terminal, plain columns in a pipe, JSON for scripts; formats of numbers and times.

Results go to stdout, notes and errors to stderr. An error is one line.
"""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import typer

from streamhouse.config import parse_number

if TYPE_CHECKING:
    from rich.console import Console


GAP: Final = 2


class Column(NamedTuple):
    name: str
    justify: Literal["left", "right"] = "left"
    style: str = ""
    fold: bool = False  # may break over several lines where the terminal is narrow
    drop: int = 0  # left out where the terminal is narrow, the highest first; 0 is never
    paint: Mapping[str, str] = MappingProxyType({})  # styles of cells that say exactly this


def on_terminal() -> bool:
    return sys.stdout.isatty()


def use_color() -> bool:
    return on_terminal() and not os.environ.get("NO_COLOR")


def console(*, stderr: bool = False) -> "Console":
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def print_line(text: str = "", *, bold: bool = False, dim: bool = False, color: str | None = None) -> None:
    """Print a line, with colours on a terminal."""
    typer.echo(typer.style(text, fg=color, bold=bold or None, dim=dim or None) if use_color() else text)


def print_note(text: str) -> None:
    """Print a note to stderr."""
    typer.echo(text, err=True)


def print_error(text: str) -> None:
    """Print an error as one line."""
    line = " ".join(text.split())
    plain = bool(os.environ.get("NO_COLOR")) or not sys.stderr.isatty()
    typer.echo(f"error: {line}" if plain else f"{typer.style('error:', fg='red', bold=True)} {line}", err=True)


class StatusLine:
    """One line about what a command waits for: rewritten on a terminal, printed again on a change elsewhere."""

    def __init__(self) -> None:
        self._shown = ""

    def show(self, text: str) -> None:
        if text == self._shown:
            return
        if sys.stderr.isatty():
            typer.echo(f"\r{text.ljust(len(self._shown))}", err=True, nl=False)
        else:
            print_note(text)
        self._shown = text

    def clear(self) -> None:
        if self._shown and sys.stderr.isatty():
            typer.echo(f"\r{' ' * len(self._shown)}\r", err=True, nl=False)
        self._shown = ""


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_result(content: object, text: str, as_json: bool) -> None:
    """Print what a command has done: JSON for scripts, or a line."""
    if as_json:
        print_json(content)
    else:
        print_line(text, color="green")


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, indent: int = 0) -> None:
    """Print a table. A terminal that is too narrow loses columns; a pipe gets all of them."""
    cells = [list(row) for row in rows]
    if on_terminal():
        _print_rich(columns, cells, indent)
    else:
        for line in plain_lines([c.name for c in columns], cells, [c.justify for c in columns]):
            typer.echo(" " * indent + line)


def _print_rich(columns: Sequence[Column], rows: Sequence[Sequence[str]], indent: int) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    screen = console()
    kept = select_columns(columns, rows, width=screen.width - indent)
    table = Table(
        box=SIMPLE_HEAD,
        header_style="bold",
        border_style="dim",
        collapse_padding=True,
        pad_edge=False,
        show_edge=False,
    )
    for column in (columns[at] for at in kept):
        overflow: Any = "fold" if column.fold else "ellipsis"
        table.add_column(
            column.name, justify=column.justify, style=column.style, overflow=overflow, no_wrap=not column.fold
        )
    for row in rows:
        table.add_row(*(Text(row[at], style=columns[at].paint.get(row[at], "")) for at in kept))
    screen.print(Padding(table, (0, 0, 0, indent)))


def select_columns(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int) -> list[int]:
    """Which columns to show."""
    widths = [max(len(column.name), *(len(row[at]) for row in rows), 0) for at, column in enumerate(columns)]
    kept = list(range(len(columns)))
    while sum(widths[at] for at in kept) + GAP * (len(kept) - 1) > width:
        dispensable = [at for at in kept if columns[at].drop]
        if not dispensable:
            break
        kept.remove(max(dispensable, key=lambda at: columns[at].drop))
    return kept


def plain_lines(names: Sequence[str], rows: Iterable[Sequence[str]], justify: Sequence[str]) -> list[str]:
    """Aligned columns with two spaces between, never cut: what a pipe gets."""
    cells = [list(names), *map(list, rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(names))]
    return [(" " * GAP).join(map(_aligned, row, widths, justify)).rstrip() for row in cells]


def _aligned(text: str, width: int, justify: str) -> str:
    return text.rjust(width) if justify == "right" else text.ljust(width)


def print_properties(facts: Iterable[tuple[str, str]]) -> None:
    """Names and values, one pair a line."""
    pairs = list(facts)
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        label = name.ljust(width)
        typer.echo(f"{typer.style(label, fg='cyan') if use_color() else label}  {value}")


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


def format_time(timestamp_ms: int) -> str:
    """Format as UTC; `-` for no timestamp, the number itself if it is out of a calendar's range."""
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def escape_bytes(data: bytes | None) -> str:
    """Bytes as text; control characters and invalid UTF-8 are escaped."""
    if data is None:
        return "null"
    return data.decode("utf-8", "backslashreplace").translate(_ESCAPES)


def parse_time(text: str, *, now_ms: int) -> int:
    """Milliseconds since 1970 for `-1h`, `1731672000000` or `2026-11-15T12:00`; raises `ValueError`.

    A time without a zone is the local one.
    """
    if text.startswith("-"):
        return now_ms - int(parse_number(text[1:], "_ms" if text[-1].isalpha() else None))
    if text.isascii() and text.isdigit():
        return int(text)
    return int(datetime.fromisoformat(text).timestamp() * 1000)
