"""Sql mistakes: what is wrong in a text, with the line and a caret under the place.

Owns        how a mistake looks
Leaves      finding it to `format.statements` and the worker
"""

from collections.abc import Sequence
from typing import Final

import typer
from rich.cells import cell_len

from streamhouse.cli.words import shown
from streamhouse.errors import Mistake

TAB: Final = "    "
MAX_LINE: Final = 160
BEFORE: Final = 60
"""Of a long line, so much is shown in front of the place."""


def mistake_lines(text: str, mistakes: Sequence[Mistake], *, colours: bool, source: str = "") -> list[str]:
    """For each mistake: what, the line of the text, a caret, and what to do."""
    lines: list[str] = []
    for each in mistakes:
        lines += _lines(text.split("\n"), each, colours, source)
    return lines


def _lines(text: Sequence[str], mistake: Mistake, colours: bool, source: str) -> list[str]:
    paint = typer.style if colours else _unpainted
    place = f"line {mistake.line}, column {mistake.column}" if mistake.line else ""
    where = ", ".join(part for part in (source, place) if part)
    said = f"{paint('error:', fg='red', bold=True)} {mistake.text}" + (f" ({where})" if where else "")
    lines = [said]
    if 0 < mistake.line <= len(text):
        line, at = _around(text[mistake.line - 1], max(0, mistake.column - 1))
        number = str(mistake.line)
        lines.append(f"  {paint(number + ' |', fg='cyan')} {line}")
        lines.append(f"  {' ' * len(number)} {paint('|', fg='cyan')} {' ' * at}{paint('^', fg='red', bold=True)}")
    if mistake.hint:
        lines.append(f"  {paint('hint:', fg='green')} {mistake.hint}")
    return lines


def _around(line: str, at: int) -> tuple[str, int]:
    """The line as it is shown, and how many cells stand before the place."""
    before, behind = (shown(part.replace("\t", TAB).encode()) for part in (line[:at], line[at:]))
    if cell_len(before) > MAX_LINE - BEFORE:
        before = "…" + before[-BEFORE:]
    return (before + behind)[:MAX_LINE], cell_len(before)


def _unpainted(text: str, **_: object) -> str:
    return text
