"""Plot: a run as one picture: rates and CPU as bars, latencies as distributions, memory and start-up beside them.

Data path   `results` -> **plot** -> a PNG beside the run's JSON
Owns        colours, axes and what stands where
Leaves      medians to `results`
"""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator

from benchmarks.results import CurveSample, Row, Run, rows

COLOURS: Final = {"streamhouse": "#0f766e", "kafka": "#b4b8bf"}
NAMES: Final = {"streamhouse": "StreamHouse", "kafka": "Apache Kafka"}
INK: Final = "#1f2937"
STYLE: Final[Any] = {
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9ca3af",
    "xtick.color": INK,
    "ytick.color": INK,
}


def draw(run: Run, path: Path) -> Path:
    with matplotlib.rc_context(STYLE):
        layout = ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.08)
        figure, axes = plt.subplots(4, 2, figsize=(15, 19), layout=layout, height_ratios=(8, 8, 5, 6))
        _draw_bars(axes, rows(run), list(run.peers))
        acks = [curve for curve in run.curves if curve.measure == "latency" and "acks=all" in curve.scenario]
        distributions(axes[3][0], acks, "Produce to ack")
        distributions(axes[3][1], [c for c in run.curves if c.measure == "end-to-end"], "Produce to consumer")
        _head(figure, run)
        figure.savefig(path, dpi=110)
        plt.close(figure)
    return path


def _draw_bars(axes: Any, found: Sequence[Row], peers: Sequence[str]) -> None:
    for column, role in enumerate(("produce", "consume")):
        rates, costs = (_of(found, "throughput", metric, role) for metric in ("bytes", "cpu"))
        bars(axes[0][column], rates, peers, f"{role.capitalize()}, MB/s (more is better)")
        bars(axes[1][column], costs, peers, f"{role.capitalize()}, broker CPU s/GB (less is better)")
    bars(axes[2][0], _of(found, "clients", "records"), peers, "librdkafka clients, records/s (more is better)")
    bars(axes[2][1], _of(found, "footprint", "memory"), peers, "Memory, MB (less is better)")


def _of(found: Sequence[Row], measure: str, metric: str, beginning: str = "") -> list[Row]:
    return [r for r in found if r.measure == measure and r.metric == metric and r.scenario.startswith(beginning)]


def bars(axis: Any, shown: Sequence[Row], peers: Sequence[str], title: str) -> None:
    """Horizontal bars, one group for each scenario, its number at the end of each bar."""
    axis.set_title(title)
    if not shown:
        _nothing(axis)
        return
    height = 0.8 / max(1, len(peers))
    for place, peer in enumerate(peers):
        values = [row.medians.get(peer, 0.0) for row in shown]
        spots = [group + (place - (len(peers) - 1) / 2) * height for group in range(len(shown))]
        drawn = axis.barh(spots, values, height * 0.92, color=COLOURS.get(peer, "#64748b"), label=NAMES.get(peer, peer))
        _label(axis, drawn, shown, peer)
    prefix = _common_word([row.scenario for row in shown])
    axis.set_yticks(range(len(shown)), [row.scenario.removeprefix(prefix) for row in shown])
    axis.invert_yaxis()
    axis.margins(x=0.12)
    axis.tick_params(axis="y", length=0)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axis.grid(axis="x", color="#e5e7eb", linewidth=0.8)
    axis.set_axisbelow(True)


def _label(axis: Any, drawn: Any, shown: Sequence[Row], peer: str) -> None:
    """A whisker from the least to the greatest repetition, and the median behind it."""
    for bar, row in zip(drawn, shown, strict=True):
        middle = bar.get_y() + bar.get_height() / 2
        low, high = row.spans.get(peer, (0.0, 0.0))
        if low < high:
            axis.plot([low, high], [middle, middle], color=INK, linewidth=1.1, solid_capstyle="butt", alpha=0.55)
        text = _short(row.medians[peer]) if peer in row.medians else "not measured"
        spot = (max(high, bar.get_width()), middle)
        axis.annotate(text, spot, xytext=(4, 0), textcoords="offset points", va="center", fontsize=8.5)


def distributions(axis: Any, curves: Sequence[CurveSample], title: str) -> None:
    """The share of records that still wait, over time: both axes logarithmic, so that tails can be seen."""
    axis.set_title(f"{title}, share still waiting (left is better)")
    if not curves:
        _nothing(axis)
        return
    for peer in dict.fromkeys(curve.peer for curve in curves):
        mine = [curve.quantiles_ms for curve in curves if curve.peer == peer]
        middle = [statistics.median(values) for values in zip(*mine, strict=True)]
        left = [1 - place / len(middle) for place in range(len(middle))]
        colour = COLOURS.get(peer, "#64748b")
        for single in mine:
            axis.plot(single, left, color=colour, linewidth=0.8, alpha=0.45)
        axis.plot(middle, left, color=colour, linewidth=2.4, label=NAMES.get(peer, peer))
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_ylim(0.001, 1.15)
    axis.set_xlabel("milliseconds")
    axis.set_yticks([1, 0.5, 0.1, 0.01, 0.001], ["all", "p50", "p90", "p99", "p99.9"])
    axis.minorticks_off()
    axis.xaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.grid(color="#e5e7eb", linewidth=0.8)


def _nothing(axis: Any) -> None:
    axis.text(0.5, 0.5, "not measured in this run", ha="center", va="center", color="#9ca3af", transform=axis.transAxes)
    axis.set_axis_off()


def _short(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.3g} M"
    if value >= 1e4:
        return f"{value / 1e3:.3g} k"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _common_word(scenarios: Sequence[str]) -> str:
    """The first word, when all begin with it: the title says it already."""
    words = {scenario.split(" ", 1)[0] for scenario in scenarios}
    return f"{words.pop()} " if len(words) == 1 and len(scenarios) > 1 else ""


def _head(figure: Any, run: Run) -> None:
    versions = " and ".join(run.peers.values())
    repeated = max((sample.repetition for sample in run.samples), default=0) + 1
    figure.suptitle(
        f"{versions}, one broker each on loopback\n"
        f"{run.machine} · {run.plan} run of {run.began_at[:10]} at {run.commit} · "
        f"medians of {repeated}, whiskers from least to greatest",
        fontsize=13,
        x=0.01,
        ha="left",
    )
    handles = [Rectangle((0, 0), 1, 1, color=COLOURS.get(peer, "#64748b")) for peer in run.peers]
    labels = [NAMES.get(peer, peer) for peer in run.peers]
    figure.legend(handles, labels, loc="outside upper right", ncols=len(labels), frameon=False, fontsize=12)
