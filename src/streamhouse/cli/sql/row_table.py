"""Rows of a result as a table that fits the terminal, or else as records.

Owns widths, cut and folded values, how null, bytes and nested values look; control characters are escaped Leaves
printing to the caller
"""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import typer
from rich.cells import cell_len, chop_cells, set_cell_size

from streamhouse.cli.output import escape_bytes
from streamhouse.cli.sql.query_request import Number

NULL: Final = "NULL"
GAP: Final = "  "
MIN_WIDTH: Final = 8
"""Minimum width of a column that is cut."""
LIVE_WIDTHS: Final = (8, 40)
"""Width of the columns of a live result, whose later rows are unknown."""
_NUMBERS: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")

Columns = Sequence[tuple[str, str]]
Style = Callable[[str], str]


class Cell(NamedTuple):
    text: str
    is_null: bool = False


def cell(value: Any, kind: str = "") -> Cell:
    """A value as one line of text."""
    if value is None:
        return Cell(NULL, True)
    if isinstance(value, bool):
        return Cell("true" if value else "false")
    if kind == "BINARY" and isinstance(value, str):
        return Cell(_bytes(value))
    text = value if isinstance(value, str) else _nested(value)
    return Cell(escape_bytes(text.encode("utf-8", "surrogatepass")))


def _bytes(value: str) -> str:
    data = base64.b64decode(value)
    try:
        data.decode()
    except UnicodeDecodeError:
        return "0x" + data.hex()
    return escape_bytes(data)


def _nested(value: Any) -> str:
    """JSON, with numbers as they were written."""
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(key, ensure_ascii=False)}: {_nested(item)}" for key, item in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_nested, value)) + "]"
    return str(value) if isinstance(value, Number) else json.dumps(value, ensure_ascii=False)


# --- tables


def table_lines(columns: Columns, rows: Sequence[Mapping[str, Any]], *, width: int | None, colours: bool) -> list[str]:
    """Format rows as a table; as records if the width is too small. `width` None: nothing is cut."""
    cells = [[cell(row.get(name), kind) for name, kind in columns] for row in rows]
    natural = [
        max(cell_len(name), *(cell_len(row[at].text) for row in cells), 1) for at, (name, _) in enumerate(columns)
    ]
    widths = natural if width is None else fit_widths(natural, width - len(GAP) * (len(columns) - 1))
    if widths is None:
        return record_lines(columns, rows, width=width, colours=colours)
    return [*head_lines(columns, widths, colours=colours), *(row_line(columns, row, widths, colours) for row in cells)]


def fit_widths(natural: Sequence[int], available: int) -> list[int] | None:
    """Reduce the widest columns until the table fits; None if columns would become too narrow."""
    if sum(natural) <= available:
        return list(natural)
    cap = max(natural)
    while cap >= MIN_WIDTH:
        widths = [min(width, cap) for width in natural]
        if sum(widths) <= available:
            return widths
        cap -= 1
    return None


def head_lines(columns: Columns, widths: Sequence[int], *, colours: bool) -> list[str]:
    bold, dim = _styles(colours)
    names = (_aligned(name, width, kind) for (name, kind), width in zip(columns, widths, strict=True))
    rules = ("─" * width for width in widths)
    return [GAP.join(bold(name) for name in names).rstrip(), dim(GAP.join(rules))]


def row_line(columns: Columns, row: Sequence[Cell], widths: Sequence[int], colours: bool) -> str:
    _, dim = _styles(colours)
    parts = []
    for (_, kind), part, width in zip(columns, row, widths, strict=True):
        text = _aligned(part.text, width, kind)
        parts.append(dim(text) if part.is_null else text)
    return GAP.join(parts).rstrip()


def _aligned(text: str, width: int, kind: str) -> str:
    length = cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…"
    padding = " " * (width - length)
    return padding + text if kind.startswith(_NUMBERS) else text + padding


def _styles(colours: bool) -> tuple[Style, Style]:
    if not colours:
        return str, str
    return lambda text: typer.style(text, bold=True), lambda text: typer.style(text, dim=True)


# --- records


def record_lines(
    columns: Columns, rows: Sequence[Mapping[str, Any]], *, width: int | None, colours: bool, first: int = 1
) -> list[str]:
    """Format each row as a block, one column a line; long values continue on the next lines."""
    _, dim = _styles(colours)
    names = max((cell_len(name) for name, _ in columns), default=0)
    names = min(names, max(MIN_WIDTH, (width or 80) // 3))
    lines: list[str] = []
    for number, row in enumerate(rows, first):
        title = f"─ row {number} "
        lines.append(dim(title + "─" * max(0, min(width or 60, 60) - len(title))))
        for name, kind in columns:
            lines += _folded(name, cell(row.get(name), kind), names, width, dim)
    return lines


def _folded(name: str, value: Cell, names: int, width: int | None, dim: Style) -> Iterator[str]:
    available = None if width is None else max(MIN_WIDTH, width - names - len(GAP))
    parts = chop_cells(value.text, available) if available is not None and value.text else [value.text]
    label = _aligned(name, names, "")
    for part in parts:
        yield (label + GAP + (dim(part) if value.is_null else part)).rstrip()
        label = " " * names


# --- live rows


class LiveTable:
    """Formats rows as they arrive; the first rows determine the widths."""

    def __init__(self, columns: Columns, *, width: int | None, colours: bool) -> None:
        self._columns, self._width, self._colours = columns, width, colours
        self._widths: list[int] | None = None
        self._count = 0
        self._as_records = False

    def lines(self, rows: Sequence[Mapping[str, Any]]) -> Iterable[str]:
        if not rows:
            return []
        cells = [[cell(row.get(name), kind) for name, kind in self._columns] for row in rows]
        head: list[str] = []
        if self._widths is None and not self._as_records:
            head = self._begin(cells)
        first, self._count = self._count + 1, self._count + len(rows)
        if self._widths is None:
            return record_lines(self._columns, rows, width=self._width, colours=self._colours, first=first)
        widths = self._widths
        return [*head, *(row_line(self._columns, row, widths, self._colours) for row in cells)]

    def _begin(self, cells: Sequence[Sequence[Cell]]) -> list[str]:
        low, high = LIVE_WIDTHS
        natural = [
            max(low, cell_len(name), min(high, max(cell_len(row[at].text) for row in cells)))
            for at, (name, _) in enumerate(self._columns)
        ]
        available = None if self._width is None else self._width - len(GAP) * (len(natural) - 1)
        self._widths = natural if available is None else fit_widths(natural, available)
        self._as_records = self._widths is None
        return [] if self._widths is None else head_lines(self._columns, self._widths, colours=self._colours)
