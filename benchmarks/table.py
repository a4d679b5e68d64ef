"""Table: medians as tables that people read, one for each measure, in the terminal and in Markdown.

Data path   `results` -> **table** -> the terminal, `readme`
Owns        which numbers stand beside each other, and how they are written
Leaves      medians to `results`
"""

from collections.abc import Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.measure import METRICS
from benchmarks.results import Row, Run, is_better, rows

OURS: Final = "streamhouse"
THEIRS: Final = "kafka"
SHORT: Final = {OURS: "SH", THEIRS: "Kafka"}
# A client that is this busy on one core may be what limits the rate.
BUSY_CLIENT_CORES: Final = 0.9


def number(value: float | None) -> str:
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def measures(run: Run) -> dict[str, list[Row]]:
    by_measure: dict[str, list[Row]] = {}
    for row in rows(run):
        if METRICS[row.metric].shown:
            by_measure.setdefault(row.measure, []).append(row)
    return dict(sorted(by_measure.items(), key=lambda item: item[0] == "footprint"))


def pivot(
    of_measure: Sequence[Row], peers: Sequence[str]
) -> tuple[list[str], list[list[str]], list[list[bool | None]]]:
    """Headers, cells, and for each cell whether it is a ratio in our favour (None: not a ratio)."""
    metrics = list(dict.fromkeys(row.metric for row in of_measure))
    scenarios = list(dict.fromkeys(row.scenario for row in of_measure))
    found = {(row.scenario, row.metric): row for row in of_measure}
    headers = [""]
    for metric in metrics:
        headers += [f"{label(metric)} {SHORT.get(peer, peer)}" if len(peers) > 1 else label(metric) for peer in peers]
        headers += ["SH : Kafka"] * both(peers)
    cells = [[scenario] for scenario in scenarios]
    favours: list[list[bool | None]] = [[None] for _ in scenarios]
    for line, favour, scenario in zip(cells, favours, scenarios, strict=True):
        for metric in metrics:
            _append(line, favour, found.get((scenario, metric)), peers)
    return headers, cells, favours


def both(peers: Sequence[str]) -> bool:
    return OURS in peers and THEIRS in peers


def label(metric: str) -> str:
    unit = METRICS[metric].unit
    return f"{metric} {unit}" if unit in {"ms", "s", "MB"} else unit


def _append(line: list[str], favour: list[bool | None], row: Row | None, peers: Sequence[str]) -> None:
    line += [number(row.medians.get(peer)) if row else "" for peer in peers]
    favour += [None] * len(peers)
    if both(peers):
        ratio = row.ratio(OURS, THEIRS) if row else None
        line.append(f"{ratio:.2f}" if ratio is not None else "")
        favour.append(is_better(row.metric, ratio) if row and ratio is not None else None)


def show(run: Run, console: Console) -> None:
    """The whole run on the terminal: green where StreamHouse is ahead, red where Kafka is."""
    peers = list(run.peers)
    for measure, of_measure in measures(run).items():
        table = Table(title=measure, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("", no_wrap=True)
        for header in ["", *(SHORT.get(peer, peer) for peer in peers), *["ratio"] * both(peers)]:
            table.add_column(header, justify="right" if header else "left", no_wrap=True)
        last = ""
        for row in of_measure:
            table.add_row("" if row.scenario == last else row.scenario, label(row.metric), *_coloured(row, peers))
            last = row.scenario
        console.print(table)
    for note in [*run.notes, *busy_clients(run)]:
        console.print(f"[yellow]{escape(note)}[/]", highlight=False)


def _coloured(row: Row, peers: Sequence[str]) -> list[str]:
    cells = [number(row.medians.get(peer)) for peer in peers]
    ratio = row.ratio(OURS, THEIRS)
    if both(peers):
        colour = "green" if ratio is not None and is_better(row.metric, ratio) else "red"
        cells.append(f"[{colour}]{ratio:.2f}[/]" if ratio is not None else "")
    return cells


def markdown(run: Run) -> str:
    """The same tables for a page; ratios in StreamHouse's favour are bold."""
    parts = []
    for measure, of_measure in measures(run).items():
        headers, cells, favours = pivot(of_measure, list(run.peers))
        lines = [f"### {measure}", "", _line(headers), _line(["---"] + ["---:"] * (len(headers) - 1))]
        for line, favour in zip(cells, favours, strict=True):
            lines.append(_line([f"**{c}**" if f else c for c, f in zip(line, favour, strict=True)]))
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def busy_clients(run: Run) -> list[str]:
    """A word for each rate that the client itself may have limited."""
    return [
        f"{peer} in {row.scenario}: the client was busy with {cores:.1f} cores, the broker may be faster than this"
        for row in rows(run)
        if row.metric == "client busy"
        for peer, cores in row.medians.items()
        if cores > BUSY_CLIENT_CORES
    ]
