"""Plot: one series as a small picture, in SVG, without a script and without anything from elsewhere.

Owns        axes, their numbers, the line
Leaves      which series, and what is said of it, to the page
"""

from collections.abc import Sequence
from html import escape
from typing import Final

WIDTH: Final = 420
HEIGHT: Final = 120
LEFT: Final = 52
BOTTOM: Final = 18
TOP: Final = 8
POINTS: Final = 400

Point = tuple[float, float]


def curve(points: Sequence[Point], *, colour: str = "--rate", since: float | None = None, title: str = "") -> str:
    """A line over time in seconds, from 0 to a little above the largest value; what is before `since` is shaded."""
    if not points:
        return f'<svg width="{WIDTH}" height="{HEIGHT}"><text x="10" y="20" class="quiet">no samples</text></svg>'
    points = _thinned(points)
    end = max(at for at, _ in points) or 1.0
    top = _round_up(max(value for _, value in points))

    def x(at: float) -> float:
        return LEFT + at / end * (WIDTH - LEFT - 6)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - value / top * (HEIGHT - BOTTOM - TOP)

    line = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in points)
    rules = "".join(
        f'<path class="grid" d="M{LEFT} {y(value):.1f} H{WIDTH - 6}"/>'
        f'<text class="quiet" x="{LEFT - 5}" y="{y(value) + 4:.1f}" text-anchor="end">{_short(value)}</text>'
        for value in (0.0, top / 2, top)
    )
    times = "".join(
        f'<text class="quiet" x="{x(at):.1f}" y="{HEIGHT - 4}" text-anchor="middle">{_clock(at)}</text>'
        for at in (0.0, end / 2, end * 0.97)
    )
    warm = "" if since is None else f'<rect x="{LEFT}" y="{TOP}" width="{max(0.0, x(min(since, end)) - LEFT):.1f}" '
    warm += "" if since is None else f'height="{HEIGHT - BOTTOM - TOP}" fill="var(--line)" opacity="0.5"/>'
    drawn = f'<polyline points="{line}" fill="none" stroke="var({colour})" stroke-width="1.4"/>'
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img"><title>{escape(title)}</title>'
        f"{warm}{rules}{times}{drawn}</svg>"
    )


def bars(rows: Sequence[tuple[str, float]], *, unit: str, colour: str = "--rate") -> str:
    """A table with a bar for each number."""
    most = max((value for _, value in rows), default=0.0) or 1.0
    cells = "".join(
        f'<tr><td>{escape(name)}</td><td class="number">{value:,.0f} {unit}</td><td class="wide">'
        f'<div class="bar" style="width:{value / most * 100:.1f}%;background:var({colour})"></div></td></tr>'
        for name, value in rows
    )
    return f"<table>{cells}</table>"


def _thinned(points: Sequence[Point]) -> Sequence[Point]:
    step = max(1, len(points) // POINTS)
    return points[::step]


def _round_up(value: float) -> float:
    """The next number above that is easy to read."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** (len(f"{int(value)}") - 1) if value >= 1 else 0.1
    return next(unit * step for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if unit * step >= value)


def _short(value: float) -> str:
    for size, name in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1e3 if name == 'k' else size):g}{name}"
    return f"{value:g}"


def _clock(at: float) -> str:
    return f"{int(at) // 60}:{int(at) % 60:02}"
