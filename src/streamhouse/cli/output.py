"""Output: tables and colours on a terminal, plain columns in a pipe, JSON for scripts, one line for an error.

Owns        where text goes and what it looks like there
Leaves      what is said to the commands
"""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import typer

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


def coloured() -> bool:
    return on_terminal() and not os.environ.get("NO_COLOR")


def console(*, stderr: bool = False) -> "Console":
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def say(text: str = "", *, bold: bool = False, dim: bool = False, color: str | None = None) -> None:
    """A line for people; without colours where they are not wanted."""
    typer.echo(typer.style(text, fg=color, bold=bold or None, dim=dim or None) if coloured() else text)


def note(text: str) -> None:
    """Something to know that is no result."""
    typer.echo(text, err=True)


def fail(text: str) -> None:
    """The one line that an error gets."""
    line = " ".join(text.split())
    plain = bool(os.environ.get("NO_COLOR")) or not sys.stderr.isatty()
    typer.echo(f"error: {line}" if plain else f"{typer.style('error:', fg='red', bold=True)} {line}", err=True)


class StatusLine:
    """One line about what is being waited for: rewritten on a terminal, said again when it changes elsewhere."""

    def __init__(self) -> None:
        self._shown = ""

    def show(self, text: str) -> None:
        if text == self._shown:
            return
        if sys.stderr.isatty():
            typer.echo(f"\r{text.ljust(len(self._shown))}", err=True, nl=False)
        else:
            note(text)
        self._shown = text

    def clear(self) -> None:
        if self._shown and sys.stderr.isatty():
            typer.echo(f"\r{' ' * len(self._shown)}\r", err=True, nl=False)
        self._shown = ""


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, indent: int = 0) -> None:
    """A table that fits: a terminal that is too narrow loses columns, a pipe gets them all."""
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
    kept = fitting(columns, rows, width=screen.width - indent)
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


def fitting(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int) -> list[int]:
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


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Names and values, one pair a line."""
    pairs = list(facts)
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        label = name.ljust(width)
        typer.echo(f"{typer.style(label, fg='cyan') if coloured() else label}  {value}")
